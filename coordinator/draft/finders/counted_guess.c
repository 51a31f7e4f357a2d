/* Guesses among tokens that were counted: what a drafter with a model does with its q
 * (coordinator/draft/model_draft.c), with counts in the place of a row of logits.
 *
 * Under rules that judge a guess by its q, q is the counts, normalised, the guess is drawn from it
 * and siblings without replacement, with the coins that the draft model would use. Neither
 * temperature nor cuts are applied to the counts, because the texts that were counted were drawn
 * with those of their requests; any q is exact. Coupled rules pick by the noise that they share
 * with the target, and all others take the most frequent tokens. */
#include "coordinator/draft/finders/counted_guess.h"

#include <math.h>

#include "base/least.h"
#include "coordinator/draft/drafter.h"
#include "coordinator/sequence/sequence.h"
#include "lookup/store.h"
#include "speculation/accept/multi_draft.h"

static void take_most_frequent(const struct store_next *next, int n_wanted,
                               struct finder_guess *guess)
{
    guess->n = least(next->n, n_wanted);
    for (int i = 0; i < guess->n; i++) {
        guess->tokens[i] = next->tokens[i];
    }
}

/* Picks by the logarithms of the counts, used as logits at temperature 1. */
static void pick_coupled(const struct store_next *next, const struct rng_address *at, int n_wanted,
                         struct finder_guess *guess)
{
    float logits[STORE_NEXT_MAX];
    for (int i = 0; i < next->n; i++) {
        logits[i] = (float)log((double)next->counts[i]);
    }
    guess->n = multi_draft_coupled(next->tokens, logits, next->n, 1, at, n_wanted, guess->tokens);
}

/* The counts as a distribution: ids ascend, and p sums to 1. */
static int make_q(const struct store_next *next, struct arena *arena, struct sparse_dist *q,
                  struct error *err)
{
    double total = 0;
    *q = (struct sparse_dist){.ids = arena_take(arena, STORE_NEXT_MAX, sizeof *q->ids),
                              .p = arena_take(arena, STORE_NEXT_MAX, sizeof *q->p)};
    if (!q->ids || !q->p) return error_set(err, ERR_NO_MEMORY, "no room for the counts' q");
    for (int i = 0; i < next->n; i++) {
        total += (double)next->counts[i];
    }
    for (int i = 0; i < next->n; i++) {
        int to = q->n++;
        for (; to > 0 && q->ids[to - 1] > next->tokens[i]; to--) {
            q->ids[to] = q->ids[to - 1];
            q->p[to] = q->p[to - 1];
        }
        q->ids[to] = next->tokens[i];
        q->p[to] = (float)((double)next->counts[i] / total);
    }
    return 0;
}

int counted_draw(const struct store_next *next, const struct draft_lane *lane, struct arena *arena,
                 struct finder_guess *guess, struct error *err)
{
    const struct sequence *seq = lane->seq;
    const struct rng_address at = {seq->seed, (uint32_t)(seq->n_tokens + lane->draft->n_chain),
                                   (uint32_t)seq->n_tokens};
    *guess = (struct finder_guess){.n = 0};
    int rc = make_q(next, arena, &guess->q, err);
    if (!rc) finder_draw(&at, 1 + lane->siblings_max, guess);
    return rc;
}

void counted_pick(const struct store_next *next, const struct sequence *seq, int index,
                  int n_wanted, struct finder_guess *guess)
{
    const struct rng_address at = {.seed = seq->seed,
                                   .position = (uint32_t)(seq->n_tokens + index)};
    *guess = (struct finder_guess){.n = 0};
    if (seq->rule->is_coupled && seq->sampling.temperature > 0) {
        pick_coupled(next, &at, n_wanted, guess);
    } else {
        take_most_frequent(next, n_wanted, guess);
    }
}
