/* Tiles of weights that are stored in blocks: integers u of 4, 5, 6 or 8 bits with an fp32 scale s
 * and perhaps an fp32 minimum m for each 16 or 32 k of an output. A weight is s * (u - offset) - m.
 * The offset is half of the integers' range where a matrix has no minimums, and 0 where it has.
 *
 * A tile (matmul.cuh) of 16 outputs and 32 k has, with g = lane / 4, c = lane % 4 and the k of lane
 * c in half h of the tile, k = 16 h + 4 c + 0..3:
 *   4 bits   256 bytes [32 lanes]: a word for output g and one for g + 8. Nibble 2 h + i of a word
 *            is element 2 i of half h, nibble 2 h + i + 4 the element after it
 *   5 bits   and 64 bytes [32 lanes]: the fifth bits. Bit p and bit p + 8 belong to the pair p of a
 *            lane, p = 2 h + i + (4 for output g + 8)
 *   6 bits   or 128 bytes [32 lanes]: bits five and six, at 2 p and 2 p + 16
 *   8 bits   512 bytes [32 lanes]: words for (g, h = 0), (g, 1), (g + 8, 0), (g + 8, 1), each with
 *            elements 0, 2, 1, 3 in two's complement, or in e4m3
 * then scales [1 or 2][16 outputs], then minimums where there are any, in the same order; those of
 * 16 k have a row for each half of the tile.
 *
 * One arithmetic for all: u - offset is an integer of at most 8 bits and its sign, so it is exact
 * in bf16. Of each half of a tile one mma from zero gives the sum p of (u - offset) * x, and
 * acc = fma(p, s, acc) in fp32. Where there are minimums, a second mma with ones in place of the
 * weights gives the sum of x, and acc = fma(-m, sum, acc) follows. Halves ascend. */
#pragma once

extern "C" {
#include "model/backend/cuda/matmul/block_rows.h"
}
#include "model/backend/cuda/device.cuh"

enum {
    BLOCK_ROW_BYTES = 64, /* of scales or minimums of 16 outputs */
    BLOCK_ROWS_MOST = 4   /* of a tile: two of scales, two of minimums */
};

/* Bytes of a tile's integers. */
static __host__ __device__ constexpr int block_packed_bytes(int bits)
{
    return 64 * bits;
}

static __host__ __device__ inline int block_tile_bytes(const struct block_layout *layout)
{
    int rows = layout->n_scales * (layout->has_mins ? 2 : 1);
    return block_packed_bytes(layout->bits) + rows * BLOCK_ROW_BYTES;
}

/* The number that is taken from the stored integers. Those of 8 bits have a sign. */
static __host__ __device__ inline int block_offset(const struct block_layout *layout)
{
    return layout->has_mins || layout->bits == 8 ? 0 : 1 << (layout->bits - 1);
}

/* The bits of -(128 + offset) as two bf16: 128 + 0, 8, 16 or 32, which are exact. */
static __device__ __forceinline__ uint32_t block_bias(const struct block_layout *layout)
{
    uint32_t bias = 0xc300u + static_cast<uint32_t>(block_offset(layout));
    return bias << 16 | bias;
}

/* Sums of two bf16 that are exact. */
static __device__ __forceinline__ uint32_t bf16_pair_add(uint32_t a, uint32_t b)
{
#ifndef CUDA_EMULATED
    uint32_t out; /* a sum alone needs sm_90 */
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(0x3f803f80), "r"(b));
    return out;
#else
    return bf16_pair(bf16_to_float((uint16_t)a) + bf16_to_float((uint16_t)b),
                     bf16_to_float((uint16_t)(a >> 16)) + bf16_to_float((uint16_t)(b >> 16)));
#endif
}

/* e4m3, four at a time. A word holds elements 0..3 as bytes [2, 0, 3, 1], so that one mask takes
 * out a pair. Moving the sign and the 7 bits of exponent and mantissa to their places in bf16 gives
 * the value times 2^-120 (the biases differ by 120, and denormals become denormals), so one
 * multiplication by 2^120 is exact for all values. NaN is never stored (matrix.cu,
 * block_rows.c). */
static __device__ __forceinline__ uint32_t bf16_pair_times_2_120(uint32_t pair)
{
#ifndef CUDA_EMULATED
    uint32_t out; /* a product alone needs sm_90; denormals are kept (PTX ISA, fma.rn.bf16x2) */
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(pair), "r"(0x7b807b80), "r"(0x80008000));
    return out;
#else
    return bf16_pair(bf16_to_float((uint16_t)pair) * 0x1p120f,
                     bf16_to_float((uint16_t)(pair >> 16)) * 0x1p120f);
#endif
}

/* Bytes FIRST and FIRST + 2 as two numbers of 16 bits with their signs. */
template <int FIRST> static __device__ __forceinline__ uint32_t bytes_with_signs(uint32_t word)
{
#ifndef CUDA_EMULATED
    uint32_t out; /* a selector of 8 + i is the sign of byte i, eight times */
    asm("prmt.b32 %0, %1, 0, %2;" : "=r"(out) : "r"(word), "n"(0xa280 + FIRST * 0x1111));
    return out;
#else
    uint32_t low = static_cast<uint32_t>(static_cast<int8_t>(word >> 8 * FIRST));
    uint32_t high = static_cast<uint32_t>(static_cast<int8_t>(word >> (8 * FIRST + 16)));
    return high << 16 | (low & 0xffffu);
#endif
}

/* Four bits further up the sign of a number with its sign is in its place, and so are the other
 * seven bits. */
static __device__ __forceinline__ void e4m3_to_bf16(uint32_t word, uint32_t *low, uint32_t *high)
{
    *low = bf16_pair_times_2_120(bytes_with_signs<1>(word) << 4 & 0x87f087f0u);
    *high = bf16_pair_times_2_120(bytes_with_signs<0>(word) << 4 & 0x87f087f0u);
}

/* Loads what a lane needs of a tile in shared memory for its two mma. u of up to 7 bits becomes
 * bf16 through 128 + u, whose last bits are u. Of 8 bits the seven lower ones do, and the sign
 * takes 128 more away. */
template <int BITS>
static __device__ __forceinline__ void block_load(const struct block_layout *layout,
                                                  const uint8_t *tile, int lane, uint32_t a[2][4])
{
    if constexpr (BITS == 8) {
        uint4 all = reinterpret_cast<const uint4 *>(tile)[lane];
        const uint32_t words[4] = {all.x, all.y, all.z, all.w};
        if (layout->is_fp8) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                e4m3_to_bf16(words[i], &a[i % 2][2 + i / 2], &a[i % 2][i / 2]);
            }
            return;
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            uint32_t pair = words[i / 2] >> (i % 2 * 8);
            a[i / 2 % 2][i % 2 * 2 + i / 4] = bf16_pair_add((pair & 0x007f007fu) | 0x43004300u,
                                                            (pair & 0x00800080u) | 0xc300c300u);
        }
    } else {
        uint32_t bias = block_bias(layout);
        uint2 low = reinterpret_cast<const uint2 *>(tile)[lane];
        uint32_t high = 0;
        if constexpr (BITS == 5) {
            high = reinterpret_cast<const uint16_t *>(tile + block_packed_bytes(4))[lane];
            high |= high << 8;
        }
        if constexpr (BITS == 6) {
            high = reinterpret_cast<const uint32_t *>(tile + block_packed_bytes(4))[lane];
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            uint32_t u = (i < 4 ? low.x : low.y) >> (i % 4 * 4) & 0x000f000fu;
            if constexpr (BITS == 5) u |= (high >> i & 0x00010001u) << 4;
            if constexpr (BITS == 6) u |= (high >> (2 * i) & 0x00030003u) << 4;
            a[i % 4 / 2][i % 2 * 2 + i / 4] = bf16_pair_add(u | 0x43004300u, bias);
        }
    }
}

/* Scales or minimums of outputs g and g + 8 for both halves of the tile: to[half][output]. */
static __device__ __forceinline__ void block_scales(const uint8_t *rows, int n_scales, int lane,
                                                    float to[2][2])
{
    const float *at = reinterpret_cast<const float *>(rows) + lane / 4;
    int step = (n_scales - 1) * BLOCK_ROW_BYTES / static_cast<int>(sizeof(float));
    to[0][0] = at[0], to[0][1] = at[8];
    to[1][0] = at[step], to[1][1] = at[step + 8];
}

/* acc += scale * sums, and for a minimum with the sign turned. */
static __device__ __forceinline__ void block_add(float acc[4], const float sums[4],
                                                 const float scales[2])
{
    acc[0] = __fmaf_rn(sums[0], scales[0], acc[0]);
    acc[1] = __fmaf_rn(sums[1], scales[0], acc[1]);
    acc[2] = __fmaf_rn(sums[2], scales[1], acc[2]);
    acc[3] = __fmaf_rn(sums[3], scales[1], acc[3]);
}

/* As stage_multiply, for blocks. The tiles of neighbouring groups lie `stride` bytes apart. */
template <int N_GROUPS, int N_TILES, int BITS>
static __device__ __forceinline__ void
block_stage_multiply(const struct block_layout *layout, float acc[N_GROUPS][N_TILES][4],
                     const uint8_t *weights, int stride, const uint8_t *tokens, int lane)
{
    uint32_t a[N_GROUPS][2][4];
    float scales[N_GROUPS][2][2], mins[N_GROUPS][2][2] = {};
#pragma unroll
    for (int g = 0; g < N_GROUPS; g++) {
        const uint8_t *tile = weights + g * stride, *rows = tile + block_packed_bytes(BITS);
        block_load<BITS>(layout, tile, lane, a[g]);
        block_scales(rows, layout->n_scales, lane, scales[g]);
        if (!layout->has_mins) continue;
        block_scales(rows + layout->n_scales * BLOCK_ROW_BYTES, layout->n_scales, lane, mins[g]);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            mins[g][i / 2][i % 2] = -mins[g][i / 2][i % 2];
        }
    }
    const uint32_t ones[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
#pragma unroll
    for (int t = 0; t < N_TILES; t++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint2 at = reinterpret_cast<const uint2 *>(tokens +
                                                       t * 512)[lane / 4 * 8 + half * 4 + lane % 4];
            const uint32_t b[2] = {at.x, at.y};
            float sums[4] = {};
            if (layout->has_mins) mma_bf16_16x8x16(sums, ones, b);
#pragma unroll
            for (int g = 0; g < N_GROUPS; g++) {
                float p[4] = {};
                mma_bf16_16x8x16(p, a[g][half], b);
                block_add(acc[g][t], p, scales[g][half]);
                if (layout->has_mins) block_add(acc[g][t], sums, mins[g][half]);
            }
        }
    }
}
