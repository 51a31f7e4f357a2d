/* Integer kernels for AVX-512 with VNNI: vpdpbusd adds the products of four unsigned by four signed
 * bytes to a 32-bit lane, exactly. A sum begins at the value that cancels what the offset of the
 * weights will have added. */
#include "model/backend/cpu/kernels/quant/tile.h"

#ifdef OUTRIDER_X86

#include "model/backend/cpu/kernels/quant/x86.h"

#ifdef OUTRIDER_SMALL_TILES
#define QUANT_TILE_ROWS 2
#else
#define QUANT_TILE_ROWS 8
#endif

INLINE_ALWAYS bool quant_is_wide(enum weight_form form)
{
    (void)form;
    return false;
}

/* ---- weights ---- */

/* Counts of shifts are int for gcc and unsigned for clang. */
#ifdef __clang__
typedef unsigned shift_count;
#else
typedef int shift_count;
#endif

/* The unsigned integers of a step of 16 columns. */
INLINE_ALWAYS __m512i step_load(enum weight_form form, const uint8_t *w, int step)
{
    const struct group_form *f = &group_forms[form];
    __m512i q = _mm512_loadu_si512(w + quant_low_at(form, step));
    if (f->low_bits < 8) {
        int shift = quant_low_shift(form, step);
        if (shift) q = _mm512_srli_epi16(q, (shift_count)shift);
        q = _mm512_and_si512(q, _mm512_set1_epi8((char)quant_low_mask(form)));
    }
    if (f->high_bits) {
        int shift = quant_high_shift(form, step);
        __m512i high = _mm512_loadu_si512(w + quant_high_at(form, step));
        high = shift < 0 ? _mm512_srli_epi16(high, (shift_count)-shift)
                         : _mm512_slli_epi16(high, (shift_count)shift);
        const __m512i mask = _mm512_set1_epi8((char)quant_high_mask(form));
        q = _mm512_ternarylogic_epi32(q, high, mask, 0xf8); /* q | high & mask */
    }
    if (f->is_table) {
        static const uint8_t entries[16] = {GROUP_TABLE_16};
        q = _mm512_shuffle_epi8(
            _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)entries)), q);
    }
    return q;
}

INLINE_ALWAYS __m512 halves_load(const uint8_t *at)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)at));
}

INLINE_ALWAYS __m512 signed_load(const uint8_t *at)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)at);
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}

INLINE_ALWAYS __m512 unsigned_load(const uint8_t *at)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)at);
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
}

/* Scales and minimums of a super-block's columns. */
struct super {
    __m512 scale[QUANT_VECTORS], minimum[QUANT_VECTORS];
};

INLINE_ALWAYS struct super super_load(enum weight_form form, const uint8_t *w)
{
    struct super super = {{halves_load(w), halves_load(w + 32)}, {{0}}};
    if (group_forms[form].minimum == GROUP_NO_MINIMUM) return super;
    super.minimum[0] = halves_load(w + 64);
    super.minimum[1] = halves_load(w + 96);
    return super;
}

/* The scale of vector v of a group; with runs, what their scales multiply. */
INLINE_ALWAYS __m512 scale_load(enum weight_form form, const uint8_t *w, int v,
                                const struct super *super)
{
    __m256i bf16;
    switch (group_forms[form].scale) {
    case GROUP_SCALE_BF16:
        bf16 = _mm256_loadu_si256((const __m256i *)(const void *)(w + 32 * v));
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bf16), 16));
    case GROUP_SCALE_F16:
        return halves_load(w + 32 * v);
    case GROUP_SCALE_F32:
        return _mm512_loadu_ps(w + 64 * v);
    case GROUP_SCALE_BYTE:
        return _mm512_mul_ps(super->scale[v], signed_load(w + 16 * v));
    case GROUP_SCALE_RUNS:
        break;
    }
    return super->scale[v];
}

/* ---- sums ---- */

/* Returns the begin of a row's sum; run < 0: of both runs. */
INLINE_ALWAYS __m512i sum_begin(enum weight_form form, const uint8_t *x, int n_rows, int row,
                                int run)
{
    int shift = quant_offset_shift(form);
    if (shift < 0) return _mm512_setzero_si512();
    __m512i sum = _mm512_set1_epi32(quant_sum(x, n_rows, row));
    if (run >= 0) {
        __m512i first = _mm512_set1_epi32(quant_first_sum(x, n_rows, row));
        sum = run == 0 ? first : _mm512_sub_epi32(sum, first);
    }
    return _mm512_slli_epi32(sum, (unsigned)shift);
}

/* Sums the steps of a run for all rows; run < 0: of both runs. */
INLINE_ALWAYS void steps_sum(int n_rows, enum weight_form form, __m512i sum[][QUANT_VECTORS],
                             const uint8_t *values, const uint8_t *x, int run)
{
    const uint8_t *q = x + n_rows * QUANT_HEAD_BYTES;
    const int first = run > 0 ? QUANT_RUN_STEPS : 0;
    const int end = run == 0 ? QUANT_RUN_STEPS : QUANT_STEPS;
#pragma GCC unroll 8
    for (int i = 0; i < n_rows; i++) {
        sum[i][0] = sum[i][1] = sum_begin(form, x, n_rows, i, run);
    }
#pragma GCC unroll 8
    for (int step = first; step < end; step++) {
        __m512i w0 = step_load(form, values, step);
        __m512i w1 = step_load(form, values + quant_vector_bytes(form), step);
#pragma GCC unroll 8
        for (int i = 0; i < n_rows; i++) {
            __m512i quad = _mm512_set1_epi32(quant_word(q + 4 * (step * n_rows + i)));
            sum[i][0] = _mm512_dpbusd_epi32(sum[i][0], w0, quad);
            sum[i][1] = _mm512_dpbusd_epi32(sum[i][1], w1, quad);
        }
    }
}

/* Sums of whole groups, as exact floats. */
INLINE_ALWAYS void group_sums(int n_rows, enum weight_form form, __m512 total[][QUANT_VECTORS],
                              const uint8_t *values, const uint8_t *zeros, const uint8_t *x)
{
    __m512i sum[QUANT_TILE_ROWS][QUANT_VECTORS];
    steps_sum(n_rows, form, sum, values, x, -1);
    bool has_zero = group_forms[form].minimum == GROUP_ZERO;
    __m512 zero[QUANT_VECTORS] = {{0}};
    if (has_zero) zero[0] = unsigned_load(zeros), zero[1] = unsigned_load(zeros + 16);
#pragma GCC unroll 8
    for (int i = 0; i < n_rows; i++) {
        __m512 x_sum = _mm512_setzero_ps();
        if (has_zero) x_sum = _mm512_cvtepi32_ps(_mm512_set1_epi32(quant_sum(x, n_rows, i)));
#pragma GCC unroll 2
        for (int v = 0; v < QUANT_VECTORS; v++) {
            total[i][v] = _mm512_cvtepi32_ps(sum[i][v]);
            if (has_zero) total[i][v] = _mm512_fmadd_ps(zero[v], x_sum, total[i][v]);
        }
    }
}

/* The sum of a run times its scale: it has less than 24 bits, and so has that of both. */
INLINE_ALWAYS void run_sums(int n_rows, enum weight_form form, __m512 total[][QUANT_VECTORS],
                            const uint8_t *values, const uint8_t *scales, const uint8_t *x, int run)
{
    __m512i sum[QUANT_TILE_ROWS][QUANT_VECTORS];
    steps_sum(n_rows, form, sum, values, x, run);
    scales += run * QUANT_COLUMNS;
    __m512 scale[QUANT_VECTORS] = {signed_load(scales), signed_load(scales + 16)};
#pragma GCC unroll 8
    for (int i = 0; i < n_rows; i++) {
#pragma GCC unroll 2
        for (int v = 0; v < QUANT_VECTORS; v++) {
            __m512 exact = _mm512_cvtepi32_ps(sum[i][v]);
            total[i][v] = run == 0 ? _mm512_mul_ps(exact, scale[v])
                                   : _mm512_fmadd_ps(exact, scale[v], total[i][v]);
        }
    }
}

/* ---- chains ---- */

INLINE_ALWAYS void minimums_load(enum weight_form form, const uint8_t *minimums, int v,
                                 const struct super *super, __m512 out[QUANT_RUNS])
{
    const enum group_minimum kind = group_forms[form].minimum;
    if (kind == GROUP_MINIMUM_F16) out[0] = halves_load(minimums + 32 * v);
    if (kind != GROUP_MINIMUM_BYTE && kind != GROUP_MINIMUM_RUNS) return;
    out[0] = _mm512_mul_ps(super->minimum[v], unsigned_load(minimums + 16 * v));
    if (kind == GROUP_MINIMUM_BYTE) return;
    out[1] = _mm512_mul_ps(super->minimum[v], unsigned_load(minimums + QUANT_COLUMNS + 16 * v));
}

/* Loads the scaled sum of a row that multiplies the minimums, or one for each run. */
INLINE_ALWAYS void x_sums_load(enum weight_form form, const uint8_t *x, int n_rows, int row,
                               __m512 out[QUANT_RUNS])
{
    const enum group_minimum kind = group_forms[form].minimum;
    if (kind == GROUP_MINIMUM_F16 || kind == GROUP_MINIMUM_BYTE) {
        out[0] = _mm512_set1_ps(quant_scaled_sum(x, n_rows, row));
    }
    for (int run = 0; kind == GROUP_MINIMUM_RUNS && run < QUANT_RUNS; run++) {
        out[run] = _mm512_set1_ps((float)quant_run_sum(x, n_rows, row, run) * quant_scale(x, row));
    }
}

INLINE_ALWAYS __m512 chain_minimum(enum weight_form form, __m512 chain,
                                   const __m512 minimum[QUANT_RUNS], const __m512 x_sum[QUANT_RUNS])
{
    const enum group_minimum kind = group_forms[form].minimum;
    if (kind == GROUP_NO_MINIMUM || kind == GROUP_ZERO) return chain;
    chain = _mm512_fmadd_ps(minimum[0], x_sum[0], chain);
    return kind == GROUP_MINIMUM_RUNS ? _mm512_fmadd_ps(minimum[1], x_sum[1], chain) : chain;
}

/* One step of all chains. */
INLINE_ALWAYS void chains_step(int n_rows, enum weight_form form, __m512 total[][QUANT_VECTORS],
                               const uint8_t *w, const struct super *super, const uint8_t *x,
                               float *acc)
{
    const uint8_t *minimums = w + quant_scales_bytes(form);
    __m512 w_scale[QUANT_VECTORS], minimum[QUANT_VECTORS][QUANT_RUNS] = {{{0}}};
#pragma GCC unroll 2
    for (int v = 0; v < QUANT_VECTORS; v++) {
        w_scale[v] = scale_load(form, w, v, super);
        minimums_load(form, minimums, v, super, minimum[v]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < n_rows; i++) {
        __m512 x_scale = _mm512_set1_ps(quant_scale(x, i)), x_sum[QUANT_RUNS] = {{0}};
        x_sums_load(form, x, n_rows, i, x_sum);
#pragma GCC unroll 2
        for (int v = 0; v < QUANT_VECTORS; v++) {
            float *at = acc + i * QUANT_COLUMNS + 16 * v;
            __m512 chain = _mm512_fmadd_ps(total[i][v], _mm512_mul_ps(w_scale[v], x_scale),
                                           _mm512_loadu_ps(at));
            _mm512_storeu_ps(at, chain_minimum(form, chain, minimum[v], x_sum));
        }
    }
}

INLINE_ALWAYS void quant_tile(int n_rows, enum weight_form form, const struct quant_dots *d)
{
    const int lines = quant_group_lines(form), half = (lines + 1) / 2;
    const int before = quant_scales_bytes(form) + quant_minimums_bytes(form);
    const uint8_t *w = d->w, *x = d->x, *next = d->next;
    struct super super = {{{0}}, {{0}}};
    bool is_super = group_form_is_super(form);
    for (int left = d->n_groups, n = is_super ? d->n_first : left; left > 0; n = GROUP_SUPER) {
        if (is_super) {
            super = super_load(form, w);
            quant_prefetch(d, w, 0, quant_super_bytes(form) / QUANT_STEP_BYTES);
            w += quant_super_bytes(form);
            n = least(n, left);
        }
        left -= n;
        for (; n > 0; n--) {
            const uint8_t *values = w + before;
            __m512 total[QUANT_TILE_ROWS][QUANT_VECTORS];
            quant_prefetch(d, w, 0, half);
            next = quant_prefetch_next(d, next);
            if (quant_has_runs(form)) {
                run_sums(n_rows, form, total, values, w, x, 0);
                run_sums(n_rows, form, total, values, w, x, 1);
            } else {
                group_sums(n_rows, form, total, values, w + quant_scales_bytes(form), x);
            }
            quant_prefetch(d, w, half, lines);
            next = quant_prefetch_next(d, next);
            chains_step(n_rows, form, total, w, &super, x, d->acc);
            w += quant_group_bytes(form);
            x += n_rows * (QUANT_HEAD_BYTES + QUANT_GROUP);
        }
    }
}

INLINE_ALWAYS void quant_store(enum weight_form form, const struct quant_group *group,
                               int step_stride, uint8_t *q)
{
    (void)form;
    quant_store_bytes(group, step_stride, q);
}

#include "model/backend/cpu/kernels/quant/impl.h"

const struct kernels_quant kernels_quant_avx512 = KERNELS_QUANT_TABLE;

#endif
