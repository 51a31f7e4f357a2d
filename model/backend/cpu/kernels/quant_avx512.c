/* Integer kernels for AVX-512 with VNNI: vpdpbusd adds the products of four unsigned by four signed
 * bytes to a 32-bit lane, exactly. Weights are stored with an offset that makes them unsigned; a
 * sum begins at the value that cancels what the offset will have added. */
#include "model/backend/cpu/kernels/quant_tile.h"

#ifdef OUTRIDER_X86

#include <immintrin.h>

#define QUANT_TILE_ROWS 8

INLINE_ALWAYS __m512 scales_load(const uint8_t *scales)
{
    __m256i bf16 = _mm256_loadu_si256((const __m256i *)(const void *)scales);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bf16), 16));
}

/* The activations of a step are loaded once for both vectors as long as the accumulators of both
 * fit into registers, which is up to 7 rows. */
INLINE_ALWAYS int vectors_at_once(int n_rows)
{
    return n_rows <= 7 ? QUANT_VECTORS : 1;
}

/* Makes the compiler load again what it has loaded before. If it kept those values for the other
 * vector, they would push the accumulators out of the registers. */
INLINE_ALWAYS void forget_loads(void)
{
    __asm__ volatile("" ::: "memory");
}

/* One step of all rows and of some vectors. */
INLINE_ALWAYS void rows_step(int n_rows, int n_vectors, __m512i sum[][QUANT_VECTORS],
                             const __m512i *w, const struct quant_group *x, size_t x_stride,
                             int step)
{
#pragma GCC unroll 8
    for (int i = 0; i < n_rows; i++) {
        __m512i quad = _mm512_set1_epi32(quant_quad(x + (size_t)i * x_stride, step));
#pragma GCC unroll 2
        for (int v = 0; v < n_vectors; v++) {
            sum[i][v] = _mm512_dpbusd_epi32(sum[i][v], w[v], quad);
        }
    }
}

INLINE_ALWAYS void int8_sums(int n_rows, int n_vectors, __m512i sum[][QUANT_VECTORS],
                             const uint8_t *w, const struct quant_group *x, size_t x_stride)
{
#pragma GCC unroll 8
    for (int step = 0; step < QUANT_STEPS; step++) {
        __m512i bytes[QUANT_VECTORS];
#pragma GCC unroll 2
        for (int v = 0; v < n_vectors; v++) {
            bytes[v] = _mm512_loadu_si512(w + (v * QUANT_STEPS + step) * QUANT_STEP_BYTES);
        }
        rows_step(n_rows, n_vectors, sum, bytes, x, x_stride, step);
    }
}

INLINE_ALWAYS void int4_sums(int n_rows, int n_vectors, __m512i sum[][QUANT_VECTORS],
                             const uint8_t *w, const struct quant_group *x, size_t x_stride)
{
    const __m512i half = _mm512_set1_epi8(15);
#pragma GCC unroll 8
    for (int step = 0; step < QUANT_STEPS; step += 2) {
        __m512i low[QUANT_VECTORS], high[QUANT_VECTORS];
#pragma GCC unroll 2
        for (int v = 0; v < n_vectors; v++) {
            const uint8_t *at = w + (v * QUANT_STEPS + step) / 2 * QUANT_STEP_BYTES;
            __m512i bytes = _mm512_loadu_si512(at);
            low[v] = _mm512_and_si512(bytes, half);
            high[v] = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), half);
        }
        rows_step(n_rows, n_vectors, sum, low, x, x_stride, step);
        rows_step(n_rows, n_vectors, sum, high, x, x_stride, step + 1);
    }
}

/* Some vectors of a group of the matrix, and the same group of all rows. */
struct vectors {
    int first, n;
    const uint8_t *w;      /* of vector `first` */
    const uint8_t *scales; /* of the whole group */
    const struct quant_group *x;
    size_t x_stride;
};

/* Computes the sums of the vectors, then one step of each chain. */
INLINE_ALWAYS void group_run(int n_rows, enum weight_form form, __m512 acc[][QUANT_VECTORS],
                             const struct vectors *g)
{
    const struct quant_group *x = g->x;
    const size_t x_stride = g->x_stride;
    const int first = g->first, n_vectors = g->n;
    __m512i sum[QUANT_TILE_ROWS][QUANT_VECTORS];
#pragma GCC unroll 8
    for (int i = 0; i < n_rows; i++) {
        sum[i][0] = sum[i][1] = _mm512_set1_epi32(x[(size_t)i * x_stride].start);
    }
    if (form == WEIGHTS_INT8) {
        int8_sums(n_rows, n_vectors, sum, g->w, x, x_stride);
    } else {
        int4_sums(n_rows, n_vectors, sum, g->w, x, x_stride);
    }
#pragma GCC unroll 2
    for (int v = 0; v < n_vectors; v++) {
        __m512 w_scale = scales_load(g->scales + 32 * (first + v));
#pragma GCC unroll 8
        for (int i = 0; i < n_rows; i++) {
            __m512 x_scale = _mm512_set1_ps(x[(size_t)i * x_stride].scale);
            acc[i][first + v] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[i][v]),
                                                _mm512_mul_ps(w_scale, x_scale), acc[i][first + v]);
        }
    }
}

INLINE_ALWAYS void quant_tile(int n_rows, enum weight_form form, const struct quant_dots *d)
{
    const int vector_bytes = quant_vector_bytes(form), n_vectors = vectors_at_once(n_rows);
    __m512 acc[QUANT_TILE_ROWS][QUANT_VECTORS];
    const uint8_t *w = d->w, *near = d->near, *far = d->far;
    const struct quant_group *x = d->x;
#pragma GCC unroll 8
    for (int i = 0; i < n_rows; i++) {
        acc[i][0] = _mm512_loadu_ps(d->acc + (size_t)i * QUANT_COLUMNS);
        acc[i][1] = _mm512_loadu_ps(d->acc + (size_t)i * QUANT_COLUMNS + 16);
    }
    for (int group = 0; group < d->n_groups; group++) {
        const uint8_t *scales = w;
        w += QUANT_SCALE_BYTES;
        quant_prefetch(&near, &far, d);
#pragma GCC unroll 2
        for (int v = 0; v < QUANT_VECTORS; v += n_vectors) {
            forget_loads();
            const struct vectors g = {v, n_vectors, w, scales, x, d->x_stride};
            group_run(n_rows, form, acc, &g);
            w += n_vectors * vector_bytes;
        }
        quant_prefetch(&near, &far, d);
        x++;
    }
#pragma GCC unroll 8
    for (int i = 0; i < n_rows; i++) {
        _mm512_storeu_ps(d->acc + (size_t)i * QUANT_COLUMNS, acc[i][0]);
        _mm512_storeu_ps(d->acc + (size_t)i * QUANT_COLUMNS + 16, acc[i][1]);
    }
}

#include "model/backend/cpu/kernels/quant_impl.h"

const struct kernels_quant kernels_quant_avx512 = KERNELS_QUANT_TABLE;

#endif
