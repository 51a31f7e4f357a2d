/* Acceptance: which guesses stay and which token comes next. Pure functions, one per rule, that read
 * like their papers. p is the target's distribution, q the draft's, both after temperature and cuts.
 *
 *   rows   [n_draft + 1]  what is known of p after draft[0..i)
 *   q      [n_draft]      the distribution draft[i] was drawn from; sums to 1
 *   draft  [n_draft]      token ids, each in the support of its q
 *   at                    address of the first position's coins; position i uses at->position + i
 *
 * Coins are addressed by (position + i, round): rounds are independent of each other and of whoever
 * shares the batch. None of these can fail. */
#pragma once

#include "speculation/target_row.h"

struct accept_result {
    int n_accepted; /* leading guesses that stay */
    int32_t next;   /* the token after them: resampled, or the bonus token when all stay */
};

typedef struct accept_result accept_fn(const struct target_row *rows, const struct sparse_dist *q,
                                       const int32_t *draft, int n_draft,
                                       const struct rng_address *at);

/* Leviathan et al. 2023, Algorithm 1; Chen et al. 2023, Algorithm 2. Distribution of the target. */
accept_fn accept_rejection;
/* Exact match with the target's choice (rows are one-hot): plain greedy text, and for `coupled` the
 * text of plain sampling with the same Gumbel noise (Daliri et al. 2024, arXiv 2408.07978). */
accept_fn accept_match;
/* Block verification, Sun et al. 2024, arXiv 2403.10444, Algorithm 2. Distribution of the target. */
accept_fn accept_block;
/* Draws from p and keeps the guess if it is equal. Distribution of the target; for comparison. */
accept_fn accept_naive;
/* Typical acceptance of Medusa (Cai et al. 2024, arXiv 2401.10774, section 2.3.1) with
 * epsilon 0.09, delta 0.3. LOSSY. */
accept_fn accept_typical;

/* The function of a rule: greedy and coupled share accept_match. */
accept_fn *accept_function(enum accept_rule rule);
