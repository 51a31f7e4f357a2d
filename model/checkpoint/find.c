/* Tensors by name. A matrix X.weight of a model that is stored in int8 or int4
 * (config/config_quant.c) is three tensors there; stored_find.c finds those of other folders.
 *   X.weight_packed  I32 [n_rows][n_cols * bits / 32]  q + 2^(bits - 1), lowest k in lowest bits
 *   X.weight_scale   BF16 [n_rows][n_cols / group]
 *   X.weight_shape   I64 [2], which says nothing that the config does not say
 * Because files are little endian, the integers are a stream of bytes, or of nibbles, in the order
 * of k. */
#include "model/checkpoint/find.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "model/checkpoint/internal.h"

static const struct {
    const char *name;
    enum dtype dtype;
} dtypes[] = {
    {"BF16", DTYPE_BF16},
    {"F16", DTYPE_F16},
    {"F32", DTYPE_F32},
};

static void show_shape(const struct safetensors_entry *entry, char *text, size_t text_bytes)
{
    size_t len = 0;
    text[0] = '\0';
    for (int i = 0; i < entry->n_dims && len < text_bytes; i++) {
        int n = snprintf(text + len, text_bytes - len, "%s%" PRIu64, i ? ", " : "", entry->dims[i]);
        len += (size_t)n;
    }
}

/* A vector counts as one row, also when it is written as [1][n]. */
static bool has_shape(const struct safetensors_entry *entry, int n_rows, int n_cols)
{
    if (entry->n_dims == 1) return n_rows == 1 && entry->dims[0] == (uint64_t)n_cols;
    return entry->n_dims == 2 && entry->dims[0] == (uint64_t)n_rows &&
           entry->dims[1] == (uint64_t)n_cols;
}

static int find_in_file(const struct checkpoint *ck, const struct tensor *tensor, int n_rows,
                        int n_cols, struct weight *weight, struct error *err)
{
    const struct safetensors_entry *entry = tensor->entry;
    char shape[128], name[GGUF_NAME_BYTES];
    if (!has_shape(entry, n_rows, n_cols)) {
        bool is_alone = ck->gguf && ck->n_files == 1; /* it is in the file that begins the error */
        show_shape(entry, shape, sizeof shape);
        return error_set(
            err, ERR_FORMAT, "%s: tensor %s%s%.100s has shape [%s], the config asks for [%d, %d]",
            ck->name, checkpoint_shown_name(ck, tensor->name, name), is_alone ? "" : " of ",
            is_alone ? "" : tensor->file, shape, n_rows, n_cols);
    }
    if (ck->gguf) {
        *weight = tensor->weight;
        weight->n_rows = n_rows;
        weight->n_cols = n_cols;
        return 0;
    }
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (strcmp(dtypes[i].name, entry->dtype) != 0) continue;
        *weight = tensor->weight;
        weight->dtype = dtypes[i].dtype;
        weight->n_rows = n_rows;
        weight->n_cols = n_cols;
        return 0;
    }
    return error_set(err, ERR_UNSUPPORTED,
                     "%s: tensor %s is of dtype %s, which is not supported (BF16, F16, F32 are)",
                     ck->name, tensor->name, entry->dtype);
}

/* One of the tensors that make up a packed matrix: its name is that of the matrix plus `suffix`. */
struct packed_part {
    const char *suffix;
    const char *dtype; /* as the file must have it */
    int n_rows, n_cols;
};

/* Sets *data to the bytes of a part, which must have the type and the shape that `part` says. */
static int find_part(const struct checkpoint *ck, const char *matrix,
                     const struct packed_part *part, const uint8_t **data, struct error *err)
{
    char name[2 * TENSOR_NAME_BYTES];
    snprintf(name, sizeof name, "%s%s", matrix, part->suffix);
    const struct tensor *tensor = checkpoint_tensor(ck, name);
    if (!tensor) {
        return error_set(err, ERR_FORMAT, "%s lacks the tensor %.100s", ck->name, name);
    }
    const struct safetensors_entry *entry = tensor->entry;
    if (strcmp(entry->dtype, part->dtype) != 0) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: tensor %s is of dtype %s, which is not supported (%s is)", ck->name,
                         name, entry->dtype, part->dtype);
    }
    if (entry->n_dims != 2 || entry->dims[0] != (uint64_t)part->n_rows ||
        entry->dims[1] != (uint64_t)part->n_cols) {
        return error_set(err, ERR_FORMAT,
                         "%s: tensor %s has not the shape [%d, %d] that the config asks for",
                         ck->name, name, part->n_rows, part->n_cols);
    }
    *data = tensor->weight.data;
    return 0;
}

static int find_packed(const struct checkpoint *ck, const char *name, int n_rows, int n_cols,
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
    const struct packed_part packed = {"_packed", "I32", n_rows, n_cols / (is_int8 ? 4 : 8)};
    const struct packed_part scales = {"_scale", "BF16", n_rows, n_cols / group};
    TRY(find_part(ck, name, &packed, &found.data, err));
    TRY(find_part(ck, name, &scales, &found.scales, err));
    *weight = found;
out:
    return rc;
}

/* The name of the tensor in the model that the layers were chosen from. */
static const char *name_in_whole(const struct checkpoint *ck, const char *name,
                                 char own[2 * TENSOR_NAME_BYTES])
{
    int layer = 0, len = 0;
    if (!ck->layers || sscanf(name, "model.layers.%d%n", &layer, &len) != 1) return name;
    if (layer < 0 || layer >= ck->cfg.n_layers) return name;
    snprintf(own, 2 * TENSOR_NAME_BYTES, "model.layers.%d%s", ck->layers[layer], name + len);
    return own;
}

int checkpoint_find(const struct checkpoint *ck, const char *asked, int n_rows, int n_cols,
                    struct weight *weight, struct error *err)
{
    char own[2 * TENSOR_NAME_BYTES], shown[GGUF_NAME_BYTES];
    const char *name = name_in_whole(ck, asked, own);
    size_t lent = strlen(checkpoint_lent_prefix);
    if (ck->lender && strncmp(name, checkpoint_lent_prefix, lent) == 0) {
        return checkpoint_find(ck->lender, name + lent, n_rows, n_cols, weight, err);
    }
    if (checkpoint_is_packed(ck, name)) {
        return find_packed(ck, name, n_rows, n_cols, weight, err);
    }
    if (checkpoint_is_stored(ck, name)) {
        return checkpoint_find_stored(ck, name, n_rows, n_cols, weight, err);
    }
    const struct tensor *tensor = checkpoint_tensor(ck, name);
    if (!tensor) {
        return error_set(err, ERR_FORMAT, "%s lacks the tensor %.100s", ck->name,
                         checkpoint_shown_name(ck, name, shown));
    }
    if (tensor->entry) return find_in_file(ck, tensor, n_rows, n_cols, weight, err);
    if (tensor->weight.n_rows != n_rows || tensor->weight.n_cols != n_cols) {
        return error_set(err, ERR_FORMAT, "%s: tensor %s has shape [%d, %d], not [%d, %d]",
                         ck->name, tensor->name, tensor->weight.n_rows, tensor->weight.n_cols,
                         n_rows, n_cols);
    }
    *weight = tensor->weight;
    return 0;
}
