/* Elementary functions of our own, so that every variant of the kernels and every machine computes
 * the same bits. They use IEEE add, multiply, divide and square root only, in one written order,
 * and the compiler never contracts them. The scalar functions here are the definition; vector code
 * repeats them lane by lane. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "model/numerics/gelu_coefficients.h"

static inline float num_bits_to_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t num_float_to_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float num_bf16_to_float(uint16_t x)
{
    return num_bits_to_float((uint32_t)x << 16);
}

/* Round to nearest even; NaN stays NaN (quiet). */
static inline uint16_t num_float_to_bf16(float x)
{
    uint32_t bits = num_float_to_bits(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

/* The number of 8 bits e4m3 (no infinities; 0x7f and 0xff are NaN), exact. */
static inline float num_fp8_to_float(uint8_t x)
{
    uint32_t size = x & 0x7fu, sign = (x & 0x80u) << 24;
    if (size == 0x7f) return num_bits_to_float(sign | 0x7fc00000u);
    if (size < 8) return num_bits_to_float(sign | num_float_to_bits((float)size * 0x1p-9f));
    return num_bits_to_float(sign | ((size << 20) + (120u << 23)));
}

/* The sum of a and b in double, rounded to odd. Rounding it again to fp32 then gives the correctly
 * rounded sum. */
static inline double num_add_to_odd(double a, double b)
{
    double sum = a + b;
    double b_part = sum - a;
    double rest = (a - (sum - b_part)) + (b - b_part);
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    if (rest != 0 && rest == rest && !(bits & 1)) {
        bits = (rest > 0) == (sum > 0) ? bits + 1 : bits - 1;
        memcpy(&sum, &bits, sizeof sum);
    }
    return sum;
}

/* IEEE half to float, exact. */
float num_half_to_float(uint16_t x);

/* exp(x), relative error < 2e-7; 0 below -87.33, +inf above 88.72; NaN for NaN. */
float num_exp(float x);

/* tanh(x) = 1 - 2 / (1 + exp(2x)), absolute error < 2e-7; NaN for NaN. */
float num_tanh(float x);

/* x times the sigmoid of 2u with u = sqrt(2 / pi) (x + 0.044715 x^3), which is GELU with tanh in
 * place of erf, because the sigmoid of 2u is (1 + tanh u) / 2. Relative error < 2e-5 (the rounding
 * of u, which counts where exp is large), < 1e-6 for x > -3. */
#define GELU_CUBE  0.044715f
#define GELU_SLOPE (-1.5957691216f) /* -2 sqrt(2 / pi) */
float num_gelu_tanh(float x);

/* Natural logarithm of x > 0 in double, relative error < 1e-15 * 4. x = 0 gives -inf. */
double num_log(double x);

/* exp in double, for tables made at load. Error < 4 ulp. */
double num_exp_double(double x);

/* sin and cos of x, |x| < 2^20, error < 1e-15. For rope tables made at load. */
void num_sincos(double x, double *sin_x, double *cos_x);

/* Gumbel(0, 1) noise from 32 random bits: -log(-log((bits + 0.5) / 2^32)). Because the bits are not
 * a real number, the best of V logits with such noise is not drawn exactly from their softmax: the
 * total variation distance is at most V * 2^-33 + 2^-19, of which the second term is due to the
 * rounding to fp32 (docs/numerics.md has the proof). That is 1.7e-5 for V = 128,256. */
float num_gumbel(uint32_t bits);
