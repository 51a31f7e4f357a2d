/* Matrices of synthetic models in blocks of integers, as GGUF files have them: each group of 32 of
 * the elements that synthetic_elements.h makes is rounded to the kind's integers. Nothing is
 * stored: a group is made when it is read, and is the same however and in whatever order. */
#pragma once

#include "model/checkpoint/read.h"

/* The kind of this name in any case ("q4_k"); false: it is none that has integers. */
bool synthetic_block_kind(const char *name, enum block_kind *kind);
/* The names, separated by ", ", for an error text. */
void synthetic_block_names(char *text, size_t text_bytes);

/* As weight_read_group, for a weight with DTYPE_BLOCKS and no data. */
void synthetic_read_group(const struct weight *weight, int row, int group,
                          struct weight_group *out);
