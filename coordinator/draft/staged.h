/* The stage of a draft model (struct draft_stage): what a finder expects it to guess, as far as the
 * planner predicts that passes are saved. Owned by the engine thread. */
#pragma once

#include "coordinator/draft/drafters.h"

struct planner; /* speculation/planner/planner.h */

enum staged_mode {
    STAGED_AUTO, /* as far as it is predicted to save time */
    STAGED_ON,   /* all that is expected */
    STAGED_OFF
};

struct staged {
    struct draft_stage base;
    int model; /* whose stage it is */
    bool reads_all;
    const struct drafter *finder;
    struct planner *planner;
};

/* Makes it the stage of the first draft model that can read ahead, unless the mode is off, if there
 * is one and a finder that can say what it expects. Keeps the finder and the planner; the model
 * keeps it. */
void staged_begin(struct staged *staged, enum staged_mode mode, const struct drafters *drafters,
                  struct planner *planner);
