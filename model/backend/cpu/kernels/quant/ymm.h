/* The frame of the integer kernels with 256 bits: a tile of up to six rows takes a vector of 16
 * columns at a time, in two halves of 8. Six rows have twelve sums, which leave four of the sixteen
 * registers for weights and activations; therefore whatever is constant is read from memory.
 *
 * The file that includes it defines int8_sums and int4_sums(n_rows, sum, w, q), which add the
 * products of a group of a vector to sums that begin with the rows' starts, and give them as
 * 32-bit integers; w points to the vector's first step and q to the first integers of the
 * panel's group. */
#include "model/backend/cpu/kernels/quant/x86.h"

enum { HALVES = 2, HALF_BYTES = 32 };
#define QUANT_TILE_ROWS 6

INLINE_ALWAYS __m256i half_load(const uint8_t *w)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)w);
}

INLINE_ALWAYS __m256i word_spread(const uint8_t *at)
{
    return _mm256_set1_epi32(quant_word(at));
}

/* Gives the value back, and hides from the compiler how it came about. Otherwise gcc adds products
 * of several steps to each other before it adds them to the sums, which takes more registers than
 * there are. */
INLINE_ALWAYS __m256i half_keep(__m256i value)
{
    __asm__("" : "+x"(value));
    return value;
}

INLINE_ALWAYS __m256 scales_load(const uint8_t *scales)
{
    __m128i bf16 = _mm_loadu_si128((const __m128i *)(const void *)scales);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bf16), 16));
}

INLINE_ALWAYS void int8_sums(int n_rows, __m256i sum[][HALVES], const uint8_t *w, const uint8_t *q);
INLINE_ALWAYS void int4_sums(int n_rows, __m256i sum[][HALVES], const uint8_t *w, const uint8_t *q);

/* One step of the chains of a vector. */
INLINE_ALWAYS void chains_step(int n_rows, __m256i sum[][HALVES], const uint8_t *scales,
                               const uint8_t *x, float *acc)
{
    __m256 w_scale[HALVES] = {scales_load(scales), scales_load(scales + HALF_BYTES / 2)};
#pragma GCC unroll 6
    for (int i = 0; i < n_rows; i++) {
        __m256 x_scale = _mm256_set1_ps(quant_scale(x, i));
#pragma GCC unroll 2
        for (int h = 0; h < HALVES; h++) {
            float *at = acc + i * QUANT_COLUMNS + 8 * h;
            __m256 chain = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[i][h]),
                                           _mm256_mul_ps(w_scale[h], x_scale), _mm256_loadu_ps(at));
            _mm256_storeu_ps(at, chain);
        }
    }
}

INLINE_ALWAYS void quant_tile(int n_rows, enum weight_form form, const struct quant_dots *d)
{
    const int vector_bytes = quant_vector_bytes(form);
    const uint8_t *w = d->w, *x = d->x, *next = d->next;
    for (int group = 0; group < d->n_groups; group++) {
        const uint8_t *scales = w, *q = x + n_rows * QUANT_HEAD_BYTES;
        quant_prefetch(d, w, 1);
        w += QUANT_SCALE_BYTES;
#pragma GCC unroll 1
        for (int v = 0; v < QUANT_VECTORS; v++) {
            __m256i sum[QUANT_TILE_ROWS][HALVES];
            quant_prefetch(d, w, vector_bytes / QUANT_STEP_BYTES);
            next = quant_prefetch_next(d, next);
#pragma GCC unroll 6
            for (int i = 0; i < n_rows; i++) {
                sum[i][0] = sum[i][1] = _mm256_set1_epi32(quant_start(x, n_rows, i));
            }
            if (form == WEIGHTS_INT8) {
                int8_sums(n_rows, sum, w, q);
            } else {
                int4_sums(n_rows, sum, w, q);
            }
            chains_step(n_rows, sum, scales + HALF_BYTES * v, x, d->acc + 16 * v);
            w += vector_bytes;
        }
        x = q + n_rows * QUANT_STEPS * quant_step_bytes(form);
    }
}
