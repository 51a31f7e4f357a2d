/* Attention for a tile of 64 query vectors: the ring of tiles in shared memory through which a
 * block reads K and V, once for all its warps.
 *
 * K in a tile: 64 positions of 128 e, or of all e if that is less. V: 64 e of whole spans of 64
 * positions, in fours of positions as they lie in memory (layout.cuh). Units of 16 bytes are placed
 * so that eight threads that read together find theirs in different banks. */
#pragma once

#include "model/backend/cuda/attention/tile.cuh"

enum {
    SPANS = ATTENTION_PARTITION / WARP_POSITIONS,
    UNIT = 8,                   /* bf16 values of 16 bytes */
    CHUNK = 2 * RUN,            /* e of values that are added up at once */
    V_UNITS = 4 * CHUNK / UNIT, /* of four positions in a tile */
    SPAN_V_BYTES = WARP_POSITIONS / 4 * V_UNITS * 16,
    PARTITION_BLOCKS = ATTENTION_PARTITION / KV_BLOCK_TOKENS
};

template <int E_MAX, bool ALL> struct wide_form {
    static const bool EXACT = ALL;
    enum {
        WIDTH = E_MAX,
        K_WIDTH = WIDTH < 128 ? WIDTH : 128, /* e of a tile of K */
        K_UNITS = K_WIDTH / UNIT,
        K_PARTS = WIDTH / K_WIDTH,
        K_TILES = SPANS * K_PARTS,
        CHUNKS = WIDTH / CHUNK,
        V_SPANS = K_WIDTH / CHUNK, /* of a tile of V */
        V_PARTS = SPANS / V_SPANS,
        TILES = K_TILES + CHUNKS * V_PARTS, /* of a partition */
        TILE_BYTES = WARP_POSITIONS * K_WIDTH * 2,
        STAGES = WIDTH <= 64    ? 8
                 : WIDTH <= 128 ? 4
                                : 2,
        SHARED_BYTES = STAGES * TILE_BYTES + STEP_WIDE_QUERIES * WIDTH * 4
    };
};

/* A block's tile of queries, and how far it is with its tiles of K and V. */
struct wide_block {
    tile_view view;
    const uint8_t *kv;     /* of the kv head in block 0 */
    uint32_t block_stride; /* bytes from KV block to KV block */
    int width;             /* head_dim */
    int partition, last_partition;
    int block, next_block; /* lane i < 16 of a warp: KV block i of this partition, of the next */
    uint8_t *ring;
    int stage; /* of the tile that is next to be used */
};

static __device__ __forceinline__ bool span_is_seen(int first, int n, int begin, int last)
{
    return first <= last && first + n > begin;
}

/* The KV block that this lane keeps for a partition. Those before and past what the tile sees
 * repeat the nearest. */
static __device__ __forceinline__ int wide_kv_block(const attend_args *args, const tile_view *view,
                                                    int partition)
{
    int lane = static_cast<int>(threadIdx.x) % PARTITION_BLOCKS;
    int block = partition * PARTITION_BLOCKS + lane;
    if (block > view->last / KV_BLOCK_TOKENS) block = view->last / KV_BLOCK_TOKENS;
    if (block < view->begin / KV_BLOCK_TOKENS) block = view->begin / KV_BLOCK_TOKENS;
    return args->inputs.blocks[view->lane.first_block + block];
}

/* Where the thread's share of a KV block begins. */
static __device__ __forceinline__ const uint8_t *wide_kv(const wide_block *b, int block,
                                                         uint32_t offset)
{
    return b->kv + offset + static_cast<uint64_t>(static_cast<uint32_t>(block)) * b->block_stride;
}

/* Copies 64 positions of K from e = K_WIDTH * part on: row r has unit u at u ^ 4 (r % 2). */
template <typename FORM>
static __device__ __forceinline__ void wide_copy_k(const wide_block *b, int blocks, int span,
                                                   int part, uint8_t *to)
{
    const int ROWS = ATTEND_THREADS / FORM::K_UNITS; /* at once */
    int unit = static_cast<int>(threadIdx.x) % FORM::K_UNITS;
    int row = static_cast<int>(threadIdx.x) / FORM::K_UNITS;
    int e = part * FORM::K_WIDTH + unit * UNIT;
    uint32_t from = static_cast<uint32_t>(2 * (row * b->width + e));
    to += (row * FORM::K_UNITS + (unit ^ (row % 2 * 4))) * 16;
#pragma unroll
    for (int i = 0; i < WARP_BLOCKS; i++) {
        int block = __shfl_sync(ALL_LANES, blocks, span * WARP_BLOCKS + i);
        const uint8_t *k = wide_kv(b, block, from);
#pragma unroll
        for (int j = 0; j < KV_BLOCK_TOKENS; j += ROWS) {
            uint8_t *at = to + (i * KV_BLOCK_TOKENS + j) * FORM::K_UNITS * 16;
            if (e < b->width) copy_async_16(at, k + 2 * j * b->width, true);
        }
    }
}

/* Copies 64 e of V for V_SPANS spans: row r, four positions, has unit u at u ^ 2 (r % 4). */
template <typename FORM>
static __device__ __forceinline__ void wide_copy_v(const wide_block *b, int blocks, int first_span,
                                                   int chunk, uint8_t *to)
{
    int unit = static_cast<int>(threadIdx.x) % V_UNITS;
    int row = static_cast<int>(threadIdx.x) / V_UNITS; /* of the four of a block */
    int at = 4 * chunk * CHUNK + unit * UNIT;
    to += (row * V_UNITS + (unit ^ (row * 2))) * 16;
    uint32_t from = static_cast<uint32_t>(2 * ((KV_BLOCK_TOKENS + 4 * row) * b->width + at));
#pragma unroll
    for (int i = 0; i < FORM::V_SPANS * WARP_BLOCKS; i++) {
        int block = __shfl_sync(ALL_LANES, blocks, first_span * WARP_BLOCKS + i);
        if (at >= 4 * b->width) continue;
        copy_async_16(to + i * 4 * V_UNITS * 16, wide_kv(b, block, from), true);
    }
}

/* Copies a tile of this partition or, from TILES on, of the next one; nothing if no vector of the
 * block needs it. */
template <typename FORM>
static __device__ __forceinline__ void wide_copy(const wide_block *b, int tile, uint8_t *to)
{
    int ahead = tile / FORM::TILES, i = tile % FORM::TILES;
    int blocks = ahead ? b->next_block : b->block;
    int first = (b->partition + ahead) * ATTENTION_PARTITION;
    if (b->partition + ahead > b->last_partition) return;
    if (i < FORM::K_TILES) {
        int span = i / FORM::K_PARTS, part = i % FORM::K_PARTS;
        first += span * WARP_POSITIONS;
        if (part * FORM::K_WIDTH >= b->width) return;
        if (!span_is_seen(first, WARP_POSITIONS, b->view.begin, b->view.last)) return;
        wide_copy_k<FORM>(b, blocks, span, part, to);
    } else {
        int chunk = (i - FORM::K_TILES) / FORM::V_PARTS;
        int span = (i - FORM::K_TILES) % FORM::V_PARTS * FORM::V_SPANS;
        first += span * WARP_POSITIONS;
        if (chunk * CHUNK >= b->width) return;
        if (!span_is_seen(first, FORM::V_SPANS * WARP_POSITIONS, b->view.begin, b->view.last)) {
            return;
        }
        wide_copy_v<FORM>(b, blocks, span, chunk, to);
    }
}

/* Waits for a tile of this partition, and has the one copied that takes the place of the tile
 * before it. */
template <typename FORM>
static __device__ __forceinline__ const uint8_t *wide_take(wide_block *b, int tile)
{
    const int AHEAD = FORM::STAGES - 1;
    const uint8_t *taken = b->ring + b->stage * FORM::TILE_BYTES;
    int free_stage = b->stage == 0 ? AHEAD : b->stage - 1;
    copy_async_wait<FORM::STAGES - 2>();
    __syncthreads();
    wide_copy<FORM>(b, tile + AHEAD, b->ring + free_stage * FORM::TILE_BYTES);
    copy_async_commit();
    b->stage = b->stage == AHEAD ? 0 : b->stage + 1;
    return taken;
}
