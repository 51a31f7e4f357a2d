/* One round over all active sequences: draft, verify, accept, commit (docs/design.md section 7). */
#pragma once

#include "coordinator/draft/ahead.h"
#include "coordinator/target.h"
#include "speculation/planner.h"

/* What a round needs; owned by the engine thread. */
struct round_tools {
    struct target *target;
    struct drafter *drafter; /* NULL = none */
    struct ahead *ahead;     /* with a drafter */
    struct block_pool *target_pool;
    struct planner *planner;
    const struct tokenizer *tok;
    struct arena *arena; /* reset at the start of each round */
};

/* Runs one round for seqs[n] (all active). A sequence whose own part fails is failed and ended
 * here; the others go on. Errors: ERR_UNAVAILABLE, ERR_TIMEOUT the group is lost: nothing was
 * committed. */
int round_run(const struct round_tools *tools, struct sequence **seqs, int n, struct error *err);
