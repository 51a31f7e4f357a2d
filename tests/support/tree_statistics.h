/* Shared by the statistics of rules over trees: rounds in a made-up world until some tokens are
 * committed, a chi-square test of what they are, and how many guesses stay. */
#pragma once

#include <stdio.h>

#include "tests/support/draws.h"
#include "tests/support/stats_util.h"
#include "tests/support/tree_world.h"

enum { DRAWS = 80000, FEW_DRAWS = 5000, LENGTHS = DRAWS_ARE_FEW ? 500 : 5000 };
enum { SCRATCH = 64 * TREE_VOCAB, CELLS_MAX = 1024, START = 3 };
#define N_TESTS   100.0
#define P_LEAST   (1e-4 / N_TESTS)
#define P_LEAST_Z 4.8 /* its one-sided normal deviate */

/* How a round's tree is made. */
typedef void grow_fn(const struct tree_world *world, const struct tree_plan *plan, int context,
                     const struct rng_address *at, struct tree_round *round);

static double scratch[SCRATCH];
static struct tree_round round_; /* large */

static struct tree_world worlds[] = {
    {.name = "5 tokens", .n_vocab = 5, .support = 5, .exponent = 0.8, .noise = 1, .temperature = 1},
    {.name = "8, narrow q",
     .n_vocab = 8,
     .support = 4,
     .exponent = 0.7,
     .noise = 0.7,
     .temperature = 1},
    {.name = "6, sharp",
     .n_vocab = 6,
     .support = 6,
     .exponent = 1.2,
     .noise = 1.2,
     .temperature = 0.7},
    {.name = "30, hot",
     .n_vocab = 30,
     .support = 12,
     .exponent = 1,
     .noise = 0.8,
     .temperature = 1.3},
};
enum { N_WORLDS = sizeof worlds / sizeof *worlds };

static inline void without_replacement(const struct tree_world *world, const struct tree_plan *plan,
                                       int context, const struct rng_address *at,
                                       struct tree_round *round)
{
    tree_make_round(world, plan, false, context, at, round);
}

static inline void with_replacement(const struct tree_world *world, const struct tree_plan *plan,
                                    int context, const struct rng_address *at,
                                    struct tree_round *round)
{
    tree_make_round(world, plan, true, context, at, round);
}

static inline double joint_prob(const struct tree_world *world, int cell, int depth)
{
    int32_t tokens[3];
    double p = 1;
    for (int i = depth - 1; i >= 0; i--) {
        tokens[i] = cell % world->n_vocab;
        cell /= world->n_vocab;
    }
    for (int i = 0, context = START; i < depth; context = tree_context(world, tokens[i++])) {
        p *= (double)world->p[context][tokens[i]];
    }
    return p;
}

/* Rounds until `depth` tokens are committed; these as a cell. */
static inline int commit(const struct tree_world *world, const struct tree_plan *plan,
                         grow_fn *grow, tree_accept_fn *accept, uint64_t seed, int depth)
{
    int n = 0, cell = 0, context = START;
    while (n < depth) {
        const struct rng_address at = {seed, 10 + (uint32_t)n, 10 + (uint32_t)n};
        grow(world, plan, context, &at, &round_);
        struct tree_result result = accept(&round_.tree, round_.rows, &at, scratch);
        for (int i = 0; i <= result.n_accepted && n < depth; i++, n++) {
            int32_t token =
                i < result.n_accepted ? round_.tree.tokens[result.path[i]] : result.next;
            if (token < 0 || token >= world->n_vocab) ck_abort_msg("foreign token %d", token);
            cell = cell * world->n_vocab + token;
            context = tree_context(world, token);
        }
    }
    return cell;
}

static inline double p_value_of(int n_draws, const struct tree_world *world,
                                const struct tree_plan *plan, grow_fn *grow, tree_accept_fn *accept,
                                const char *name)
{
    static int64_t seen[CELLS_MAX];
    static double wanted[CELLS_MAX];
    int depth = world->n_vocab <= 8 ? 3 : 2, n_cells = 1;
    memset(seen, 0, sizeof seen);
    for (int i = 0; i < depth; i++) {
        n_cells *= world->n_vocab;
    }
    for (int c = 0; c < n_cells; c++) {
        wanted[c] = joint_prob(world, c, depth);
    }
    for (int d = 0; d < n_draws; d++) {
        uint64_t seed = (uint64_t)d * 0x9E3779B97F4A7C15u + 1;
        seen[commit(world, plan, grow, accept, seed, depth)]++;
    }
    struct stats_result result = stats_chi_square(seen, wanted, n_cells);
    printf("%-12s %-20s %-22s %d tokens %4d cells chi2 %8.1f p %.2e finds TV %.4f\n", world->name,
           plan->name, name, depth, result.n_cells, result.chi_square, result.p_value,
           stats_detectable_tv(n_draws, result.n_cells, P_LEAST_Z));
    fflush(stdout);
    return result.p_value;
}

static inline double p_value(const struct tree_world *world, const struct tree_plan *plan,
                             grow_fn *grow, tree_accept_fn *accept, const char *name)
{
    return p_value_of(draws_part(DRAWS, FEW_DRAWS), world, plan, grow, accept, name);
}

/* Makes all draws in every run, for a wrong way, which must be found. */
static inline double p_value_of_wrong(const struct tree_world *world, const struct tree_plan *plan,
                                      grow_fn *grow, tree_accept_fn *accept, const char *name)
{
    return p_value_of(draws_all(DRAWS, FEW_DRAWS), world, plan, grow, accept, name);
}

struct length {
    double sum, squares;
};

static inline double mean_of(const struct length *length)
{
    return length->sum / LENGTHS;
}

static inline double error_of(const struct length *length)
{
    double mean = mean_of(length);
    return sqrt((length->squares / LENGTHS - mean * mean) / LENGTHS);
}

/* Accepted guesses of each rule over the same trees. */
static inline void accepted(const struct tree_world *world, const struct tree_plan *plan,
                            grow_fn *grow, tree_accept_fn *const *accepts, int n_accepts,
                            struct length *lengths)
{
    memset(lengths, 0, (size_t)n_accepts * sizeof *lengths);
    for (int d = 0; d < LENGTHS; d++) {
        const struct rng_address at = {(uint64_t)d * 77777 + 5, 20, 20};
        grow(world, plan, d % TREE_CONTEXTS, &at, &round_);
        for (int i = 0; i < n_accepts; i++) {
            int n = accepts[i](&round_.tree, round_.rows, &at, scratch).n_accepted;
            lengths[i].sum += n;
            lengths[i].squares += (double)n * n;
        }
    }
}

/* Worlds that are more like those of language models. */
static struct tree_world large[] = {
    {.name = "50, close",
     .n_vocab = 50,
     .support = 32,
     .exponent = 1.1,
     .noise = 0.45,
     .temperature = 1},
    {.name = "50, far",
     .n_vocab = 50,
     .support = 32,
     .exponent = 1.1,
     .noise = 1,
     .temperature = 1},
    {.name = "300", .n_vocab = 300, .support = 64, .exponent = 1.3, .noise = 0.8, .temperature = 1},
    {.name = "1000",
     .n_vocab = 1000,
     .support = 64,
     .exponent = 1.5,
     .noise = 0.8,
     .temperature = 1},
};
