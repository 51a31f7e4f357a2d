/* Times that the planner learns, as functions of the rows of a step or of a pass of the draft. The
 * planner's own (speculation/planner/planner.h); pure arithmetic. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    /* The most rows that times are kept for; larger steps count as this many. */
    PLANNER_ROWS_MAX = 2048,
    /* Up to here each number of rows is a knot of its own. */
    PLANNER_ROWS_EXACT = 32,
    /* Beyond it 8 knots share each doubling. */
    PLANNER_KNOTS = PLANNER_ROWS_EXACT + 6 * 8
};

/* A running mean of a time that is measured again and again; one outlier moves it little. */
struct planner_time {
    double us;
    int n;
};

/* A number of rows, or a few neighbouring ones, for which times were measured. */
struct planner_knot {
    struct planner_time shape; /* over the curve's scale */
    double rows;               /* mean of the numbers that were measured */
    double share;              /* of the scale: how much of it comes from this knot's last times */
    uint64_t at;               /* the round of the last measurement */
};

/* Time as a function of rows: a scale that follows every measurement (load, length of the text),
 * times a shape that each knot learns when it is used. */
struct planner_curve {
    double scale_us;
    double spread;      /* how far times are from what was expected, as a ratio; 0 = not known */
    uint64_t scaled_at; /* the round that has moved the scale last; each moves it once */
    uint64_t newest;    /* the round of the last measurement of any knot */
    int largest;        /* number of rows that was measured; 0 = none */
    int largest_own;    /* the same without weak measurements */
    bool is_stale;      /* measured since the last fit ... */
    bool is_new;        /* ... what was hardly known before */
    double slope_us;    /* of the fit at its beginning: what a further row adds */
    struct planner_knot knots[PLANNER_KNOTS];
    float fit[PLANNER_ROWS_MAX + 1]; /* us by rows, never falling; [0] = 0 */
};

/* The knot of a number of rows. */
int planner_knot_of(int rows);

/* Learns one time, in round number `at`, from 1. */
void planner_curve_add(struct planner_curve *c, int rows, double us, uint64_t at);

/* Learns a time that something unlike a round of decoding took: it counts less and says nothing of
 * the scale. */
void planner_curve_add_weakly(struct planner_curve *c, int rows, double us, uint64_t at);

/* Sets what was measured carefully: as if it had been measured n times, in the newest round. It
 * takes the place of what was known of these rows. */
void planner_curve_set(struct planner_curve *c, double rows, double us, int n);

/* Brings `fit` up to date. */
void planner_curve_fit(struct planner_curve *c);

/* The fitted time in us; 0 where nothing was measured at all. */
double planner_curve_at(const struct planner_curve *c, int rows);

/* Adds one time to a mean. Of the first two the shorter counts, because outliers are too long and
 * never too short. */
void planner_time_add(struct planner_time *t, double us);
