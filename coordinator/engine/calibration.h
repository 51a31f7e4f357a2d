/* Times of a new pair of models, measured before the first request: steps of the idle group and
 * passes of the draft over growing numbers of lanes. With them the planner needs no rounds of
 * learning and knows large steps before they are used. Owned by the engine thread. */
#pragma once

#include "coordinator/draft/drafter.h"
#include "coordinator/target/target.h"
#include "speculation/planner/planner.h"

/* A calibration may take so many times its budget. */
enum { CALIBRATION_LATE = 10 };

/* Is asked before each measurement, also to show that the thread is alive; false: what was measured
 * has to do. */
typedef bool calibration_goes_on_fn(void *arg);

/* Takes budget_us, or as long as every size up to 64 lanes takes, up to ten times as much, apart
 * from a step that is running then. Nothing of the group may be in use. n_lanes: the most lanes.
 * drafter: NULL = none.
 * Errors: ERR_UNAVAILABLE, ERR_TIMEOUT the group is lost; ERR_NO_MEMORY. */
int calibration_run(struct target *target, struct drafter *drafter, struct planner *planner,
                    int n_lanes, int64_t budget_us, calibration_goes_on_fn *goes_on, void *arg,
                    struct error *err);
