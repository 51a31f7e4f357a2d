/* Reading tensors into a backend's matrices and vectors. */
#include "model/loader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Valid until the next call. */
static const char *tensor_name(struct loader *ld, int layer, const char *tail)
{
    char own[HEAD_NAME_BYTES];
    if (layer < 0) return tail;
    snprintf(own, sizeof own, "model.layers.%d.", layer);
    if (ld->head) head_layer_name(ld->head, layer, own);
    snprintf(ld->name, sizeof ld->name, "%s%s", own, tail);
    return ld->name;
}

int loader_add_part(struct loader *ld, struct matrix_source *source, int layer,
                    const struct tensor_part *t)
{
    const char *name = tensor_name(ld, layer, t->tail);
    ld->tensors[source->n_parts] = digest_table_find(ld->digests, name);
    struct matrix_part *part = &source->parts[source->n_parts++];
    *part = (struct matrix_part){
        .first_row = t->first_row, .n_rows = t->n_rows, .first_col = t->first_col};
    int rc = checkpoint_find(ld->ck, name, t->all_rows, t->all_cols, &part->weight, ld->err);
    enum weight_form form = rc ? WEIGHTS_BF16 : weight_form_of(&part->weight);
    if (rc || form == WEIGHTS_BF16 || form == WEIGHTS_FP8) return rc;
    if (part->weight.stored.order) return 0;
    if (t->first_col % QUANT_GROUP == 0 && source->n_in % QUANT_GROUP == 0) return 0;
    return error_set(ld->err, ERR_UNSUPPORTED,
                     "%s: %s is cut into slices of %d, which is no multiple of the group of %d",
                     checkpoint_name(ld->ck), name, source->n_in, QUANT_GROUP);
}

/* Columns of the matrix that have elements of the tensor: not the vocabulary's tail. */
static int filled_rows(const struct matrix_part *part)
{
    int n_left = part->weight.n_rows - part->first_row;
    if (part->row_list) return part->n_listed;
    if (n_left < 0) return 0;
    return part->n_rows < n_left ? part->n_rows : n_left;
}

static void keep_digests(struct loader *ld, const struct matrix_source *source)
{
    for (int i = 0; i < source->n_parts; i++) {
        const struct matrix_part *part = &source->parts[i];
        uint64_t row = (uint64_t)(part->row_list ? part->row_list[0] : part->first_row);
        const struct part_digest digest = {
            .sum = source->digests[i],
            .first = row * (uint64_t)part->weight.n_cols + (uint64_t)part->first_col,
            .n = (uint64_t)filled_rows(part) * (uint64_t)source->n_in};
        if (digest.n) digest_table_add(ld->digests, ld->tensors[i], &digest);
    }
}

int loader_digest_matrix(struct loader *ld, struct matrix_source *source)
{
    uint64_t digests[MATRIX_PARTS_MAX] = {0};
    int rc = 0;
    source->digests = digests;
    TRY(ld->be->ops->matrix_digest(ld->be, source, ld->err));
    keep_digests(ld, source);
out:
    return rc;
}

int loader_open_matrix(struct loader *ld, struct matrix *m, struct matrix_source *source)
{
    uint64_t digests[MATRIX_PARTS_MAX] = {0};
    int rc = 0;
    if (ld->is_witness) return loader_digest_matrix(ld, source);
    source->digests = digests;
    TRY(ld->be->ops->matrix_open(ld->be, m, source, ld->err));
    keep_digests(ld, source);
out:
    *ld->bytes += m->bytes;
    return rc;
}

static void digest_vector(struct loader *ld, const struct weight *weight,
                          const struct vector_part *part, const char *name)
{
    const struct part_digest digest = {weight_digest_vector(weight, part->first, part->n),
                                       (uint64_t)part->first, (uint64_t)part->n};
    digest_table_add(ld->digests, digest_table_find(ld->digests, name), &digest);
}

int loader_open_vector(struct loader *ld, struct vector *out, int layer,
                       const struct vector_part *parts, int n_parts)
{
    int rc = 0, total = 0, at = 0;
    float *host = NULL;
    for (int i = 0; i < n_parts; i++) {
        total += parts[i].n;
    }
    TRY(mem_array(&host, (size_t)total, sizeof *host, ld->err));
    for (int i = 0; i < n_parts; i++) {
        struct weight weight;
        const char *name = tensor_name(ld, layer, parts[i].tail);
        TRY(checkpoint_find(ld->ck, name, 1, parts[i].n_all, &weight, ld->err));
        digest_vector(ld, &weight, &parts[i], name);
        weight_read_f32(&weight, 0, parts[i].first, parts[i].n, host + at);
        for (int k = 0; k < parts[i].n && parts[i].offset != 0; k++) {
            host[at + k] += parts[i].offset;
        }
        at += parts[i].n;
    }
    if (ld->is_witness) goto out;
    out->n = total;
    TRY(backend_buffer(ld->be, &out->data, (size_t)total * sizeof *host, ld->err));
    ld->be->ops->upload(ld->be, out->data, host, (size_t)total * sizeof *host);
out:
    free(host);
    return rc;
}

int loader_open_norm(struct loader *ld, struct vector *out, int layer, const char *tail, int n_all,
                     int first, int n)
{
    const struct vector_part part = {tail, n_all, first, n, ld->cfg->norm_offset ? 1.0f : 0.0f};
    return loader_open_vector(ld, out, layer, &part, 1);
}

void loader_close_vector(struct backend *be, struct vector *v)
{
    if (v->data) be->ops->buffer_close(be, v->data, (size_t)v->n * sizeof *v->data);
    *v = (struct vector){0};
}

int loader_copy_table(struct backend *be, const struct weight *table, struct table_copy *copy,
                      struct error *err)
{
    size_t free_bytes = 0, all_bytes = 0;
    int rc = 0;
    bool is_plain =
        table->dtype == DTYPE_BF16 || table->dtype == DTYPE_F16 || table->dtype == DTYPE_F32;
    *copy = (struct table_copy){0};
    if (be->ops->is_host || !is_plain || !table->data || table->paired_rows) return 0;
    copy->bytes = weight_data_bytes(table);
    TRY(be->ops->memory(be, &free_bytes, &all_bytes, err));
    copy->lacks_room = free_bytes < copy->bytes + BACKEND_STEPS_BYTES;
    if (copy->lacks_room) return 0;
    weight_expect(table, 0, table->n_rows, 0, table->n_cols);
    TRY(backend_buffer(be, &copy->data, copy->bytes, err));
    be->ops->upload(be, copy->data, table->data, copy->bytes);
out:
    return rc;
}

void loader_close_copy(struct backend *be, struct table_copy *copy)
{
    if (copy->data) be->ops->buffer_close(be, copy->data, copy->bytes);
    *copy = (struct table_copy){0};
}
