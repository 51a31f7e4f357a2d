/* One step of a dot chain by definition. It is correct in every floating-point mode, because
 * denormals are recognised by their bits and no operation has a denormal fp32 as its result. */
#pragma once

#include "model/numerics/numerics.h"

static inline float flush(float x)
{
    uint32_t bits = num_float_to_bits(x);
    return num_bits_to_float(bits & 0x7f800000u ? bits : bits & 0x80000000u);
}

/* The fused step by definition: one rounding to 24 bits with any exponent, then zero if the result
 * is below the least normal number, 2^-126. What is below 2^-126 - 2^-151 does not round up to
 * it. */
static inline float step_exact(float acc, float w, float x)
{
    double product = (double)flush(w) * (double)flush(x);
    double sum = num_add_to_odd((double)flush(acc), product);
    if (!(sum > -0x1p-100 && sum < 0x1p-100)) return (float)sum;
    if (sum > -0x1.ffffffp-127 && sum < 0x1.ffffffp-127) {
        return sum < 0 || 1 / sum < 0 ? -0.0f : 0.0f;
    }
    return (float)(sum * 0x1p64) * 0x1p-64f;
}
