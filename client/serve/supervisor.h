/* Runs workers and coordinator until a signal: starts them, says how far that is, starts them again
 * when they die, and ends them. */
#pragma once

#include "client/serve/options.h"

enum { SUPERVISOR_FAILED = 1 };

/* group, coordinator: whole command lines. Returns the exit status; what went wrong has been
 * said. */
int supervisor_run(const struct serve_options *options, const struct serve_words *group,
                   const struct serve_words *coordinator);
