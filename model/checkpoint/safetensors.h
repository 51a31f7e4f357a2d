/* The table of one safetensors file: 8 bytes of header length (little endian), a JSON object
 *   {"__metadata__": {...},
 *    "name": {"dtype": "BF16", "shape": [3, 4], "data_offsets": [0, 24]}, ...}
 * and the data. After parsing every tensor lies inside the file, has the size that its dtype and
 * shape ask for, and the tensors cover the data without overlap or gap. Immutable. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { SAFETENSORS_DIMS_MAX = 8, SAFETENSORS_DTYPE_BYTES = 12 };

struct safetensors_entry {
    const char *name; /* valid as long as the table */
    char dtype[SAFETENSORS_DTYPE_BYTES];
    int n_dims;
    uint64_t dims[SAFETENSORS_DIMS_MAX];
    uint64_t begin, end; /* bytes from the start of the file */
};

struct safetensors {
    struct safetensors_entry *entries; /* ascending by name (strcmp) */
    size_t n_entries;
    char *names;
};

/* Reads the table of a whole file in memory; data is not kept. A tensor of an unknown dtype is
 * accepted, its size unchecked. Errors: ERR_FORMAT says what is wrong and with which tensor,
 * ERR_NO_MEMORY. */
int safetensors_parse(struct safetensors *table, const uint8_t *data, size_t size_bytes,
                      const char *origin, struct error *err);
void safetensors_free(struct safetensors *table);

/* NULL when there is none. */
const struct safetensors_entry *safetensors_find(const struct safetensors *table, const char *name);
