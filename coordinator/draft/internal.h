/* The drafters, a row each: what their names begin with, and their operations. A name belongs to
 * the first row that it fits. So that no folder is taken for another drafter, what a row's names
 * begin with ends in a colon ("ngram:"), as in "synthetic:". A new drafter is a file in this folder
 * and a row here. */
#pragma once

struct drafter_ops; /* coordinator/draft/drafter.h */

#define DRAFTERS(DRAFTER)        \
    DRAFTER("", model_draft_ops) \
    /* the last row: every other name is a model's folder, or "synthetic:..." */

#define DRAFTER_DECLARED(prefix, ops) extern const struct drafter_ops ops;
DRAFTERS(DRAFTER_DECLARED)
#undef DRAFTER_DECLARED
