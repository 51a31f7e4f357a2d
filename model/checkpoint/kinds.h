/* The types that a model's tensors are stored in: for the ready line and for describe. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "model/checkpoint/checkpoint.h"

enum { STORED_KINDS_MAX = 32, STORED_KINDS_BYTES = 512 };

struct kind_count {
    const char *name; /* "Q4_K", "BF16", "int8"; of a synthetic model "synthetic" */
    int n_tensors;
    int n_rounded; /* matrices of them whose elements are rounded to bf16 */
    uint64_t n_bytes;
};

/* Counts the tensors that the config asks for, by their types, in the order in which they come
 * first. Returns the number of kinds. */
int checkpoint_kinds(const struct checkpoint *ck, struct kind_count kinds[STORED_KINDS_MAX]);

/* Writes "F32:57,Q8_0:155" into text, and into rounded the matrices that are rounded to bf16, in
 * the same form; "none". */
void checkpoint_show_kinds(const struct checkpoint *ck, char text[STORED_KINDS_BYTES],
                           char rounded[STORED_KINDS_BYTES]);
