/* The warps of a matmul by wgmma that multiply: stages of the ring become sums of segments, of
 * slices, and of all slices. */
#pragma once

#include "model/backend/cuda/matmul/wgmma_copy.cuh"

#ifdef HAS_WGMMA

/* The ring as a warp that multiplies sees it. */
struct wg_ring {
    uint8_t *stages;
    uint64_t *full, *empty;
    int q, phase;
    int held; /* the stage whose products may still be under way; -1: none */
};

template <typename FORM> static __device__ __forceinline__ void ring_next(wg_ring *ring)
{
    if (++ring->q == FORM::STAGES) ring->q = 0, ring->phase ^= 1;
}

/* Gives the stage back whose products have ended. */
static __device__ __forceinline__ void ring_release(wg_ring *ring)
{
    if (ring->held >= 0 && threadIdx.x % WARP == 0) barrier_arrive(ring->empty + ring->held);
    ring->held = -1;
}

/* Waits for a stage and loads this warp's weights from it. */
template <typename FORM>
static __device__ __forceinline__ const uint8_t *wg_load(const wg_ring &ring,
                                                         uint32_t a[WG_TILES][2][4])
{
    int warp = static_cast<int>(threadIdx.x) / WARP, lane = static_cast<int>(threadIdx.x) % WARP;
    const uint8_t *stage = ring.stages + ring.q * FORM::STAGE_BYTES;
    const uint8_t *weights = stage + FORM::TOKEN_BYTES + warp * WG_TILES * FORM::TILE_BYTES;
    barrier_wait(ring.full + ring.q, ring.phase);
#pragma unroll
    for (int tile = 0; tile < WG_TILES; tile++) {
        weights_load<FORM::KIND>(weights + tile * FORM::TILE_BYTES, lane, a[tile]);
    }
    return stage;
}

/* Multiplies a whole stage; the products are under way when it returns, those of the stage before
 * have ended, and that stage is given back. */
template <typename FORM>
static __device__ __forceinline__ void wg_stage(wg_ring *ring, float (&acc)[FORM::SUMS],
                                                uint32_t a[WG_TILES][2][4], bool adds)
{
    const uint8_t *tokens = wg_load<FORM>(*ring, a);
    wgmma_fence();
    wgmma_multiply<FORM::N_TOKENS>(acc, a[0][0], tokens, 0, adds);
    wgmma_multiply<FORM::N_TOKENS>(acc, a[0][1], tokens, 1, true);
    wgmma_multiply<FORM::N_TOKENS>(acc, a[1][0], tokens, 2, true);
    wgmma_multiply<FORM::N_TOKENS>(acc, a[1][1], tokens, 3, true);
    wgmma_commit();
    wgmma_wait<1>();
    ring_release(ring);
    ring->held = ring->q;
    ring_next<FORM>(ring);
}

/* Multiplies one tile of a stage, and waits for it. Nothing else is under way. */
template <typename FORM, int TILE>
static __device__ __forceinline__ void wg_half_stage(wg_ring *ring, float (&acc)[FORM::SUMS],
                                                     bool adds)
{
    uint32_t a[WG_TILES][2][4];
    const uint8_t *tokens = wg_load<FORM>(*ring, a);
    wgmma_fence();
    wgmma_multiply<FORM::N_TOKENS>(acc, a[TILE][0], tokens, 2 * TILE, adds);
    wgmma_multiply<FORM::N_TOKENS>(acc, a[TILE][1], tokens, 2 * TILE + 1, true);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(acc);
    ring->held = ring->q;
    ring_release(ring);
    ring_next<FORM>(ring);
}

/* acc = the chain of tiles begin .. end - 1. */
template <typename FORM>
static __device__ __forceinline__ void wg_segment(wg_ring *ring, int begin, int end,
                                                  float (&acc)[FORM::SUMS])
{
    uint32_t x[WG_TILES][2][4], y[WG_TILES][2][4];
    bool adds = false;
    if (begin % WG_TILES) {
        wg_half_stage<FORM, 1>(ring, acc, false);
        begin++;
        adds = true;
    }
    for (int left = (end - begin) / WG_TILES; left > 0; left -= 2) {
        wg_stage<FORM>(ring, acc, x, adds);
        adds = true;
        if (left == 1) break;
        wg_stage<FORM>(ring, acc, y, true);
    }
    wgmma_wait<0>();
    wgmma_hold(acc);
    ring_release(ring);
    if (end % WG_TILES) wg_half_stage<FORM, 0>(ring, acc, adds);
}

/* Where the fragments of this warp lie among the partials of a segment. */
template <typename FORM>
static __device__ __forceinline__ size_t wg_partial(const wg_work &work, const wg_unit &unit)
{
    size_t block = (static_cast<size_t>(unit.slice) * static_cast<size_t>(work.n_m) +
                    static_cast<size_t>(unit.m)) *
                       static_cast<size_t>(work.n_t) +
                   static_cast<size_t>(unit.t);
    return (block * WG_GROUPS + threadIdx.x / WARP) * (FORM::N_TOKENS / TILE_TOKENS) * WARP +
           threadIdx.x % WARP;
}

/* The float4s of one segment's partials. */
template <typename FORM> static __device__ __forceinline__ size_t wg_partials(const wg_work &work)
{
    return static_cast<size_t>(work.n_units / work.n_parts) * WG_GROUPS *
           (FORM::N_TOKENS / TILE_TOKENS) * WARP;
}

template <typename FORM>
static __device__ __forceinline__ void wg_store(const matmul_job &job, const wg_work &work,
                                                const wg_unit &unit, float (&total)[FORM::SUMS])
{
    int warp = static_cast<int>(threadIdx.x) / WARP, lane = static_cast<int>(threadIdx.x) % WARP;
    float4 *to = job.partials;
    if (to) {
        to += static_cast<size_t>(unit.first) * wg_partials<FORM>(work) +
              wg_partial<FORM>(work, unit);
    }
#pragma unroll
    for (int j = 0; j < FORM::N_TOKENS / TILE_TOKENS; j++) {
        float d[4] = {total[4 * j], total[4 * j + 1], total[4 * j + 2], total[4 * j + 3]};
        if (to) {
            to[j * WARP] = make_float4(d[0], d[1], d[2], d[3]);
        } else {
            fragment_store<FORM::ADDS_SLICES ? KIND_BF16 : static_cast<int>(FORM::KIND)>(
                job, unit.slice, unit.m * WG_GROUPS + warp,
                unit.t * FORM::N_TOKENS + j * TILE_TOKENS, lane, d);
        }
    }
}

/* total = the sum of a slice's segments first .. end - 1. */
template <typename FORM>
static __device__ __forceinline__ void wg_slice(const matmul_job &job, const wg_unit &unit,
                                                wg_ring *ring, float (&total)[FORM::SUMS])
{
    float acc[FORM::SUMS];
    for (int s = unit.first; s < unit.end; s++) {
        wg_segment<FORM>(ring, segment_begin(job.n_tiles, job.n_segments, s),
                         segment_begin(job.n_tiles, job.n_segments, s + 1), acc);
#pragma unroll
        for (int i = 0; i < FORM::SUMS; i++) {
            total[i] = s == unit.first ? acc[i] : total[i] + acc[i];
        }
    }
}

/* Multiplies by the scales of a slice's outputs. */
template <typename FORM>
static __device__ __forceinline__ void wg_scale(const matmul_job &job, const wg_unit &unit,
                                                float (&total)[FORM::SUMS])
{
    int warp = static_cast<int>(threadIdx.x) / WARP, lane = static_cast<int>(threadIdx.x) % WARP;
    int group = unit.m * WG_GROUPS + warp;
    if (group >= job.n_groups) return;
    const float *scales = fp8_scales(job, unit.slice) + group * TILE_OUTPUTS + lane / 4;
    float low = scales[0], high = scales[TILE_OUTPUTS / 2];
#pragma unroll
    for (int i = 0; i < FORM::SUMS; i++) {
        total[i] *= i % 4 < 2 ? low : high;
    }
}

/* Where the sums of 2^level slices wait, float4s of one thread THREADS apart. */
template <typename FORM>
static __device__ __forceinline__ float4 *wg_pending(const wg_work &work, float4 *shared, int level)
{
    if (level == 0) return shared + threadIdx.x;
    size_t block = 2 * static_cast<size_t>(blockIdx.x) + static_cast<size_t>(level - 1);
    return work.pending + block * (FORM::SUM_BYTES / sizeof(float4)) + threadIdx.x;
}

/* total = the tree's sum of all slices: as a binary counter carries, two sums of 2^level slices
 * become one of the next level, the earlier one first. */
template <typename FORM>
static __device__ __forceinline__ void wg_add_slices(const matmul_job &job, const wg_work &work,
                                                     wg_unit unit, wg_ring *ring, float4 *shared,
                                                     float (&total)[FORM::SUMS])
{
    for (unit.slice = 0; unit.slice < work.n_slices; unit.slice++) {
        wg_slice<FORM>(job, unit, ring, total);
        if constexpr (int{FORM::KIND} == KIND_FP8) wg_scale<FORM>(job, unit, total);
        bool is_last = unit.slice + 1 == work.n_slices;
        int level = 0;
        for (; unit.slice >> level; level++) {
            bool carries = unit.slice >> level & 1;
            if (!carries && !is_last) break;
            if (!carries) continue;
            const float4 *from = wg_pending<FORM>(work, shared, level);
#pragma unroll
            for (int i = 0; i < FORM::SUMS / 4; i++) {
                float4 earlier = from[i * WG_GROUPS * WARP];
                total[4 * i] = earlier.x + total[4 * i];
                total[4 * i + 1] = earlier.y + total[4 * i + 1];
                total[4 * i + 2] = earlier.z + total[4 * i + 2];
                total[4 * i + 3] = earlier.w + total[4 * i + 3];
            }
        }
        if (is_last) return;
        float4 *to = wg_pending<FORM>(work, shared, level);
#pragma unroll
        for (int i = 0; i < FORM::SUMS / 4; i++) {
            to[i * WG_GROUPS * WARP] =
                make_float4(total[4 * i], total[4 * i + 1], total[4 * i + 2], total[4 * i + 3]);
        }
    }
}

template <typename FORM>
static __device__ __forceinline__ void wg_consume(const matmul_job &job, const wg_work &work,
                                                  wg_ring *ring, float4 *shared)
{
    float total[FORM::SUMS];
    for (int u = static_cast<int>(blockIdx.x); u < work.n_units; u += static_cast<int>(gridDim.x)) {
        wg_unit unit = unit_of(job, work, u);
        if constexpr (FORM::ADDS_SLICES) {
            wg_add_slices<FORM>(job, work, unit, ring, shared, total);
        } else {
            wg_slice<FORM>(job, unit, ring, total);
        }
        wg_store<FORM>(job, work, unit, total);
    }
}

#endif
