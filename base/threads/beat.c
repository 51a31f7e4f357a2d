/* A thread that looks at every counter in naps, as base/threads/watchdog.c does: when it looks much
 * later than a nap after the last look, the process could not run in between. */
#include "base/threads/beat.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/threads/monitor.h"

enum {
    NAP_US = 500000,
    STALL_US = 250000 /* waking up so much later than asked is not the scheduler's doing alone */
};

struct beater {
    /* Counts the marks; odd while nothing is expected. Written by its thread alone; the release
     * order shows on_change what was written before the first mark. */
    atomic_uint_fast64_t count;
    uint_fast64_t seen; /* the last look's */
    int64_t age_us;     /* at the last look */
};

struct beat {
    struct beat_options options;
    struct monitor monitor; /* of what follows, but for the counts */
    struct beater *beaters; /* [n_threads] */
    int64_t looked_us;
    bool is_alive, is_shut;
    pthread_t thread;
};

static bool is_expected(uint_fast64_t count)
{
    return count % 2 == 0;
}

static void look(struct beat *beat)
{
    int64_t now_us = clock_now_us(), since_us = now_us - beat->looked_us;
    if (since_us > NAP_US + STALL_US) since_us = NAP_US;
    beat->looked_us = now_us;
    for (int i = 0; i < beat->options.n_threads; i++) {
        struct beater *beater = &beat->beaters[i];
        uint_fast64_t count = atomic_load_explicit(&beater->count, memory_order_acquire);
        bool is_still = is_expected(count) && count == beater->seen;
        beater->age_us = is_still ? beater->age_us + since_us : 0;
        beater->seen = count;
    }
}

/* With the monitor entered. */
static int64_t age_now_us(const struct beat *beat, int thread)
{
    const struct beater *beater = &beat->beaters[thread];
    uint_fast64_t count = atomic_load_explicit(&beater->count, memory_order_acquire);
    int64_t since_us = clock_now_us() - beat->looked_us;
    if (!is_expected(count) || count != beater->seen) return 0;
    return beater->age_us + (since_us < NAP_US ? since_us : NAP_US);
}

/* The thread that hangs for longest, or -1. With the monitor entered. */
static int find_hung(const struct beat *beat, int64_t *age_us)
{
    int found = -1;
    *age_us = beat->options.limit_us;
    for (int i = 0; i < beat->options.n_threads; i++) {
        int64_t its_us = age_now_us(beat, i);
        if (its_us < *age_us) continue;
        *age_us = its_us;
        found = i;
    }
    return found;
}

/* The state is stored before on_change is called, which might hang itself. */
static void *watch(void *arg)
{
    struct beat *beat = arg;
    int64_t age_us;
    monitor_enter(&beat->monitor);
    while (!beat->is_shut) {
        look(beat);
        bool is_alive = find_hung(beat, &age_us) < 0;
        if (is_alive == beat->is_alive) {
            monitor_wait(&beat->monitor, clock_now_us() + NAP_US);
            continue;
        }
        beat->is_alive = is_alive;
        monitor_leave(&beat->monitor);
        if (beat->options.on_change) beat->options.on_change(beat->options.arg, is_alive);
        monitor_enter(&beat->monitor);
    }
    monitor_leave(&beat->monitor);
    return NULL;
}

int beat_open(struct beat **out, const struct beat_options *options, struct error *err)
{
    struct beat *beat = NULL;
    int rc = 0;
    *out = NULL;
    TRY(mem_array(&beat, 1, sizeof *beat, err));
    beat->options = *options;
    beat->is_alive = true;
    beat->looked_us = clock_now_us();
    TRY(mem_array(&beat->beaters, (size_t)options->n_threads, sizeof *beat->beaters, err));
    for (int i = 0; i < options->n_threads; i++) {
        beat->beaters[i].seen = 1;
        atomic_init(&beat->beaters[i].count, 1);
    }
    monitor_open(&beat->monitor);
    if (pthread_create(&beat->thread, NULL, watch, beat)) {
        monitor_close(&beat->monitor);
        rc = error_set(err, ERR_NO_MEMORY, "cannot start the thread that finds hung threads");
        goto out;
    }
    *out = beat;
    beat = NULL;
out:
    if (beat) free(beat->beaters);
    free(beat);
    return rc;
}

void beat_close(struct beat *beat)
{
    if (!beat) return;
    monitor_enter(&beat->monitor);
    beat->is_shut = true;
    monitor_wake(&beat->monitor);
    monitor_leave(&beat->monitor);
    pthread_join(beat->thread, NULL);
    monitor_close(&beat->monitor);
    free(beat->beaters);
    free(beat);
}

static void set_count(struct beat *beat, int thread, uint_fast64_t step)
{
    atomic_uint_fast64_t *count = &beat->beaters[thread].count;
    uint_fast64_t now = atomic_load_explicit(count, memory_order_relaxed);
    atomic_store_explicit(count, (now | 1) + step, memory_order_release);
}

void beat_mark(struct beat *beat, int thread)
{
    set_count(beat, thread, 1);
}

void beat_excuse(struct beat *beat, int thread)
{
    set_count(beat, thread, 0);
}

int64_t beat_age_us(struct beat *beat, int thread)
{
    monitor_enter(&beat->monitor);
    int64_t age_us = age_now_us(beat, thread);
    monitor_leave(&beat->monitor);
    return age_us;
}

int beat_check(struct beat *beat, struct error *err)
{
    int64_t age_us;
    monitor_enter(&beat->monitor);
    int hung = find_hung(beat, &age_us);
    monitor_leave(&beat->monitor);
    if (hung < 0) return 0;
    return error_set(err, ERR_TIMEOUT, "%s has made no progress for %lld s",
                     beat->options.names[hung], (long long)(age_us / 1000000));
}
