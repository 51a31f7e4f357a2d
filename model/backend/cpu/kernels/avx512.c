/* Kernels for AVX-512 with bf16 dot products: one vdpbf16ps does the two steps of a pair of k in 16
 * lanes, with denormals flushed whatever the mode is. */
#include "model/backend/cpu/kernels/tile.h"

#ifdef OUTRIDER_X86

#include <immintrin.h>
#include <stdbool.h>

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
#define ATTENTION_ROWS 7
#define ATTENTION_TILES      \
    ATTENTION_TILE(1, 1, 64) \
    ATTENTION_TILE(2, 1, 64) \
    ATTENTION_TILE(3, 1, 64) \
    ATTENTION_TILE(4, 1, 64) \
    ATTENTION_TILE(5, 4, 64) \
    ATTENTION_TILE(6, 4, 64) \
    ATTENTION_TILE(7, 4, 64)

#include "model/backend/cpu/kernels/tile_vector.h"

INLINE_ALWAYS void tile_pair(int n_rows, int n_vectors, int per_part, tile_acc acc,
                             const uint16_t *const *w, size_t at, const uint16_t *x,
                             size_t x_stride)
{
    __m512bh columns[TILE_VECTORS];
#pragma GCC unroll 8
    for (int j = 0; j < n_vectors; j++) {
        columns[j] = (__m512bh)_mm512_loadu_si512(tile_weights(w, per_part, j) + at);
    }
#pragma GCC unroll 8
    for (int i = 0; i < n_rows; i++) {
        uint32_t x_pair = dots_word(x + (size_t)i * x_stride);
        __m512bh both = (__m512bh)_mm512_set1_epi32((int)x_pair);
#pragma GCC unroll 8
        for (int j = 0; j < n_vectors; j++) {
            acc[i][j] = (vec_f)_mm512_dpbf16_ps((__m512)acc[i][j], columns[j], both);
        }
    }
}

INLINE_ALWAYS bool tile_fits(int n_rows, int n_vectors, tile_acc acc)
{
    (void)n_rows;
    (void)n_vectors;
    (void)acc;
    return true;
}

#include "model/backend/cpu/kernels/tile_frame.h"

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

#include "model/backend/cpu/kernels/variant.h"

const struct kernels kernels_avx512 = KERNELS_TABLE("avx512", &kernels_quant_avx512);

#endif
