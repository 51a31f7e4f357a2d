/* Kernels for AVX-512 without bf16 dot products: fused steps in vectors of 16 lanes. They are also
 * the faster ones on Intel's cores that have vdpbf16ps, which begin two fused steps in a cycle, but
 * one vdpbf16ps, which does two, only in every second cycle. */
#include "model/backend/cpu/kernels/tile.h"

#ifdef OUTRIDER_X86

#include <immintrin.h>
#include <stdint.h>

#define VEC_BYTES 64
#define TILE_ROWS 12
#define LINE_ROWS 6
#define WIDE_ROWS 1
#define WHOLE_K   1
#define TILES    \
    TILE(1, 64)  \
    TILE(2, 64)  \
    TILE(3, 64)  \
    TILE(4, 64)  \
    TILE(5, 64)  \
    TILE(6, 64)  \
    TILE(7, 32)  \
    TILE(8, 32)  \
    TILE(9, 32)  \
    TILE(10, 32) \
    TILE(11, 32) \
    TILE(12, 32)
#define ATTENTION_ROWS 6
#define ATTENTION_TILES      \
    ATTENTION_TILE(1, 2, 64) \
    ATTENTION_TILE(2, 2, 64) \
    ATTENTION_TILE(3, 2, 64) \
    ATTENTION_TILE(4, 2, 64) \
    ATTENTION_TILE(5, 4, 64) \
    ATTENTION_TILE(6, 4, 64)

#include "model/backend/cpu/kernels/wide_x86.h"

INLINE_ALWAYS int wide_group(int n_vectors)
{
    return n_vectors;
}

/* A bf16 is the upper half of its fp32: the odd k of a pair is in place already, and the even one
 * moves up. */
INLINE_ALWAYS __m512 wide_odd(const uint16_t *w)
{
    __m512 odd;
    __asm__("vpandd %1, %2, %0"
            : "=v"(odd)
            : "m"(*(wide_bits *)(const void *)w), "v"(_mm512_set1_epi32((int)0xffff0000u)));
    return odd;
}

INLINE_ALWAYS __m512 wide_even(const uint16_t *w)
{
    __m512 even;
    __asm__("vpslld $16, %1, %0" : "=v"(even) : "m"(*(wide_bits *)(const void *)w));
    return even;
}

#include "model/backend/cpu/kernels/wide_pair.h"

#include "model/backend/cpu/kernels/tile_frame.h"

#include "model/backend/cpu/kernels/lanes_avx512.h"

#include "model/backend/cpu/kernels/variant.h"

const struct kernels kernels_avx512fma = KERNELS_TABLE("avx512fma", &kernels_quant_avx512);

#endif
