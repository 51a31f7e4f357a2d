/* Heads of places: one feature of a lane in, logits of several places out. Rows of one place lie
 * side by side, so that a matrix is read once for all lanes. */
#include "model/places.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* The CUDA backend takes no wider rows in norm_part, so a wider hidden layer is taken in parts. */
enum { PART_WIDTH_MAX = 32768 };

int places_rows(const struct head_config *head, int max_lanes, const struct backend *be)
{
    return be->ops->capacity(be, head->places.n * be->ops->capacity(be, max_lanes));
}

int places_open(struct places *p, const struct head_config *head, int max_lanes, struct backend *be,
                struct error *err)
{
    int hidden_dim = head->places.hidden_dim, rc = 0;
    *p = (struct places){.config = &head->places,
                         .dim = head->entry.feature_dim,
                         .max_lanes = max_lanes,
                         .capacity = (size_t)be->ops->capacity(be, max_lanes),
                         .n_rows = (size_t)places_rows(head, max_lanes, be)};
    size_t dim = (size_t)p->dim, hidden = (size_t)hidden_dim;
    if (hidden_dim % WIDTH_UNIT) {
        return error_set(err, ERR_UNSUPPORTED,
                         "a hidden layer of width %d: the width must be a multiple of %d",
                         hidden_dim, WIDTH_UNIT);
    }
    TRY(backend_buffer(be, &p->x, p->capacity * dim * sizeof *p->x, err));
    TRY(backend_buffer(be, &p->added, p->capacity * dim * sizeof *p->added, err));
    TRY(backend_buffer(be, &p->h, p->n_rows * dim * sizeof *p->h, err));
    if (hidden) {
        TRY(backend_buffer(be, &p->hidden, p->capacity * hidden * sizeof *p->hidden, err));
        TRY(backend_buffer(be, &p->activated, p->capacity * hidden * sizeof *p->activated, err));
    }
    TRY(mem_array(&p->host, (size_t)max_lanes * dim, sizeof *p->host, err));
    TRY(mem_array(&p->zeros, (size_t)max_lanes, sizeof *p->zeros, err));
    TRY(mem_array(&p->row_of, (size_t)max_lanes, sizeof *p->row_of, err));
out:
    return rc;
}

void places_close(struct places *p, struct backend *be)
{
    const struct backend_ops *ops = be->ops;
    size_t n = p->capacity, dim = (size_t)p->dim;
    size_t hidden = p->config ? (size_t)p->config->hidden_dim : 0;
    if (p->x) ops->buffer_close(be, p->x, n * dim * sizeof *p->x);
    if (p->added) ops->buffer_close(be, p->added, n * dim * sizeof *p->added);
    if (p->h) ops->buffer_close(be, p->h, p->n_rows * dim * sizeof *p->h);
    if (p->hidden) ops->buffer_close(be, p->hidden, n * hidden * sizeof *p->hidden);
    if (p->activated) ops->buffer_close(be, p->activated, n * hidden * sizeof *p->activated);
    free(p->host);
    free(p->zeros);
    free(p->row_of);
    *p = (struct places){0};
}

void places_begin(struct places *p, const struct backend *be, const struct forward_lane *lanes,
                  int n_lanes)
{
    int n_alike[PLACES_MAX + 1] = {0}; /* lanes so far, by the places that they want */
    bool is_host = be->ops->is_host;
    assert(n_lanes <= p->max_lanes);
    memset(p->counts, 0, sizeof p->counts);
    p->n_lanes = n_lanes;
    p->n_places = 0;
    for (int i = 0; i < n_lanes; i++) {
        assert(lanes[i].n_tokens <= p->config->n);
        for (int place = 0; place < lanes[i].n_tokens; place++) {
            p->counts[place]++;
        }
        if (lanes[i].n_tokens > p->n_places) p->n_places = lanes[i].n_tokens;
    }
    for (int i = 0; i < n_lanes; i++) {
        int n = lanes[i].n_tokens; /* lanes that want more come before */
        p->row_of[i] = is_host ? p->counts[n] + n_alike[n]++ : i;
    }
    for (int place = 0; place < p->n_places; place++) {
        if (!is_host) p->counts[place] = n_lanes;
        p->first[place + 1] = p->first[place] + be->ops->capacity(be, p->counts[place]);
    }
}

void places_take(struct places *p, int lane, const uint16_t *feature)
{
    size_t dim = (size_t)p->dim;
    assert(lane < p->n_lanes);
    memcpy(p->host + (size_t)p->row_of[lane] * dim, feature, dim * sizeof *feature);
}

int places_row(const struct places *p, int lane, int place)
{
    return p->first[place] + p->row_of[lane];
}

/* activated = relu(hidden g + hidden_bias). */
static void activate_hidden(const struct places *p, struct backend *be, int n,
                            const struct places_weights *w, const uint16_t *g)
{
    int width = p->config->hidden_dim;
    be->ops->matmul(be, &w->hidden, g, (size_t)p->dim, p->hidden, (size_t)width, n);
    for (int first = 0; first < width; first += PART_WIDTH_MAX) {
        int left = width - first;
        const struct norm_part part = {.x = p->hidden + first,
                                       .x_stride = (size_t)width,
                                       .bias = w->hidden_bias.data + first,
                                       .function = PART_RELU,
                                       .n = n,
                                       .dim = left < PART_WIDTH_MAX ? left : PART_WIDTH_MAX,
                                       .h = p->activated + first,
                                       .h_stride = (size_t)width};
        be->ops->norm_part(be, &part);
    }
}

/* x += added, plus bias where there is one; h = bf16(x). */
static void add(const struct places *p, struct backend *be, int n, const float *bias, uint16_t *h)
{
    const struct slice_sums sums = {
        .data = p->added, .stride = (size_t)n * (size_t)p->dim, .n_parts = 1};
    const struct residual_norm args = {
        .x = p->x, .sums = &sums, .bias = bias, .n = n, .dim = p->dim, .h = h};
    be->ops->residual_norm(be, &args);
}

static void forward_block(const struct places *p, struct backend *be, int n,
                          const struct place_weights *w, int block, uint16_t *h)
{
    size_t dim = (size_t)p->dim;
    int stored = p->config->n_stored_blocks == 1 ? 0 : block;
    const struct norm_part silu = {.x = p->added,
                                   .x_stride = dim,
                                   .bias = w->biases[stored].data,
                                   .function = PART_SILU,
                                   .n = n,
                                   .dim = p->dim};
    be->ops->matmul(be, &w->blocks[stored], h, dim, p->added, dim, n);
    be->ops->norm_part(be, &silu);
    add(p, be, n, NULL, h);
}

static void forward(const struct places *p, struct backend *be, const struct places_step *s,
                    const struct backend_step *step)
{
    const struct backend_ops *ops = be->ops;
    const struct places_weights *all = &s->weights->places;
    const struct model_config *cfg = s->cfg;
    size_t dim = (size_t)p->dim;
    int n_rows = p->first[p->n_places];
    for (int place = 0; place < p->n_places; place++) {
        const struct place_weights *w = &all->places[place];
        size_t first = (size_t)p->first[place];
        int n = p->counts[place];
        uint16_t *h = p->h + first * dim;
        const struct norm_part take = {
            .x = p->x, .x_stride = dim, .n = n, .dim = p->dim, .h = h, .h_stride = dim};
        ops->feature_rows(be, step, p->x, p->dim, false);
        ops->norm_part(be, &take);
        if (p->config->hidden_dim) {
            size_t width = (size_t)p->config->hidden_dim;
            if (place == 0) activate_hidden(p, be, n, all, h);
            ops->matmul(be, &w->output, p->activated, width, p->added, dim, n);
            add(p, be, n, w->output_bias.data, h);
        }
        for (int i = 0; i < p->config->n_blocks; i++) {
            forward_block(p, be, n, w, i, h);
        }
        if (!p->config->has_logits) continue;
        ops->matmul(be, &w->logits, h, dim, s->logits + first * s->stride, s->stride, n);
    }
    if (!p->config->has_logits) {
        ops->matmul(be, &s->weights->head, p->h, dim, s->logits, s->stride, n_rows);
    }
    if (cfg->logit_scale == 0 && cfg->logit_softcap == 0) return;
    ops->adjust_logits(be, s->logits, s->stride, n_rows, cfg->logit_scale, cfg->logit_softcap);
}

int places_forward(struct places *p, struct backend *be, const struct places_step *s,
                   struct error *err)
{
    int rc = 0;
    bool replayed = false, again = true;
    /* The operations that a device records depend on the number of places, and on nothing else but
     * that of the rows. */
    const struct backend_step step = {.embedding = &s->weights->embedding,
                                      .tokens = p->zeros,
                                      .n = p->n_lanes,
                                      .shape = s->shape,
                                      .features = p->host,
                                      .recycled = p->zeros,
                                      .feature_width = p->dim,
                                      .variant = p->n_places};
    TRY(be->ops->begin(be, &step, &replayed, err));
    while (again) {
        if (!replayed) forward(p, be, s, &step);
        TRY(be->ops->end(be, &again, err));
    }
out:
    return rc;
}

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
