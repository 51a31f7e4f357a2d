/* The setup of every program: memory tuning, as many open files as may be, SIGPIPE off, an orderly
 * end on a signal, and SIGHUP as the wish that files are read again. */
#pragma once

#include <stdbool.h>

#include "base/error.h"

typedef void process_fn(void *arg);

/* Both are called on one thread of their own, never at the same time. */
struct process_calls {
    /* Called once, when SIGTERM, SIGINT or SIGUSR1 arrives; mpirun passes the last one on to the
     * ranks of all hosts. A second signal, or `grace_ms` after the first one, ends the process at
     * once with exit status 128 + signal, even while on_stop runs. */
    process_fn *on_stop;
    /* Called after SIGHUP, but not any more once on_stop was called; several signals may make one
     * call. NULL: SIGHUP ends the process, as it does by default. */
    process_fn *on_reload;
    void *arg;
    /* Until process_started the program has begun nothing that on_stop could finish: already the
     * first signal ends the process at once, as a second one does later. */
    bool is_starting;
};

/* Called before any other thread exists: blocks the signals in the calling thread, from which new
 * threads inherit that, and starts the signal threads. Copies calls.
 * Errors: ERR_IO no thread can be started. */
int process_open(const struct process_calls *calls, int grace_ms, struct error *err);

/* The program has started, and from now on on_stop is called. */
void process_started(void);

/* Waits for a call that runs, then stops the signal thread and its timeout: the program has
 * ended normally. Restores the calling thread's signal mask from before process_open. */
void process_close(void);

/* Shortens the grace time: on_stop has seen that its work is over, and at most grace_ms are left.
 * From any thread; does nothing while the process is not stopping. */
void process_hasten(int grace_ms);

/* The process can no longer do its work: it ends as after SIGTERM, what was accepted is finished
 * within the grace time, but its exit status says that it has failed, so that its supervisor
 * starts it again. From any thread; does not wait. Nothing happens where the process is ending
 * already, or outside of open and close. */
void process_fail(void);
bool process_has_failed(void);

/* Ends the process now, from any thread, without running anything else: for a watchdog that found
 * the engine stuck. The supervisor (mpirun) sees the status. */
void process_end_now(int status);
