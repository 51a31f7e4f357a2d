/* Decides which sequences are in a round, and with how many tokens and guesses (docs/design.md
 * section 8). Decoding lanes come first, one row each, and guesses where the planner says that they
 * pay. Prompts are read in chunks beside them, as many rows as keep the step within a bound: half
 * of them in order of arrival, half with short prompts first. What a lane may need, rows and KV
 * blocks for all of its guesses, is set aside before the first one is drawn: a guess that were
 * dropped for lack of room would be dropped or checked depending on its value, and the text would
 * be biased. Where room is missing, lanes with a K of their own wait a round, others go on without
 * guesses, and the youngest sequence gives up its place. So company changes how long a text takes,
 * and never a text that promises not to change. Owned by the engine thread. */
#pragma once

#include "coordinator/schedule/plan.h"

/* Plans a round over seqs[n], which have places, oldest first. Blocks are taken for the lanes of
 * the plan. A sequence that has to give up its place for that is displaced here, and its is_evicted
 * is set; it is not in the plan. An empty plan means that nobody can go on now: clients
 * are slow, or lanes wait for the draft. */
void scheduler_plan(struct scheduler *scheduler, struct sequence **seqs, int n,
                    struct round_plan *plan);
