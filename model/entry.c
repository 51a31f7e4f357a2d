/* A head's rows on their way to the first layer. */
#include "model/entry.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The CUDA backend norms no wider rows. */
enum { NORM_WIDTH_MAX = 32768 };

static int features_width(const struct head_config *head)
{
    return head->entry.n_features * head->entry.feature_dim;
}

int entry_open(struct entry *entry, const struct head_config *head, int dim, int max_tokens,
               struct backend *be, struct error *err)
{
    int width = features_width(head), rc = 0;
    size_t n = (size_t)be->ops->capacity(be, max_tokens), d = (size_t)dim, w = (size_t)width;
    *entry = (struct entry){.head = head,
                            .dim = dim,
                            .width = width > dim ? width : dim,
                            .max_tokens = max_tokens,
                            .capacity = n};
    if (head->entry.feature_dim % WIDTH_UNIT || width > NORM_WIDTH_MAX) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%d features of width %d: the width must be a multiple of %d, and all "
                         "together at most %d wide",
                         head->entry.n_features, head->entry.feature_dim, WIDTH_UNIT,
                         NORM_WIDTH_MAX);
    }
    TRY(backend_buffer(be, &entry->embedded, n * d * sizeof(float), err));
    TRY(backend_buffer(be, &entry->joined, n * 2 * d * sizeof(uint16_t), err));
    if (head->entry.has_fc && head->entry.norms != FEATURES_PLAIN) {
        TRY(backend_buffer(be, &entry->features, n * w * sizeof(float), err));
        TRY(backend_buffer(be, &entry->normed, n * w * sizeof(uint16_t), err));
    }
    size_t n_host = (size_t)max_tokens;
    TRY(mem_array(&entry->host, n_host * (size_t)entry->width, sizeof *entry->host, err));
    TRY(mem_array(&entry->recycled, n_host, sizeof *entry->recycled, err));
out:
    return rc;
}

void entry_close(struct entry *entry, struct backend *be)
{
    const struct backend_ops *ops = be->ops;
    size_t n = entry->capacity, d = (size_t)entry->dim;
    size_t w = entry->head ? (size_t)features_width(entry->head) : 0;
    if (entry->embedded) ops->buffer_close(be, entry->embedded, n * d * sizeof(float));
    if (entry->joined) ops->buffer_close(be, entry->joined, n * 2 * d * sizeof(uint16_t));
    if (entry->features) ops->buffer_close(be, entry->features, n * w * sizeof(float));
    if (entry->normed) ops->buffer_close(be, entry->normed, n * w * sizeof(uint16_t));
    free(entry->host);
    free(entry->recycled);
    *entry = (struct entry){0};
}

void entry_begin(struct entry *entry)
{
    entry->has_target = false;
}

void entry_place(struct entry *entry, int first, int n, const uint16_t *features, bool is_recycled)
{
    size_t from = (size_t)(is_recycled ? entry->dim : features_width(entry->head));
    size_t width = (size_t)entry->width;
    assert(first + n <= entry->max_tokens);
    entry->has_target |= n > 0 && !is_recycled;
    for (int i = 0; i < n; i++) {
        uint16_t *row = entry->host + (size_t)(first + i) * width;
        memcpy(row, features + (size_t)i * from, from * sizeof *row);
        memset(row + from, 0, (width - from) * sizeof *row);
        entry->recycled[first + i] = is_recycled;
    }
}

/* The features of all rows, normed together or apart. */
static void norm_features(const struct entry *entry, struct backend *be,
                          const struct backend_step *step, const struct entry_weights *w, float eps)
{
    const struct head_entry *e = &entry->head->entry;
    size_t width = (size_t)features_width(entry->head);
    bool is_apart = e->norms == FEATURES_NORMED_APART;
    int n_parts = is_apart ? e->n_features : 1;
    be->ops->feature_rows(be, step, entry->features, (int)width, false);
    for (int i = 0; i < n_parts; i++) {
        size_t first = (size_t)i * (size_t)e->feature_dim;
        const struct norm_part part = {.x = entry->features + first,
                                       .x_stride = width,
                                       .weight = is_apart ? w->feature_norms[i].data
                                                          : w->features_norm.data,
                                       .eps = eps,
                                       .n = step->n,
                                       .dim = is_apart ? e->feature_dim : (int)width,
                                       .h = entry->normed + first,
                                       .h_stride = width};
        be->ops->norm_part(be, &part);
    }
}

/* x = fc of the features, for the rows that have the target's. Features without norms are read as
 * they came, because they are bf16 already. */
static void fuse(const struct entry *entry, struct backend *be, const struct backend_step *step,
                 const struct entry_weights *w, float eps, float *x)
{
    const struct head_entry *e = &entry->head->entry;
    size_t dim = (size_t)entry->dim;
    if (e->norms == FEATURES_PLAIN) {
        be->ops->matmul(be, &w->fc, be->ops->step_features(be, step), (size_t)step->feature_width,
                        x, dim, step->n);
    } else {
        norm_features(entry, be, step, w, eps);
        be->ops->matmul(be, &w->fc, entry->normed, (size_t)features_width(entry->head), x, dim,
                        step->n);
    }
    if (!e->has_fc_bias) return;
    const struct norm_part bias = {
        .x = x, .x_stride = dim, .bias = w->fc_bias.data, .n = step->n, .dim = entry->dim};
    be->ops->norm_part(be, &bias);
}

void entry_forward(const struct entry *entry, struct backend *be, const struct backend_step *step,
                   const struct model_weights *weights, float norm_eps, float *x, uint16_t *h)
{
    const struct backend_ops *ops = be->ops;
    const struct entry_weights *w = &weights->entry;
    const struct head_entry *e = &entry->head->entry;
    size_t dim = (size_t)entry->dim;
    if (e->has_fc && entry->has_target) fuse(entry, be, step, w, norm_eps, x);
    ops->feature_rows(be, step, x, entry->dim, e->has_fc);
    ops->embed(be, step, entry->embedded);
    const struct norm_part token = {.x = entry->embedded,
                                    .x_stride = dim,
                                    .weight = w->token_norm.data,
                                    .eps = norm_eps,
                                    .n = step->n,
                                    .dim = entry->dim,
                                    .h = entry->joined + (e->feature_first ? dim : 0),
                                    .h_stride = 2 * dim};
    const struct norm_part feature = {.x = x,
                                      .x_stride = dim,
                                      .weight = w->feature_norm.data,
                                      .eps = norm_eps,
                                      .n = step->n,
                                      .dim = entry->dim,
                                      .h = entry->joined + (e->feature_first ? 0 : dim),
                                      .h_stride = 2 * dim,
                                      .keeps = e->keeps_normed};
    ops->norm_part(be, &token);
    ops->norm_part(be, &feature);
    if (!e->has_join) return;
    ops->matmul(be, &w->join, entry->joined, 2 * dim, x, dim, step->n);
    const struct norm_part input = {.x = x,
                                    .x_stride = dim,
                                    .bias = w->join_bias.data,
                                    .weight = weights->layers[0].attention_norm.data,
                                    .eps = norm_eps,
                                    .n = step->n,
                                    .dim = entry->dim,
                                    .h = h,
                                    .h_stride = dim};
    ops->norm_part(be, &input);
}
