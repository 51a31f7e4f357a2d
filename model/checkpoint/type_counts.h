/* The types that a model's tensors are stored in: for the ready line and for describe. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "model/checkpoint/checkpoint.h"

enum { TYPE_COUNTS_MAX = 32, TYPE_COUNTS_BYTES = 512 };

struct type_count {
    /* "Q4_K", "BF16", "int8"; of a synthetic model "synthetic", but matrices with blocks=, which
     * have the name of their blocks. */
    const char *name;
    int n_tensors;
    int n_rounded; /* matrices of them whose elements are rounded to bf16 */
    uint64_t n_bytes;
};

/* Counts the tensors that the config asks for, by their types, in the order in which they come
 * first. Returns the number of types. */
int checkpoint_count_types(const struct checkpoint *ck, struct type_count types[TYPE_COUNTS_MAX]);

/* Writes "F32:57,Q8_0:155" into text, and into rounded the matrices that are rounded to bf16, in
 * the same form; "none". */
void checkpoint_show_types(const struct checkpoint *ck, char text[TYPE_COUNTS_BYTES],
                           char rounded[TYPE_COUNTS_BYTES]);
