/* Integer kernels for AVX2.
 *
 * 8 bits (is_wide): vpmaddubsw would saturate, and moving the weight's sign to the activation takes
 * three instructions of the multipliers for 32 products. Here the low and the high bytes of a step
 * are taken apart, once for all rows, as unsigned 16-bit integers: k = 0, 2 and k = 1, 3 of every
 * column. Activations have 16 bits, so that vpmaddwd adds two exact products in 32 bits, and two
 * instructions do.
 *
 * Fewer bits: vpmaddubsw adds two products in 16 bits, and several steps fit: of 4 bits all eight
 * of a group, because 8 * 2 * 15 * 127 = 30480; of 5 bits four, 31496; of 6 bits two, 32004. */
#include "model/backend/cpu/kernels/quant/tile.h"

#ifdef OUTRIDER_X86

INLINE_ALWAYS bool quant_is_wide(enum weight_form form)
{
    return quant_bits(form) == 8;
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

/* Sums integers of 8 bits; forms with runs have fewer. */
INLINE_ALWAYS void words_sum(int n_rows, enum weight_form form, __m256i sum[][HALVES],
                             const uint8_t *w, const uint8_t *q)
{
    const __m256i low = _mm256_set1_epi16(0xff);
#pragma GCC unroll 6
    for (int i = 0; i < n_rows; i++) {
        sum[i][0] = sum[i][1] = _mm256_setzero_si256();
    }
#pragma GCC unroll 2
    for (int step = 0; step < QUANT_STEPS; step++) {
        __m256i w0 = step_load(form, w, step), w1 = step_load(form, w + HALF_BYTES, step);
        words_step(n_rows, sum, half_keep(_mm256_and_si256(w0, low)),
                   half_keep(_mm256_and_si256(w1, low)), q);
        w = quant_again(w);
        w0 = step_load(form, w, step), w1 = step_load(form, w + HALF_BYTES, step);
        words_step(n_rows, sum, half_keep(_mm256_srli_epi16(w0, 8)),
                   half_keep(_mm256_srli_epi16(w1, 8)), q + 4);
        w = quant_again(w);
        q += 8 * n_rows;
    }
}

/* Steps whose sums of pairs fit into 16 bits. */
INLINE_ALWAYS int steps_at_once(enum weight_form form)
{
    return quant_bits(form) <= 4 ? 8 : quant_bits(form) == 5 ? 4 : 2;
}

/* Adds steps first .. end, whose pairs fit, to the sums, or begins them. */
INLINE_ALWAYS void bytes_sum(int n_rows, enum weight_form form, __m256i sum[][HALVES],
                             const uint8_t *w, const uint8_t *q, int first, int end, bool begins)
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i pairs[QUANT_TILE_ROWS][HALVES];
#pragma GCC unroll 8
    for (int step = first; step < end; step++) {
        __m256i w0 = half_keep(step_load(form, w, step));
        __m256i w1 = half_keep(step_load(form, w + HALF_BYTES, step));
#pragma GCC unroll 6
        for (int i = 0; i < n_rows; i++) {
            __m256i quad = word_spread(q + 4 * (step * n_rows + i));
            __m256i p0 = _mm256_maddubs_epi16(w0, quad), p1 = _mm256_maddubs_epi16(w1, quad);
            pairs[i][0] = half_keep(step == first ? p0 : _mm256_add_epi16(pairs[i][0], p0));
            pairs[i][1] = half_keep(step == first ? p1 : _mm256_add_epi16(pairs[i][1], p1));
        }
        w = quant_again(w);
    }
#pragma GCC unroll 6
    for (int i = 0; i < n_rows; i++) {
#pragma GCC unroll 2
        for (int h = 0; h < HALVES; h++) {
            __m256i words = _mm256_madd_epi16(pairs[i][h], ones);
            sum[i][h] = begins ? words : _mm256_add_epi32(sum[i][h], words);
        }
    }
}

INLINE_ALWAYS void steps_sum(int n_rows, enum weight_form form, __m256i sum[][HALVES],
                             const uint8_t *w, const uint8_t *x, int run)
{
    const uint8_t *q = x + n_rows * QUANT_HEAD_BYTES;
    if (quant_is_wide(form)) {
        words_sum(n_rows, form, sum, w, q);
        return;
    }
    const int first = run > 0 ? QUANT_RUN_STEPS : 0;
    const int end = run == 0 ? QUANT_RUN_STEPS : QUANT_STEPS, n = steps_at_once(form);
#pragma GCC unroll 4
    for (int step = first; step < end; step += n) {
        bytes_sum(n_rows, form, sum, w, q, step, step + n < end ? step + n : end, step == first);
    }
}

/* Integers of 16 bits: of each step k = 0, 2, 1, 3. */
INLINE_ALWAYS void store_words(const struct quant_group *group, int step_stride, uint8_t *q)
{
    const __m256i order = _mm256_broadcastsi128_si256(
        _mm_set_epi8(15, 14, 11, 10, 13, 12, 9, 8, 7, 6, 3, 2, 5, 4, 1, 0));
    uint64_t steps[QUANT_STEPS];
    for (int i = 0; i < 2; i++) {
        __m256i words = _mm256_load_si256((const __m256i *)(const void *)(group->q + 16 * i));
        _mm256_storeu_si256((__m256i *)(void *)(steps + 4 * i), _mm256_shuffle_epi8(words, order));
    }
#pragma GCC unroll 8
    for (int step = 0; step < QUANT_STEPS; step++) {
        memcpy(q + step * step_stride, &steps[step], sizeof steps[step]);
    }
}

INLINE_ALWAYS void quant_store(enum weight_form form, const struct quant_group *group,
                               int step_stride, uint8_t *q)
{
    if (quant_is_wide(form)) {
        store_words(group, step_stride, q);
    } else {
        quant_store_bytes(group, step_stride, q);
    }
}

#include "model/backend/cpu/kernels/quant/impl.h"

const struct kernels_quant kernels_quant_avx2 = KERNELS_QUANT_TABLE;

#endif
