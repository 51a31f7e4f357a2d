/* One round over the sequences that have places: plan, draft, verify, accept, commit
 * (docs/design.md section 7). Owned by the engine thread. */
#pragma once

#include "coordinator/draft/ahead.h"
#include "coordinator/scheduler.h"

struct round;

/* What a round needs; lent. */
struct round_tools {
    struct target *target;
    struct drafter *drafter; /* NULL = none */
    struct ahead *ahead;     /* with a drafter */
    struct block_pool *target_pool;
    struct planner *planner;
    struct scheduler *scheduler;
    const struct tokenizer *tok;
};

int round_open(struct round **round, const struct round_tools *tools, struct error *err);
void round_close(struct round *round);

/* Runs one round for seqs[n], oldest first. A sequence whose own part fails is failed here and has
 * is_over set; one that had to give up its place has is_evicted set; the others go on. *is_idle:
 * nobody could go on. Errors: ERR_UNAVAILABLE, ERR_TIMEOUT the group is lost: nothing was
 * committed. */
int round_run(struct round *round, struct sequence **seqs, int n, bool *is_idle, struct error *err);
