/* Integer kernels for AVX-512 with VNNI: vpdpbusd adds the products of four unsigned by four signed
 * bytes to a 32-bit lane, exactly. Weights are stored with an offset that makes them unsigned; a
 * sum begins at the value that cancels what the offset will have added. */
#include "model/backend/cpu/kernels/quant/tile.h"

#ifdef OUTRIDER_X86

#include "model/backend/cpu/kernels/quant/x86.h"

#define QUANT_TILE_ROWS 8

INLINE_ALWAYS int quant_step_bytes(enum weight_form form)
{
    (void)form;
    return 4;
}

INLINE_ALWAYS __m512 scales_load(const uint8_t *scales)
{
    __m256i bf16 = _mm256_loadu_si256((const __m256i *)(const void *)scales);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bf16), 16));
}

/* One step of all rows. */
INLINE_ALWAYS void rows_step(int n_rows, __m512i sum[][QUANT_VECTORS], __m512i w0, __m512i w1,
                             const uint8_t *q)
{
#pragma GCC unroll 12
    for (int i = 0; i < n_rows; i++) {
        __m512i quad = _mm512_set1_epi32(quant_word(q + 4 * i));
        sum[i][0] = _mm512_dpbusd_epi32(sum[i][0], w0, quad);
        sum[i][1] = _mm512_dpbusd_epi32(sum[i][1], w1, quad);
    }
}

INLINE_ALWAYS void int8_sums(int n_rows, __m512i sum[][QUANT_VECTORS], const uint8_t *w,
                             const uint8_t *q)
{
#pragma GCC unroll 8
    for (int step = 0; step < QUANT_STEPS; step++) {
        rows_step(n_rows, sum, _mm512_loadu_si512(w),
                  _mm512_loadu_si512(w + QUANT_STEPS * QUANT_STEP_BYTES), q);
        w += QUANT_STEP_BYTES;
        q += 4 * n_rows;
    }
}

INLINE_ALWAYS void int4_sums(int n_rows, __m512i sum[][QUANT_VECTORS], const uint8_t *w,
                             const uint8_t *q)
{
    const __m512i half = _mm512_set1_epi8(15);
#pragma GCC unroll 4
    for (int step = 0; step < QUANT_STEPS; step += 2) {
        __m512i w0 = _mm512_loadu_si512(w);
        __m512i w1 = _mm512_loadu_si512(w + QUANT_STEPS / 2 * QUANT_STEP_BYTES);
        rows_step(n_rows, sum, _mm512_and_si512(w0, half), _mm512_and_si512(w1, half), q);
        rows_step(n_rows, sum, _mm512_and_si512(_mm512_srli_epi16(w0, 4), half),
                  _mm512_and_si512(_mm512_srli_epi16(w1, 4), half), q + 4 * n_rows);
        w += QUANT_STEP_BYTES;
        q += 8 * n_rows;
    }
}

/* One step of all chains. */
INLINE_ALWAYS void chains_step(int n_rows, __m512i sum[][QUANT_VECTORS], const uint8_t *scales,
                               const uint8_t *x, float *acc)
{
    __m512 w_scale[QUANT_VECTORS] = {scales_load(scales),
                                     scales_load(scales + QUANT_SCALE_BYTES / 2)};
#pragma GCC unroll 12
    for (int i = 0; i < n_rows; i++) {
        __m512 x_scale = _mm512_set1_ps(quant_scale(x, i));
#pragma GCC unroll 2
        for (int v = 0; v < QUANT_VECTORS; v++) {
            float *at = acc + i * QUANT_COLUMNS + 16 * v;
            __m512 chain = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[i][v]),
                                           _mm512_mul_ps(w_scale[v], x_scale), _mm512_loadu_ps(at));
            _mm512_storeu_ps(at, chain);
        }
    }
}

INLINE_ALWAYS void quant_tile(int n_rows, enum weight_form form, const struct quant_dots *d)
{
    const uint8_t *w = d->w, *x = d->x, *next = d->next;
    for (int group = 0; group < d->n_groups; group++) {
        const uint8_t *values = w + QUANT_SCALE_BYTES, *q = x + n_rows * QUANT_HEAD_BYTES;
        __m512i sum[QUANT_TILE_ROWS][QUANT_VECTORS];
        quant_prefetch(d, w, 1);
        quant_prefetch(d, values, QUANT_VECTORS * quant_vector_bytes(form) / 2 / QUANT_STEP_BYTES);
        next = quant_prefetch_next(d, next);
#pragma GCC unroll 12
        for (int i = 0; i < n_rows; i++) {
            sum[i][0] = sum[i][1] = _mm512_set1_epi32(quant_start(x, n_rows, i));
        }
        if (form == WEIGHTS_INT8) {
            int8_sums(n_rows, sum, values, q);
        } else {
            int4_sums(n_rows, sum, values, q);
        }
        quant_prefetch(d, values + quant_vector_bytes(form),
                       quant_vector_bytes(form) / QUANT_STEP_BYTES);
        next = quant_prefetch_next(d, next);
        chains_step(n_rows, sum, w, x, d->acc);
        w = values + QUANT_VECTORS * quant_vector_bytes(form);
        x = q + n_rows * QUANT_STEPS * quant_step_bytes(form);
    }
}

INLINE_ALWAYS void quant_store(enum weight_form form, const struct quant_group *group,
                               int step_stride, uint8_t *start, uint8_t *q)
{
    quant_store_bytes(form, group, step_stride, start, q);
}

#include "model/backend/cpu/kernels/quant/impl.h"

const struct kernels_quant kernels_quant_avx512 = KERNELS_QUANT_TABLE;

#endif
