/* The matmul of more than 32 rows. A block computes 128 outputs x 64 or 128 tokens from a ring of
 * tiles in shared memory that its 8 warps share; each warp has 32 outputs and half of the tokens.
 * With 128 tokens the tensor cores are the limit: for each tile of 32 k a warp reads 6 KiB of
 * shared memory for 32 mma, which on a multiprocessor of sm_90 takes 384 clocks of the shared
 * memory and some 410 of the tensor cores as mma.sync drives them. About half of the tensor cores'
 * peak can therefore be expected, but not all of it. With 64 tokens reading the weights is the
 * limit.
 *
 * The bits are those of matmul_few: the same chains and the same order of segments. A block walks
 * through its segments one after the other and adds them up. If that makes too few blocks for the
 * device, each segment gets a block of its own, which leaves its sums in scratch memory for a
 * second kernel to add. */
#include "model/backend/cuda/matmul/matmul.cuh"

enum { MANY_GROUPS = 8, WARP_GROUPS = 2 /* of a block, of a warp */, MANY_STAGES = 5 };

/* TILES: of 8 tokens, of a warp. */
template <int TILES, int FORM_KIND, bool ALIGNED> struct many_form {
    static const bool IS_ALIGNED = ALIGNED, IS_BLOCKS = kind_is_blocks(FORM_KIND);
    enum {
        KIND = FORM_KIND,
        N_TILES = TILES,
        N_TOKENS = 2 * N_TILES * TILE_TOKENS, /* of a block */
        FRAGMENTS = WARP_GROUPS * N_TILES,    /* of a warp */
        TILE_BYTES = tile_bytes(KIND),        /* in shared memory */
        WEIGHT_BYTES = MANY_GROUPS * TILE_BYTES,
        STAGE_BYTES = WEIGHT_BYTES + 2 * N_TILES * TILE_TOKEN_BYTES,
        SHARED_BYTES = MANY_STAGES * STAGE_BYTES,
        BLOCKS_LEAST = N_TILES <= 4 ? 2 : 1 /* on a multiprocessor */
    };
};

/* Copies one tile of the block's groups and tokens. Tokens lie as [token][32 k], which is the order
 * of the fragments. */
template <typename FORM>
static __device__ __forceinline__ void many_copy(const struct matmul_job &job, int slice, int tile,
                                                 uint8_t *stage)
{
    int thread = static_cast<int>(threadIdx.x),
        first_group = static_cast<int>(blockIdx.y) * MANY_GROUPS,
        bytes = stored_bytes<FORM::KIND>(job);
    const uint8_t *weights = job.weights[slice];
    const uint16_t *in = job.in + static_cast<size_t>(slice) * static_cast<size_t>(job.n_in);
#pragma unroll
    for (int at = thread * 16; at < FORM::WEIGHT_BYTES; at += MATMUL_THREADS * 16) {
        int group = first_group + at / FORM::TILE_BYTES;
        bool valid = group < job.n_groups;
        size_t tiles = static_cast<size_t>(valid ? group : 0) * static_cast<size_t>(job.n_tiles);
        if (FORM::IS_BLOCKS && at % FORM::TILE_BYTES >= bytes) continue;
        size_t from = (tiles + static_cast<size_t>(tile)) * static_cast<size_t>(bytes);
        copy_async_16(stage + at, weights + from + at % FORM::TILE_BYTES, valid);
    }
#pragma unroll
    for (int unit = thread; unit < FORM::N_TOKENS * 4; unit += MATMUL_THREADS) {
        int row = static_cast<int>(blockIdx.x) * FORM::N_TOKENS + unit / 4;
        int k = tile * TILE_K + unit % 4 * 8;
        tokens_copy<FORM::IS_ALIGNED>(job, stage + FORM::WEIGHT_BYTES + unit * 16,
                                      in + static_cast<size_t>(row) * job.in_stride + k, row, k);
    }
}

/* At the end of a segment: total = its sums, or total + its sums. The next segment begins at
 * zero. */
template <int N_TILES>
static __device__ __forceinline__ void many_add(float total[WARP_GROUPS][N_TILES][4],
                                                float acc[WARP_GROUPS][N_TILES][4], bool is_first)
{
#pragma unroll
    for (int g = 0; g < WARP_GROUPS; g++) {
#pragma unroll
        for (int t = 0; t < N_TILES; t++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                total[g][t][i] = is_first ? acc[g][t][i] : total[g][t][i] + acc[g][t][i];
                acc[g][t][i] = 0;
            }
        }
    }
}

/* Segments first .. end - 1 of the block's outputs and tokens. */
template <typename FORM>
static __device__ __forceinline__ void many_stream(const struct matmul_job &job, int slice,
                                                   int first, int end, uint8_t *shared,
                                                   float total[WARP_GROUPS][FORM::N_TILES][4])
{
    int warp = static_cast<int>(threadIdx.x) / WARP, lane = static_cast<int>(threadIdx.x) % WARP;
    int begin_tile = segment_begin(job.n_tiles, job.n_segments, first);
    int n_tiles = segment_begin(job.n_tiles, job.n_segments, end) - begin_tile, segment = first;
    int boundary = segment_begin(job.n_tiles, job.n_segments, first + 1) - begin_tile;
    const uint8_t *weights = shared + warp % 4 * WARP_GROUPS * FORM::TILE_BYTES;
    const uint8_t *tokens =
        shared + FORM::WEIGHT_BYTES + warp / 4 * FORM::N_TILES * TILE_TOKEN_BYTES;
    float acc[WARP_GROUPS][FORM::N_TILES][4] = {};
    for (int i = 0; i < MANY_STAGES - 1; i++) {
        if (i < n_tiles) {
            many_copy<FORM>(job, slice, begin_tile + i, shared + i * FORM::STAGE_BYTES);
        }
        copy_async_commit();
    }
    for (int i = 0; i < n_tiles; i++) {
        int next = i + MANY_STAGES - 1, stage = i % MANY_STAGES * FORM::STAGE_BYTES;
        copy_async_wait<MANY_STAGES - 2>();
        __syncthreads(); /* all have tile i and are done with tile i - 1, whose stage is next */
        if (next < n_tiles) {
            many_copy<FORM>(job, slice, begin_tile + next,
                            shared + next % MANY_STAGES * FORM::STAGE_BYTES);
        }
        copy_async_commit();
        stage_multiply<WARP_GROUPS, FORM::N_TILES, FORM::KIND>(job, acc, weights + stage,
                                                               tokens + stage, lane);
        if (i + 1 == boundary) {
            many_add<FORM::N_TILES>(total, acc, segment == first);
            segment++;
            boundary = segment_begin(job.n_tiles, job.n_segments, segment + 1) - begin_tile;
        }
    }
}

/* Where the fragments of this warp lie among the partials of a segment. */
template <typename FORM> static __device__ __forceinline__ size_t many_partial(int slice)
{
    size_t block = (static_cast<size_t>(slice) * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    return (block * MATMUL_WARPS + threadIdx.x / WARP) * FORM::FRAGMENTS * WARP +
           threadIdx.x % WARP;
}

/* Stores fragment f of this warp, which is finished. */
template <typename FORM>
static __device__ __forceinline__ void many_store(const struct matmul_job &job, int slice, int f,
                                                  float d[4])
{
    int warp = static_cast<int>(threadIdx.x) / WARP, lane = static_cast<int>(threadIdx.x) % WARP;
    int group = static_cast<int>(blockIdx.y) * MANY_GROUPS + warp % 4 * WARP_GROUPS;
    int tile = static_cast<int>(blockIdx.x) * 2 + warp / 4;
    fragment_store<FORM::KIND>(job, slice, group + f / FORM::N_TILES,
                               (tile * FORM::N_TILES + f % FORM::N_TILES) * TILE_TOKENS, lane, d);
}

/* Block x: tokens (neighbours share their weights in the second-level cache), y: 8 groups, z: a
 * slice, or a slice and a segment of it. */
template <typename FORM>
static __global__ void __launch_bounds__(MATMUL_THREADS, FORM::BLOCKS_LEAST)
    matmul_many(struct matmul_job job)
{
    CUDA_DYNAMIC_SHARED(uint8_t, shared);
    int n_parts = job.partials ? job.n_segments : 1, z = static_cast<int>(blockIdx.z);
    int slice = z / n_parts, part = z % n_parts;
    float total[WARP_GROUPS][FORM::N_TILES][4] = {};
    grid_dependency_wait();
    grid_dependency_launch();
    many_stream<FORM>(job, slice, part, job.partials ? part + 1 : job.n_segments, shared, total);
    size_t step = static_cast<size_t>(gridDim.z / static_cast<unsigned>(n_parts)) * gridDim.y *
                  gridDim.x * MATMUL_WARPS * FORM::FRAGMENTS * WARP;
    float4 *to = job.partials + static_cast<size_t>(part) * step + many_partial<FORM>(slice);
#pragma unroll
    for (int f = 0; f < FORM::FRAGMENTS; f++) {
        float *d = total[f / FORM::N_TILES][f % FORM::N_TILES];
        if (job.partials) {
            to[f * WARP] = make_float4(d[0], d[1], d[2], d[3]);
        } else {
            many_store<FORM>(job, slice, f, d);
        }
    }
}

/* Adds what the blocks of matmul_many left. It has the same blocks, but one for all segments of a
 * slice. */
template <typename FORM>
static __global__ void __launch_bounds__(MATMUL_THREADS) add_partials(struct matmul_job job)
{
    int slice = static_cast<int>(blockIdx.z);
    size_t step = static_cast<size_t>(gridDim.z) * gridDim.y * gridDim.x * MATMUL_WARPS *
                  FORM::FRAGMENTS * WARP;
    const float4 *from = job.partials + many_partial<FORM>(slice);
    grid_dependency_wait();
    grid_dependency_launch();
    for (int f = 0; f < FORM::FRAGMENTS; f++) {
        float d[4];
        fragment_add(from + f * WARP, step, job.n_segments, d);
        many_store<FORM>(job, slice, f, d);
    }
}

/* Each block does all its segments, unless that would leave multiprocessors idle. */
template <typename FORM>
static void launch_form(struct backend_cuda *be, struct matmul_job *job, int n_slices)
{
    dim3 grid((unsigned)((job->n_rows + FORM::N_TOKENS - 1) / FORM::N_TOKENS),
              (unsigned)((job->n_groups + MANY_GROUPS - 1) / MANY_GROUPS), (unsigned)n_slices);
    size_t n_blocks = (size_t)grid.x * grid.y * grid.z;
    bool is_split = job->n_segments > 1 && n_blocks < (size_t)be->n_sms;
    if (!is_split) {
        matmul_launch(be, job, matmul_many<FORM>, grid, FORM::SHARED_BYTES);
        return;
    }
    size_t warp_bytes = FORM::FRAGMENTS * WARP * sizeof(float4);
    size_t bytes = n_blocks * (size_t)job->n_segments * MATMUL_WARPS * warp_bytes;
    job->partials = static_cast<float4 *>(cuda_scratch(be, bytes));
    if (!job->partials) return;
    grid.z *= (unsigned)job->n_segments;
    matmul_launch(be, job, matmul_many<FORM>, grid, FORM::SHARED_BYTES);
    grid.z = (unsigned)n_slices;
    cuda_launch(be, "a matmul", add_partials<FORM>, grid, dim3(MATMUL_THREADS), 0, *job);
}

template <typename FORM> static void prepare_form(struct backend_cuda *be)
{
    cuda_prepare(be, matmul_many<FORM>, FORM::SHARED_BYTES);
    cuda_prepare(be, add_partials<FORM>, 0);
}

template <int KIND> static void prepare_many(struct backend_cuda *be)
{
    prepare_form<many_form<8, KIND, true>>(be);
    prepare_form<many_form<4, KIND, true>>(be);
    if constexpr (!kind_is_blocks(KIND)) {
        prepare_form<many_form<8, KIND, false>>(be);
        prepare_form<many_form<4, KIND, false>>(be);
    }
}

void matmul_prepare_many(struct backend_cuda *be)
{
    prepare_many<KIND_BF16>(be);
    prepare_many<KIND_FP8>(be);
    prepare_many<KIND_BLOCKS_4>(be);
    prepare_many<KIND_BLOCKS_5>(be);
    prepare_many<KIND_BLOCKS_6>(be);
    prepare_many<KIND_BLOCKS_8>(be);
}

template <int N_TILES, int KIND>
static void launch_tokens(struct backend_cuda *be, struct matmul_job *job, int n_slices,
                          bool is_aligned)
{
    if constexpr (!kind_is_blocks(KIND)) {
        if (!is_aligned) {
            launch_form<many_form<N_TILES, KIND, false>>(be, job, n_slices);
            return;
        }
    }
    launch_form<many_form<N_TILES, KIND, true>>(be, job, n_slices);
}

template <int KIND>
static void launch_many(struct backend_cuda *be, struct matmul_job *job, int n_slices,
                        bool is_aligned)
{
    if (job->n_rows > many_form<4, KIND, true>::N_TOKENS) {
        launch_tokens<8, KIND>(be, job, n_slices, is_aligned);
    } else {
        launch_tokens<4, KIND>(be, job, n_slices, is_aligned);
    }
}

void matmul_launch_many(struct backend_cuda *be, struct matmul_job *job, int n_slices,
                        enum tile_kind kind, bool is_aligned)
{
    switch (kind) {
    case KIND_BF16:
        launch_many<KIND_BF16>(be, job, n_slices, is_aligned);
        break;
    case KIND_FP8:
        launch_many<KIND_FP8>(be, job, n_slices, is_aligned);
        break;
    case KIND_BLOCKS_4:
        launch_many<KIND_BLOCKS_4>(be, job, n_slices, is_aligned);
        break;
    case KIND_BLOCKS_5:
        launch_many<KIND_BLOCKS_5>(be, job, n_slices, is_aligned);
        break;
    case KIND_BLOCKS_6:
        launch_many<KIND_BLOCKS_6>(be, job, n_slices, is_aligned);
        break;
    case KIND_BLOCKS_8:
        launch_many<KIND_BLOCKS_8>(be, job, n_slices, is_aligned);
        break;
    }
}
