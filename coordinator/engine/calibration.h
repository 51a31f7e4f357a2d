/* Times of a new pair of models, measured while no text is served: steps of the idle group and
 * passes of the draft models over growing numbers of lanes. With them the planner needs no rounds
 * of learning and knows large steps before they are used. Owned by the engine thread. */
#pragma once

#include <stdbool.h>

#include "coordinator/draft/drafters.h"
#include "coordinator/kv/blocks.h"
#include "coordinator/target/target.h"
#include "speculation/planner/planner.h"

/* A calibration may take so many times its budget. */
enum { CALIBRATION_LATE = 10 };

/* All of it outlives the calibration. */
struct calibration_options {
    struct target *target;
    const struct drafters *drafters; /* whose draft models are measured */
    struct block_pool *pool; /* of the target; a step takes blocks that nobody holds or knows */
    struct planner *planner; /* is taught */
    int n_lanes;             /* the most lanes */
    /* Time that the measurements take together, or as much as every size up to 64 lanes needs, up
     * to CALIBRATION_LATE times as much, apart from a step that is running then. */
    int64_t budget_us;
};

struct calibration;

/* Errors: ERR_NO_MEMORY. */
int calibration_open(struct calibration **calibration, const struct calibration_options *options,
                     struct error *err);
void calibration_close(struct calibration *calibration);

/* Makes the next measurement: a step, or a few passes of the draft. No text may have a place. It is
 * expected to take at most a quarter of a second, or four times as long as one lane where that is
 * more. The planner is taught when all measurements are there. *is_done: there is none left.
 * Errors: ERR_UNAVAILABLE, ERR_TIMEOUT the group is lost; ERR_NO_MEMORY. */
int calibration_next(struct calibration *calibration, bool *is_done, struct error *err);
/* False: a size was left out because too few blocks were free, in every try. Another calibration
 * may find them. */
bool calibration_is_whole(const struct calibration *calibration);
