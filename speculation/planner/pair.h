/* A guess that the planner may hand out, and what decides its chance. The planner's own
 * (speculation/planner/planner.h). */
#pragma once

#include "speculation/planner/planner.h"

/* Guess `position` of a lane, or a sibling of it, or a guess after one: the chance that it is
 * committed, and what that gains. */
struct planner_pair {
    float gain, survival;
    /* The chance that all guesses for its position, up to it, are tested and rejected. */
    float left;
    uint8_t lane;
    int8_t position;
    int8_t rank; /* 0: the guess itself; 1 .. SIBLINGS_MAX: a sibling; from PLANNER_GROWN on: after
                    one, the first guess there and its siblings */
    int8_t rows; /* after a sibling: that the draft reads more in the pass that makes it */
};

enum { PLANNER_GROWN = 1 + SIBLINGS_MAX };
_Static_assert(PLANNER_LANES_MAX <= UINT8_MAX + 1, "a pair tells its lane");

/* Chance: a guess that is committed more seldom is never made. */
#define PLANNER_LEAST_SURVIVAL 0.01F

/* The drafting of the lane's own model, which guesses where no offer does. */
static inline const struct planner_drafting *planner_lane_draft(const struct planner_lane *lane)
{
    return &lane->models[lane->model];
}

/* The chances of the lane's guesses, by its offer or its model. */
static inline struct planner_chain planner_lane_chain(struct planner *p,
                                                      const struct planner_lane *lane)
{
    int m = lane->model;
    if (!lane->offer) return planner_chain_begin(&lane->seq->counts[m], &p->models[m].prior);
    return planner_offer_chain(&p->reasons, &lane->seq->trust[lane->offer->finder], lane->offer);
}

/* How many it may make, one after the other. */
static inline int planner_lane_most(const struct planner_lane *lane)
{
    int most = lane->offer ? lane->offer->k_max : planner_lane_draft(lane)->k_max;
    return most < DRAFT_MAX ? most : DRAFT_MAX;
}

/* Siblings that guess `position` of the lane may have. */
static inline int planner_lane_siblings(const struct planner_lane *lane, int position)
{
    int most = lane->offer ? lane->offer->siblings[position] : SIBLINGS_MAX;
    return most < lane->siblings_max ? most : lane->siblings_max;
}

/* Gain of a guess that is committed with chance `next`, where so many tokens are expected without
 * it: log(1 + x), and x = next / tokens is at most 1: nearly x (6 + x) / (6 + 4 x). */
static inline float planner_gain(float tokens, float next)
{
    return next * (6 * tokens + next) / (tokens * (6 * tokens + 4 * next));
}
