/* Probes: rounds whose guesses are not the best ones, made to measure them and paid from a credit.
 * The planner's own (speculation/planner/planner.h). */
#pragma once

#include "speculation/planner/sum.h"

/* The first n pairs of an order that are less deep than depth. */
struct planner_choice {
    int depth, n;
    double gain, us;
};

static inline struct planner_choice planner_choice_of(const struct planner_sum *sum, int depth)
{
    return (struct planner_choice){depth, sum->n_guesses, sum->gain, sum->us};
}

/* How much longer the round may take, as a ratio, for so much gain. */
double planner_worth(const struct planner_base *base, double gain);

/* Makes another number of guesses the choice if that is due and the credit pays it. Returns whether
 * it is due and the credit will pay it soon. */
bool planner_probe_around(struct planner *p, const struct planner_sum *plain,
                          struct planner_order *order, struct planner_choice *best);

/* Lets a model make a few guesses in one lane, in place of what else guesses there, if anything
 * does: otherwise nobody would notice that it has become the better one. *best, which was handed
 * out and whose lanes are those of the order, is what its price is counted from. False: it is not
 * paid, or there is no such lane. */
bool planner_probe_model(struct planner *p, struct planner_sum sum, struct planner_lane *lanes,
                         int n_lanes, struct planner_order *order,
                         const struct planner_choice *best);

/* True if a model has read to be tried in a lane, and may guess there. That comes before other
 * probes, because it is paid, and because the model soon misses more than it may. */
bool planner_has_trial(const struct planner *p, const struct planner_lane *lanes, int n_lanes);
