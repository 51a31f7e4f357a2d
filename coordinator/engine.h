/* The engine: takes jobs off the queue, keeps the target connected, runs rounds over its sequences.
 * One thread, which owns everything here. */
#pragma once

#include "coordinator/engine_options.h"

struct engine;

int engine_open(struct engine **engine, const struct engine_options *options, struct error *err);
void engine_close(struct engine *engine);

/* Runs until the queue of jobs is shut. Errors: ERR_ARGUMENT the first group that answered does not
 * fit (target_connect). */
int engine_run(struct engine *engine, struct error *err);
