/* Functions in 16 lanes that the variants for AVX-512 have in a form of their own; included before
 * variant.h. */
#pragma once

#include <immintrin.h>
#include <math.h>

#include "model/backend/cpu/kernels/tile.h"
#include "model/numerics/exp_coefficients.h"

#define OWN_LANES

/* num_exp in 16 lanes with the same steps. Scaling by a power of two is exact, whether it is done
 * once or twice. */
INLINE_ALWAYS __m512 own_exp(__m512 x)
{
    __mmask16 fits = _mm512_cmp_ps_mask(x, _mm512_set1_ps(EXP_LEAST), _CMP_GE_OQ) &
                     _mm512_cmp_ps_mask(x, _mm512_set1_ps(EXP_MOST), _CMP_LE_OQ);
    __m512 safe = _mm512_maskz_mov_ps(fits, x), magic = _mm512_set1_ps(EXP_ROUND);
    __m512 n = (safe * _mm512_set1_ps(EXP_LOG2_E) + magic) - magic;
    __m512 r = safe - n * _mm512_set1_ps(EXP_LN2);
    r = r - n * _mm512_set1_ps(EXP_LN2_LOW);
    __m512 y;
    EXP_POLYNOMIAL(y, r);
    y = _mm512_scalef_ps(y, n);
    /* Outside: 0 below, infinity above, NaN stays. */
    __m512 rest = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), x);
    rest = _mm512_mask_mov_ps(rest, _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GT_OQ),
                              _mm512_set1_ps(INFINITY));
    return _mm512_mask_mov_ps(rest, fits, y);
}

/* vmaxps passes over NaN in its first operand; which zero it keeps depends on the order. */
INLINE_ALWAYS float own_max_of(const float *s, int n)
{
    __m512 even = _mm512_set1_ps(-INFINITY), odd = even;
    int i = 0;
    for (; i + 32 <= n; i += 32) {
        even = _mm512_max_ps(_mm512_loadu_ps(s + i), even);
        odd = _mm512_max_ps(_mm512_loadu_ps(s + i + 16), odd);
    }
    if (i < n) even = _mm512_max_ps(_mm512_loadu_ps(s + i), even);
    return _mm512_reduce_max_ps(_mm512_max_ps(even, odd)) + 0.0f;
}
