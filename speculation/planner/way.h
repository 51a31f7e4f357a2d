/* Chooses the source of a lane's guesses: the draft, or an offer that was found. The planner's own
 * (speculation/planner/planner.h). */
#pragma once

#include "speculation/planner/sum.h"

enum planner_way {
    PLANNER_EACH_ITS_OWN, /* what is best for a lane alone */
    PLANNER_ALL_FOUND,    /* offers, where there are any */
    PLANNER_ALL_DRAFTED,  /* the draft, where it may */
    PLANNER_WAYS
};

/* Sets the lanes' offers; returns how many differ from before. */
int planner_assign(struct planner *p, const struct planner_base *base, struct planner_lane *lanes,
                   int n_lanes, enum planner_way way);
