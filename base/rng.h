/* Each random number is computed from an address: Philox4x32-10 (Salmon et al. 2011) with key = the
 * job's seed and counter = (position, round, purpose, index). There is no generator with a state,
 * so a replayed round repeats itself, and no two choices share a random number.
 *   position  the absolute position of the token that is being decided
 *   round     the committed length when the round began: if a position is guessed, discarded and
 *             guessed again, it gets new random numbers. COUPLED leaves it out (0), because its
 *             noise belongs to (seed, position, token) alone. */
#pragma once

#include <stdint.h>

enum rng_purpose {
    RNG_DRAFT = 1,    /* the draft's choice of a guess */
    RNG_ACCEPT = 2,   /* accept or reject a guess */
    RNG_RESIDUAL = 3, /* what replaces a rejected guess, and which slice it comes from */
    RNG_OUTSIDE = 4,  /* index = slice: the token drawn outside of a list */
    RNG_COUPLED = 5,  /* index = token: Gumbel noise shared by draft and target */
    RNG_WEIGHT = 6,   /* synthetic weights; key = model seed, position/index = element */
    RNG_LOAD = 7      /* a benchmark's prompts (index 0) and arrivals (index 1) */
};

struct rng_address {
    uint64_t seed;
    uint32_t position;
    uint32_t round;
};

/* The bijection itself. The test checks the known answers of the Random123 distribution. */
void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* 53 random bits as a double in [0, 1). */
double rng_uniform(const struct rng_address *at, enum rng_purpose purpose, uint32_t index);

/* 32 random bits of (seed, position, token): the COUPLED stream. One Philox call serves four
 * neighbouring tokens; rng_coupled_four returns those of tokens 4 * group to 4 * group + 3. */
uint32_t rng_coupled_bits(uint64_t seed, uint32_t position, uint32_t token);
void rng_coupled_four(uint64_t seed, uint32_t position, uint32_t group, uint32_t out[4]);
