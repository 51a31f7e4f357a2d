/* Attention of the CUDA backend: softmax(q k) v by partitions of 256 absolute positions. Each
 * partition is computed on its own and they are merged in ascending order, as in
 * model/backend/cpu/attention.c.
 *
 * A block of threads works on one tile: 16 query vectors (row, head) of one lane and kv head. Each
 * of its four warps takes 64 positions of a partition; the maxima, sums and weighted values of the
 * four are combined in shared memory in ascending order. A vector's bits depend on its own q and on
 * the positions it sees, but not on its place in the tile or on the tile's other vectors.
 *
 * With few rows a block does one partition and writes (max, sum, values) to scratch memory; a
 * second kernel merges a vector's partials in ascending order. With many rows a block does its
 * partitions one after the other and merges as it goes, by the same formula. */
#include "base/limits.h"
#include "model/backend/cuda/attention.cuh"

enum {
    COMBINE_RUNS = 4, /* runs of e that are combined in shared memory at once */
    COMBINE_STRIDE = COMBINE_RUNS * RUN + 4, /* floats; + 4 keeps rows of a quarter warp apart */
    THREADS_OF_ROW = ATTEND_THREADS / STEP_TILE_QUERIES,
    MERGE_THREADS = 64,
    SPLIT_BLOCKS = 4,              /* of a multiprocessor; with so many, partitions are not split */
    SCRATCH_MOST_BYTES = 256 << 20 /* of partials; with more, a block does all its partitions */
};

struct attend_args {
    struct step_inputs inputs;
    const uint16_t *q, *kv;
    uint16_t *out;
    int n_heads, n_kv_heads, head_dim;
    float scale;   /* of the scores; with a softcap, over it */
    float softcap; /* 0: none */
    int window;    /* 0: none */
    bool sees_lane;
    /* Partials of [row][head][n_partitions]: values [E] each, and (max, sum). NULL: a block does
     * all partitions of its tile. */
    float *values;
    float2 *sums;
    int n_partitions;
};

/* A tile's vectors and how far they see. */
struct tile_view {
    struct step_lane lane;
    int first, end;  /* vectors of the lane and kv head */
    int begin, last; /* the lowest and the highest position seen */
    int group;       /* heads of the kv head */
    int kv_head;
};

/* The last position that a row at `position` sees. */
static __device__ __forceinline__ int last_seen(const attend_args *args, const step_lane *lane,
                                                int position)
{
    return args->sees_lane ? lane->position + lane->n_rows - 1 : position;
}

static __device__ __forceinline__ tile_view view_tile(const attend_args *args, int slot,
                                                      int kv_head)
{
    tile_view view = {};
    struct step_tile tile = args->inputs.tiles[slot];
    view.lane = args->inputs.lanes[tile.lane];
    view.group = args->n_heads / args->n_kv_heads;
    view.first = tile.first;
    view.end = view.lane.n_rows * view.group;
    if (view.end > tile.first + STEP_TILE_QUERIES) view.end = tile.first + STEP_TILE_QUERIES;
    view.begin = first_seen(view.lane.position + view.first / view.group, args->window);
    view.last = last_seen(args, &view.lane, view.lane.position + (view.end - 1) / view.group);
    view.kv_head = kv_head;
    return view;
}

static __device__ __forceinline__ int vector_position(const tile_view *view, int vector)
{
    return view->lane.position + vector / view->group;
}

/* (row, head) of a vector as one index. */
static __device__ __forceinline__ size_t vector_index(const tile_view *view, int vector,
                                                      int n_heads)
{
    size_t row = static_cast<size_t>(view->lane.first_row + vector / view->group);
    return row * static_cast<size_t>(n_heads) +
           static_cast<size_t>(view->kv_head * view->group + vector % view->group);
}

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

/* total <- total merged with part, which comes after it: merge_span of the CPU backend. */
static __device__ __forceinline__ float4 merge_values(float4 total, float a, float4 part, float b)
{
    return make_float4(total.x * a + part.x * b, total.y * a + part.y * b, total.z * a + part.z * b,
                       total.w * a + part.w * b);
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
static __device__ __forceinline__ void combine(const float acc[WIDTH / RUN][4][4], int head_dim,
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
        store_values<WIDTH / RUN>(acc, first, first + COMBINE_RUNS, head_dim,
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

/* True if a vector of the tile sees positions of a partition; *is_first: it sees none of those
 * before. */
static __device__ __forceinline__ bool sees_partition(const attend_args *args,
                                                      const tile_view *view, int vector,
                                                      int partition, bool *is_first)
{
    int position = vector_position(view, vector);
    int first = first_seen(position, args->window) / ATTENTION_PARTITION;
    int last = last_seen(args, &view->lane, position);
    *is_first = partition == first;
    return vector < view->end && partition >= first && partition * ATTENTION_PARTITION <= last;
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
    float part_max = max_warps(shared, vector), acc[WIDTH / RUN][4][4] = {};
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

static __device__ __forceinline__ void store_out(uint16_t *to, float4 values, float sum)
{
    uint2 packed;
    packed.x = bf16_pair(values.x / sum, values.y / sum);
    packed.y = bf16_pair(values.z / sum, values.w / sum);
    *reinterpret_cast<uint2 *>(to) = packed;
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

/* Grid: tile slots, kv heads, partitions (1 when a block does them all). The last tiles of a prompt
 * start first, because they see the most positions. */
template <int WIDTH, bool EXACT>
static __global__ void __launch_bounds__(ATTEND_THREADS, WIDTH <= 64 ? 3 : 2)
    attend_kernel(attend_args args)
{
    CUDA_DYNAMIC_SHARED(attend_shared, shared);
    int slot = static_cast<int>(gridDim.x - 1 - blockIdx.x);
    int partition = static_cast<int>(blockIdx.z), end = partition + 1;
    tile_view view = {};
    attend_total<WIDTH> total = {};
    grid_dependency_launch();
    bool is_needed = slot < args.inputs.counts[STEP_COUNT_TILES];
    if (is_needed) {
        view = view_tile(&args, slot, static_cast<int>(blockIdx.y));
        int first = view.begin / ATTENTION_PARTITION;
        is_needed = partition * ATTENTION_PARTITION <= view.last;
        if (args.values) {
            is_needed = is_needed && partition >= first;
        } else {
            partition = first;
            end = view.last / ATTENTION_PARTITION + 1;
        }
    }
    if (is_needed) {
        attend_span span = span_of(&args, &view, partition);
        prefetch_span(&span, args.head_dim);
    }
    grid_dependency_wait();
    if (!is_needed) return;
    for (int i = partition; i < end; i++) {
        attend_partition<WIDTH, EXACT>(&args, &view, i, shared, &total);
    }
    store_total<WIDTH>(&args, &view, &total, partition);
}

/* Shared memory through which the threads of a merge exchange MERGE_THREADS partials. */
struct merge_shared {
    float2 factors[MERGE_THREADS];
    float maxima[MERGE_THREADS], sums[MERGE_THREADS];
};

/* The factors a and b of total = total * a + part * b for n <= MERGE_THREADS partials that come
 * after those whose maximum is *max. The running maxima do not depend on the sums, so every thread
 * finds the factors of its partial at once. */
static __device__ __forceinline__ void merge_factors(const float2 *sums, int n, float *max,
                                                     merge_shared *shared)
{
    int me = static_cast<int>(threadIdx.x);
    float2 mine = me < n ? sums[me] : make_float2(MINUS_INFINITY, 0);
    float before = *max, after = *max, running = *max;
    __syncthreads();
    shared->maxima[me] = mine.x;
    shared->sums[me] = mine.y;
    __syncthreads();
    for (int i = 0; i < n; i++) {
        float max_i = shared->maxima[i];
        before = i == me ? running : before;
        running = running > max_i ? running : max_i;
        after = i == me ? running : after;
    }
    if (me < n) {
        shared->factors[me] = make_float2(device_exp(before - after), device_exp(mine.x - after));
    }
    *max = running;
    __syncthreads();
}

/* Merges the partials of one (row, head): blockIdx.y, blockIdx.x. */
static __global__ void __launch_bounds__(MERGE_THREADS) merge_kernel(attend_args args)
{
    CUDA_DYNAMIC_SHARED(merge_shared, shared);
    int row = static_cast<int>(blockIdx.y), e = 4 * static_cast<int>(threadIdx.x);
    grid_dependency_launch();
    int lane = args.inputs.row_lane[row], position = 0, last = 0;
    if (lane >= 0) {
        position = args.inputs.row_pos[row];
        last = last_seen(&args, &args.inputs.lanes[lane], position);
    }
    int begin = first_seen(position, args.window) / ATTENTION_PARTITION;
    int end = last / ATTENTION_PARTITION + 1;
    grid_dependency_wait();
    if (lane < 0) return;
    size_t index = static_cast<size_t>(row) * static_cast<size_t>(args.n_heads) + blockIdx.x;
    const float2 *sums = args.sums + index * static_cast<size_t>(args.n_partitions);
    size_t width = static_cast<size_t>(args.head_dim);
    const float *values = args.values + index * static_cast<size_t>(args.n_partitions) * width;
    float max = MINUS_INFINITY, sum = 0;
    float4 total = make_float4(0, 0, 0, 0);
    for (int first = begin; first < end; first += MERGE_THREADS) {
        int n = end - first < MERGE_THREADS ? end - first : MERGE_THREADS;
        merge_factors(sums + first, n, &max, shared);
#pragma unroll 8
        for (int i = 0; i < n; i++) {
            float4 part = make_float4(0, 0, 0, 0);
            if (e < args.head_dim) {
                part = *reinterpret_cast<const float4 *>(
                    values + static_cast<size_t>(first + i) * width + e);
            }
            float2 factor = shared->factors[i];
            float part_sum = shared->sums[i];
            bool is_first = first + i == begin;
            sum = is_first ? part_sum : sum * factor.x + part_sum * factor.y;
            total = is_first ? part : merge_values(total, factor.x, part, factor.y);
        }
    }
    if (e < args.head_dim) store_out(args.out + index * width + e, total, sum);
}

/* True if each partition has a block of its own: in steps that can be recorded, unless there is
 * only one partition or the tiles alone keep the device busy. The bits are the same either way. */
static bool is_split(const struct backend_cuda *be, const attend_args *args, int n_slots)
{
    if (be->size.n_rows > STEP_RECORDED_ROWS || be->size.n_partitions < 2) return false;
    return n_slots * args->n_kv_heads < SPLIT_BLOCKS * be->n_sms;
}

/* Takes scratch memory for the partials of a split step, unless they need too much of it. */
static bool take_partials(struct backend_cuda *be, attend_args *args, int n_rows, int n_slots)
{
    size_t n = static_cast<size_t>(n_rows) * static_cast<size_t>(args->n_heads) *
               static_cast<size_t>(be->size.n_partitions);
    size_t bytes = n * (static_cast<size_t>(args->head_dim) * sizeof(float) + sizeof(float2));
    args->n_partitions = be->size.n_partitions;
    if (!is_split(be, args, n_slots)) return true;
    if (bytes > static_cast<size_t>(SCRATCH_MOST_BYTES)) return true;
    args->values = static_cast<float *>(cuda_scratch(be, bytes));
    args->sums = reinterpret_cast<float2 *>(args->values + n * static_cast<size_t>(args->head_dim));
    return args->values != NULL;
}

static void launch_attend(struct backend_cuda *be, const attend_args *args, dim3 grid)
{
    void (*kernel)(attend_args) = attend_kernel<HEAD_DIM_MAX, false>;
    if (args->head_dim <= 128) kernel = attend_kernel<128, false>;
    if (args->head_dim == 128) kernel = attend_kernel<128, true>;
    if (args->head_dim == 64) kernel = attend_kernel<64, true>;
    cuda_launch(be, "attention", kernel, grid, dim3(ATTEND_THREADS), sizeof(attend_shared), *args);
}

void cuda_attention_prepare(struct backend_cuda *be)
{
    cuda_prepare(be, attend_kernel<HEAD_DIM_MAX, false>, sizeof(attend_shared));
    cuda_prepare(be, attend_kernel<128, false>, sizeof(attend_shared));
    cuda_prepare(be, attend_kernel<128, true>, sizeof(attend_shared));
    cuda_prepare(be, attend_kernel<64, true>, sizeof(attend_shared));
    cuda_prepare(be, merge_kernel, sizeof(merge_shared));
}

void cuda_attention(struct backend *be, const struct attention_shape *shape,
                    const struct backend_step *step, const struct attention_rule *rule,
                    const uint16_t *q, const uint16_t *kv, uint16_t *out)
{
    struct backend_cuda *cuda = backend_cuda_of(be);
    int n_rows = cuda_rows(cuda, step->n), group = shape->n_heads / shape->n_kv_heads;
    int n_slots = n_rows * ((group + STEP_TILE_QUERIES - 1) / STEP_TILE_QUERIES);
    attend_args args = {};
    args.inputs = cuda->inputs;
    args.q = q;
    args.kv = kv;
    args.out = out;
    args.n_heads = shape->n_heads;
    args.n_kv_heads = shape->n_kv_heads;
    args.head_dim = shape->head_dim;
    args.window = rule->window;
    args.sees_lane = rule->sees_lane;
    args.scale = rule->softcap == 0 ? rule->scale : rule->scale / rule->softcap;
    args.softcap = rule->softcap;
    if (step->n == 0 || !take_partials(cuda, &args, n_rows, n_slots)) return;
    if (cuda->size.n_rows > STEP_RECORDED_ROWS) n_slots = cuda->n_tiles;
    dim3 grid(static_cast<unsigned>(n_slots), static_cast<unsigned>(shape->n_kv_heads),
              args.values ? static_cast<unsigned>(args.n_partitions) : 1);
    launch_attend(cuda, &args, grid);
    if (!args.values) return;
    cuda_launch(cuda, "attention_merge", merge_kernel,
                dim3(static_cast<unsigned>(shape->n_heads), static_cast<unsigned>(n_rows)),
                dim3(MERGE_THREADS), sizeof(merge_shared), args);
}
