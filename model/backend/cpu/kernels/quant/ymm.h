/* The frame of the integer kernels with 256 bits: a tile of up to six rows takes a vector of 16
 * columns at a time, in two halves of 8. Six rows have twelve sums, which leave four of the sixteen
 * registers for weights and activations; therefore whatever is constant is read from memory.
 *
 * The file that includes it defines steps_sum(n_rows, form, sum, w, x, run), which gives the sums
 * of a vector of a group as 32-bit integers, without what the offset adds; w points to the vector's
 * first line and x to the panel's group. run < 0: of both runs. */
#include "model/backend/cpu/kernels/quant/x86.h"

enum { HALVES = 2, HALF_BYTES = 32 };
#ifdef OUTRIDER_SMALL_TILES
#define QUANT_TILE_ROWS 2
#else
#define QUANT_TILE_ROWS 6
#endif

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

/* ---- weights ---- */

static const uint8_t table_16[16] = {GROUP_TABLE_16};

#define MASK_8(m) (m), (m), (m), (m), (m), (m), (m), (m)
#define MASK_32(m)                                 \
    {                                              \
        MASK_8(m), MASK_8(m), MASK_8(m), MASK_8(m) \
    }

/* Vectors of bytes, by the bits that they keep. */
_Alignas(32) static const uint8_t masks[][HALF_BYTES] = {
    [0x03] = MASK_32(0x03), [0x04] = MASK_32(0x04), [0x0f] = MASK_32(0x0f),
    [0x10] = MASK_32(0x10), [0x30] = MASK_32(0x30),
};

/* A mask is read from memory wherever it is used. Two of them would push sums out of the
 * registers. */
INLINE_ALWAYS __m256i mask_load(int mask)
{
    return half_load(quant_again(masks[mask]));
}

/* The unsigned integers of a step of 8 columns; w points to the half in the vector's first line. */
INLINE_ALWAYS __m256i step_load(enum weight_form form, const uint8_t *w, int step)
{
    const struct group_form *f = &group_forms[form];
    __m256i q = half_load(w + quant_low_at(form, step));
    if (f->low_bits < 8) {
        int shift = quant_low_shift(form, step);
        if (shift) q = _mm256_srli_epi16(q, shift);
        const __m256i kept = _mm256_set1_epi8((char)quant_low_mask(form));
        q = _mm256_and_si256(q, f->high_bits ? mask_load(quant_low_mask(form)) : kept);
    }
    if (f->high_bits) {
        int shift = quant_high_shift(form, step);
        __m256i high = half_load(w + quant_high_at(form, step));
        high = shift < 0 ? _mm256_srli_epi16(high, -shift) : _mm256_slli_epi16(high, shift);
        high = _mm256_and_si256(high, mask_load(quant_high_mask(form)));
        q = _mm256_or_si256(q, high);
    }
    if (f->is_table) {
        q = _mm256_shuffle_epi8(
            _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)table_16)),
            q);
    }
    return q;
}

INLINE_ALWAYS __m256 halves_load(const uint8_t *at)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)at));
}

INLINE_ALWAYS __m256 signed_load(const uint8_t *at)
{
    __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)at);
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
}

INLINE_ALWAYS __m256 unsigned_load(const uint8_t *at)
{
    __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)at);
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
}

/* The scales of 8 columns from `column` on; with runs, what their scales multiply. `super` points
 * to the head of the super-block. */
INLINE_ALWAYS __m256 scale_load(enum weight_form form, const uint8_t *w, const uint8_t *super,
                                int column)
{
    __m128i bf16;
    switch (group_forms[form].scale) {
    case GROUP_SCALE_BF16:
        bf16 = _mm_loadu_si128((const __m128i *)(const void *)(w + 2 * column));
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bf16), 16));
    case GROUP_SCALE_F16:
        return halves_load(w + 2 * column);
    case GROUP_SCALE_F32:
        return _mm256_loadu_ps((const float *)(const void *)(w + 4 * column));
    case GROUP_SCALE_BYTE:
        return _mm256_mul_ps(halves_load(super + 2 * column), signed_load(w + column));
    case GROUP_SCALE_RUNS:
        break;
    }
    return halves_load(super + 2 * column);
}

/* The minimums of 8 columns, of each run if they have two. */
INLINE_ALWAYS void minimums_load(enum weight_form form, const uint8_t *minimums,
                                 const uint8_t *super, int column, __m256 out[QUANT_RUNS])
{
    const enum group_minimum kind = group_forms[form].minimum;
    if (kind == GROUP_MINIMUM_F16) out[0] = halves_load(minimums + 2 * column);
    if (kind != GROUP_MINIMUM_BYTE && kind != GROUP_MINIMUM_RUNS) return;
    __m256 of_super = halves_load(super + QUANT_STEP_BYTES + 2 * column);
    out[0] = _mm256_mul_ps(of_super, unsigned_load(minimums + column));
    if (kind == GROUP_MINIMUM_BYTE) return;
    out[1] = _mm256_mul_ps(of_super, unsigned_load(minimums + QUANT_COLUMNS + column));
}

/* ---- sums ---- */

INLINE_ALWAYS void steps_sum(int n_rows, enum weight_form form, __m256i sum[][HALVES],
                             const uint8_t *w, const uint8_t *x, int run);

/* Returns what cancels the offset in the sum of a row. */
INLINE_ALWAYS __m256i offset_sum(enum weight_form form, const uint8_t *x, int n_rows, int row,
                                 int run)
{
    int shift = quant_offset_shift(form);
    if (shift < 0) return _mm256_setzero_si256();
    __m256i sum = word_spread(x + 4 * (n_rows + row));
    if (run >= 0) {
        __m256i first = word_spread(x + 4 * (3 * n_rows + row));
        sum = run == 0 ? first : _mm256_sub_epi32(sum, first);
    }
    return _mm256_slli_epi32(sum, shift);
}

/* Sums of whole groups, as exact floats. */
INLINE_ALWAYS void group_sums(int n_rows, enum weight_form form, __m256 total[][HALVES],
                              const uint8_t *values, const uint8_t *zeros, const uint8_t *x)
{
    __m256i sum[QUANT_TILE_ROWS][HALVES];
    steps_sum(n_rows, form, sum, values, x, -1);
#pragma GCC unroll 6
    for (int i = 0; i < n_rows; i++) {
        __m256i offset = offset_sum(form, x, n_rows, i, -1);
#pragma GCC unroll 2
        for (int h = 0; h < HALVES; h++) {
            total[i][h] = _mm256_cvtepi32_ps(_mm256_add_epi32(sum[i][h], offset));
            if (group_forms[form].minimum == GROUP_ZERO) {
                __m256 x_sum = _mm256_cvtepi32_ps(word_spread(x + 4 * (n_rows + i)));
                total[i][h] = _mm256_fmadd_ps(unsigned_load(zeros + 8 * h), x_sum, total[i][h]);
            }
        }
    }
}

/* The sum of a run times its scale: it has less than 24 bits, and so has that of both. */
INLINE_ALWAYS void run_sums(int n_rows, enum weight_form form, __m256 total[][HALVES],
                            const uint8_t *values, const uint8_t *scales, const uint8_t *x, int run)
{
    __m256i sum[QUANT_TILE_ROWS][HALVES];
    steps_sum(n_rows, form, sum, values, x, run);
    scales += run * QUANT_COLUMNS;
    const __m256 scale[HALVES] = {signed_load(scales), signed_load(scales + 8)};
#pragma GCC unroll 6
    for (int i = 0; i < n_rows; i++) {
        __m256i offset = offset_sum(form, x, n_rows, i, run);
#pragma GCC unroll 2
        for (int h = 0; h < HALVES; h++) {
            __m256 exact = _mm256_cvtepi32_ps(_mm256_add_epi32(sum[i][h], offset));
            total[i][h] = run == 0 ? _mm256_mul_ps(exact, scale[h])
                                   : _mm256_fmadd_ps(exact, scale[h], total[i][h]);
        }
    }
}

/* ---- chains ---- */

INLINE_ALWAYS __m256 chain_minimum(int n_rows, enum weight_form form, __m256 chain,
                                   const __m256 minimum[QUANT_RUNS], const uint8_t *x, int row)
{
    switch (group_forms[form].minimum) {
    case GROUP_MINIMUM_F16:
    case GROUP_MINIMUM_BYTE:
        return _mm256_fmadd_ps(minimum[0], _mm256_set1_ps(quant_scaled_sum(x, n_rows, row)), chain);
    case GROUP_MINIMUM_RUNS:
        for (int run = 0; run < QUANT_RUNS; run++) {
            float sum = (float)quant_run_sum(x, n_rows, row, run) * quant_scale(x, row);
            chain = _mm256_fmadd_ps(minimum[run], _mm256_set1_ps(sum), chain);
        }
        return chain;
    default:
        return chain;
    }
}

/* One step of the chains of the vector that begins with `column`. */
INLINE_ALWAYS void chains_step(int n_rows, enum weight_form form, __m256 total[][HALVES],
                               const uint8_t *w, const uint8_t *super, int column, const uint8_t *x,
                               float *acc)
{
    const uint8_t *minimums = w + quant_scales_bytes(form);
#pragma GCC unroll 2
    for (int h = 0; h < HALVES; h++) {
        __m256 w_scale = scale_load(form, w, super, column + 8 * h), minimum[QUANT_RUNS] = {{0}};
        minimums_load(form, minimums, super, column + 8 * h, minimum);
#pragma GCC unroll 6
        for (int i = 0; i < n_rows; i++) {
            float *at = acc + i * QUANT_COLUMNS + column + 8 * h;
            __m256 x_scale = _mm256_set1_ps(quant_scale(x, i));
            __m256 chain =
                _mm256_fmadd_ps(total[i][h], _mm256_mul_ps(w_scale, x_scale), _mm256_loadu_ps(at));
            _mm256_storeu_ps(at, chain_minimum(n_rows, form, chain, minimum, x, i));
        }
    }
}

INLINE_ALWAYS void quant_tile(int n_rows, enum weight_form form, const struct quant_dots *d)
{
    const int half = (quant_group_lines(form) + 1) / 2; /* lines */
    const int before = quant_scales_bytes(form) + quant_minimums_bytes(form);
    const uint8_t *w = d->w, *x = d->x, *next = d->next, *super = w;
    bool is_super = group_form_is_super(form);
    for (int left = d->n_groups, n = is_super ? d->n_first : left; left > 0; n = GROUP_SUPER) {
        if (is_super) {
            super = w;
            quant_prefetch(d, w, 0, quant_super_bytes(form) / QUANT_STEP_BYTES);
            w += quant_super_bytes(form);
            n = least(n, left);
        }
        left -= n;
        for (; n > 0; n--) {
#pragma GCC unroll 1
            for (int v = 0; v < QUANT_VECTORS; v++) {
                const uint8_t *values = w + before + v * quant_vector_bytes(form);
                __m256 total[QUANT_TILE_ROWS][HALVES];
                quant_prefetch(d, w + v * half * QUANT_STEP_BYTES, 0, half);
                next = quant_prefetch_next(d, next);
                if (quant_has_runs(form)) {
                    run_sums(n_rows, form, total, values, w + 16 * v, x, 0);
                    run_sums(n_rows, form, total, values, w + 16 * v, x, 1);
                } else {
                    group_sums(n_rows, form, total, values, w + quant_scales_bytes(form) + 16 * v,
                               x);
                }
                chains_step(n_rows, form, total, w, super, 16 * v, x, d->acc);
            }
            w += quant_group_bytes(form);
            x += n_rows * (QUANT_HEAD_BYTES + (quant_is_wide(form) ? 2 : 1) * QUANT_GROUP);
        }
    }
}
