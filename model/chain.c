/* The chain of a block drafter. */
#include "model/chain.h"

int chain_open(struct chain *chain, int rank, int max_rows, size_t stride, struct backend *be,
               struct error *err)
{
    size_t n = (size_t)be->ops->capacity(be, max_rows), r = (size_t)rank;
    int rc = 0;
    *chain = (struct chain){.rank = rank, .capacity = n, .stride = stride};
    TRY(backend_buffer(be, &chain->embedded, n * r * sizeof(float), err));
    TRY(backend_buffer(be, &chain->h, n * r * sizeof(uint16_t), err));
    TRY(backend_buffer(be, &chain->bias, n * stride * sizeof(float), err));
out:
    return rc;
}

void chain_close(struct chain *chain, struct backend *be)
{
    const struct backend_ops *ops = be->ops;
    size_t n = chain->capacity, r = (size_t)chain->rank;
    if (chain->embedded) ops->buffer_close(be, chain->embedded, n * r * sizeof(float));
    if (chain->h) ops->buffer_close(be, chain->h, n * r * sizeof(uint16_t));
    if (chain->bias) ops->buffer_close(be, chain->bias, n * chain->stride * sizeof(float));
    *chain = (struct chain){0};
}

void chain_forward(const struct chain *chain, struct backend *be, const struct backend_step *step,
                   const struct matrix *second, float *logits)
{
    const struct backend_ops *ops = be->ops;
    ops->embed(be, step, chain->embedded);
    ops->rmsnorm(be, chain->embedded, NULL, 0, step->n, chain->rank, chain->h);
    ops->matmul(be, second, chain->h, (size_t)chain->rank, chain->bias, chain->stride, step->n);
    ops->add_logits(be, step, logits, chain->stride, chain->bias);
}
