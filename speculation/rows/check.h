/* Checks that slices can be the answer of a correct worker to a wish; a part of
 * target_row_merge. */
#pragma once

#include "model/logits/row.h"

/* Sums of correct workers differ from exact ones by rounding alone. */
#define TARGET_ROW_SLACK 1e-3

/* All slices of the vocabulary, ascending, each with its own columns. Errors: ERR_FORMAT. */
int target_row_check_shape(const struct slice_row *slices, int n_slices, int n_vocab,
                           struct error *err);

/* Their content against the wish: counts, ids, order, ranges. Errors: ERR_FORMAT. */
int target_row_check_slices(const struct slice_row *slices, int n_slices,
                            const struct row_wish *wish, struct error *err);
