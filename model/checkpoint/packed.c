/* Matrices that a folder stores in 8 or 4 bits (config_quant.c). Instead of X.weight there are
 *   X.weight_packed  I32 [n_rows][n_cols * bits / 32]  q + 2^(bits - 1), the lowest k in the lowest bits
 *   X.weight_scale   BF16 [n_rows][n_cols / group]
 *   X.weight_shape   I64 [2], which says nothing that the config does not
 * Little endian makes of the integers a stream of bytes, or of nibbles, in the order of k. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "model/checkpoint/internal.h"

bool checkpoint_is_packed(const struct checkpoint *ck, const char *name)
{
    static const char tail[] = "_proj.weight";
    size_t len = strlen(name), tail_len = sizeof tail - 1;
    return ck->cfg.stored != WEIGHTS_BF16 && strncmp(name, "model.layers.", 13) == 0 &&
           len > tail_len && strcmp(name + len - tail_len, tail) == 0;
}

/* The bytes of tensor NAMEsuffix, which must have this type and shape. */
static int find_part(const struct checkpoint *ck, const char *name, const char *suffix,
                     const char *dtype, int n_rows, int n_cols, const uint8_t **data,
                     struct error *err)
{
    char full[2 * TENSOR_NAME_BYTES];
    snprintf(full, sizeof full, "%s%s", name, suffix);
    const struct tensor *tensor = checkpoint_tensor(ck, full);
    if (!tensor) {
        return error_set(err, ERR_FORMAT, "%s lacks the tensor %.100s", ck->name, full);
    }
    const struct safetensors_entry *entry = tensor->entry;
    if (strcmp(entry->dtype, dtype) != 0) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: tensor %s is of dtype %s, which is not supported (%s is)", ck->name,
                         full, entry->dtype, dtype);
    }
    if (entry->n_dims != 2 || entry->dims[0] != (uint64_t)n_rows ||
        entry->dims[1] != (uint64_t)n_cols) {
        return error_set(err, ERR_FORMAT,
                         "%s: tensor %s has not the shape [%d, %d] that the config asks for",
                         ck->name, full, n_rows, n_cols);
    }
    *data = tensor->weight.data;
    return 0;
}

int checkpoint_find_packed(const struct checkpoint *ck, const char *name, int n_rows, int n_cols,
                           struct weight *weight, struct error *err)
{
    bool is_int8 = ck->cfg.stored == WEIGHTS_INT8;
    int group = ck->cfg.stored_group, rc = 0;
    struct weight found = {.dtype = is_int8 ? DTYPE_INT8 : DTYPE_INT4,
                           .n_rows = n_rows,
                           .n_cols = n_cols,
                           .group = group};
    if (n_cols % group) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: %s has rows of %d, which is no multiple of the group size %d",
                         ck->name, name, n_cols, group);
    }
    TRY(find_part(ck, name, "_packed", "I32", n_rows, n_cols / (is_int8 ? 4 : 8), &found.data,
                  err));
    TRY(find_part(ck, name, "_scale", "BF16", n_rows, n_cols / group, &found.scales, err));
    *weight = found;
out:
    return rc;
}

size_t weight_packed_bytes(const struct weight *weight)
{
    size_t n = (size_t)weight->n_rows * (size_t)weight->n_cols;
    return weight->dtype == DTYPE_INT8 ? n : n / 2;
}

size_t weight_scale_bytes(const struct weight *weight)
{
    return (size_t)weight->n_rows * (size_t)(weight->n_cols / weight->group) * sizeof(uint16_t);
}

/* n is even: whoever opens a packed matrix demands slices of whole groups. */
static void read_packed(const struct weight *weight, int row, int col, int n, int8_t *q,
                        uint16_t *scales)
{
    size_t first = (size_t)row * (size_t)weight->n_cols + (size_t)col;
    if (weight->dtype == DTYPE_INT8) {
        const uint8_t *bytes = weight->data + first;
        for (int i = 0; i < n; i++) {
            q[i] = (int8_t)(bytes[i] - 128);
        }
    } else {
        const uint8_t *bytes = weight->data + first / 2;
        for (int i = 0; i < n / 2; i++) {
            q[2 * i] = (int8_t)((bytes[i] & 15) - 8);
            q[2 * i + 1] = (int8_t)((bytes[i] >> 4) - 8);
        }
    }
    int row_scales = weight->n_cols / weight->group;
    for (int k = 0; k < n; k += QUANT_GROUP) {
        size_t at = (size_t)row * (size_t)row_scales + (size_t)((col + k) / weight->group);
        memcpy(scales++, weight->scales + at * sizeof *scales, sizeof *scales);
    }
}

void weight_read_groups(const struct weight *weight, enum weight_form form, int row, int col, int n,
                        int8_t *q, uint16_t *scales)
{
    enum { CHUNK = 16 * QUANT_GROUP };
    uint16_t values[CHUNK];
    if (weight->dtype == DTYPE_INT8 || weight->dtype == DTYPE_INT4) {
        assert((form == WEIGHTS_INT8) == (weight->dtype == DTYPE_INT8) && col % QUANT_GROUP == 0);
        read_packed(weight, row, col, n, q, scales);
        return;
    }
    for (int done = 0; done < n; done += CHUNK) {
        int n_here = n - done < CHUNK ? n - done : CHUNK;
        weight_read_bf16(weight, row, col + done, n_here, values);
        quant_weights(form, values, n_here, q + done, scales + done / QUANT_GROUP);
    }
}
