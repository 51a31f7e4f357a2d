/* Integer kernels for AVX2.
 *
 * int8: vpmaddubsw would saturate, and moving the weight's sign to the activation takes three
 * instructions of the multipliers for 32 products. Here the low and the high bytes of a step are
 * taken apart, once for all rows, as unsigned 16-bit integers: k = 0, 2 and k = 1, 3 of every
 * column. Activations have 16 bits, so that vpmaddwd adds two exact products in 32 bits, and two
 * instructions do.
 *
 * int4: vpmaddubsw adds two products in 16 bits, and the eight steps of a group fit: 8 * 2 * 15 *
 * 127 = 30480. A start is a pair of 16-bit integers for the two halves of a 32-bit lane. */
#include "model/backend/cpu/kernels/quant/tile.h"

#ifdef OUTRIDER_X86

INLINE_ALWAYS int quant_step_bytes(enum weight_form form)
{
    return form == WEIGHTS_INT8 ? 8 : 4;
}

#include "model/backend/cpu/kernels/quant/ymm.h"

/* Steps of k = 0, 2 or of k = 1, 3, which q points to. */
INLINE_ALWAYS void words_step(int n_rows, __m256i sum[][HALVES], __m256i w0, __m256i w1,
                              const uint8_t *q)
{
#pragma GCC unroll 6
    for (int i = 0; i < n_rows; i++) {
        __m256i pair = word_spread(q + 8 * i);
        sum[i][0] = half_keep(_mm256_add_epi32(sum[i][0], _mm256_madd_epi16(w0, pair)));
        sum[i][1] = half_keep(_mm256_add_epi32(sum[i][1], _mm256_madd_epi16(w1, pair)));
    }
}

INLINE_ALWAYS void int8_sums(int n_rows, __m256i sum[][HALVES], const uint8_t *w, const uint8_t *q)
{
    const __m256i low = _mm256_set1_epi16(0xff);
    for (int step = 0; step < QUANT_STEPS; step++) {
        words_step(n_rows, sum, _mm256_and_si256(half_load(w), low),
                   _mm256_and_si256(half_load(w + HALF_BYTES), low), q);
        w = quant_again(w);
        words_step(n_rows, sum, _mm256_srli_epi16(half_load(w), 8),
                   _mm256_srli_epi16(half_load(w + HALF_BYTES), 8), q + 4);
        w += QUANT_STEP_BYTES;
        q += 8 * n_rows;
    }
}

/* A step of four k, whose integers of 4 bits are in w0 and w1. */
INLINE_ALWAYS void bytes_step(int n_rows, __m256i sum[][HALVES], __m256i w0, __m256i w1,
                              const uint8_t *q)
{
#pragma GCC unroll 6
    for (int i = 0; i < n_rows; i++) {
        __m256i quad = word_spread(q + 4 * i);
        sum[i][0] = half_keep(_mm256_add_epi16(sum[i][0], _mm256_maddubs_epi16(w0, quad)));
        sum[i][1] = half_keep(_mm256_add_epi16(sum[i][1], _mm256_maddubs_epi16(w1, quad)));
    }
}

INLINE_ALWAYS void int4_sums(int n_rows, __m256i sum[][HALVES], const uint8_t *w, const uint8_t *q)
{
    const __m256i half = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    for (int step = 0; step < QUANT_STEPS; step += 2) {
        bytes_step(n_rows, sum, half_keep(_mm256_and_si256(half_load(w), half)),
                   half_keep(_mm256_and_si256(half_load(w + HALF_BYTES), half)), q);
        w = quant_again(w);
        bytes_step(
            n_rows, sum, half_keep(_mm256_and_si256(_mm256_srli_epi16(half_load(w), 4), half)),
            half_keep(_mm256_and_si256(_mm256_srli_epi16(half_load(w + HALF_BYTES), 4), half)),
            q + 4 * n_rows);
        w += QUANT_STEP_BYTES;
        q += 8 * n_rows;
    }
#pragma GCC unroll 6
    for (int i = 0; i < n_rows; i++) {
        sum[i][0] = _mm256_madd_epi16(sum[i][0], ones);
        sum[i][1] = _mm256_madd_epi16(sum[i][1], ones);
    }
}

/* Integers of 16 bits: of each step k = 0, 2, 1, 3. */
INLINE_ALWAYS void store_words(const struct quant_group *group, int step_stride, uint8_t *start,
                               uint8_t *q)
{
    const __m256i order = _mm256_broadcastsi128_si256(
        _mm_set_epi8(15, 14, 11, 10, 13, 12, 9, 8, 7, 6, 3, 2, 5, 4, 1, 0));
    uint64_t steps[QUANT_STEPS];
    int32_t value = -128 * (group->sums[0] + group->sums[1]);
    for (int i = 0; i < 2; i++) {
        __m256i words = _mm256_load_si256((const __m256i *)(const void *)(group->q + 16 * i));
        _mm256_storeu_si256((__m256i *)(void *)(steps + 4 * i), _mm256_shuffle_epi8(words, order));
    }
    memcpy(start, &value, sizeof value);
#pragma GCC unroll 8
    for (int step = 0; step < QUANT_STEPS; step++) {
        memcpy(q + step * step_stride, &steps[step], sizeof steps[step]);
    }
}

INLINE_ALWAYS void quant_store(enum weight_form form, const struct quant_group *group,
                               int step_stride, uint8_t *start, uint8_t *q)
{
    if (form == WEIGHTS_INT8) {
        store_words(group, step_stride, start, q);
    } else {
        quant_store_bytes(form, group, step_stride, start, q);
        const int16_t pair[2] = {(int16_t)(-8 * group->sums[0]), (int16_t)(-8 * group->sums[1])};
        memcpy(start, pair, sizeof pair);
    }
}

#include "model/backend/cpu/kernels/quant/impl.h"

const struct kernels_quant kernels_quant_avx2 = KERNELS_QUANT_TABLE;

#endif
