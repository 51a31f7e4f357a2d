/* Attention on tensor cores: how KV lies in memory, and one warp's share of a partition.
 *
 * KV of a layer, per block of 16 positions and per kv head, K-part then V-part (kv_layer_bytes):
 *   K  [16 positions][E]  the factors of a score lie side by side
 *   V  [4][E][4]          for each c < 4 and e the positions 2c, 2c + 1, 2c + 8 and 2c + 9, which
 *                         are the two registers of the second product's operand
 * The order of e within a product does not matter as long as both operands have the same one, and
 * neither does the order of columns as long as the result is put where it belongs. Both orders are
 * chosen so that a thread reads 16 bytes at once. With g = lane / 4 and c = lane % 4:
 *   scores   of the j-th run of 32 e thread (g, c) has e = 32 j + 8 c .. + 7 of query rows g, g + 8
 *            and of key column g: two products of 16 e. If E = 16 mod 32, the last run has 16 e and
 *            a thread has half as much of it.
 *   values   of the j-th 16 e thread (g, c) has e = 16 j + 2 g and + 1, one column of each of two
 *            products, so that of the sums thread (g, c) holds e = 16 j + 4 c .. + 3 */
#pragma once

#include "model/backend/cuda/internal.cuh"

#include "model/backend/cuda/device.cuh"

enum {
    ATTEND_WARPS = 4,
    ATTEND_THREADS = ATTEND_WARPS * WARP,
    WARP_POSITIONS = ATTENTION_PARTITION / ATTEND_WARPS,
    WARP_BLOCKS = WARP_POSITIONS / KV_BLOCK_TOKENS,
    SCORE_TILES = WARP_POSITIONS / 8, /* products of 8 positions */
    RUN = 32,                         /* of e in scores */
    SUM_RUN = 16,                     /* of e in values */
    LINE_BYTES = 128                  /* of L2 */
};

#define MINUS_INFINITY __uint_as_float(0xff800000u)

/* The number of bf16 values in the K-part of one block and head; the V-part follows. */
static __host__ __device__ __forceinline__ size_t kv_part_elements(int head_dim)
{
    return static_cast<size_t>(KV_BLOCK_TOKENS) * static_cast<size_t>(head_dim);
}

static __host__ __device__ __forceinline__ size_t kv_head_offset(int block, int kv_head,
                                                                 int n_kv_heads, int head_dim)
{
    size_t index =
        static_cast<size_t>(block) * static_cast<size_t>(n_kv_heads) + static_cast<size_t>(kv_head);
    return index * 2 * kv_part_elements(head_dim);
}

/* The first position that a row at `position` sees through a window; 0: it sees all before it. */
static __device__ __forceinline__ int first_seen(int position, int window)
{
    return window > 0 && position >= window ? position - window + 1 : 0;
}

/* The work of one warp: 64 positions from `first` on, of which those from `begin` to `last` are
 * seen by some row of the tile. */
struct attend_span {
    const uint16_t
        *parts[WARP_BLOCKS];   /* K-parts; blocks before and past those repeat the nearest */
    const uint16_t *q[2];      /* query rows g and g + 8: [E] */
    int q_first[2], q_last[2]; /* they see the positions from q_first to q_last */
    int first, begin, last;
};

/* Asks for the 128 bytes around `address` to be in L2 soon. */
static __device__ __forceinline__ void prefetch_line(const void *address)
{
#ifndef CUDA_EMULATED
    asm volatile("prefetch.global.L2 [%0];" : : "l"(address));
#else
    (void)address;
#endif
}

/* Asks for K and V of the span's blocks, which lie side by side. This may come before another
 * kernel has written them, because all multiprocessors share L2. */
static __device__ __forceinline__ void prefetch_span(const attend_span *span, int head_dim)
{
    int lane = static_cast<int>(threadIdx.x) % WARP;
    int n_bytes = 2 * static_cast<int>(sizeof(uint16_t)) * KV_BLOCK_TOKENS * head_dim;
    for (int i = 0; i < WARP_BLOCKS; i++) {
        if (span->first + i * KV_BLOCK_TOKENS > span->last) break;
        if (span->first + (i + 1) * KV_BLOCK_TOKENS <= span->begin) continue;
        const char *part = reinterpret_cast<const char *>(span->parts[i]);
        for (int at = LINE_BYTES * lane; at < n_bytes; at += LINE_BYTES * WARP) {
            prefetch_line(part + at);
        }
    }
}

/* Share `part` of the run of `run` bf16 values that begins at row[first], in a row of `width`: 16
 * bytes, or 8 bytes and zeros if the row ends after half a run. */
static __device__ __forceinline__ uint4 load_run(const uint16_t *row, int first, int run, int part,
                                                 int width)
{
    uint4 out = make_uint4(0, 0, 0, 0);
    if (first + run <= width) {
        out = *reinterpret_cast<const uint4 *>(row + first + 8 * part);
    } else {
        uint2 half = *reinterpret_cast<const uint2 *>(row + first + 4 * part);
        out.x = half.x;
        out.y = half.y;
    }
    return out;
}

/* s[tile][4] += q k for this warp's positions: rows g and g + 8, positions 2c and 2c + 1 of a tile.
 * WIDTH >= head_dim; equal and a multiple of RUN when EXACT. */
template <int WIDTH, bool EXACT>
static __device__ __forceinline__ void score_positions(const attend_span *span, int head_dim,
                                                       float s[SCORE_TILES][4])
{
    int lane = static_cast<int>(threadIdx.x) % WARP, g = lane / 4, c = lane % 4;
    int width = EXACT ? WIDTH : head_dim;
#pragma unroll
    for (int e = 0; e < WIDTH; e += RUN) {
        if (e >= width) break;
        uint4 low = load_run(span->q[0], e, RUN, c, width);
        uint4 high = load_run(span->q[1], e, RUN, c, width);
        const uint32_t a[4] = {low.x, high.x, low.y, high.y};
        const uint32_t a_next[4] = {low.z, high.z, low.w, high.w};
        uint4 k[SCORE_TILES];
#pragma unroll
        for (int tile = 0; tile < SCORE_TILES; tile++) {
            size_t row = static_cast<size_t>(tile % 2 * 8 + g) * static_cast<size_t>(width);
            k[tile] = load_run(span->parts[tile / 2] + row, e, RUN, c, width);
        }
#pragma unroll
        for (int tile = 0; tile < SCORE_TILES; tile++) {
            const uint32_t b[2] = {k[tile].x, k[tile].y};
            mma_bf16_16x8x16(s[tile], a, b);
        }
        if (e + RUN > width) break;
#pragma unroll
        for (int tile = 0; tile < SCORE_TILES; tile++) {
            const uint32_t b[2] = {k[tile].z, k[tile].w};
            mma_bf16_16x8x16(s[tile], a_next, b);
        }
    }
}

/* A score as the softmax takes it. */
static __device__ __forceinline__ float scaled_score(float s, float scale, float softcap)
{
    s = scale * s;
    return softcap == 0 ? s : softcap * device_tanh(s);
}

/* Scales the scores, masks the positions that a row must not see, and leaves the maxima of the rows
 * over this warp's positions in max[2], the same in all four threads of a row. */
static __device__ __forceinline__ void mask_scores(const attend_span *span, float scale,
                                                   float softcap, float s[SCORE_TILES][4],
                                                   float max[2])
{
    int c = static_cast<int>(threadIdx.x) % 4;
    max[0] = max[1] = MINUS_INFINITY;
#pragma unroll
    for (int tile = 0; tile < SCORE_TILES; tile++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int position = span->first + 8 * tile + 2 * c + i % 2;
            bool sees = position >= span->q_first[i / 2] && position <= span->q_last[i / 2];
            s[tile][i] = sees ? scaled_score(s[tile][i], scale, softcap) : MINUS_INFINITY;
            max[i / 2] = s[tile][i] > max[i / 2] ? s[tile][i] : max[i / 2];
        }
    }
    for (int row = 0; row < 2; row++) {
        for (int distance = 1; distance < 4; distance *= 2) {
            float other = __shfl_xor_sync(ALL_LANES, max[row], distance);
            max[row] = other > max[row] ? other : max[row];
        }
    }
}

/* Computes the weights exp(s - max), their sums over this warp's positions in sum[2], and the
 * weights as bf16 in the layout of an A operand: p[block] for the 16 positions of a KV block. */
static __device__ __forceinline__ void weigh_scores(const float s[SCORE_TILES][4],
                                                    const float max[2], float sum[2],
                                                    uint32_t p[WARP_BLOCKS][4])
{
    sum[0] = sum[1] = 0;
#pragma unroll
    for (int tile = 0; tile < SCORE_TILES; tile++) {
#pragma unroll
        for (int row = 0; row < 2; row++) {
            float low = s[tile][2 * row], high = s[tile][2 * row + 1];
            /* a masked score stays out even if all are masked and the difference is NaN */
            low = low == MINUS_INFINITY ? 0.0f : device_exp(low - max[row]);
            high = high == MINUS_INFINITY ? 0.0f : device_exp(high - max[row]);
            sum[row] += low;
            sum[row] += high;
            p[tile / 2][tile % 2 * 2 + row] = bf16_pair(low, high);
        }
    }
    for (int row = 0; row < 2; row++) {
        for (int distance = 1; distance < 4; distance *= 2) {
            sum[row] += __shfl_xor_sync(ALL_LANES, sum[row], distance);
        }
    }
}

/* Which halves of a pair of positions some row of the tile sees. */
static __device__ __forceinline__ uint32_t pair_mask(const attend_span *span, int position)
{
    uint32_t low = position >= span->begin && position <= span->last ? 0x0000ffffu : 0;
    uint32_t high = position + 1 >= span->begin && position + 1 <= span->last ? 0xffff0000u : 0;
    return low | high;
}

/* The sums of 16 e for rows g and g + 8: [t][0] is row g, e = 4 c + t; [t][1] is the same + 2;
 * [t][2] and [t][3] are row g + 8. */
typedef float value_sums[2][4];

/* Row g, or g + 8 if `half`, of the sums: e = 4 c .. + 3. */
static __device__ __forceinline__ float4 row_values(const value_sums sums, int half)
{
    return make_float4(sums[0][2 * half], sums[1][2 * half], sums[0][2 * half + 1],
                       sums[1][2 * half + 1]);
}

/* sums += p v for 16 positions and 16 e; v as thread (g, c) reads it. */
static __device__ __forceinline__ void multiply_values(value_sums sums, const uint32_t p[4],
                                                       uint4 v)
{
    const uint32_t even[2] = {v.x, v.y}, odd[2] = {v.z, v.w};
    mma_bf16_16x8x16(sums[0], p, even);
    mma_bf16_16x8x16(sums[1], p, odd);
}

static __device__ __forceinline__ uint4 mask_values(uint4 v, const uint32_t mask[2])
{
    return make_uint4(v.x & mask[0], v.y & mask[1], v.z & mask[0], v.w & mask[1]);
}

/* acc += p v over this warp's positions. V that no row of the tile sees may be anything and counts
 * as zero. */
template <int WIDTH, bool EXACT>
static __device__ __forceinline__ void add_values(const attend_span *span, int head_dim,
                                                  const uint32_t p[WARP_BLOCKS][4],
                                                  value_sums acc[WIDTH / SUM_RUN])
{
    int lane = static_cast<int>(threadIdx.x) % WARP, g = lane / 4, c = lane % 4;
    int width = EXACT ? WIDTH : head_dim;
#pragma unroll
    for (int block = 0; block < WARP_BLOCKS; block++) {
        const uint16_t *v = span->parts[block] + kv_part_elements(width) + 4 * (c * width + 2 * g);
        int position = span->first + block * KV_BLOCK_TOKENS + 2 * c;
        const uint32_t mask[2] = {pair_mask(span, position), pair_mask(span, position + 8)};
#pragma unroll
        for (int e = 0; e < WIDTH; e += SUM_RUN) {
            if (e >= width) break;
            uint4 values = *reinterpret_cast<const uint4 *>(v + 4 * e);
            multiply_values(acc[e / SUM_RUN], p[block], mask_values(values, mask));
        }
    }
}

/* Puts this warp's sums of e = first .. end - 1 into rows[16][stride], at column e - first. */
template <int WIDTH>
static __device__ __forceinline__ void store_values(const value_sums acc[WIDTH / SUM_RUN],
                                                    int first, int end, int head_dim, float *rows,
                                                    int stride)
{
    int lane = static_cast<int>(threadIdx.x) % WARP, g = lane / 4, c = lane % 4;
#pragma unroll
    for (int e = 0; e < WIDTH; e += SUM_RUN) {
        if (e < first || e >= end || e >= head_dim) continue;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float *to = rows + (g + 8 * half) * stride + e - first + 4 * c;
            *reinterpret_cast<float4 *>(to) = row_values(acc[e / SUM_RUN], half);
        }
    }
}
