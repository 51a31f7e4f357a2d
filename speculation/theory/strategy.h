/* How K, the number of guesses of a round, is chosen, and what was measured to choose it. Requests,
 * summaries and descriptions carry both. */
#pragma once

#include "base/limits.h"

enum strategy {
    STRATEGY_DEFAULT, /* of a request: fixed where it names K, otherwise the coordinator's */
    STRATEGY_PLANNED,
    STRATEGY_FIXED,
    STRATEGY_HEURISTIC,
    STRATEGY_THRESHOLD,
    N_STRATEGIES
};

/* [N_STRATEGIES] "default", "planned", ... */
extern const char *const strategy_names[];

enum { TIME_POINTS_MAX = 80 };

/* A time by numbers of rows or lanes, ascending. */
struct time_table {
    int n;
    struct time_point {
        float rows, us;
    } points[TIME_POINTS_MAX];
};

/* The planner's measurements by numbers of rows: a pass of the draft (by lanes), a step, and the
 * rest of a round. Empty where there was nothing to measure. */
struct time_tables {
    struct time_table draft, step, rest;
};

/* The planner's measurements, times in us; zeros where there was nothing to measure. */
struct estimates {
    int n_rounds;              /* whose times were taken, of all requests */
    float draft_us;            /* a guess */
    float read_us;             /* a token of a longer text, read by the draft */
    float step_us, row_us;     /* a step of one row, and what each further row adds */
    float rtt_us;              /* of a round: neither draft nor step */
    float alpha;               /* over all positions */
    int n_positions;           /* that were tested */
    float alpha_at[DRAFT_MAX]; /* that the guess at a position stays if it is tested */
};
