/* What every program does once: memory tuning, SIGPIPE off, and a quiet way to end. */
#pragma once

#include "base/error.h"

/* Called on the signal thread when SIGTERM or SIGINT arrives. A second signal, or `grace_ms` after
 * the first, ends the process at once with exit status 128 + signal. */
typedef void process_stop_fn(void *arg);

/* Call before any other thread exists: blocks the signals in the calling thread (new threads
 * inherit that) and starts the signal thread. */
int process_open(process_stop_fn *on_stop, void *arg, int grace_ms, struct error *err);

/* Stops the signal thread and the grace clock: the program has ended in good order. */
void process_close(void);
