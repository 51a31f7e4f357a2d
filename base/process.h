/* What every program does once: memory tuning, SIGPIPE off, and an orderly end on a signal. */
#pragma once

#include "base/error.h"

/* Called once, on a thread of its own, when SIGTERM or SIGINT arrives. A second signal, or
 * `grace_ms` after the first one, ends the process at once with exit status 128 + signal, even
 * while on_stop runs. */
typedef void process_stop_fn(void *arg);

/* Called before any other thread exists: blocks the signals in the calling thread, from which new
 * threads inherit that, and starts the signal threads.
 * Errors: ERR_IO no thread can be started. */
int process_open(process_stop_fn *on_stop, void *arg, int grace_ms, struct error *err);

/* Waits for an on_stop that runs, then stops the signal thread and its timeout: the program has
 * ended normally. Restores the calling thread's signal mask from before process_open. */
void process_close(void);

/* Ends the process now, from any thread, without running anything else: for a watchdog that found
 * the engine stuck. The supervisor (mpirun) sees the status. */
void process_end_now(int status);
