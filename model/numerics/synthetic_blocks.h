/* Matrices of synthetic models in blocks of integers, as GGUF files have them: each group of 32 of
 * the elements that synthetic_elements.h makes is rounded to the kind's integers. Nothing is
 * stored: a group is made when it is read, and is the same however and in whatever order. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "model/numerics/block.h"

/* The kind of this name in any case ("q4_k"); false: it is none that has integers. */
bool synthetic_block_kind(const char *name, enum block_kind *kind);
/* The names, separated by ", ", for an error text. */
void synthetic_block_names(char *text, size_t text_bytes);

/* Rounds the 32 elements of a group to the kind's integers; `deviation` is the standard
 * deviation of the whole matrix, whose super-blocks' halves follow from it. */
void synthetic_round_group(enum block_kind kind, float deviation, const float *values,
                           struct weight_group *out);
