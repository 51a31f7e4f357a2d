/* Log-probabilities from the slices of a row: those of the raw logits, at temperature 1. */
#pragma once

#include "model/logits/row.h"

/* Log of the sum of exp over the logits of all slices, whose sums at temperature 1 are sum_exp[k].
 * The log-probability of a token is its logit less this. Sums run over the slices in ascending
 * order, so that T does not matter. */
double logprobs_normaliser(const struct slice_row *slices, int n_slices, int k);

/* The slice whose next best is the best of all, where used[s] of each were taken; -1: none is left.
 * A tie goes to the lower slice, which holds the lower ids. */
int logprobs_best_slice(const struct slice_row *slices, int n_slices, const int *used);

/* The n best tokens of the slices' lists, best first: ids[n] and their log-probabilities. Returns
 * how many there are. They are the row's best if every slice lists n, or all that it has. */
int logprobs_best(const struct slice_row *slices, int n_slices, int n, double log_z, int32_t *ids,
                  float *logprobs);
