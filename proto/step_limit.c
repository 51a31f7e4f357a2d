/* How long a step may take. */
#include "proto/step_limit.h"

#include <stddef.h>

enum { FADE_STEPS = 64 }; /* what is remembered falls by this part of it with each step */

void step_limit_init(struct step_limit *limit, int64_t most_us)
{
    *limit = (struct step_limit){.most_us = most_us};
}

struct step_work step_work_of(const struct step *step)
{
    struct step_work work = {0};
    for (int i = 0; i < step->n_lanes; i++) {
        const struct step_lane *lane = &step->lanes[i];
        work.n += lane->n_tokens + lane->n_rows;
        work.attended += (int64_t)lane->n_tokens * (lane->position + lane->n_tokens);
    }
    return work;
}

static int size_of(int64_t n)
{
    int i = 0;
    while (n > 1 && i < STEP_LIMIT_SIZES - 1) {
        n /= 2;
        i++;
    }
    return i;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The size of steps that `size` is judged by: itself, the next larger one, or the next smaller one
 * that has been seen often enough; -1: none. */
static int known_size(const struct step_limit *limit, int size)
{
    for (int i = size; i < STEP_LIMIT_SIZES; i++) {
        if (limit->sizes[i].n_steps >= STEP_LIMIT_STEPS) return i;
    }
    while (--size >= 0 && limit->sizes[size].n_steps < STEP_LIMIT_STEPS) {
    }
    return size;
}

/* A step takes at most as long as one of more work, and its time grows at most in proportion to its
 * work and to what it attends to. */
int64_t step_limit_expected_us(const struct step_limit *limit, const struct step_work *work)
{
    int size = size_of(work->n), known = known_size(limit, size);
    if (work->n == 0 || known < 0) return -1;
    const struct step_times *times = &limit->sizes[known];
    double us = (double)times->longest_us;
    if (known < size) us *= (double)((int64_t)1 << (size - known));
    if (work->attended > times->attended) {
        us *= (double)work->attended / (double)larger(times->attended, 1);
    }
    return us < (double)limit->most_us ? (int64_t)us : limit->most_us;
}

int64_t step_limit_us(const struct step_limit *limit, const struct step_work *work)
{
    int64_t expected_us = step_limit_expected_us(limit, work);
    if (expected_us < 0 || expected_us > limit->most_us / STEP_LIMIT_FACTOR) return limit->most_us;
    int64_t us = larger(expected_us * STEP_LIMIT_FACTOR, STEP_LIMIT_FLOOR_US);
    return us < limit->most_us ? us : limit->most_us;
}

static int64_t faded(int64_t value, int64_t latest)
{
    return larger(value - value / FADE_STEPS, latest);
}

void step_limit_observe(struct step_limit *limit, const struct step_work *work, int64_t took_us)
{
    if (work->n == 0) return;
    struct step_times *times = &limit->sizes[size_of(work->n)];
    times->longest_us = faded(times->longest_us, took_us);
    times->attended = faded(times->attended, work->attended);
    if (times->n_steps < STEP_LIMIT_STEPS) times->n_steps++;
}
