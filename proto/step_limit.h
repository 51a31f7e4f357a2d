/* How long a step may take before a rank is taken to hang, by the ranks themselves and by the
 * coordinator. A fixed limit that a large model needs
 * on a slow machine is minutes too long where steps take milliseconds, so the limit follows what
 * steps of a size have taken: STEP_LIMIT_FACTOR times that, but never less than
 * STEP_LIMIT_FLOOR_US and never more than --step-timeout. Pure arithmetic; owned by the engine
 * thread. */
#pragma once

#include <stdint.h>

#include "proto/target_wire.h"

enum {
    STEP_LIMIT_FACTOR = 20,
    STEP_LIMIT_FLOOR_US = 5000000,
    STEP_LIMIT_STEPS = 4, /* of a size before the limit follows them */
    STEP_LIMIT_SIZES = 24 /* powers of two */
};

/* The work of a step. */
struct step_work {
    int64_t n;        /* tokens that are fed and rows that are answered */
    int64_t attended; /* pairs of a token and a position before it */
};

/* Steps of work n in [2^i, 2^(i + 1)). */
struct step_times {
    int n_steps;
    int64_t longest_us; /* a recent step took so long; both fall slowly, so one outlier goes by */
    int64_t attended;   /* the most of a recent step */
};

struct step_limit {
    int64_t most_us; /* --step-timeout */
    struct step_times sizes[STEP_LIMIT_SIZES];
};

void step_limit_init(struct step_limit *limit, int64_t most_us);

/* The work of a step; n = 0 where it only answers further values, which is neither measured nor
 * limited by less than --step-timeout. */
struct step_work step_work_of(const struct step *step);

/* Microseconds that the step takes, if it takes as long as the longest recent one; -1 = not known
 * yet. */
int64_t step_limit_expected_us(const struct step_limit *limit, const struct step_work *work);

/* Microseconds that the step may take. */
int64_t step_limit_us(const struct step_limit *limit, const struct step_work *work);

/* The step has been computed. Steps that were refused must not be told, because they took no
 * time. */
void step_limit_observe(struct step_limit *limit, const struct step_work *work, int64_t took_us);
