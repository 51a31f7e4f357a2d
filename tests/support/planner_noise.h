/* Coins and noisy times for the worlds in which the planner is tested. Each test has a stream of
 * its own, which its seed names and which repeats itself. */
#pragma once

#include <math.h>

#include "base/rng.h"

struct coins {
    uint64_t seed;
    uint64_t n; /* coins that were drawn */
};

/* In [0, 1). */
static inline double coin(struct coins *coins)
{
    const struct rng_address at = {coins->seed, (uint32_t)(coins->n >> 32), (uint32_t)coins->n};
    coins->n++;
    return rng_uniform(&at, RNG_ACCEPT, 0);
}

/* noise: the standard deviation, as a share. A sum of coins is normal enough. */
static inline double noisy_us(struct coins *coins, double true_us, double noise)
{
    double z = -6;
    for (int i = 0; i < 12; i++) {
        z += coin(coins);
    }
    return true_us * fmax(1 + noise * z, 0.2);
}

static inline int64_t measured_us(struct coins *coins, double true_us, double noise)
{
    return (int64_t)noisy_us(coins, true_us, noise);
}

/* outliers: the share of times that are 20 times too long. */
static inline int64_t measured_us_or_outlier(struct coins *coins, double true_us, double noise,
                                             double outliers)
{
    double us = noisy_us(coins, true_us, noise);
    return (int64_t)(coin(coins) < outliers ? 20 * us : us);
}
