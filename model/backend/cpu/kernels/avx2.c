/* Kernels for AVX2 with fma: a pair of k is one fused step with the odd k and one with the even k,
 * in two halves of 8 lanes. The chains run with denormals flushed in and out (MXCSR FTZ and
 * DAZ). */
#include "model/backend/cpu/kernels/tile.h"

#ifdef OUTRIDER_X86

#include <immintrin.h>

enum { TILE_ROWS_MAX = 4, TILE_HALVES_MAX = 8 };
#define VEC_BYTES      32
#define TILE_ROWS      4
#define TILE_VECTORS_1 4
#define TILE_VECTORS_2 2
#define TILE_VECTORS_3 1
#define TILE_VECTORS_4 1
#define WHOLE_K        1

/* A bf16 is the upper half of its fp32: the odd k of a pair is in place already, and the even one
 * is shifted. */
INLINE_ALWAYS __m256 odd_of(__m256i pairs)
{
    return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32((int)0xffff0000u)));
}

INLINE_ALWAYS __m256 even_of(__m256i pairs)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
}

INLINE_ALWAYS void dot_tile(int n_rows, int n_vectors, const struct dots *d)
{
    __m256 acc[TILE_ROWS_MAX][TILE_HALVES_MAX];
    const uint16_t *w = d->w, *x = d->x, *near = d->near, *far = d->far;
#pragma GCC unroll 8
    for (int i = 0; i < n_rows; i++) {
#pragma GCC unroll 8
        for (int j = 0; j < 2 * n_vectors; j++) {
            acc[i][j] = _mm256_loadu_ps(d->acc + (size_t)i * d->acc_stride + 8 * j);
        }
    }
    for (int pair = 0; pair < d->n_pairs; pair++) {
#pragma GCC unroll 8
        for (int j = 0; j < n_vectors; j++) {
            dots_prefetch(near + 32 * j, far + 32 * j);
        }
#pragma GCC unroll 8
        for (int j = 0; j < 2 * n_vectors; j++) {
            __m256i columns = _mm256_loadu_si256((const __m256i *)(const void *)(w + 16 * j));
            __m256 odd = odd_of(columns), even = even_of(columns);
#pragma GCC unroll 8
            for (int i = 0; i < n_rows; i++) {
                uint32_t x_pair = dots_x_pair(x + (size_t)i * d->x_stride);
                __m256i both = _mm256_set1_epi32((int)x_pair);
                acc[i][j] = _mm256_fmadd_ps(odd, odd_of(both), acc[i][j]);
                acc[i][j] = _mm256_fmadd_ps(even, even_of(both), acc[i][j]);
            }
        }
        w += d->w_step;
        x += 2;
        near += d->near_step;
        far += d->far_step;
    }
#pragma GCC unroll 8
    for (int i = 0; i < n_rows; i++) {
#pragma GCC unroll 8
        for (int j = 0; j < 2 * n_vectors; j++) {
            _mm256_storeu_ps(d->acc + (size_t)i * d->acc_stride + 8 * j, acc[i][j]);
        }
    }
}

/* The chains are in functions that are called by pointer between these two, with all their input
 * and output in memory, so that the compiler cannot move a floating-point step out. */
static unsigned dots_begin(void)
{
    unsigned mode = _mm_getcsr();
    unsigned flushed = mode | _MM_FLUSH_ZERO_ON | 0x0040u; /* denormals are zeros */
    __asm__ volatile("ldmxcsr %0" : : "m"(flushed) : "memory");
    return mode;
}

static void dots_end(unsigned mode)
{
    __asm__ volatile("ldmxcsr %0" : : "m"(mode) : "memory");
}

#include "model/backend/cpu/kernels/impl.h"

const struct kernels kernels_avx2 = KERNELS_TABLE("avx2", &kernels_quant_avx2);
const struct kernels kernels_avxvnni = KERNELS_TABLE("avxvnni", &kernels_quant_avxvnni);

#endif
