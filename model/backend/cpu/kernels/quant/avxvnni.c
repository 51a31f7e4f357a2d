/* Integer kernels for AVX-VNNI, which is vpdpbusd (avx512.c) with 256 bits on CPUs that may
 * lack AVX-512. */
#include "model/backend/cpu/kernels/quant/tile.h"

#ifdef OUTRIDER_X86

INLINE_ALWAYS int quant_step_bytes(enum weight_form form)
{
    (void)form;
    return 4;
}

#include "model/backend/cpu/kernels/quant/ymm.h"

INLINE_ALWAYS void bytes_step(int n_rows, __m256i sum[][HALVES], __m256i w0, __m256i w1,
                              const uint8_t *q)
{
#pragma GCC unroll 6
    for (int i = 0; i < n_rows; i++) {
        __m256i quad = word_spread(q + 4 * i);
        sum[i][0] = _mm256_dpbusd_avx_epi32(sum[i][0], w0, quad);
        sum[i][1] = _mm256_dpbusd_avx_epi32(sum[i][1], w1, quad);
    }
}

INLINE_ALWAYS void int8_sums(int n_rows, __m256i sum[][HALVES], const uint8_t *w, const uint8_t *q)
{
#pragma GCC unroll 8
    for (int step = 0; step < QUANT_STEPS; step++) {
        bytes_step(n_rows, sum, half_load(w), half_load(w + HALF_BYTES), q);
        w += QUANT_STEP_BYTES;
        q += 4 * n_rows;
    }
}

INLINE_ALWAYS void int4_sums(int n_rows, __m256i sum[][HALVES], const uint8_t *w, const uint8_t *q)
{
    const __m256i half = _mm256_set1_epi8(15);
#pragma GCC unroll 4
    for (int step = 0; step < QUANT_STEPS; step += 2) {
        bytes_step(n_rows, sum, _mm256_and_si256(half_load(w), half),
                   _mm256_and_si256(half_load(w + HALF_BYTES), half), q);
        w = quant_again(w);
        bytes_step(n_rows, sum, _mm256_and_si256(_mm256_srli_epi16(half_load(w), 4), half),
                   _mm256_and_si256(_mm256_srli_epi16(half_load(w + HALF_BYTES), 4), half),
                   q + 4 * n_rows);
        w += QUANT_STEP_BYTES;
        q += 8 * n_rows;
    }
}

INLINE_ALWAYS void quant_store(enum weight_form form, const struct quant_group *group,
                               int step_stride, uint8_t *start, uint8_t *q)
{
    quant_store_bytes(form, group, step_stride, start, q);
}

#include "model/backend/cpu/kernels/quant/impl.h"

const struct kernels_quant kernels_quant_avxvnni = KERNELS_QUANT_TABLE;

#endif
