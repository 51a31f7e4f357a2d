/* Acceptance by position. Its constants are choices and not measurements, like those of
 * speculation/planner/times.c. */
#include "speculation/planner/alpha.h"

#include <math.h>

/* Tests: how many tests the first alpha counts as. */
static const double first_weight = 3;
/* Tests: how many tests the acceptance of the position before counts as at each later position. */
static const double chain_weight = 4;
/* Tests: how many tests the estimate over all sequences counts as in that of one sequence. */
static const float prior_weight = 16;
/* Share that older tests keep with every committed token, in one sequence. */
static const double keep_token = 0.995;
/* Probability: chances are kept so far from 0 and 1 that their odds stay finite. */
static const float odds_margin = 0.005F;

float planner_odds(float p)
{
    p = p < odds_margin ? odds_margin : p > 1 - odds_margin ? 1 - odds_margin : p;
    return p / (1 - p);
}

void planner_prior_of(const struct planner_counts *all, double first_alpha,
                      struct planner_prior *prior)
{
    double before = first_alpha, weight = first_weight;
    for (int i = 0; i < DRAFT_MAX; i++) {
        before = (all->accepted[i] + weight * before) / (all->tested[i] + weight);
        prior->alpha[i] = (float)before;
        prior->odds[i] = planner_odds(prior->alpha[i]);
        prior->inverse[i] = 1 / prior->odds[i];
        weight = chain_weight;
    }
}

struct planner_chain planner_chain_begin(const struct planner_counts *counts,
                                         const struct planner_prior *prior)
{
    return (struct planner_chain){.counts = counts, .prior = prior, .shift = 1};
}

/* The sequence's own tests, and prior_weight tests of the estimate over all sequences. That
 * estimate is first moved by as much as this sequence's own tests have moved the position before,
 * because a text that is easy at one position is easy at the next. */
float planner_chain_next(struct planner_chain *chain)
{
    const struct planner_prior *prior = chain->prior;
    int i = chain->position++;
    if (!chain->counts) {
        float odds = prior->odds[i] * chain->shift;
        return odds / (1 + odds);
    }
    float tested = (float)chain->counts->tested[i], accepted = (float)chain->counts->accepted[i];
    float moved = prior->odds[i] * chain->shift; /* the prior's chance is moved / (1 + moved) */
    float alpha =
        (accepted * (1 + moved) + prior_weight * moved) / ((tested + prior_weight) * (1 + moved));
    chain->shift = planner_odds(alpha) * prior->inverse[i];
    return alpha;
}

void planner_counts_add(struct planner_counts *c, int k, int n_accepted, double keep)
{
    for (int i = 0; i < k && i <= n_accepted && i < DRAFT_MAX; i++) {
        c->tested[i] = c->tested[i] * keep + 1;
        c->accepted[i] = c->accepted[i] * keep + (i < n_accepted ? 1 : 0);
    }
}

static double keep_tokens(int n_tokens)
{
    double keep = 1;
    for (int i = 0; i < n_tokens && i <= DRAFT_MAX; i++) {
        keep *= keep_token;
    }
    return keep;
}

float planner_keep_tokens(int n_tokens)
{
    return (float)keep_tokens(n_tokens);
}

void planner_counts_fade(struct planner_counts *c, int n_tokens)
{
    double keep = keep_tokens(n_tokens);
    for (int i = 0; i < DRAFT_MAX; i++) {
        c->tested[i] *= keep;
        c->accepted[i] *= keep;
    }
}

double planner_counts_mean(const struct planner_counts *c)
{
    double tested = 0, accepted = 0;
    for (int i = 0; i < DRAFT_MAX; i++) {
        tested += c->tested[i];
        accepted += c->accepted[i];
    }
    return tested > 0 ? fmin(fmax(accepted / tested, 0), 1) : 0;
}
