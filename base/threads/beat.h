/* Finds threads that hang. A thread that is never long without a turn of its loop marks each turn;
 * if it marks none for as long as the limit, it hangs. Before its first mark, and while something
 * else bounds its work (base/threads/watchdog.h), nothing is expected of it. Time in which the
 * whole process could not run does not count, as for the watchdog, so a probe that asks right after
 * a pause is not told of a thread that hangs. Locked inside, but for marks, which take no lock. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct beat;

typedef void beat_fn(void *arg, bool is_alive);

struct beat_options {
    const char *const *names; /* [n_threads], kept: "the engine thread" */
    int n_threads;
    int64_t limit_us;
    /* All threads make progress again, or one does not any more: called at every change, about half
     * a second late at most, on the beat's thread and without a lock. They do at first. May be
     * NULL. */
    beat_fn *on_change;
    void *arg;
};

/* Starts a thread that looks twice a second. Errors: ERR_NO_MEMORY. */
int beat_open(struct beat **beat, const struct beat_options *options, struct error *err);
/* The threads do not mark any more. Accepts NULL. */
void beat_close(struct beat *beat);

/* By that thread alone. What it has written before is seen by on_change. */
void beat_mark(struct beat *beat, int thread);
/* Nothing is expected of the thread until its next mark. By that thread alone. */
void beat_excuse(struct beat *beat, int thread);

/* For how long the thread has made no mark; 0 while nothing is expected of it. */
int64_t beat_age_us(struct beat *beat, int thread);
/* Errors: ERR_TIMEOUT a thread hangs; the sentence names it, and says for how long. */
int beat_check(struct beat *beat, struct error *err);
