/* Attention for a tile of few query vectors: 16 of one lane and kv head. Each of the four warps
 * takes 64 positions of a partition; the maxima, sums and weighted values of the four are combined
 * in shared memory in ascending order. */
#pragma once

#include "model/backend/cuda/attention/tile.cuh"

enum {
    COMBINE_RUNS = 4, /* runs of e that are combined in shared memory at once */
    COMBINE_STRIDE = COMBINE_RUNS * RUN + 16, /* floats; rows of a quarter warp lie apart */
    THREADS_OF_ROW = ATTEND_THREADS / STEP_TILE_QUERIES
};

/* A warp's span of a partition. Rows past the tile's end repeat its last vector. */
static __device__ __forceinline__ attend_span span_of(const attend_args *args,
                                                      const tile_view *view, int partition)
{
    attend_span span = {};
    int warp = static_cast<int>(threadIdx.x) / WARP, g = static_cast<int>(threadIdx.x) % WARP / 4;
    span.first = partition * ATTENTION_PARTITION + warp * WARP_POSITIONS;
    span.begin = view->begin;
    span.last = view->last;
    for (int i = 0; i < 2; i++) {
        int vector = view->first + g + 8 * i;
        if (vector >= view->end) vector = view->end - 1;
        int position = vector_position(view, vector);
        span.q_last[i] = last_seen(args, &view->lane, position);
        span.q_first[i] = first_seen(position, args->window);
        span.q[i] = args->q +
                    vector_index(view, vector, args->n_heads) * static_cast<size_t>(args->head_dim);
    }
    const int32_t *blocks = args->inputs.blocks + view->lane.first_block;
#pragma unroll
    for (int i = 0; i < WARP_BLOCKS; i++) {
        int block = span.first / KV_BLOCK_TOKENS + i;
        if (block > view->last / KV_BLOCK_TOKENS) block = view->last / KV_BLOCK_TOKENS;
        if (block < view->begin / KV_BLOCK_TOKENS) block = view->begin / KV_BLOCK_TOKENS;
        span.parts[i] = args->kv + kv_head_offset(blocks[block], view->kv_head, args->n_kv_heads,
                                                  args->head_dim);
    }
    return span;
}

/* Shared memory through which the warps exchange their sums. */
struct attend_shared {
    float max[ATTEND_WARPS][STEP_TILE_QUERIES], sum[ATTEND_WARPS][STEP_TILE_QUERIES];
    float values[ATTEND_WARPS][STEP_TILE_QUERIES][COMBINE_STRIDE];
};

/* A thread's share of one vector's (max, sum, values). Threads 8 i .. 8 i + 7 have vector i, and of
 * every run each has one float4. */
template <int WIDTH> struct attend_total {
    float max, sum;
    float4 values[WIDTH / RUN];
};

static __device__ __forceinline__ float add_warps(const float *first, int stride)
{
    return ((first[0] + first[stride]) + first[2 * stride]) + first[3 * stride];
}

/* The largest of the four warps' maxima of one vector. */
static __device__ __forceinline__ float max_warps(const attend_shared *shared, int vector)
{
    float max = shared->max[0][vector];
    for (int warp = 1; warp < ATTEND_WARPS; warp++) {
        float other = shared->max[warp][vector];
        max = other > max ? other : max;
    }
    return max;
}

/* Adds the warps' values of a partition in ascending order and merges them into the total. */
template <int WIDTH>
static __device__ __forceinline__ void combine(const value_sums acc[WIDTH / SUM_RUN], int head_dim,
                                               float part_max, bool is_first, bool sees,
                                               attend_shared *shared, attend_total<WIDTH> *total)
{
    int warp = static_cast<int>(threadIdx.x) / WARP;
    int vector = static_cast<int>(threadIdx.x) / THREADS_OF_ROW;
    int column = 4 * (static_cast<int>(threadIdx.x) % THREADS_OF_ROW);
    float a = 0, b = 0, max = part_max;
    if (!is_first) {
        max = total->max > part_max ? total->max : part_max;
        a = device_exp(total->max - max);
        b = device_exp(part_max - max);
    }
#pragma unroll
    for (int first = 0; first < WIDTH / RUN; first += COMBINE_RUNS) {
        if (first * RUN >= head_dim) break;
        if (first > 0) __syncthreads();
        store_values<WIDTH>(acc, first * RUN, (first + COMBINE_RUNS) * RUN, head_dim,
                            &shared->values[warp][0][0], COMBINE_STRIDE);
        __syncthreads();
        if (first == 0 && sees) {
            float sum = add_warps(&shared->sum[0][vector], STEP_TILE_QUERIES);
            total->sum = is_first ? sum : total->sum * a + sum * b;
            total->max = max;
        }
#pragma unroll
        for (int r = first; r < first + COMBINE_RUNS && r < WIDTH / RUN; r++) {
            if (!sees || r * RUN + column >= head_dim) continue;
            float4 part[ATTEND_WARPS];
            for (int w = 0; w < ATTEND_WARPS; w++) {
                part[w] = *reinterpret_cast<const float4 *>(
                    &shared->values[w][vector][(r - first) * RUN + column]);
            }
            float4 sum = make_float4(((part[0].x + part[1].x) + part[2].x) + part[3].x,
                                     ((part[0].y + part[1].y) + part[2].y) + part[3].y,
                                     ((part[0].z + part[1].z) + part[2].z) + part[3].z,
                                     ((part[0].w + part[1].w) + part[2].w) + part[3].w);
            total->values[r] = is_first ? sum : merge_values(total->values[r], a, sum, b);
        }
    }
}

/* Computes one partition of a tile and merges it into total, or puts it there where it is alone or
 * the first that a vector sees. */
template <int WIDTH, bool EXACT>
static __device__ __forceinline__ void
attend_partition(const attend_args *args, const tile_view *view, int partition,
                 attend_shared *shared, attend_total<WIDTH> *total)
{
    int lane = static_cast<int>(threadIdx.x) % WARP, warp = static_cast<int>(threadIdx.x) / WARP;
    int g = lane / 4, vector = static_cast<int>(threadIdx.x) / THREADS_OF_ROW;
    float s[SCORE_TILES][4] = {}, sum[2] = {};
    float max[2] = {MINUS_INFINITY, MINUS_INFINITY};
    uint32_t p[WARP_BLOCKS][4];
    attend_span span = span_of(args, view, partition);
    bool is_warp_needed = span.first <= view->last && span.first + WARP_POSITIONS > view->begin;
    if (is_warp_needed) {
        score_positions<WIDTH, EXACT>(&span, args->head_dim, s);
        mask_scores(&span, args->scale, args->softcap, s, max);
    }
    if (lane % 4 == 0) {
        shared->max[warp][g] = max[0];
        shared->max[warp][g + 8] = max[1];
    }
    __syncthreads();
    float part_max = max_warps(shared, vector);
    value_sums acc[WIDTH / SUM_RUN] = {};
    if (is_warp_needed) {
        max[0] = max_warps(shared, g);
        max[1] = max_warps(shared, g + 8);
        weigh_scores(s, max, sum, p);
        add_values<WIDTH, EXACT>(&span, args->head_dim, p, acc);
    }
    if (lane % 4 == 0) {
        shared->sum[warp][g] = sum[0];
        shared->sum[warp][g + 8] = sum[1];
    }
    bool is_first, sees = sees_partition(args, view, view->first + vector, partition, &is_first);
    if (args->values) is_first = true;
    combine<WIDTH>(acc, args->head_dim, part_max, is_first, sees, shared, total);
}

/* Stores the total as output, or as the partial of one partition. */
template <int WIDTH>
static __device__ __forceinline__ void store_total(const attend_args *args, const tile_view *view,
                                                   const attend_total<WIDTH> *total, int partition)
{
    int vector = view->first + static_cast<int>(threadIdx.x) / THREADS_OF_ROW;
    int column = 4 * (static_cast<int>(threadIdx.x) % THREADS_OF_ROW);
    if (vector >= view->end) return;
    size_t index = vector_index(view, vector, args->n_heads);
    if (args->values) {
        bool is_first;
        if (!sees_partition(args, view, vector, partition, &is_first)) return;
        index = index * static_cast<size_t>(args->n_partitions) + static_cast<size_t>(partition);
        if (column == 0) args->sums[index] = make_float2(total->max, total->sum);
    }
    index *= static_cast<size_t>(args->head_dim);
#pragma unroll
    for (int r = 0; r < WIDTH / RUN; r++) {
        int e = r * RUN + column;
        if (e >= args->head_dim) continue;
        size_t at = index + static_cast<size_t>(e);
        if (args->values) {
            *reinterpret_cast<float4 *>(args->values + at) = total->values[r];
        } else {
            store_out(args->out + at, total->values[r], total->sum);
        }
    }
}

/* One partition of a tile, or all of them. */
template <int WIDTH, bool EXACT>
static __device__ __forceinline__ void attend_few(const attend_args *args, int slot, int kv_head,
                                                  int partition, attend_shared *shared)
{
    int end = partition + 1;
    tile_view view = {};
    attend_total<WIDTH> total = {};
    bool is_needed = slot < args->inputs.counts[STEP_COUNT_TILES];
    if (is_needed) {
        view = view_tile(args, slot, kv_head, STEP_TILE_QUERIES);
        int first = view.begin / ATTENTION_PARTITION;
        is_needed = partition * ATTENTION_PARTITION <= view.last;
        if (args->values) {
            is_needed = is_needed && partition >= first;
        } else {
            partition = first;
            end = view.last / ATTENTION_PARTITION + 1;
        }
    }
    if (is_needed) {
        attend_span span = span_of(args, &view, partition);
        prefetch_span(&span, args->head_dim);
    }
    grid_dependency_wait();
    if (!is_needed) return;
    for (int i = partition; i < end; i++) {
        attend_partition<WIDTH, EXACT>(args, &view, i, shared, &total);
    }
    store_total<WIDTH>(args, &view, &total, partition);
}
