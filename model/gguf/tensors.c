/* The table of tensors of a GGUF file. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "model/gguf/internal.h"
#include "model/numerics/block.h"

enum {
    NAME_MOST_BYTES = 255,
    TENSORS_MOST = 1 << 20,
    TENSOR_LEAST_BYTES = 8 + 1 + 4 + 8 + 4 + 8 /* of an entry of the table */
};

/* Names the kind, the tensor, and the kinds that llama-quantize may make of the model instead. */
static int refuse_type(const struct gguf_tensor *tensor, const struct gguf_reader *in,
                       struct error *err)
{
    const struct block_type *type = block_type_find(tensor->type);
    char read[160] = "";
    size_t n = 0;
    for (int kind = BLOCK_UNREAD + 1; kind < BLOCK_KINDS && n < sizeof read; kind++) {
        n += (size_t)snprintf(read + n, sizeof read - n, "%s%s", n ? ", " : "",
                              block_type_of((enum block_kind)kind)->name);
    }
    return error_set(err, ERR_UNSUPPORTED,
                     "%.120s: tensor %.80s is of type %" PRIu32 "%s%s, which is not read (%s are); "
                     "take the model in one of these, or make it with llama-quantize",
                     in->origin, tensor->name, tensor->type, type ? ", " : "",
                     type ? type->name : "", read);
}

/* Sets tensor->bytes; it has whole rows of blocks. */
static int measure(struct gguf_tensor *tensor, const struct gguf_reader *in, struct error *err)
{
    const struct block_type *type = block_type_find(tensor->type);
    if (!type || type->kind == BLOCK_UNREAD) return refuse_type(tensor, in, err);
    if (tensor->dims[0] % (uint64_t)type->n_elements) {
        return error_set(err, ERR_FORMAT,
                         "%s: tensor %.100s has rows of %" PRIu64 " elements, which are no whole "
                         "blocks of %d of %s",
                         in->origin, tensor->name, tensor->dims[0], type->n_elements, type->name);
    }
    uint64_t bytes = tensor->dims[0] / (uint64_t)type->n_elements;
    uint64_t factors[GGUF_DIMS_MAX] = {(uint64_t)type->n_bytes, tensor->dims[1], tensor->dims[2],
                                       tensor->dims[3]};
    for (int i = 0; i < GGUF_DIMS_MAX; i++) {
        if (factors[i] && bytes > in->size / factors[i]) {
            return error_set(err, ERR_FORMAT,
                             "%s is cut short or damaged: tensor %.100s of [%" PRIu64 ", %" PRIu64
                             ", %" PRIu64 ", %" PRIu64 "] is larger than the file of %zu bytes",
                             in->origin, tensor->name, tensor->dims[0], tensor->dims[1],
                             tensor->dims[2], tensor->dims[3], in->size);
        }
        bytes *= factors[i];
    }
    tensor->bytes = bytes;
    return 0;
}

/* tensor->data becomes the place of the data in its own part of the file, which is not known
 * yet. */
static int take_tensor(struct gguf_tensor *tensor, struct gguf_reader *in, uint64_t *offset,
                       struct error *err)
{
    uint32_t n_dims = 0;
    char *name = NULL;
    int rc = gguf_take_name(in, NAME_MOST_BYTES, "the name of a tensor", &name, err);
    tensor->name = name;
    if (rc) goto out;
    TRY(gguf_take_u32(in, name, &n_dims, err));
    if (n_dims < 1 || n_dims > GGUF_DIMS_MAX) {
        return error_set(err, ERR_FORMAT,
                         "%s: tensor %.100s has %" PRIu32 " dimensions; 1 to %d are allowed",
                         in->origin, name, n_dims, GGUF_DIMS_MAX);
    }
    tensor->n_dims = (int)n_dims;
    for (int i = 0; i < GGUF_DIMS_MAX; i++) {
        tensor->dims[i] = 1;
        if (i < tensor->n_dims) TRY(gguf_take_u64(in, name, &tensor->dims[i], err));
    }
    TRY(gguf_take_u32(in, name, &tensor->type, err));
    TRY(gguf_take_u64(in, name, offset, err));
    TRY(measure(tensor, in, err));
out:
    return rc;
}

/* Places the data of a tensor. `begin`: of the data of the file. */
static int place(struct gguf_tensor *tensor, const struct gguf_reader *in, uint64_t begin,
                 uint64_t offset, uint64_t alignment, struct error *err)
{
    if (offset % alignment) {
        return error_set(err, ERR_FORMAT,
                         "%s: tensor %.100s begins at offset %" PRIu64
                         ", which is no multiple of the alignment %" PRIu64,
                         in->origin, tensor->name, offset, alignment);
    }
    if (begin > in->size || offset > in->size - begin ||
        tensor->bytes > in->size - begin - offset) {
        return error_set(err, ERR_FORMAT,
                         "%s is cut short or damaged: tensor %.100s has %" PRIu64
                         " bytes at offset %" PRIu64 ", the file ends after %zu",
                         in->origin, tensor->name, tensor->bytes, offset, in->size);
    }
    tensor->data = in->data + begin + offset;
    return 0;
}

static int by_place(const void *left, const void *right)
{
    const struct gguf_tensor *a = left, *b = right;
    if (a->data != b->data) return a->data < b->data ? -1 : 1;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static int check_overlap(struct gguf_file *file, const char *origin, struct error *err)
{
    qsort(file->tensors, file->n_tensors, sizeof *file->tensors, by_place);
    for (size_t i = 1; i < file->n_tensors; i++) {
        const struct gguf_tensor *a = &file->tensors[i - 1], *b = &file->tensors[i];
        if (a->bytes <= (uint64_t)(b->data - a->data)) continue;
        return error_set(err, ERR_FORMAT, "%s: tensors %.100s and %.100s overlap", origin, a->name,
                         b->name);
    }
    return 0;
}

int gguf_parse_tensors(struct gguf_file *file, struct gguf_reader *in, uint64_t n,
                       uint64_t alignment, struct error *err)
{
    uint64_t *offsets = NULL;
    int rc = 0;
    if (n > TENSORS_MOST || n > (in->size - in->at) / TENSOR_LEAST_BYTES) {
        return error_set(err, ERR_FORMAT,
                         "%s has %" PRIu64 " tensors by its header, which is more than a file of "
                         "%zu bytes can have, or than the %d that are read",
                         in->origin, n, in->size, TENSORS_MOST);
    }
    TRY(mem_array(&offsets, (size_t)n, sizeof *offsets, err));
    TRY(mem_array(&file->tensors, (size_t)n, sizeof *file->tensors, err));
    while (file->n_tensors < n) {
        size_t i = file->n_tensors++;
        TRY(take_tensor(&file->tensors[i], in, &offsets[i], err));
    }
    uint64_t begin = ((uint64_t)in->at + alignment - 1) / alignment * alignment;
    for (size_t i = 0; i < file->n_tensors; i++) {
        TRY(place(&file->tensors[i], in, begin, offsets[i], alignment, err));
    }
    TRY(check_overlap(file, in->origin, err));
out:
    free(offsets);
    return rc;
}
