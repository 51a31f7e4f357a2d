/* Integer kernels for AVX-VNNI, which is vpdpbusd (avx512.c) with 256 bits on CPUs that may
 * lack AVX-512. */
#include "model/backend/cpu/kernels/quant/tile.h"

#ifdef OUTRIDER_X86

INLINE_ALWAYS bool quant_is_wide(enum weight_form form)
{
    (void)form;
    return false;
}

#include "model/backend/cpu/kernels/quant/ymm.h"

INLINE_ALWAYS void steps_sum(int n_rows, enum weight_form form, __m256i sum[][HALVES],
                             const uint8_t *w, const uint8_t *x, int run)
{
    const uint8_t *q = x + n_rows * QUANT_HEAD_BYTES;
    const int first = run > 0 ? QUANT_RUN_STEPS : 0;
    const int end = run == 0 ? QUANT_RUN_STEPS : QUANT_STEPS;
#pragma GCC unroll 6
    for (int i = 0; i < n_rows; i++) {
        sum[i][0] = sum[i][1] = _mm256_setzero_si256();
    }
#pragma GCC unroll 8
    for (int step = first; step < end; step++) {
        __m256i w0 = step_load(form, w, step), w1 = step_load(form, w + HALF_BYTES, step);
#pragma GCC unroll 6
        for (int i = 0; i < n_rows; i++) {
            __m256i quad = word_spread(q + 4 * (step * n_rows + i));
            sum[i][0] = _mm256_dpbusd_avx_epi32(sum[i][0], w0, quad);
            sum[i][1] = _mm256_dpbusd_avx_epi32(sum[i][1], w1, quad);
        }
        w = quant_again(w);
    }
}

INLINE_ALWAYS void quant_store(enum weight_form form, const struct quant_group *group,
                               int step_stride, uint8_t *q)
{
    (void)form;
    quant_store_bytes(group, step_stride, q);
}

#include "model/backend/cpu/kernels/quant/impl.h"

const struct kernels_quant kernels_quant_avxvnni = KERNELS_QUANT_TABLE;

#endif
