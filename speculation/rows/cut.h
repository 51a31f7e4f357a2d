/* How much of a row a truncation has to know: a part of target_row_wish and target_row_merge. */
#pragma once

#include "speculation/rows/target_row.h"

/* The first question of a row that is truncated, where the temperature is in the wish already. */
void target_row_wish_cut(const struct target_want *want, struct row_wish *wish);

/* A logit such that all that reach it are enough to find the cut: from the buckets of the slices
 * that answer the first question. max and z are the row's, scale[s] that of a slice's sums. -inf:
 * every logit has to be known. It may be too high where numbers are rounded, so the caller checks
 * whether the cut is certain then. */
float target_row_least(const struct target_slices *all, const struct target_want *want, float max,
                       double z, const double *scale);

/* True if min-p surely cuts all tokens whose logits are below `least`, if the first n tokens of the
 * row are known. With top-k and top-p both on, the mass of top_k tokens must be known first. */
bool target_row_min_p_cuts(const struct target_want *want, float max, float least, int n);
