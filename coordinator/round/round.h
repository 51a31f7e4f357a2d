/* One round over the sequences that have places: plan, draft, verify, accept, commit
 * (docs/design.md section 7). Owned by the engine thread. */
#pragma once

#include "coordinator/round/tools.h"

struct round;

int round_open(struct round **round, const struct round_tools *tools, struct error *err);
void round_close(struct round *round);

/* The sequence loses its place or ends: a step that was prepared for it leaves it out. Call it
 * between rounds. */
void round_drop(struct round *round, const struct sequence *seq);

/* Runs one round for seqs[n], oldest first. A sequence whose own part fails is failed here and has
 * is_over set; one that had to give up its place has is_evicted set; the others go on. *is_idle:
 * nobody could go on. Errors: ERR_UNAVAILABLE, ERR_TIMEOUT the group is lost: nothing was
 * committed. */
int round_run(struct round *round, struct sequence **seqs, int n, bool *is_idle, struct error *err);
