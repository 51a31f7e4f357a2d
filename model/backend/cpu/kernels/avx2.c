/* Kernels for AVX2 with fma: a pair of k is one fused step with the odd k and one with the even k,
 * in halves of 8 lanes. The chains run with denormals flushed in and out (MXCSR FTZ and DAZ).
 *
 * With more than one row the fma units are the limit, so the inner loop has little else: a half of
 * the weights is widened once for all rows, and the activations were widened before (panels).
 * Tiles of rows by halves fill the sixteen registers as in the single-precision micro-kernels of
 * BLIS: at least 8 chains hide the latency of 4 cycles, two of which begin in each cycle. What
 * decides about registers is written in assembly, because gcc hoists broadcasts, overwrites them
 * with sums, and then keeps accumulators on the stack. */
#include "model/backend/cpu/kernels/tile.h"

#ifdef OUTRIDER_X86

#include <immintrin.h>

enum { TILE_ROWS_MAX = 6, TILE_HALVES_MAX = 8, HALF = 8, GROUP_HALVES_MAX = 3 };
#define VEC_BYTES 32
#define TILE_ROWS 6
#define WIDE_ROWS 1
#define WHOLE_K   1
#define TILE_FUNCTIONS \
    TILE(1, 64) TILE(2, 32) TILE(3, 32) TILE(4, 24) TILE(4, 16) TILE(5, 16) TILE(6, 16)
#define TILE_TABLE                                                                           \
    [1] = {PASS(1, 64)}, [2] = {PASS(2, 32), PASS(2, 32)}, [3] = {PASS(3, 32), PASS(3, 32)}, \
    [4] = {PASS(4, 24), PASS(4, 24), PASS(4, 16)},                                           \
    [5] = {PASS(5, 16), PASS(5, 16), PASS(5, 16), PASS(5, 16)},                              \
    [6] = {PASS(6, 16), PASS(6, 16), PASS(6, 16), PASS(6, 16)}

typedef const __m256i __attribute__((may_alias)) half_bits;
typedef const float __attribute__((may_alias)) row_word;

/* A bf16 is the upper half of its fp32: the odd k of a pair is in place already, and the even one
 * moves up. */
INLINE_ALWAYS __m256 odd_of(__m256i pairs)
{
    return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32((int)0xffff0000u)));
}

INLINE_ALWAYS __m256 even_of(__m256i pairs)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
}

/* The same from memory. Of the even k, because Intel's units for shifts are those for fma, and its
 * unit for shuffles is another one. */
static const _Alignas(32) uint8_t even_places[32] = {
    128, 128, 0, 1, 128, 128, 4, 5, 128, 128, 8, 9, 128, 128, 12, 13,
    128, 128, 0, 1, 128, 128, 4, 5, 128, 128, 8, 9, 128, 128, 12, 13};

INLINE_ALWAYS __m256 odd_load(const uint16_t *w)
{
    __m256 odd;
    __asm__("vandps %1, %2, %0"
            : "=x"(odd)
            : "m"(*(half_bits *)(const void *)w), "x"(_mm256_set1_epi32((int)0xffff0000u)));
    return odd;
}

INLINE_ALWAYS __m256 even_load(const uint16_t *w)
{
    __m256 even;
    __asm__("vmovdqu %1, %0\n\tvpshufb %2, %0, %0"
            : "=&x"(even)
            : "m"(*(half_bits *)(const void *)w), "m"(*(half_bits *)(const void *)even_places));
    return even;
}

/* One fused step of 2 or 3 halves of a row. */
INLINE_ALWAYS void row_step(int n_halves, __m256 *acc, const __m256 *w, const uint16_t *x)
{
    row_word *word = (row_word *)(const void *)x;
    __m256 all;
    if (n_halves == 2) {
        __asm__("vbroadcastss %5, %2\n\t"
                "vfmadd231ps %2, %3, %0\n\t"
                "vfmadd231ps %2, %4, %1"
                : "+x"(acc[0]), "+x"(acc[1]), "=&x"(all)
                : "x"(w[0]), "x"(w[1]), "m"(*word));
    } else {
        __asm__("vbroadcastss %7, %3\n\t"
                "vfmadd231ps %3, %4, %0\n\t"
                "vfmadd231ps %3, %5, %1\n\t"
                "vfmadd231ps %3, %6, %2"
                : "+x"(acc[0]), "+x"(acc[1]), "+x"(acc[2]), "=&x"(all)
                : "x"(w[0]), "x"(w[1]), "x"(w[2]), "m"(*word));
    }
}

/* A pair of k of several rows. The halves go in groups that leave registers for the weights. */
INLINE_ALWAYS void rows_pair(int n_rows, int n_halves, __m256 acc[][TILE_HALVES_MAX],
                             const uint16_t *w, const uint16_t *x)
{
    const int n_group = n_halves == 3 ? 3 : 2;
#pragma GCC unroll 8
    for (int j = 0; j < n_halves; j += n_group) {
        __m256 columns[GROUP_HALVES_MAX];
#pragma GCC unroll 8
        for (int h = 0; h < n_group; h++) {
            columns[h] = odd_load(w + 2 * HALF * (j + h));
        }
#pragma GCC unroll 8
        for (int i = 0; i < n_rows; i++) {
            row_step(n_group, &acc[i][j], columns, x + 4 * i);
        }
#pragma GCC unroll 8
        for (int h = 0; h < n_group; h++) {
            columns[h] = even_load(w + 2 * HALF * (j + h));
        }
#pragma GCC unroll 8
        for (int i = 0; i < n_rows; i++) {
            row_step(n_group, &acc[i][j], columns, x + 4 * i + 2);
        }
    }
}

/* A pair of k of one row, which memory limits. */
INLINE_ALWAYS void row_pair(int n_halves, __m256 *acc, const uint16_t *w, const uint16_t *x)
{
    __m256 x_odd = _mm256_castsi256_ps(_mm256_set1_epi32((int)dots_word(x)));
    __m256 x_even = _mm256_castsi256_ps(_mm256_set1_epi32((int)dots_word(x + 2)));
#pragma GCC unroll 8
    for (int j = 0; j < n_halves; j++) {
        __m256i pairs = _mm256_loadu_si256((const __m256i *)(const void *)(w + 2 * HALF * j));
        acc[j] = _mm256_fmadd_ps(odd_of(pairs), x_odd, acc[j]);
        acc[j] = _mm256_fmadd_ps(even_of(pairs), x_even, acc[j]);
    }
}

/* Activations are panels of fp32, so that their strides are those of the tile. */
INLINE_ALWAYS void dot_tile(int n_rows, int n_columns, const struct dots *d)
{
    const int n_halves = n_columns / HALF;
    const size_t w_step = d->w_step, near_step = d->near_step, far_step = d->far_step;
    __m256 acc[TILE_ROWS_MAX][TILE_HALVES_MAX];
    const uint16_t *w = d->w, *x = d->x, *near = d->near, *far = d->far;
#pragma GCC unroll 8
    for (int i = 0; i < n_rows; i++) {
#pragma GCC unroll 8
        for (int j = 0; j < n_halves; j++) {
            acc[i][j] = _mm256_loadu_ps(d->acc + (size_t)i * d->acc_stride + HALF * j);
        }
    }
    for (int n_left = d->n_pairs; n_left > 0; n_left--) {
#pragma GCC unroll 8
        for (int j = 0; j < n_halves; j += 2) {
            dots_prefetch(near + 2 * HALF * j, far + 2 * HALF * j);
        }
        if (n_rows == 1) {
            row_pair(n_halves, acc[0], w, x);
        } else {
            rows_pair(n_rows, n_halves, acc, w, x);
        }
        w += w_step;
        x += 4 * n_rows;
        near += near_step;
        far += far_step;
    }
#pragma GCC unroll 8
    for (int i = 0; i < n_rows; i++) {
#pragma GCC unroll 8
        for (int j = 0; j < n_halves; j++) {
            _mm256_storeu_ps(d->acc + (size_t)i * d->acc_stride + HALF * j, acc[i][j]);
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

#endif
