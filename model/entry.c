/* A head's rows on their way to the first layer. */
#include "model/entry.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int entry_open(struct entry *entry, const struct head_config *head, int dim, int max_tokens,
               struct backend *be, struct error *err)
{
    int width = fc_width(head), rc = 0;
    size_t n = (size_t)be->ops->capacity(be, max_tokens), d = (size_t)dim;
    *entry = (struct entry){.head = head,
                            .dim = dim,
                            .width = width > dim ? width : dim,
                            .max_tokens = max_tokens,
                            .capacity = n};
    TRY(fc_check_width(head, err));
    if (head->block.size == 0) {
        TRY(backend_buffer(be, &entry->embedded, n * d * sizeof(float), err));
        TRY(backend_buffer(be, &entry->joined, n * 2 * d * sizeof(uint16_t), err));
    }
    if (head->entry.has_fc) {
        bool is_normed = head->entry.norms != FEATURES_PLAIN;
        TRY(fc_open(&entry->fc, head, dim, max_tokens, is_normed, be, err));
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
    if (entry->embedded) ops->buffer_close(be, entry->embedded, n * d * sizeof(float));
    if (entry->joined) ops->buffer_close(be, entry->joined, n * 2 * d * sizeof(uint16_t));
    fc_close(&entry->fc, be);
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
    size_t from = (size_t)(is_recycled ? entry->dim : fc_width(entry->head));
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

/* x = fc of the features, for the rows that have the target's, and `rounded` as well, which is
 * scratch. Features without norms are read as they came, because they are bf16 already. */
static void fuse(const struct entry *entry, struct backend *be, const struct backend_step *step,
                 const struct entry_weights *w, float eps, float *x, uint16_t *rounded,
                 size_t rounded_stride)
{
    const struct fc *fc = &entry->fc;
    const uint16_t *in = fc->normed;
    int width = fc_width(entry->head);
    if (entry->head->entry.norms == FEATURES_PLAIN) {
        in = be->ops->step_features(be, step);
        width = step->feature_width;
    } else {
        be->ops->feature_rows(be, step, fc->features, width, false);
        fc_norm(fc, be, w, eps, step->n);
    }
    fc_multiply(fc, be, w, in, (size_t)width, step->n, x, rounded, rounded_stride);
}

void entry_forward(const struct entry *entry, struct backend *be, const struct backend_step *step,
                   const struct model_weights *weights, float norm_eps, float *x, uint16_t *h)
{
    const struct backend_ops *ops = be->ops;
    const struct entry_weights *w = &weights->entry;
    const struct head_entry *e = &entry->head->entry;
    size_t dim = (size_t)entry->dim;
    if (e->has_fc && entry->has_target) {
        /* `joined` is free until the rows are joined */
        fuse(entry, be, step, w, norm_eps, x, entry->joined, 2 * dim);
    }
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

void entry_forward_context(const struct entry *entry, struct backend *be,
                           const struct backend_step *step, const struct entry_weights *w,
                           float norm_eps, float *x, uint16_t *h)
{
    size_t dim = (size_t)entry->dim;
    fuse(entry, be, step, w, norm_eps, x, h, dim);
    const struct norm_part context = {.x = x,
                                      .x_stride = dim,
                                      .weight = w->feature_norm.data,
                                      .eps = norm_eps,
                                      .n = step->n,
                                      .dim = entry->dim,
                                      .h = h,
                                      .h_stride = dim};
    be->ops->norm_part(be, &context);
}
