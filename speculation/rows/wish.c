/* Writes what is asked of the workers for a row. */
#include <assert.h>

#include "speculation/rows/cut.h"
#include "speculation/rows/rule.h"
#include "speculation/rows/target_row.h"

/* p of the tokens that the draft may have guessed, the mass of all others, and one token drawn
 * among those. */
void rule_wish_p(const struct target_want *want, struct row_wish *wish)
{
    wish->outside = true;
    wish->entropy = want->rule->needs_entropy;
    if (want->q) {
        wish->n_ids = want->q->n;
        wish->ids = want->q->ids;
    }
}

/* The best token of each slice. */
void rule_wish_best(const struct target_want *want, struct row_wish *wish)
{
    (void)want;
    wish->n_best = 1;
}

/* The best token of each slice under the noise that target and draft share. */
void rule_wish_noisy_best(const struct target_want *want, struct row_wish *wish)
{
    (void)want;
    wish->noisy_best = true;
}

/* The sum at temperature 1 and the best tokens, beside what p needs. */
static void wish_logprobs(const struct target_want *want, struct row_wish *wish)
{
    bool has_one = wish->n_temperatures > 0 && wish->temperatures[0] == 1.0f;
    if (!has_one) wish->temperatures[wish->n_temperatures++] = 1.0f;
    if (wish->n_best < want->n_top) wish->n_best = want->n_top;
}

static void wish_p(const struct target_want *want, struct row_wish *wish)
{
    const struct sampling_params *params = want->params;
    if (want->rule->is_greedy || params->temperature == 0) {
        rule_wish_best(want, wish);
        return;
    }
    wish->n_temperatures = 1;
    wish->temperatures[0] = params->temperature;
    if (sampling_truncates(params)) {
        target_row_wish_cut(want, wish);
    } else {
        want->rule->wish(want, wish);
    }
}

void target_row_wish(const struct target_want *want, struct row_wish *wish)
{
    assert(!want->edits); /* target_row_wish_edited takes those */
    *wish = (struct row_wish){.at = want->at};
    if (want->full_rows) {
        wish->full = true;
        return;
    }
    wish_p(want, wish);
    if (want->wants_logprobs) wish_logprobs(want, wish);
}
