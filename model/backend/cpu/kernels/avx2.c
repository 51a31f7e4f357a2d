/* Kernels for AVX2 with fma, in vectors of 8 lanes and sixteen registers. */
#include "model/backend/cpu/kernels/tile.h"

#ifdef OUTRIDER_X86

#include <immintrin.h>
#include <stdint.h>

#define VEC_BYTES 32
#define TILE_ROWS 6
#define LINE_ROWS 6
#define WIDE_ROWS 1
#define WHOLE_K   1
/* 2 and 4 rows pass over one cache line for each pair of k, although more columns would give more
 * chains, because the prefetch of the next chunk is then spread evenly over the passes. */
#define TILES   \
    TILE(1, 64) \
    TILE(2, 16) \
    TILE(3, 32) \
    TILE(4, 16) \
    TILE(5, 16) \
    TILE(6, 16)
#define ATTENTION_ROWS 6
#define ATTENTION_TILES      \
    ATTENTION_TILE(1, 4, 64) \
    ATTENTION_TILE(2, 4, 32) \
    ATTENTION_TILE(3, 4, 32) \
    ATTENTION_TILE(4, 3, 24) \
    ATTENTION_TILE(5, 2, 16) \
    ATTENTION_TILE(6, 2, 16)

#include "model/backend/cpu/kernels/wide_x86.h"

INLINE_ALWAYS int wide_group(int n_vectors)
{
    return n_vectors % 2 ? n_vectors : 2; /* 1, 3 or even */
}

/* A bf16 is the upper half of its fp32: the odd k of a pair is in place already. */
INLINE_ALWAYS __m256 wide_odd(const uint16_t *w)
{
    __m256 odd;
    __asm__("vandps %1, %2, %0"
            : "=x"(odd)
            : "m"(*(wide_bits *)(const void *)w), "x"(_mm256_set1_epi32((int)0xffff0000u)));
    return odd;
}

/* The even k moves up, by a shuffle, because Intel's units for shifts are those for fma. */
INLINE_ALWAYS __m256 wide_even(const uint16_t *w)
{
    static const _Alignas(32)
        uint8_t places[32] = {128, 128, 0, 1, 128, 128, 4, 5, 128, 128, 8, 9, 128, 128, 12, 13,
                              128, 128, 0, 1, 128, 128, 4, 5, 128, 128, 8, 9, 128, 128, 12, 13};
    __m256 even;
    __asm__("vmovdqu %1, %0\n\tvpshufb %2, %0, %0"
            : "=&x"(even)
            : "m"(*(wide_bits *)(const void *)w), "m"(*(wide_bits *)(const void *)places));
    return even;
}

#include "model/backend/cpu/kernels/wide_pair.h"

#include "model/backend/cpu/kernels/tile_frame.h"

#include "model/backend/cpu/kernels/variant.h"

const struct kernels kernels_avx2 = KERNELS_TABLE("avx2", &kernels_quant_avx2);
const struct kernels kernels_avxvnni = KERNELS_TABLE("avxvnni", &kernels_quant_avxvnni);

#endif
