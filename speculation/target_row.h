/* What the coordinator knows of p at one position, in one type whatever was asked of the workers:
 * ids with their p, the mass outside of them, one token drawn outside. It is the only type that
 * acceptance sees (docs/design.md section 5). */
#pragma once

#include "base/memory.h"
#include "model/logits/row.h"
#include "model/logits/sampling.h"

/* The acceptance rules of docs/design.md section 6. */
enum accept_rule {
    RULE_REJECTION,
    RULE_GREEDY,
    RULE_COUPLED,
    RULE_BLOCK,
    RULE_NAIVE,
    RULE_TYPICAL,
    RULE_COUNT
};

const char *accept_rule_name(enum accept_rule rule);
int accept_rule_parse(const char *name, enum accept_rule *rule, struct error *err);

/* Arrays are lent by an arena; ids ascend; p_i >= 0; sum of p + outside_mass = 1 (rounding). */
struct target_row {
    int n;
    const int32_t *ids;
    const float *p;
    double outside_mass;
    int32_t outside_id; /* drawn outside of ids with probability p / outside_mass; -1: no mass */
    double entropy;     /* of p in nats, where the rule asked for it */
};

/* Asks for what (rule, params) needs to know at a position whose guess was drawn from q (NULL: the
 * bonus position, or no guess). The ids of q are kept in the wish. n_best is the first try; a
 * truncation that needs more asks again (target_row_merge). full_rows: ask for every logit instead
 * (tests, comparison); the merged row is the same. The caller may add to the wish: more best, a
 * second temperature, more ids as long as ids ascend; the merge then holds those ids too. */
void target_row_wish(enum accept_rule rule, const struct sampling_params *params,
                     const struct sparse_dist *q, const struct rng_address *at, bool full_rows,
                     struct row_wish *wish);

/* Merges the S slices (all of them, ascending) that answer `wish`, made by target_row_wish from the
 * same rule, params and q, into *row. Temperature 0, greedy and coupled give a one-hot row. Merge
 * order is fixed by the slices alone, so T does not show. Sets *n_best_more > 0 instead when the cut
 * of the truncation may lie below a slice's last best: ask again with that many. Errors: ERR_FORMAT
 * slices missing, of wrong order, or with numbers that no honest worker sends (NaN, negative mass,
 * foreign ids); ERR_NO_MEMORY arena full. */
int target_row_merge(const struct slice_row *slices, int n_slices, int n_vocab,
                     const struct row_wish *wish, enum accept_rule rule,
                     const struct sampling_params *params, const struct sparse_dist *q,
                     struct arena *arena, struct target_row *row, int *n_best_more,
                     struct error *err);

/* p of id: exact for ids in the row, 0 when outside_mass is 0. Asking for an id outside of a row
 * with outside mass is a bug (assert). */
float target_row_prob(const struct target_row *row, int32_t id);

/* One token from p: coin RNG_RESIDUAL of `at`, inverse CDF over ids then outside. */
int32_t target_row_draw(const struct target_row *row, const struct rng_address *at);
