/* Integer kernels for AVX2, in halves of 8 columns. vpmaddubsw adds two products of an unsigned and
 * a signed byte in 16 bits. For int8 the weight's sign is moved to the activation, so that 2 * 128
 * * 127 fits. For int4 the eight steps of a group fit together: 8 * 2 * 15 * 127 = 30480. */
#include "model/backend/cpu/kernels/quant_tile.h"

#ifdef OUTRIDER_X86

#include <immintrin.h>

enum { HALVES = 2 * QUANT_VECTORS, HALF_BYTES = 32 };
#define QUANT_TILE_ROWS 4

INLINE_ALWAYS __m256 scales_load(const uint8_t *scales)
{
    __m128i bf16 = _mm_loadu_si128((const __m128i *)(const void *)scales);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bf16), 16));
}

INLINE_ALWAYS __m256i row_quad(const struct quant_group *x, size_t x_stride, int row, int step)
{
    return _mm256_set1_epi32(quant_quad(x + (size_t)row * x_stride, step));
}

INLINE_ALWAYS __m256i weights_load(const uint8_t *w, int step)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)(w + step * QUANT_STEP_BYTES));
}

/* Sums of 8 columns of a group; w points to the half's first step. */
INLINE_ALWAYS void int8_sums(int n_rows, __m256i *sum, const uint8_t *w,
                             const struct quant_group *x, size_t x_stride)
{
    const __m256i ones = _mm256_set1_epi16(1), offset = _mm256_set1_epi8(-128);
#pragma GCC unroll 8
    for (int i = 0; i < n_rows; i++) {
        sum[i] = _mm256_setzero_si256();
    }
    for (int step = 0; step < QUANT_STEPS; step++) {
        __m256i bytes = _mm256_xor_si256(weights_load(w, step), offset);
        __m256i size = _mm256_abs_epi8(bytes);
#pragma GCC unroll 8
        for (int i = 0; i < n_rows; i++) {
            __m256i quad = _mm256_sign_epi8(row_quad(x, x_stride, i, step), bytes);
            __m256i pairs = _mm256_maddubs_epi16(size, quad);
            sum[i] = _mm256_add_epi32(sum[i], _mm256_madd_epi16(pairs, ones));
        }
    }
}

INLINE_ALWAYS void int4_sums(int n_rows, __m256i *sum, const uint8_t *w,
                             const struct quant_group *x, size_t x_stride)
{
    const __m256i ones = _mm256_set1_epi16(1), half = _mm256_set1_epi8(15);
#pragma GCC unroll 8
    for (int i = 0; i < n_rows; i++) {
        sum[i] = _mm256_setzero_si256();
    }
    for (int step = 0; step < QUANT_STEPS; step += 2) {
        __m256i bytes = weights_load(w, step / 2);
        __m256i low = _mm256_and_si256(bytes, half);
        __m256i high = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), half);
#pragma GCC unroll 8
        for (int i = 0; i < n_rows; i++) {
            __m256i first = _mm256_maddubs_epi16(low, row_quad(x, x_stride, i, step));
            __m256i second = _mm256_maddubs_epi16(high, row_quad(x, x_stride, i, step + 1));
            sum[i] = _mm256_add_epi16(sum[i], _mm256_add_epi16(first, second));
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < n_rows; i++) {
        __m256i start = _mm256_set1_epi32(x[(size_t)i * x_stride].start);
        sum[i] = _mm256_add_epi32(start, _mm256_madd_epi16(sum[i], ones));
    }
}

INLINE_ALWAYS void quant_tile(int n_rows, enum weight_form form, const struct quant_dots *d)
{
    const int vector_bytes = quant_vector_bytes(form);
    __m256 acc[QUANT_TILE_ROWS][HALVES];
    const uint8_t *w = d->w, *near = d->near, *far = d->far;
    const struct quant_group *x = d->x;
    memcpy(acc, d->acc, sizeof(float) * (size_t)n_rows * QUANT_COLUMNS);
    for (int group = 0; group < d->n_groups; group++) {
        const uint8_t *values = w + QUANT_SCALE_BYTES;
        for (int h = 0; h < HALVES; h++) {
            __m256i sum[QUANT_TILE_ROWS];
            const uint8_t *first = values + h / 2 * vector_bytes + h % 2 * HALF_BYTES;
            if (h % 2 == 0) quant_prefetch(&near, &far, d);
            if (form == WEIGHTS_INT8) {
                int8_sums(n_rows, sum, first, x, d->x_stride);
            } else {
                int4_sums(n_rows, sum, first, x, d->x_stride);
            }
            __m256 w_scale = scales_load(w + 16 * h);
#pragma GCC unroll 8
            for (int i = 0; i < n_rows; i++) {
                __m256 x_scale = _mm256_set1_ps(x[(size_t)i * d->x_stride].scale);
                acc[i][h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[i]),
                                            _mm256_mul_ps(w_scale, x_scale), acc[i][h]);
            }
        }
        w = values + QUANT_VECTORS * vector_bytes;
        x++;
    }
    memcpy(d->acc, acc, sizeof(float) * (size_t)n_rows * QUANT_COLUMNS);
}

#include "model/backend/cpu/kernels/quant_impl.h"

const struct kernels_quant kernels_quant_avx2 = KERNELS_QUANT_TABLE;

#endif
