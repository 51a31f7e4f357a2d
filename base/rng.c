/* Philox4x32-10, as in "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), table 2. */
#include "base/rng.h"

enum { PHILOX_ROUNDS = 10 };

void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int i = 0; i < PHILOX_ROUNDS; i++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

double rng_uniform(const struct rng_address *at, enum rng_purpose purpose, uint32_t index)
{
    const uint32_t counter[4] = {at->position, at->round, (uint32_t)purpose, index};
    const uint32_t key[2] = {(uint32_t)at->seed, (uint32_t)(at->seed >> 32)};
    uint32_t out[4];
    philox4x32(counter, key, out);
    uint64_t bits = ((uint64_t)out[0] << 32 | out[1]) >> 11;
    return (double)bits * 0x1p-53;
}

void rng_coupled_four(uint64_t seed, uint32_t position, uint32_t group, uint32_t out[4])
{
    const uint32_t counter[4] = {position, 0, RNG_COUPLED, group};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    philox4x32(counter, key, out);
}

uint32_t rng_coupled_bits(uint64_t seed, uint32_t position, uint32_t token)
{
    uint32_t out[4];
    rng_coupled_four(seed, position, token / 4, out);
    return out[token % 4];
}
