/* The order in which the planner hands guesses out. The planner's own
 * (speculation/planner/planner.h). */
#pragma once

#include "speculation/planner/grow.h"

enum { PLANNER_PAIRS_MAX = PLANNER_LANES_MAX * DRAFT_MAX * (1 + SIBLINGS_MAX) };

/* The pairs in descending gain, as far as somebody has asked: a heap holds the next guess of each
 * lane, and the next sibling of each guess that it has left; or, where lanes grow, the best guess
 * of each lane. */
struct planner_order {
    struct planner *p;
    struct planner_growing *growing; /* [lanes]; NULL: nothing is guessed after siblings */
    const struct planner_lane *lanes;
    struct planner_pair pairs[PLANNER_PAIRS_MAX];
    int n_pairs;
    struct planner_pair heap[PLANNER_LANES_MAX * (DRAFT_MAX + 1) + 1];
    int n_heap, n_lanes;
    bool has_siblings;
    struct planner_chain chains[PLANNER_LANES_MAX];
    short nodes[PLANNER_LANES_MAX];  /* pairs of the lane that were taken */
    float tokens[PLANNER_LANES_MAX]; /* that the lane is expected to commit without its next pair */
};

/* Begins with the lanes that may guess, each with its offer or its model; more than
 * PLANNER_LANES_MAX are left out. Keeps p and lanes. */
void planner_order_begin(struct planner *p, const struct planner_lane *lanes, int n_lanes,
                         struct planner_order *order);

/* As planner_order_begin, with guesses after siblings where a lane may have them; growing[n_lanes]
 * is kept. */
void planner_order_begin_growing(struct planner *p, const struct planner_lane *lanes, int n_lanes,
                                 struct planner_growing *growing, struct planner_order *order);

/* Pair number i; NULL: there are no more. */
const struct planner_pair *planner_order_at(struct planner_order *order, int i);

/* Goes on to the next guess of a lane, whose last one has this survival. Not to a sibling. */
struct planner_pair planner_order_next(struct planner_order *order, int lane, float survival);
