/* Kernels for AVX-512 with bf16 dot products: one vdpbf16ps does the two steps of a pair of k in 16
 * lanes, with denormals flushed whatever the mode is. */
#include "model/backend/cpu/kernels/tile.h"

#ifdef OUTRIDER_X86

#include <immintrin.h>

enum { TILE_ROWS_MAX = 7, TILE_VECTORS_MAX = 4 };
#define VEC_BYTES 64
#define TILE_ROWS 7
#define LINE_ROWS 7
#define WIDE_ROWS 0
#define TILES   \
    TILE(1, 64) \
    TILE(2, 64) \
    TILE(3, 64) \
    TILE(4, 64) \
    TILE(5, 64) \
    TILE(6, 64) \
    TILE(7, 64)
#define WHOLE_K        1
#define SCORE_LANES    16
#define ATTENTION_ROWS 7
#define ATTENTION_TILES      \
    ATTENTION_TILE(1, 1, 64) \
    ATTENTION_TILE(2, 1, 64) \
    ATTENTION_TILE(3, 1, 64) \
    ATTENTION_TILE(4, 1, 64) \
    ATTENTION_TILE(5, 4, 64) \
    ATTENTION_TILE(6, 4, 64) \
    ATTENTION_TILE(7, 4, 64)

INLINE_ALWAYS void dot_tile(int n_rows, int n_columns, const struct dots *d)
{
    const int n_vectors = n_columns / 16;
    __m512 acc[TILE_ROWS_MAX][TILE_VECTORS_MAX];
    const uint16_t *w = d->w, *x = d->x, *near = d->near, *far = d->far;
#pragma GCC unroll 8
    for (int i = 0; i < n_rows; i++) {
#pragma GCC unroll 8
        for (int j = 0; j < n_vectors; j++) {
            acc[i][j] = _mm512_loadu_ps(d->acc + (size_t)i * d->acc_stride + 16 * j);
        }
    }
    for (int pair = 0; pair < d->n_pairs; pair++) {
        __m512bh columns[TILE_VECTORS_MAX];
#pragma GCC unroll 8
        for (int j = 0; j < n_vectors; j++) {
            columns[j] = (__m512bh)_mm512_loadu_si512(w + 32 * j);
            dots_prefetch(near + 32 * j, far + 32 * j);
        }
#pragma GCC unroll 8
        for (int i = 0; i < n_rows; i++) {
            uint32_t x_pair = dots_word(x + (size_t)i * d->x_stride);
            __m512bh both = (__m512bh)_mm512_set1_epi32((int)x_pair);
#pragma GCC unroll 8
            for (int j = 0; j < n_vectors; j++) {
                acc[i][j] = _mm512_dpbf16_ps(acc[i][j], columns[j], both);
            }
        }
        w += d->w_step;
        x += d->x_step;
        near += d->near_step;
        far += d->far_step;
    }
#pragma GCC unroll 8
    for (int i = 0; i < n_rows; i++) {
#pragma GCC unroll 8
        for (int j = 0; j < n_vectors; j++) {
            _mm512_storeu_ps(d->acc + (size_t)i * d->acc_stride + 16 * j, acc[i][j]);
        }
    }
}

INLINE_ALWAYS void score_tile(int n_queries, int n_vectors, const struct score_dots *d)
{
    __m512 acc[TILE_ROWS_MAX][TILE_VECTORS_MAX];
    const uint16_t *q = d->q;
#pragma GCC unroll 8
    for (int i = 0; i < n_queries; i++) {
#pragma GCC unroll 8
        for (int j = 0; j < n_vectors; j++) {
            acc[i][j] = _mm512_setzero_ps();
        }
    }
    for (int pair = 0; pair < d->n_pairs; pair++) {
        __m512bh positions[TILE_VECTORS_MAX];
#pragma GCC unroll 8
        for (int j = 0; j < n_vectors; j++) {
            positions[j] = (__m512bh)_mm512_loadu_si512(d->k[j] + 32 * pair);
            dots_prefetch(d->ahead[j] + 32 * pair, d->far[j] + 32 * pair);
        }
#pragma GCC unroll 8
        for (int i = 0; i < n_queries; i++) {
            uint32_t q_pair = dots_word(q + (size_t)i * d->q_stride);
            __m512bh both = (__m512bh)_mm512_set1_epi32((int)q_pair);
#pragma GCC unroll 8
            for (int j = 0; j < n_vectors; j++) {
                acc[i][j] = _mm512_dpbf16_ps(acc[i][j], positions[j], both);
            }
        }
        q += d->q_step;
    }
#pragma GCC unroll 8
    for (int i = 0; i < n_queries; i++) {
#pragma GCC unroll 8
        for (int j = 0; j < n_vectors; j++) {
            _mm512_storeu_ps(d->out + (size_t)i * d->out_stride + 16 * j, acc[i][j]);
        }
    }
}

INLINE_ALWAYS void value_tile(int n_queries, int n_columns, const struct value_dots *d)
{
    const int n_vectors = n_columns / 16;
    __m512 acc[TILE_ROWS_MAX][TILE_VECTORS_MAX];
    const uint16_t *p = d->p;
#pragma GCC unroll 8
    for (int i = 0; i < n_queries; i++) {
#pragma GCC unroll 8
        for (int j = 0; j < n_vectors; j++) {
            acc[i][j] = _mm512_loadu_ps(d->acc + (size_t)i * d->acc_stride + 16 * j);
        }
    }
    for (int b = 0; b < d->n_blocks; b++) {
        const uint16_t *v = d->v[b] + d->first, *ahead = d->ahead[b] + d->first;
        const uint16_t *far = d->far[b] + d->first;
        for (int pair = 0; pair < d->n_pairs; pair++) {
            __m512bh columns[TILE_VECTORS_MAX];
#pragma GCC unroll 8
            for (int j = 0; j < n_vectors; j++) {
                columns[j] = (__m512bh)_mm512_loadu_si512(v + 32 * j);
                dots_prefetch(ahead + 32 * j, far + 32 * j);
            }
#pragma GCC unroll 8
            for (int i = 0; i < n_queries; i++) {
                uint32_t p_pair = dots_word(p + (size_t)i * d->p_stride);
                __m512bh both = (__m512bh)_mm512_set1_epi32((int)p_pair);
#pragma GCC unroll 8
                for (int j = 0; j < n_vectors; j++) {
                    acc[i][j] = _mm512_dpbf16_ps(acc[i][j], columns[j], both);
                }
            }
            v += d->step;
            ahead += d->step;
            far += d->step;
            p += d->p_step;
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < n_queries; i++) {
#pragma GCC unroll 8
        for (int j = 0; j < n_vectors; j++) {
            _mm512_storeu_ps(d->acc + (size_t)i * d->acc_stride + 16 * j, acc[i][j]);
        }
    }
}

#include "model/backend/cpu/kernels/lanes_avx512.h"

#define OWN_STORE_BF16
/* Rounds as num_float_to_bf16 does. x must not be denormal, because this would flush it. */
INLINE_ALWAYS void own_store_bf16(uint16_t *h, __m512 x)
{
    _mm256_storeu_si256((__m256i *)(void *)h, (__m256i)_mm512_cvtneps_pbh(x));
}

static unsigned dots_begin(void)
{
    return 0;
}

static void dots_end(unsigned mode)
{
    (void)mode;
}

#include "model/backend/cpu/kernels/impl.h"

const struct kernels kernels_avx512 = KERNELS_TABLE("avx512", &kernels_quant_avx512);

#endif
