/* Chooses the source of a lane's guesses: a draft model, or an offer that was found. The planner's
 * own (speculation/planner/planner.h). */
#pragma once

#include "speculation/planner/sum.h"

enum planner_way {
    PLANNER_EACH_ITS_OWN, /* what is best for a lane alone */
    PLANNER_ALL_FOUND,    /* offers, where there are any */
    PLANNER_ALL_DRAFTED,  /* the first model, where it may; and so on */
    PLANNER_WAYS = PLANNER_ALL_DRAFTED + PLANNER_MODELS
};

/* True if the model may guess for the lane, and its times are known. */
static inline bool planner_may_draft(const struct planner *p, const struct planner_lane *lane,
                                     int model)
{
    return lane->models[model].k_max > 0 && p->models[model].draft.largest > 0;
}

/* Sets the lanes' offers and models; returns how many lanes differ from before. */
int planner_assign(struct planner *p, const struct planner_base *base, struct planner_lane *lanes,
                   int n_lanes, enum planner_way way);
