/* What every program does once: memory tuning, SIGPIPE off, and a quiet way to end. */
#pragma once

#include "base/error.h"

/* Called once, on a thread of its own, when SIGTERM or SIGINT arrives. A second signal, or `grace_ms`
 * after the first, ends the process at once with exit status 128 + signal, also while on_stop runs. */
typedef void process_stop_fn(void *arg);

/* Call before any other thread exists: blocks the signals in the calling thread (new threads
 * inherit that) and starts the signal threads. Errors: ERR_IO no thread can be started. */
int process_open(process_stop_fn *on_stop, void *arg, int grace_ms, struct error *err);

/* Waits for an on_stop that runs, then stops the signal thread and the grace clock: the program has
 * ended in good order. The calling thread's signal mask is as it was before process_open. */
void process_close(void);

/* Ends the process now, from any thread, without running anything else: for a watchdog that found
 * the engine stuck. The supervisor (mpirun) sees the status. */
void process_end_now(int status);
