/* How long branches are. The constants are choices and not measurements, like those of
 * speculation/planner/offer.c. */
#include "speculation/planner/branch.h"

#include <math.h>
#include <stddef.h>

#include "speculation/planner/cost.h"

/* Logarithm of a ratio of predicted times per token: a branch must promise this much, because
 * smaller differences are mostly noise. */
static const double least_value = 0.005;
/* Chance: a guess that is committed more seldom is never made. */
static const double least_survival = 0.01;
/* Tokens: how many expected ones count against those that branches have added. */
static const double added_weight = 4;

/* Tokens that branches have added over those expected: the draft and the finders are right and
 * wrong at the same places more often than by chance. */
static double added_ratio(const struct planner_reasons *reasons)
{
    return (reasons->branch_added + added_weight) / (reasons->branch_expected + added_weight);
}

/* The round so far, and a lane of it that may have a branch. */
struct branching {
    struct planner *p;
    const struct planner_base *base;
    const struct planner_lane *lane;
    int n_guesses;
    double us;
    double tokens;           /* that the lane is expected to commit */
    double stays[DRAFT_MAX]; /* the chance that guess i of the draft is committed */
};

static void follow_draft(struct branching *b)
{
    struct planner_lane drafted = *b->lane;
    double survival = 1;
    drafted.offer = NULL;
    struct planner_chain chain = planner_lane_chain(b->p, &drafted);
    b->tokens = 1;
    for (int i = 0; i < DRAFT_MAX; i++) {
        survival = i < b->lane->tree.n_chain ? survival * (double)planner_chain_next(&chain) : 0;
        b->stays[i] = survival;
        b->tokens += survival;
    }
}

/* The best length of a branch of this offer, if it is better than *best, whose value is *value;
 * 0: it is not. */
static int try_offer(const struct branching *b, const struct planner_offer *offer,
                     struct planner_branch *best, double *value)
{
    const struct planner_base *base = b->base;
    struct planner_chain chain =
        planner_offer_chain(&b->p->reasons, &b->lane->seq->trust[offer->finder], offer);
    double ratio = added_ratio(&b->p->reasons), survival = 1, added = 0;
    double before_us = planner_step_us(b->p, base, b->n_guesses);
    int n_best = 0, most = base->n_pairs < base->near_pairs ? base->n_pairs : base->near_pairs;
    for (int n = 1; n <= offer->k_max && n <= DRAFT_MAX && b->n_guesses + n <= most; n++) {
        survival *= (double)planner_chain_next(&chain);
        if (survival < least_survival) break;
        added += ratio * survival * (1 - b->stays[n - 1]);
        double us = b->us + planner_step_us(b->p, base, b->n_guesses + n) - before_us;
        double promised = log1p(added / b->tokens) - base->n_lanes * log(us / b->us);
        if (promised <= *value) continue;
        *value = promised;
        *best = (struct planner_branch){*offer, (float)added, (float)promised};
        n_best = n;
    }
    return n_best;
}

double planner_branch_all(struct planner *p, const struct planner_base *base,
                          struct planner_lane *lanes, int n_lanes, int n_guesses, double us)
{
    for (int i = 0; i < n_lanes; i++) {
        struct planner_lane *lane = &lanes[i];
        struct branching b = {.p = p, .base = base, .lane = lane, .n_guesses = n_guesses, .us = us};
        double value = least_value, before_us = planner_step_us(p, base, n_guesses);
        int n_branch = 0;
        if (lane->tree.n == 0 || lane->offer || lane->siblings_max == 0) continue;
        for (int o = 0; o < lane->n_offers; o++) {
            if (!lane->offers[o].is_fixed) continue;
            if (b.tokens == 0) follow_draft(&b);
            int n = try_offer(&b, &lane->offers[o], &lane->branch, &value);
            if (n > 0) n_branch = n;
        }
        guess_tree_plan(&lane->tree, n_branch, GUESS_BRANCH);
        n_guesses += n_branch;
        us += planner_step_us(p, base, n_guesses) - before_us;
    }
    return us;
}
