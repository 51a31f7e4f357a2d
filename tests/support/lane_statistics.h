/* Helpers that the statistics of a lane's guesses share: a made-up world of six tokens, and how
 * DEPTH tokens of a text together must be distributed. Each text is a cell, its tokens being the
 * digits. */
#pragma once

#include "tests/support/stats_util.h"
#include "tests/support/tree_world.h"

enum { N_IDS = 6, DEPTH = 3, CELLS = N_IDS * N_IDS * N_IDS };
#define P_LEAST   1e-5
#define P_LEAST_Z 4.3 /* its one-sided normal deviate */

static struct tree_world world = {.name = "6 tokens",
                                  .n_vocab = N_IDS,
                                  .support = 6,
                                  .exponent = 0.8,
                                  .noise = 1,
                                  .temperature = 1};
static struct tree_round round_; /* large */
static double scratch[64 * TREE_VOCAB];

/* The target's probability of a cell after a token. */
static inline double joint_prob(int cell, int32_t before)
{
    int context = tree_context(&world, before);
    double p = 1;
    for (int unit = CELLS / N_IDS; unit > 0; unit /= N_IDS) {
        int32_t token = cell / unit % N_IDS;
        p *= (double)world.p[context][token];
        context = tree_context(&world, token);
    }
    return p;
}

/* Tests how often each cell was seen after a token. */
static inline struct stats_result test_cells(const int64_t seen[CELLS], int32_t before)
{
    double wanted[CELLS];
    for (int c = 0; c < CELLS; c++) {
        wanted[c] = joint_prob(c, before);
    }
    return stats_chi_square(seen, wanted, CELLS);
}
