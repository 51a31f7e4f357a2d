/* A head's first matrix. */
#include "model/fc.h"

/* The CUDA backend norms no wider rows. */
enum { NORM_WIDTH_MAX = 32768 };

int fc_check_width(const struct head_config *head, struct error *err)
{
    if (head->entry.feature_dim % WIDTH_UNIT == 0 && fc_width(head) <= NORM_WIDTH_MAX) return 0;
    return error_set(err, ERR_UNSUPPORTED,
                     "%d features of width %d: the width must be a multiple of %d, and all "
                     "together at most %d wide",
                     head->entry.n_features, head->entry.feature_dim, WIDTH_UNIT, NORM_WIDTH_MAX);
}

int fc_open(struct fc *fc, const struct head_config *head, int dim, int max_tokens, bool has_rows,
            struct backend *be, struct error *err)
{
    int rc = 0;
    size_t n = (size_t)be->ops->capacity(be, max_tokens), width = (size_t)fc_width(head);
    *fc = (struct fc){.head = head, .dim = dim, .capacity = n};
    if (!has_rows) return 0;
    TRY(backend_buffer(be, &fc->features, n * width * sizeof *fc->features, err));
    TRY(backend_buffer(be, &fc->normed, n * width * sizeof *fc->normed, err));
out:
    return rc;
}

void fc_close(struct fc *fc, struct backend *be)
{
    const struct backend_ops *ops = be->ops;
    size_t n = fc->head ? fc->capacity * (size_t)fc_width(fc->head) : 0;
    if (fc->features) ops->buffer_close(be, fc->features, n * sizeof *fc->features);
    if (fc->normed) ops->buffer_close(be, fc->normed, n * sizeof *fc->normed);
    *fc = (struct fc){0};
}

void fc_norm(const struct fc *fc, struct backend *be, const struct entry_weights *w, float eps,
             int n)
{
    const struct head_entry *e = &fc->head->entry;
    size_t width = (size_t)fc_width(fc->head);
    bool is_apart = e->norms == FEATURES_NORMED_APART;
    int n_parts = is_apart ? e->n_features : 1;
    for (int i = 0; i < n_parts; i++) {
        size_t first = (size_t)i * (size_t)e->feature_dim;
        const struct norm_part part = {.x = fc->features + first,
                                       .x_stride = width,
                                       .weight = is_apart ? w->feature_norms[i].data
                                                          : w->features_norm.data,
                                       .eps = eps,
                                       .n = n,
                                       .dim = is_apart ? e->feature_dim : (int)width,
                                       .h = fc->normed + first,
                                       .h_stride = width};
        be->ops->norm_part(be, &part);
    }
}

void fc_multiply(const struct fc *fc, struct backend *be, const struct entry_weights *w,
                 const uint16_t *in, size_t in_stride, int n, float *x, uint16_t *rounded,
                 size_t rounded_stride)
{
    size_t dim = (size_t)fc->dim;
    be->ops->matmul(be, &w->fc, in, in_stride, x, dim, n);
    const struct norm_part round = {.x = x,
                                    .x_stride = dim,
                                    .bias = w->fc_bias.data,
                                    .n = n,
                                    .dim = fc->dim,
                                    .h = rounded,
                                    .h_stride = rounded_stride,
                                    .keeps = true};
    be->ops->norm_part(be, &round);
}
