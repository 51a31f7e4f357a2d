/* Guesses that a finder makes after those of the draft model (speculation/planner/append.h), for
 * sequences whose number of guesses is planned. Owned by the engine thread. */
#pragma once

#include "coordinator/draft/drafters.h"
#include "speculation/planner/append.h"

enum append_mode {
    APPEND_OFF,
    APPEND_AUTO, /* where they are predicted to be worth their rows */
    APPEND_ON    /* all that are found */
};

struct appended {
    enum append_mode mode;
    const struct drafter *finder; /* NULL: there are no such guesses */
    struct planner *planner;
};

/* With the first finder that can say what comes after guesses, if there is a draft model. Keeps
 * it and the planner. */
void appended_begin(struct appended *appended, enum append_mode mode,
                    const struct drafters *drafters, struct planner *planner);

/* One sequence's share of a call. */
struct append_lane {
    struct draft_lane *lane; /* whose draft is complete */
    int model;               /* that has made it */
    int n_max;               /* guesses that rows and KV were set aside for */
    int evidence;            /* out: of those that were added */
};

/* Adds guesses to the lanes' drafts, and none after one that ends its text. They are looked up
 * after the guesses before them, all of which are sent, and q is one-hot. Errors of a lane:
 * ERR_NO_MEMORY. */
void appended_add(const struct appended *appended, struct append_lane *lanes, int n,
                  const struct planner_append_load *load, struct arena *arena);
