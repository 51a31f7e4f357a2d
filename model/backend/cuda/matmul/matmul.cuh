/* Packed weights of the CUDA backend: what matrix.cu writes and matmul.cu and matmul_many.cu read.
 *
 * Weights are the A operand of mma.m16n8k16, tokens the B operand. A matrix is cut into groups of
 * 16 outputs and tiles of 32 k. The tiles of a group follow each other, so that a warp reads one
 * sequential stream. With g = lane / 4 and c = lane % 4 a lane takes, of a tile,
 *   bf16  1024 bytes [2 halves][32 lanes][16 bytes]: w[g][8c .. 8c + 7], w[g + 8][8c .. 8c + 7]
 *   fp8    512 bytes [32 lanes][2 halves][8 bytes]:  the same as e4m3; after all tiles one fp32
 *          scale for each output
 *   blocks integers of 4, 5, 6 or 8 bits with their scales: blocks.cuh
 * and of 8 tokens, 512 bytes, in[token g][8c .. 8c + 7]. All three are one or two accesses of 16
 * bytes, contiguous over the warp. The two mma of a tile take their k in the same order from both
 * operands: the first takes 8c, 8c + 1 | 8c + 2, 8c + 3, the second the other four. k is padded
 * with zeros to a multiple of 32, outputs to a multiple of 16.
 *
 * Gate and up lie side by side: in a group, outputs 0..7 are the gate features f .. f + 7 and
 * outputs 8..15 the up features of the same numbers. One lane then holds both for a feature and
 * token.
 *
 * There is one order of sums: the tiles of a matrix are cut into segments by its n_in alone; a
 * segment is one chain of mma that starts from zero and ascends over the tiles; segments are added
 * in ascending order, ((s0 + s1) + s2) .... */
#pragma once

#include "base/limits.h"
extern "C" {
#include "model/checkpoint/digest.h"
}
#include "model/backend/cuda/device.cuh"
#include "model/backend/cuda/internal.cuh"
#include "model/backend/cuda/matmul/blocks.cuh"

/* How the weights of a tile are stored; those of blocks are named by their bits. */
enum tile_kind {
    KIND_BLOCKS_4 = 4,
    KIND_BLOCKS_5 = 5,
    KIND_BLOCKS_6 = 6,
    KIND_BLOCKS_8 = 8,
    KIND_FP8,
    KIND_BF16
};

enum {
    TILE_OUTPUTS = 16,
    TILE_K = 32,
    TILE_TOKENS = 8,
    TILE_BF16_BYTES = 1024,
    TILE_FP8_BYTES = 512,
    TILE_TOKEN_BYTES = 512,
    SEGMENT_TILES_MIN = 8, /* 256 k: enough to keep a warp streaming */
    SEGMENTS_MAX = 8
};

/* The bytes of a tile, and for blocks those of the largest one of its bits. */
static __host__ __device__ constexpr int tile_bytes(int kind)
{
    return kind == KIND_BF16  ? TILE_BF16_BYTES
           : kind == KIND_FP8 ? TILE_FP8_BYTES
                              : block_packed_bytes(kind) + BLOCK_ROWS_MOST * BLOCK_ROW_BYTES;
}

static __host__ __device__ constexpr bool kind_is_blocks(int kind)
{
    return kind != KIND_BF16 && kind != KIND_FP8;
}

static inline int matmul_tiles(int n_in)
{
    return (n_in + TILE_K - 1) / TILE_K;
}

/* Holds for a matrix of gate and up too: ceil(2 F / 16) = ceil(F / 8). */
static inline int matmul_groups(int n_out)
{
    return (n_out + TILE_OUTPUTS - 1) / TILE_OUTPUTS;
}

/* The largest of 1, 2, 4, 8 that gives each segment at least 8 tiles. */
static inline int matmul_segments(int n_in)
{
    int n = SEGMENTS_MAX;
    while (n > 1 && matmul_tiles(n_in) < n * SEGMENT_TILES_MIN)
        n /= 2;
    return n;
}

/* The tile at which segment s begins; for s = n_segments, the end. */
static __host__ __device__ inline int segment_begin(int n_tiles, int n_segments, int s)
{
    return n_tiles * s / n_segments;
}

/* The kind of a matrix's tiles; not of one that is split. */
static inline enum tile_kind matmul_kind(const struct matrix *m)
{
    int bits = block_layout_of(m).bits;
    if (bits) return static_cast<enum tile_kind>(bits);
    return m->form == WEIGHTS_FP8 ? KIND_FP8 : KIND_BF16;
}

/* True if some sections of a matrix are in blocks and others are plain numbers. Each section then
 * has tiles of its own and is multiplied by itself. */
static inline bool matmul_is_split(const struct matrix *m)
{
    return m->form == WEIGHTS_BLOCKS && block_layout_of(m).bits == 0;
}

/* The k that are packed. */
static inline int matmul_width(const struct matrix *m)
{
    return m->n_ordered ? m->n_ordered : m->n_in;
}

/* A section of a matrix that is split, as a matrix. Plain numbers and fp8 have no order. */
static inline struct matrix matmul_section(const struct matrix *m, int i)
{
    struct matrix out = {};
    out.data = static_cast<uint8_t *>(m->data) + m->sections[i].offset;
    out.n_in = m->n_in;
    out.n_out = m->sections[i].n_out;
    out.form = block_form_is_known(m->sections[i].form) ? WEIGHTS_BLOCKS : m->sections[i].form;
    out.n_sections = 1;
    if (out.form == WEIGHTS_BLOCKS && m->sections[i].form != WEIGHTS_FP8) {
        out.order = m->order;
        out.n_ordered = m->n_ordered;
    }
    out.sections[0] = m->sections[i];
    return out;
}

/* The bytes of the tiles alone. The scales of fp8 come after them. */
static inline size_t matmul_tiles_bytes(const struct matrix *m)
{
    struct block_layout layout = block_layout_of(m);
    int bytes = layout.bits ? block_tile_bytes(&layout) : tile_bytes(matmul_kind(m));
    return (size_t)matmul_groups(m->n_out) * (size_t)matmul_tiles(matmul_width(m)) * (size_t)bytes;
}

static inline size_t matmul_bytes(const struct matrix *m)
{
    size_t scales = (size_t)matmul_groups(m->n_out) * TILE_OUTPUTS * sizeof(float);
    return matmul_tiles_bytes(m) + (matmul_kind(m) == KIND_FP8 ? scales : 0);
}

/* ---- loading ---- */

enum {
    UNIT = 8,                /* elements of a 16-byte access */
    STAGING_BYTES = 4 << 20, /* of a chunk, but at least one group */
    PACK_THREADS = 256
};

/* Where the packed outputs come from. Slot s is output s % 16 of group s / 16. */
struct slot_map {
    int n_parts;
    bool is_gate_up;
    int n_rows[MATRIX_PARTS_MAX];
};

static inline struct slot_map slot_map_of(const struct matrix_source *source)
{
    struct slot_map map = {};
    map.n_parts = source->n_parts;
    map.is_gate_up = source->is_gate_up;
    for (int i = 0; i < source->n_parts; i++) {
        map.n_rows[i] = source->parts[i].n_rows;
    }
    return map;
}

/* matrix_blocks.cu: fills a matrix in blocks; order is that of the matrix on the host. Errors:
 * those of cuda_finish. */
int cuda_matrix_fill_blocks(struct backend_cuda *be, const struct matrix *m,
                            const struct matrix_source *source, const int32_t *order,
                            struct error *err);

/* The part that a slot belongs to, and its row there; -1 for a slot of padding. */
static __host__ __device__ inline int slot_find(const struct slot_map *map, int slot, int *row)
{
    if (map->is_gate_up) {
        *row = slot / TILE_OUTPUTS * (TILE_OUTPUTS / 2) + slot % (TILE_OUTPUTS / 2);
        return *row < map->n_rows[0] ? slot % TILE_OUTPUTS / (TILE_OUTPUTS / 2) : -1;
    }
    for (int i = 0; i < map->n_parts; i++) {
        *row = slot;
        if (slot < map->n_rows[i]) return i;
        slot -= map->n_rows[i];
    }
    return -1;
}

/* synthetic.cu: fills staging[slot - first_slot][k padded to 32] for n_slots slots of a source of
 * synthetic tensors. */
void cuda_fill_synthetic(struct backend_cuda *be, const struct matrix_source *source,
                         const struct slot_map *map, int first_slot, int n_slots,
                         uint16_t *staging);

/* ---- fragments ---- */

/* Loads what a lane needs of a tile in shared memory for its two mma. */
template <int KIND>
static __device__ __forceinline__ void weights_load(const uint8_t *tile, int lane, uint32_t a[2][4])
{
    const uint4 *at = reinterpret_cast<const uint4 *>(tile) + lane;
    uint4 low = at[0];
    if constexpr (KIND == KIND_FP8) {
        e4m3_to_bf16(low.x, &a[0][0], &a[0][2]);
        e4m3_to_bf16(low.y, &a[1][0], &a[1][2]);
        e4m3_to_bf16(low.z, &a[0][1], &a[0][3]);
        e4m3_to_bf16(low.w, &a[1][1], &a[1][3]);
    } else {
        uint4 high = at[WARP];
        a[0][0] = low.x, a[0][1] = high.x, a[0][2] = low.y, a[0][3] = high.y;
        a[1][0] = low.z, a[1][1] = high.z, a[1][2] = low.w, a[1][3] = high.w;
    }
}

/* d += one tile: 16 outputs, 8 tokens, 32 k. */
static __device__ __forceinline__ void tile_multiply(float d[4], const uint32_t a[2][4],
                                                     uint4 tokens)
{
    const uint32_t first[2] = {tokens.x, tokens.y}, second[2] = {tokens.z, tokens.w};
    mma_bf16_16x8x16(d, a[0], first);
    mma_bf16_16x8x16(d, a[1], second);
}

/* ---- what the kernels are given ---- */

enum {
    MATMUL_WARPS = 8,
    MATMUL_THREADS = MATMUL_WARPS * WARP,
    MATMUL_SLICES_MAX = SLICES_MAX,
    RING_BYTES = 96 << 10 /* of shared memory; every device from sm_80 on has it */
};

/* Slices of one matrix, or one alone. */
struct matmul_job {
    const uint8_t *weights[MATMUL_SLICES_MAX];
    const uint16_t *in; /* slice s begins n_in elements further */
    size_t in_stride;
    float *out; /* [n_rows][out_stride] of slice 0 */
    size_t out_stride, slice_stride;
    uint16_t *h; /* not NULL: h[n_rows][n_out] = gated instead of out */
    enum activation activation;
    const float *bias; /* [2 n_out] or NULL */
    int n_in, n_rows;
    int n_out; /* columns of out or of h */
    int n_tiles, n_groups, n_segments;
    float4 *partials;           /* not NULL: matmul_many leaves each segment's sums here */
    struct block_layout blocks; /* of a kind of blocks */
    const int32_t *order[MATMUL_SLICES_MAX]; /* of a slice's columns; NULL: as they are */
};

/* The bytes of a tile in global memory. */
template <int KIND> static __device__ __forceinline__ int stored_bytes(const struct matmul_job &job)
{
    if constexpr (kind_is_blocks(KIND)) return block_tile_bytes(&job.blocks);
    return tile_bytes(KIND);
}

/* matmul_many.cu: more than FEW_ROWS rows. is_aligned: see tokens_copy. */
void matmul_launch_many(struct backend_cuda *be, struct matmul_job *job, int n_slices,
                        enum tile_kind kind, bool is_aligned);
void matmul_prepare_many(struct backend_cuda *be);

/* matmul_wgmma.cu: more than 32 rows on sm_90a; plain numbers and fp8 alone. */
bool matmul_takes_wgmma(const struct backend_cuda *be, const struct matmul_job *job,
                        enum tile_kind kind, bool is_aligned);
void matmul_launch_wgmma(struct backend_cuda *be, struct matmul_job *job, int n_slices,
                         enum tile_kind kind);
/* True if it adds the slices by the fixed tree, so that out has their sum alone. */
bool matmul_wgmma_adds(const struct backend_cuda *be, const struct matmul_job *job, int n_slices);
void matmul_prepare_wgmma(struct backend_cuda *be);

template <typename KERNEL>
static inline void matmul_launch(struct backend_cuda *be, const struct matmul_job *job,
                                 KERNEL kernel, dim3 grid, size_t shared)
{
    cuda_launch(be, "a matmul", kernel, grid, dim3(MATMUL_THREADS), shared, *job);
}

/* As stage_multiply, for bf16 and fp8. */
template <int N_GROUPS, int N_TILES, int KIND>
static __device__ __forceinline__ void plain_stage_multiply(float acc[N_GROUPS][N_TILES][4],
                                                            const uint8_t *weights,
                                                            const uint8_t *tokens, int lane)
{
    uint32_t a[N_GROUPS][2][4];
#pragma unroll
    for (int g = 0; g < N_GROUPS; g++) {
        weights_load<KIND>(weights + g * tile_bytes(KIND), lane, a[g]);
    }
#pragma unroll
    for (int t = 0; t < N_TILES; t++) {
        uint4 b = reinterpret_cast<const uint4 *>(tokens + t * TILE_TOKEN_BYTES)[lane];
#pragma unroll
        for (int g = 0; g < N_GROUPS; g++) {
            tile_multiply(acc[g][t], a[g], b);
        }
    }
}

/* acc += one tile of 32 k: a warp's groups, which lie side by side in shared memory, times its
 * tokens. */
template <int N_GROUPS, int N_TILES, int KIND>
static __device__ __forceinline__ void
stage_multiply(const struct matmul_job &job, float acc[N_GROUPS][N_TILES][4],
               const uint8_t *weights, const uint8_t *tokens, int lane)
{
    if constexpr (kind_is_blocks(KIND)) {
        block_stage_multiply<N_GROUPS, N_TILES, KIND>(&job.blocks, acc, weights, tile_bytes(KIND),
                                                      tokens, lane);
    } else {
        plain_stage_multiply<N_GROUPS, N_TILES, KIND>(acc, weights, tokens, lane);
    }
}

/* ---- from and to global memory ---- */

/* As copy_async_16, but kept in the first-level cache, because neighbouring blocks read the same
 * tokens. */
static __device__ __forceinline__ void copy_tokens_async(void *shared, const void *global,
                                                         bool valid)
{
#ifndef CUDA_EMULATED
    uint32_t to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(to), "l"(global), "r"(valid ? 16 : 0)
                 : "memory");
#else
    copy_async_16(shared, global, valid);
#endif
}

/* Copies 8 k of one token, at = in[row][k ..], to shared memory; zeros past n_in and for rows that
 * do not exist (0 * Inf would be NaN). IS_ALIGNED: every 8 k of a row lie in one aligned access of
 * 16 bytes. Otherwise they are copied in pairs, and synchronously. */
template <bool IS_ALIGNED>
static __device__ __forceinline__ void tokens_copy(const struct matmul_job &job, uint8_t *to,
                                                   const uint16_t *at, int row, int k)
{
    bool is_there = row < job.n_rows;
    if constexpr (IS_ALIGNED) {
        bool valid = is_there && k < job.n_in;
        copy_tokens_async(to, valid ? at : job.in, valid);
    } else {
        uint32_t pairs[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            bool valid = is_there && k + 2 * i < job.n_in;
            pairs[i] = valid ? *reinterpret_cast<const uint32_t *>(at + 2 * i) : 0;
        }
        *reinterpret_cast<uint4 *>(to) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }
}

/* a(gate) * up, with the biases and the activation of the job. */
static __device__ __forceinline__ uint16_t gated(const struct matmul_job &job, int feature,
                                                 float gate, float up)
{
    if (job.bias) {
        gate += job.bias[feature];
        up += job.bias[job.n_out + feature];
    }
    if (job.activation == ACTIVATION_GELU_TANH) return float_to_bf16(device_gelu_tanh(gate) * up);
    return float_to_bf16(gate / (1.0f + device_exp(-gate)) * up);
}

/* Adds the segments of a fragment in ascending order; they lie `step` apart. */
static __device__ __forceinline__ void fragment_add(const float4 *parts, size_t step,
                                                    int n_segments, float d[4])
{
    float4 total = *parts;
    for (int s = 1; s < n_segments; s++) {
        float4 part = parts[static_cast<size_t>(s) * step];
        total.x += part.x, total.y += part.y, total.z += part.z, total.w += part.w;
    }
    d[0] = total.x, d[1] = total.y, d[2] = total.z, d[3] = total.w;
}

/* One for each output; they come after the tiles. */
static __device__ __forceinline__ const float *fp8_scales(const matmul_job &job, int slice)
{
    size_t tiles = static_cast<size_t>(job.n_groups) * static_cast<size_t>(job.n_tiles);
    return reinterpret_cast<const float *>(job.weights[slice] + tiles * TILE_FP8_BYTES);
}

/* Stores the finished sums of one mma fragment: two tokens of output g and of output g + 8. */
template <int KIND>
static __device__ void fragment_store(const struct matmul_job &job, int slice, int group, int token,
                                      int lane, float d[4])
{
    int row = lane / 4, slot = group * TILE_OUTPUTS + row;
    if (group >= job.n_groups) return;
    if constexpr (KIND == KIND_FP8) {
        const float *scales = fp8_scales(job, slice);
        float low = scales[slot], high = scales[slot + TILE_OUTPUTS / 2];
        d[0] *= low, d[1] *= low, d[2] *= high, d[3] *= high;
    }
    float *out = job.out + static_cast<size_t>(slice) * job.slice_stride;
    token += lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2; i++, token++) {
        size_t at = static_cast<size_t>(token);
        if (token >= job.n_rows) return;
        if (job.h) {
            int feature = group * (TILE_OUTPUTS / 2) + row;
            if (feature >= job.n_out) return;
            job.h[at * static_cast<size_t>(job.n_out) + static_cast<size_t>(feature)] =
                gated(job, feature, d[i], d[i + 2]);
            continue;
        }
        if (slot < job.n_out) out[at * job.out_stride + static_cast<size_t>(slot)] = d[i];
        slot += TILE_OUTPUTS / 2;
        if (slot < job.n_out) out[at * job.out_stride + static_cast<size_t>(slot)] = d[i + 2];
        slot -= TILE_OUTPUTS / 2;
    }
}
