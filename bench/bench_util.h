/* How every ratio is measured: two arms alternate in slices of at most a second, for at least 20
 * pairs, and the order changes with each pair. The result is the median with its quartiles. Both
 * arms of a pair meet the same conditions, so that a machine whose speed drifts moves both. */
#pragma once

#include <stdint.h>
#include <stdlib.h>

#include "base/clock.h"

enum { BENCH_PAIRS_MIN = 20, BENCH_PAIRS_MAX = 200 };

/* Does one portion of work and returns how much that was, in the unit of the arm's rate. */
typedef double timed_arm_fn(void *arg);

struct timed_arm {
    timed_arm_fn *run;
    void *arg;
};

struct sample_quartiles {
    double low, median, high;
};

/* Rates of both arms in units per second, and rate of a over rate of b in the same pair. */
struct bench_pairs {
    struct sample_quartiles a, b, ratio;
};

static inline int bench_order(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Sorts the values. */
static inline struct sample_quartiles sample_quartiles(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, bench_order);
    return (struct sample_quartiles){values[n / 4], values[n / 2], values[n - 1 - n / 4]};
}

/* Repeats the arm until slice_us have passed. Returns units per second. */
static inline double bench_rate(const struct timed_arm *arm, int64_t slice_us)
{
    double done = 0;
    int64_t start = clock_now_ns(), now;
    do {
        done += arm->run(arm->arg);
        now = clock_now_ns();
    } while (now - start < slice_us * 1000);
    return done * 1e9 / (double)(now - start);
}

static inline struct bench_pairs bench_compare(const struct timed_arm *a, const struct timed_arm *b,
                                               int n_pairs, int64_t slice_us)
{
    double rates_a[BENCH_PAIRS_MAX], rates_b[BENCH_PAIRS_MAX], ratios[BENCH_PAIRS_MAX];
    int n = n_pairs < BENCH_PAIRS_MAX ? n_pairs : BENCH_PAIRS_MAX;
    for (int i = 0; i < n; i++) {
        if (i % 2) rates_a[i] = bench_rate(a, slice_us);
        rates_b[i] = bench_rate(b, slice_us);
        if (i % 2 == 0) rates_a[i] = bench_rate(a, slice_us);
        ratios[i] = rates_a[i] / rates_b[i];
    }
    return (struct bench_pairs){sample_quartiles(rates_a, n), sample_quartiles(rates_b, n),
                                sample_quartiles(ratios, n)};
}

/* Like bench_compare for any number of arms, each with its own slice. The order turns around with
 * each round. rates[i][round] receives what arm i reached. */
static inline void bench_rounds(const struct timed_arm *arms, const int64_t *slices_us, int n_arms,
                                int n_rounds, double rates[][BENCH_PAIRS_MAX])
{
    for (int round = 0; round < n_rounds; round++) {
        for (int i = 0; i < n_arms; i++) {
            int arm = round % 2 ? i : n_arms - 1 - i;
            rates[arm][round] = bench_rate(&arms[arm], slices_us[arm]);
        }
    }
}

/* The quartiles of a[i] / b[i]. */
static inline struct sample_quartiles bench_ratio(const double *a, const double *b, int n)
{
    double ratios[BENCH_PAIRS_MAX];
    for (int i = 0; i < n; i++) {
        ratios[i] = a[i] / b[i];
    }
    return sample_quartiles(ratios, n);
}
