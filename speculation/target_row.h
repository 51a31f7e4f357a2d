/* What the coordinator knows of p at one position, in one type whatever was asked of the workers:
 * ids with their p, the mass outside of them, one token drawn outside. It is the only type that
 * acceptance sees (docs/design.md section 5). */
#pragma once

#include "base/memory.h"
#include "model/logits/row.h"
#include "model/logits/sampling.h"

struct rule; /* speculation/rule.h */

/* What a row is wanted for. */
struct target_want {
    const struct rule *rule;
    const struct sampling_params *params;
    const struct sparse_dist *q; /* the guess was drawn from it; NULL: there is no guess */
    struct rng_address at;       /* of the position's coins */
    bool full_rows;              /* asks for every logit, to compare; the merged row is the same */
};

/* The slices that answer one wish: all S of them, ascending. */
struct target_slices {
    const struct slice_row *slices; /* [n_slices] */
    int n_slices, n_vocab;
};

/* Arrays are lent by an arena; ids ascend; p_i >= 0; sum of p + outside_mass = 1 (rounding). */
struct target_row {
    int n;
    const int32_t *ids;
    const float *p;
    double outside_mass;
    int32_t outside_id; /* drawn outside of ids with probability p / outside_mass; -1: no mass */
    double entropy;     /* of p in nats, where the rule asked for it */
    const struct error *failure; /* NULL; otherwise why nothing is known of p. Acceptance never
                                    sees such a row. */
};

/* Asks for what `want` needs to know. The ids of q are kept in the wish. n_best is the first try; a
 * truncation that needs more asks again (target_row_merge). The caller may add to the wish: more
 * best, a second temperature, more ids as long as ids ascend; the merge then holds them, too. */
void target_row_wish(const struct target_want *want, struct row_wish *wish);

/* Merges the slices that answer `wish`, which target_row_wish made from the same want, into *row.
 * Temperature 0, greedy and coupled give a one-hot row. The order of merging is fixed by the slices
 * alone, so the result does not depend on T. When the cut of the truncation may lie below a slice's
 * last best, *n_best_more > 0 instead: ask again with that many. Errors: ERR_FORMAT slices are
 * missing, in the wrong order, or hold numbers that no correct worker sends (NaN, negative mass,
 * foreign ids); ERR_NO_MEMORY arena full. */
int target_row_merge(const struct target_slices *slices, const struct target_want *want,
                     const struct row_wish *wish, struct arena *arena, struct target_row *row,
                     int *n_best_more, struct error *err);

/* p of id: exact for ids in the row, 0 when outside_mass is 0. Asking for an id outside of a row
 * with outside mass is a bug (assert). */
float target_row_prob(const struct target_row *row, int32_t id);

/* One token from p: coin RNG_RESIDUAL of `at`, inverse CDF over ids then outside. */
int32_t target_row_draw(const struct target_row *row, const struct rng_address *at);
