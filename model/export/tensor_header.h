/* The beginning of a safetensors file (model/checkpoint/safetensors.h has the format): everything
 * before the data of the tensors, which follow in the order of the entries without gaps. Callers
 * write the data piece by piece after it, so that no file has to be in memory as a whole. */
#pragma once

#include <jansson.h>

#include "base/text/buffer.h"

enum { TENSOR_HEADER_DIMS_MAX = 3 };

struct tensor_header_entry {
    const char *name, *dtype; /* names of the format: BF16, F32, I32, ... */
    int n_dims;
    uint64_t dims[TENSOR_HEADER_DIMS_MAX];
    uint64_t n_bytes;
};

/* Appends to `out` the length of the table, the table with the metadata, which must not be NULL,
 * and blanks, so that the data begin at a multiple of 8 bytes. Errors: ERR_NO_MEMORY. */
int tensor_header_write(struct buffer *out, const json_t *metadata,
                        const struct tensor_header_entry *entries, size_t n, struct error *err);
