/* Acceptance: which guesses stay and which token comes next. The functions are pure, one per rule,
 * and read like the papers they come from (speculation/accept.c); speculation/rule.h lists them. p
 * is the target's distribution, q the draft's, both after temperature and cuts.
 *
 *   rows   [n_draft + 1]  what is known of p after draft[0..i)
 *   q      [n_draft]      the distribution draft[i] was drawn from; sums to 1
 *   draft  [n_draft]      token ids, each in the support of its q
 *   at                    address of the first position's coins; position i uses at->position + i
 *
 * Coins are addressed by (position + i, round), so rounds are independent of each other and of the
 * other sequences in the batch. An accept_fn cannot fail. */
#pragma once

#include "speculation/target_row.h"

struct accept_result {
    int n_accepted; /* leading guesses that stay */
    int32_t next;   /* the token after them: resampled, or the bonus token when all stay */
};

typedef struct accept_result accept_fn(const struct target_row *rows, const struct sparse_dist *q,
                                       const int32_t *draft, int n_draft,
                                       const struct rng_address *at);
