/* The numbers of exp in fp32, after Cephes (Moshier). Several functions compute it with the same
 * steps and must give the same bits: num_exp (model/numerics/numerics.c, the definition),
 * exp_nonpositive (model/logits/sums.c), the vector code of the CPU kernels
 * (model/backend/cpu/kernels/lanes.h and lanes_avx512.h) and device_exp
 * (model/backend/cuda/device.cuh). These are macros because C, C++ and CUDA device code can all use
 * them, and vectors as well as floats.
 *
 *   n = round(x / ln 2), r = x - n ln 2, exp(x) = 2^n (1 + r + r^2 P(r))
 *
 * exp in double (num_exp_double) is another function with numbers of its own. */
#pragma once

#define EXP_LEAST   (-87.33f) /* below it the result is 0 */
#define EXP_MOST    88.72f    /* above it the result is infinity */
#define EXP_LOG2_E  1.44269504088896341f
#define EXP_ROUND   12582912.0f  /* 1.5 * 2^23: adding it and taking it away rounds to an integer */
#define EXP_LN2     0.693359375f /* has few bits, so that n * EXP_LN2 is exact */
#define EXP_LN2_LOW (-2.12194440e-4f) /* what ln 2 has beyond EXP_LN2 */

/* P, from the highest power down. */
#define EXP_P5 1.9875691500e-4f
#define EXP_P4 1.3981999507e-3f
#define EXP_P3 8.3334519073e-3f
#define EXP_P2 4.1665795894e-2f
#define EXP_P1 1.6666665459e-1f
#define EXP_P0 5.0000001201e-1f

/* y = 1 + r + r^2 P(r), for variables y and r that are floats or vectors of them. */
#define EXP_POLYNOMIAL(y, r)                  \
    do {                                      \
        (y) = EXP_P5 * (r) + EXP_P4;          \
        (y) = (y) * (r) + EXP_P3;             \
        (y) = (y) * (r) + EXP_P2;             \
        (y) = (y) * (r) + EXP_P1;             \
        (y) = (y) * (r) + EXP_P0;             \
        (y) = (y) * ((r) * (r)) + (r) + 1.0f; \
    } while (0)
