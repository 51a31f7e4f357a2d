/* Rounds over the sequences that have places, all of them in one step or in halves that take turns.
 * Wraps round_run (round.c). Owned by the engine thread. */
#pragma once

#include "coordinator/round/tools.h"

struct half_batches;

/* Keeps a copy of tools. Errors: ERR_NO_MEMORY. */
int half_batches_open(struct half_batches **batches, const struct round_tools *tools,
                      struct error *err);
void half_batches_close(struct half_batches *batches);

/* The sequence loses its place or ends: a step that was prepared for it leaves it out. Call it
 * between rounds. */
void half_batches_drop(struct half_batches *batches, const struct sequence *seq);

/* Runs one round for seqs[n], oldest first, or for half of them. A sequence whose own part fails is
 * failed here and has is_over set; one that had to give up its place has is_evicted set; the others
 * go on. *is_idle: nobody could go on. Errors: ERR_UNAVAILABLE, ERR_TIMEOUT the group is lost:
 * nothing was committed. */
int half_batches_run(struct half_batches *batches, struct sequence **seqs, int n, bool *is_idle,
                     struct error *err);
