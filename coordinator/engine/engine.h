/* The engine of one target group: takes jobs off its queue, connects to the groups that are found
 * for it (coordinator/job/groups.h), runs rounds over its sequences. One thread, which owns
 * everything here. */
#pragma once

#include "coordinator/engine/options.h"

struct engine;

int engine_open(struct engine **engine, const struct engine_options *options, struct error *err);
void engine_close(struct engine *engine);

/* Runs until the queue of jobs is shut, and ends what is left. Errors: those of waiting for
 * jobs. */
int engine_run(struct engine *engine, struct error *err);
