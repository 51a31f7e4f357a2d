/* Attention of the CUDA backend: softmax(q k) v by partitions of 256 absolute positions. Each
 * partition is computed on its own and they are merged in ascending order, as in
 * model/backend/cpu/attention.c.
 *
 * A block of threads works on one tile of query vectors (row, head) of one lane and kv head: 16
 * (few.cuh), or in steps of more than STEP_SPLIT_ROWS rows also 64 (wide.cuh). A vector's bits
 * depend on its own q and on the positions it sees, but not on the kind of tile, on its place in
 * the tile or on the tile's other vectors.
 *
 * If there are few tiles, a block does one partition and writes (max, sum, values) to scratch
 * memory; a second kernel merges a vector's partials in ascending order. Otherwise a block does its
 * partitions one after the other and merges as it goes, by the same formula. */
#include "base/limits.h"
#include "model/backend/cuda/attention/few.cuh"

enum {
    MERGE_THREADS = 64,
    SPLIT_BLOCKS = 4,              /* of a multiprocessor; with so many, partitions are not split */
    SCRATCH_MOST_BYTES = 256 << 20 /* of partials; with more, a block does all its partitions */
};

/* Grid: tile slots, kv heads, partitions (1 when a block does them all). The last tiles of a prompt
 * start first, because they see the most positions. */
template <int WIDTH, bool EXACT>
static __global__ void __launch_bounds__(ATTEND_THREADS, WIDTH <= 64 ? 3 : 2)
    attend_kernel(attend_args args)
{
    CUDA_DYNAMIC_SHARED(attend_shared, shared);
    grid_dependency_launch();
    attend_few<WIDTH, EXACT>(&args, static_cast<int>(gridDim.x - 1 - blockIdx.x),
                             static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.z), shared);
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

/* True if each partition has a block of its own: unless there is only one partition or the tiles
 * alone keep the device busy. A wide tile keeps a multiprocessor busier than a narrow one. The bits
 * are the same either way. */
static bool is_split(const struct backend_cuda *be, const attend_args *args, int n_slots)
{
    int n_blocks = be->size.has_wide ? 1 : SPLIT_BLOCKS;
    return be->size.n_partitions > 1 && n_slots * args->n_kv_heads < n_blocks * be->n_sms;
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

static void launch_few(struct backend_cuda *be, const attend_args *args, int n_slots)
{
    dim3 grid(static_cast<unsigned>(n_slots), static_cast<unsigned>(args->n_kv_heads),
              args->values ? static_cast<unsigned>(args->n_partitions) : 1);
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
    attention_prepare_many(be);
}

void cuda_attention(struct backend *be, const struct attention_shape *shape,
                    const struct backend_step *step, const struct attention_rule *rule,
                    const uint16_t *q, const uint16_t *kv, uint16_t *out)
{
    struct backend_cuda *cuda = backend_cuda_of(be);
    int n_rows = cuda_rows(cuda, step->n), n_slots = cuda->size.n_tiles;
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
    if (cuda->size.has_wide) {
        attention_launch_many(cuda, &args, n_slots);
    } else {
        launch_few(cuda, &args, n_slots);
    }
    if (!args.values) return;
    cuda_launch(cuda, "attention_merge", merge_kernel,
                dim3(static_cast<unsigned>(shape->n_heads), static_cast<unsigned>(n_rows)),
                dim3(MERGE_THREADS), sizeof(merge_shared), args);
}
