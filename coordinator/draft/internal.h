/* The drafters, a row each. A new drafter is a file in this folder and a row here.
 *
 * Those that compute, by what their names in --draft begin with. A name belongs to the first row
 * that it fits. So that no folder is taken for another drafter, what a row's names begin with ends
 * in a colon, as in "synthetic:". */
#pragma once

#include <stdint.h>

struct drafter_ops; /* coordinator/draft/drafter.h */

#define DRAFTERS(DRAFTER)        \
    DRAFTER("", model_draft_ops) \
    /* the last row: every other name is a model's folder, or "synthetic:..." */

#define DRAFTER_DECLARED(prefix, ops) extern const struct drafter_ops ops;
DRAFTERS(DRAFTER_DECLARED)

/* Those that find, by their names in --lookup, in the order of struct planner_offer's `finder`. */
#define FINDERS(FINDER)                   \
    FINDER("session", session_finder_ops) \
    FINDER("store", store_finder_ops)     \
    FINDER("datastore", datastore_finder_ops)

#define FINDER_DECLARED(name, ops) extern const struct drafter_ops ops;
FINDERS(FINDER_DECLARED)
#undef FINDER_DECLARED

struct draft_lane;
struct arena;

/* coordinator/draft/finder.c: the lane's guesses are tokens[n], up to one that ends the text, with
 * one-hot q's. */
void finder_take(struct draft_lane *lane, const int32_t *tokens, int n, struct arena *arena);
#undef DRAFTER_DECLARED
