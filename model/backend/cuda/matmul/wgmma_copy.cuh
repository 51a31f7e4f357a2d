/* The work of a matmul by wgmma (matmul_wgmma.cu): its units, and the warps that copy their weights
 * and tokens into the ring of stages. */
#pragma once

#include "model/backend/cuda/matmul/bulk.cuh"
#include "model/backend/cuda/matmul/matmul.cuh"
#include "model/backend/cuda/matmul/wgmma.cuh"

enum {
    WG_TOKENS_LEAST = 64, /* of a block; another one has */
    WG_TOKENS_MOST = 128,
    WG_ROWS_LEAST = 33, /* fewer rows are multiplied by matmul_few */
    WG_GROUPS = 8,      /* of a block: one for each warp that multiplies */
    WG_COPIERS = 4,     /* warps that copy */
    WG_THREADS = (WG_GROUPS + WG_COPIERS) * WARP,
    WG_TILES = 2, /* of a stage */
    WG_K = WG_TILES * TILE_K,
    WG_STAGES_MAX = 12,
    WG_BAND = 8, /* neighbouring blocks of outputs that share their tokens in L2 */
    WG_ALIGNMENT = 1024,
    WG_REGISTERS_FEW = 40, /* 4 (40 + 2 * 232) warps of 32 threads have 65,536 - 1,024 */
    WG_REGISTERS_MANY = 232,
    WG_SHARED_MOST = 224 << 10
};

/* TOKENS: of a block. ADDS: a unit is all slices of its outputs and tokens, whose sums are added by
 * the fixed tree (docs/design.md, section 4). */
template <int TOKENS, int FORM_KIND, bool ADDS> struct wg_form {
    enum {
        KIND = FORM_KIND,
        ADDS_SLICES = ADDS,
        N_TOKENS = TOKENS,
        SUMS = TOKENS / 2, /* of a thread */
        /* Many sums do not fit into a third of the registers; then the warps that copy give theirs
         * to the others. */
        MOVES_REGISTERS = SUMS > 32,
        TILE_BYTES = tile_bytes(KIND),
        WEIGHT_BYTES = WG_GROUPS * WG_TILES * TILE_BYTES,
        TOKEN_BYTES = TOKENS * WGMMA_ROW_BYTES,
        STAGE_BYTES = WEIGHT_BYTES + TOKEN_BYTES,
        SUM_BYTES = WG_GROUPS * WARP * SUMS * 4, /* of a block */
        PENDING_BYTES = ADDS ? SUM_BYTES : 0,
        FIT = (WG_SHARED_MOST - 2 * WG_ALIGNMENT - PENDING_BYTES) / STAGE_BYTES,
        STAGES = FIT < WG_STAGES_MAX ? FIT : WG_STAGES_MAX,
        SHARED_BYTES = STAGES * STAGE_BYTES + 2 * WG_ALIGNMENT + PENDING_BYTES
    };
};

/* The units of a matmul: unit u of n_units = n_slices x n_m x n_t x n_parts. */
struct wg_work {
    const uint8_t *packed; /* tokens, as pack_rows leaves them */
    int n_m, n_t;          /* blocks of outputs and of tokens */
    int n_parts;           /* n_segments if each segment is a unit, else 1 */
    int n_slices;          /* that a unit adds, else 1 */
    int n_units;
    float4 *pending; /* sums of 2 and of 4 slices, which wait for their neighbours: [blocks][2] */
};

/* One unit. */
struct wg_unit {
    int slice, m, t;
    int first, end; /* segments */
};

#ifdef HAS_WGMMA

static __device__ __forceinline__ wg_unit unit_of(const matmul_job &job, const wg_work &work, int u)
{
    wg_unit unit;
    int part = u % work.n_parts, block = u / work.n_parts, of_slice = work.n_m * work.n_t;
    int in_slice = block % of_slice, band = in_slice / (WG_BAND * work.n_t);
    int in_band = in_slice % (WG_BAND * work.n_t), wide = work.n_m - band * WG_BAND;
    if (wide > WG_BAND) wide = WG_BAND;
    unit.slice = block / of_slice;
    unit.m = band * WG_BAND + in_band % wide;
    unit.t = in_band / wide;
    unit.first = work.n_parts > 1 ? part : 0;
    unit.end = work.n_parts > 1 ? part + 1 : job.n_segments;
    return unit;
}

/* Where the copies stand: stages are pairs of tiles; a segment that begins or ends within a pair
 * has a stage for it, and so has its neighbour. */
struct wg_cursor {
    wg_unit unit;
    int u, segment, stage, end_stage;
};

static __device__ __forceinline__ void enter_segment(const matmul_job &job, wg_cursor *at)
{
    at->stage = segment_begin(job.n_tiles, job.n_segments, at->segment) / WG_TILES;
    at->end_stage =
        (segment_begin(job.n_tiles, job.n_segments, at->segment + 1) + WG_TILES - 1) / WG_TILES;
}

static __device__ __forceinline__ void enter_unit(const matmul_job &job, const wg_work &work,
                                                  wg_cursor *at)
{
    if (at->u >= work.n_units) return;
    at->unit = unit_of(job, work, at->u);
    at->segment = at->unit.first;
    enter_segment(job, at);
}

static __device__ __forceinline__ void next_stage(const matmul_job &job, const wg_work &work,
                                                  wg_cursor *at)
{
    if (++at->stage < at->end_stage) return;
    if (++at->segment < at->unit.end) {
        enter_segment(job, at);
        return;
    }
    if (++at->unit.slice < work.n_slices) {
        at->segment = at->unit.first;
        enter_segment(job, at);
        return;
    }
    at->u += static_cast<int>(gridDim.x);
    enter_unit(job, work, at);
}

/* The rows of a unit's tokens: N_TOKENS, or those that are left. */
template <typename FORM>
static __device__ __forceinline__ int unit_rows(const matmul_job &job, const wg_unit &unit)
{
    int left = job.n_rows - unit.t * FORM::N_TOKENS;
    return left < FORM::N_TOKENS ? left : static_cast<int>(FORM::N_TOKENS);
}

/* Asks for this warp's share of a stage's weights: two groups of the block's. Says how many bytes
 * will come, with those of the tokens, which are a share of the first warp. */
template <typename FORM>
static __device__ __forceinline__ void ask_weights(const matmul_job &job, const wg_cursor &at,
                                                   int copier, uint8_t *stage, uint64_t *full)
{
    enum { GROUP_BYTES = WG_TILES * FORM::TILE_BYTES, SHARE = WG_GROUPS / WG_COPIERS };
    int first = copier * SHARE, group = at.unit.m * WG_GROUPS + first, n = job.n_groups - group;
    n = n < 0 ? 0 : n < SHARE ? n : static_cast<int>(SHARE);
    int bytes = n * GROUP_BYTES;
    if (copier == 0) bytes += unit_rows<FORM>(job, at.unit) * WGMMA_ROW_BYTES;
    barrier_expect(full, static_cast<uint32_t>(bytes));
    size_t stride = static_cast<size_t>(job.n_tiles) * FORM::TILE_BYTES;
    const uint8_t *from = job.weights[at.unit.slice] + static_cast<size_t>(group) * stride +
                          static_cast<size_t>(at.stage) * GROUP_BYTES;
    uint8_t *to = stage + FORM::TOKEN_BYTES + first * GROUP_BYTES;
#pragma unroll
    for (int i = 0; i < SHARE; i++) {
        if (i < n) bulk_copy(to + i * GROUP_BYTES, from, GROUP_BYTES, full);
        from += stride;
    }
}

template <typename FORM>
static __device__ __forceinline__ void ask_tokens(const matmul_job &job, const wg_work &work,
                                                  const wg_cursor &at, int copier, uint8_t *stage,
                                                  uint64_t *full)
{
    if (copier != 0) return;
    size_t chunk = static_cast<size_t>(at.unit.slice) * static_cast<size_t>(job.n_in / WG_K) +
                   static_cast<size_t>(at.stage);
    size_t row =
        chunk * static_cast<size_t>(job.n_rows) + static_cast<size_t>(at.unit.t) * FORM::N_TOKENS;
    bulk_copy(stage, work.packed + row * WGMMA_ROW_BYTES,
              static_cast<uint32_t>(unit_rows<FORM>(job, at.unit) * WGMMA_ROW_BYTES), full);
}

/* One thread of each warp that copies fills the ring, at first with weights alone, which no earlier
 * kernel writes. */
template <typename FORM>
static __device__ __forceinline__ void wg_produce(const matmul_job &job, const wg_work &work,
                                                  int copier, uint8_t *stages, uint64_t *full,
                                                  uint64_t *empty)
{
    wg_cursor at;
    at.u = static_cast<int>(blockIdx.x);
    enter_unit(job, work, &at);
    wg_cursor early = at;
    int n_early = 0, q = 0;
    for (; n_early < FORM::STAGES && at.u < work.n_units; n_early++) {
        ask_weights<FORM>(job, at, copier, stages + n_early * FORM::STAGE_BYTES, full + n_early);
        next_stage(job, work, &at);
    }
    grid_dependency_wait();
    grid_dependency_launch();
    for (int i = 0; i < n_early; i++) {
        ask_tokens<FORM>(job, work, early, copier, stages + i * FORM::STAGE_BYTES, full + i);
        next_stage(job, work, &early);
    }
    for (int phase = 0; at.u < work.n_units; next_stage(job, work, &at)) {
        barrier_wait(empty + q, phase);
        ask_weights<FORM>(job, at, copier, stages + q * FORM::STAGE_BYTES, full + q);
        ask_tokens<FORM>(job, work, at, copier, stages + q * FORM::STAGE_BYTES, full + q);
        if (++q == FORM::STAGES) q = 0, phase ^= 1;
    }
}

#endif
