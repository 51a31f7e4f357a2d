/* A check of a variant's dot step. */
#include "model/backend/cpu/kernels/step_check.h"

#include <stddef.h>
#include <string.h>

#include "model/backend/cpu/kernels/step_exact.h"

enum { LANES = 16, N_CHAINS = 16, CHAIN_STEPS = 4 };

/* A step whose result is special: acc, odd w and x, even w and x. */
static const struct {
    uint32_t acc;
    uint16_t w1, x1, w0, x0;
} cases[] = {
    {0x3f800000, 0x4b80, 0x3f80, 0xcb80, 0x3f80}, /* (1 + 2^24) - 2^24: 0, in the other order 1 */
    {0x3f800000, 0x3300, 0x3f80, 0x3300, 0x3f80}, /* 1 + 2^-25 twice: 1, if added first 1 + 2^-24 */
    {0x3f800001, 0x3380, 0x3f80, 0, 0},           /* a tie goes to even */
    {0x3f800000, 0x3f81, 0x3f81, 0xbf80, 0x3f80}, /* the product is not rounded to bf16 */
    {0x00000001, 0, 0, 0, 0},                     /* a denormal sum enters as zero */
    {0x80000001, 0, 0x8000, 0x8000, 0},           /* -0 + -0 stays -0 */
    {0x00000000, 0x0001, 0x7f00, 0, 0},           /* a denormal weight is zero */
    {0x00000000, 0x7f00, 0x0001, 0x7f00, 0x0001}, /* a denormal activation is zero */
    {0xff7fffff, 0x7f00, 0x4000, 0, 0},           /* the product is beyond fp32, the sum within */
    {0x00800000, 0x8080, 0x3f00, 0, 0},           /* 2^-126 - 2^-127 is flushed */
    {0x00800000, 0x9f80, 0x1480, 0, 0},           /* 2^-126 - 2^-150 has 24 bits: flushed */
    {0x00800000, 0x9f80, 0x1400, 0, 0},           /* 2^-126 - 2^-151 rounds to 2^-126 */
    {0x00000000, 0x9f80, 0x1f80, 0x8000, 0},      /* -2^-128: flushed, the sign is kept */
};

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* A bf16 of any sign and mantissa, between 2^-4 and 2^4. */
static uint16_t ordinary(uint32_t *state)
{
    uint32_t random = next_random(state);
    return (uint16_t)((random & 0x807fu) | (0x7b + random / 0x10000u % 8) << 7);
}

/* Compares `got`, which becomes the lane's new sum, with the value that the definition gives for
 * the lane. */
static bool lane_passes(float *sum, float got, const uint16_t w[2], const uint16_t x[2])
{
    float wanted = step_exact(*sum, num_bf16_to_float(w[1]), num_bf16_to_float(x[1]));
    wanted = step_exact(wanted, num_bf16_to_float(w[0]), num_bf16_to_float(x[0]));
    *sum = got;
    return num_float_to_bits(got) == num_float_to_bits(wanted);
}

static bool step_passes(dot_step_fn *dot_step, float sums[LANES], const uint16_t w[2 * LANES],
                        const uint16_t x[2])
{
    float acc[LANES];
    bool passes = true;
    memcpy(acc, sums, sizeof acc);
    dot_step(acc, w, (uint32_t)x[1] << 16 | x[0]);
    for (int lane = 0; lane < LANES; lane++) {
        passes &= lane_passes(&sums[lane], acc[lane], w + 2 * lane, x);
    }
    return passes;
}

static bool case_passes(dot_step_fn *dot_step, size_t i)
{
    uint16_t w[2 * LANES];
    const uint16_t x[2] = {cases[i].x0, cases[i].x1};
    float sums[LANES];
    for (int lane = 0; lane < LANES; lane++) {
        w[2 * lane] = cases[i].w0;
        w[2 * lane + 1] = cases[i].w1;
        sums[lane] = num_bits_to_float(cases[i].acc);
    }
    return step_passes(dot_step, sums, w, x);
}

/* Chains of ordinary numbers, in which nearly every step is rounded. */
static bool chain_passes(dot_step_fn *dot_step, uint32_t *state)
{
    float sums[LANES] = {0};
    bool passes = true;
    for (int step = 0; step < CHAIN_STEPS; step++) {
        uint16_t w[2 * LANES];
        const uint16_t x[2] = {ordinary(state), ordinary(state)};
        for (int i = 0; i < 2 * LANES; i++) {
            w[i] = ordinary(state);
        }
        passes &= step_passes(dot_step, sums, w, x);
    }
    return passes;
}

bool step_check_passes(dot_step_fn *dot_step)
{
    uint32_t state = 1;
    bool passes = true;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        passes &= case_passes(dot_step, i);
    }
    for (int i = 0; i < N_CHAINS; i++) {
        passes &= chain_passes(dot_step, &state);
    }
    return passes;
}
