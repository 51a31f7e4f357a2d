/* Predicts the cost of a round while guesses are handed out. The planner's own
 * (speculation/planner/planner.h). */
#pragma once

#include "speculation/planner/order.h"
#include "speculation/planner/planner.h"

/* A round without the guesses of planned lanes, and what limits them. */
struct planner_base {
    int rows, wanted;       /* fed; those that somebody wants, which the prompts' are not */
    int n_lanes, n_waiting; /* that commit tokens or wait for their first one; those that wait */
    int n_pairs;            /* guesses, at most */
    /* Guesses, and tokens that each model's first pass reads for them, not far beyond those
     * measured. */
    int near_pairs, near_fed[PLANNER_MODELS];
    double us;          /* without what prompts add to the step */
    double draft_us;    /* of us: passes of other lanes */
    double features_us; /* of us: for the features that are sent */
    double prompt_us;
};

struct planner_base planner_base_of(const struct planner *p, int n_lanes,
                                    const struct planner_load *load);

/* Predicted time of the step and the rest of the round, with n_guesses guesses. */
double planner_step_us(const struct planner *p, const struct planner_base *base, int n_guesses);

/* Adds up a round. */
struct planner_sum {
    const struct planner *p;
    const struct planner_base *base;
    double gain, draft_us, features_us, us;
    int n_guesses;
    /* Tokens that each pass of each model is expected to read. */
    double passes[PLANNER_MODELS][DRAFT_MAX];
};

/* Without guesses of planned lanes. Keeps p and base. */
struct planner_sum planner_sum_begin(const struct planner *p, const struct planner_base *base,
                                     const struct planner_load *load);

/* With one more. */
void planner_sum_add(struct planner_sum *sum, const struct planner_lane *lane,
                     const struct planner_pair *pair);

/* Time of reading what the lane's model has missed, over the tokens to come. */
double planner_missed_us(const struct planner *p, const struct planner_lane *lane);
