/* Rows under edits (speculation/rows/edits.h); a part of target_row_merge and
 * target_row_wish_edited. Nothing is subtracted from a sum of exp: where a banned token held nearly
 * all mass, the difference would have no digits left. The mass of unedited tokens is the sum
 * `outside` a list that names every edited one. */
#pragma once

#include "base/limits.h"
#include "speculation/rows/target_row.h"

/* Arguments of one call of target_row_merge. */
struct merge {
    const struct slice_row *slices;
    int n_slices;
    const struct target_want *want;
    struct row_wish *wish; /* becomes the next question when there is one */
    int n_vocab;
    struct arena *arena;
};

bool target_want_is_edited(const struct target_want *want);

/* As target_row_wish_edited, but never `full`: what a full row is asked when it is merged. */
int target_row_wish_compact(const struct target_want *want, struct arena *arena,
                            struct row_wish *wish, struct error *err);

/* Merges slices that answer such a wish and have been checked against it. Results and errors are
 * those of target_row_merge, and ERR_ARGUMENT when the edits leave no token. */
int target_row_merge_edited(const struct merge *merge, struct target_row *row, bool *more,
                            struct error *err);

/* The part of it for rows that are sampled and not truncated. */
int target_row_merge_edited_p(const struct merge *merge, struct target_row *row, bool *more,
                              struct error *err);

/* The known columns of a row after edits. The first n_named items are the wish's ids, in its order;
 * ids past the vocabulary have -inf. Then come, if wanted, the best of each slice that have no name
 * there. */
struct edited_known {
    int n, n_named;
    struct select_item *items; /* [n] score: the edited logit */
    struct select_item *raws;  /* [n] score: the logit as it was */
    int n_cols[SLICES_MAX];    /* of each slice: columns known */
};

int target_row_know(const struct merge *merge, bool with_best, struct edited_known *known,
                    struct error *err);

/* True if the wish has this id. */
bool target_row_is_named(const struct row_wish *wish, int32_t id);

/* Sums in units of exp(best / t). */
struct edited_mass {
    double best; /* a logit */
    double known, outside;
    double lost; /* at most so much underflowed in the slices' sums */
};

/* Mass of n items and, if wanted, of everything outside of the wish's list. */
struct edited_mass target_row_mass(const struct merge *merge, const struct select_item *items,
                                   int n, bool with_outside);

/* True if the mass that the sums may lack changes no bit that matters. */
bool target_row_mass_is_good(const struct edited_mass *mass);

/* An upper bound of the mass of all that is not known, in units of exp(best / t). */
double target_row_mass_unknown(const struct merge *merge, const struct edited_known *known,
                               double best);

/* When sums have underflowed, the n best of each slice take their place. So that a row does not
 * depend on how many were asked for other reasons, only certain numbers of best count: whether
 * n_best is one, and the first that is larger. */
bool target_row_best_counts(const struct merge *merge);
int target_row_best_next(const struct merge *merge);

int target_row_no_token(const struct merge *merge, struct error *err);
int target_row_edits_full(struct error *err);

/* Makes the row of items[n] whose scores are p and whose ids ascend and are known; sorts
 * known->raws by id. */
int target_row_of_items(struct arena *arena, const struct edited_known *known,
                        const struct select_item *items, int n, struct target_row *row,
                        struct error *err);
