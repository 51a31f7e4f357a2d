/* The matmul of many rows, bound by the tensor cores: blocks of 128 outputs x 128 tokens, a ring of
 * tiles in shared memory that 8 warps of 32 x 64 share. For each tile of 32 k a warp reads 6 KiB of it
 * for 32 mma: of a multiprocessor of sm_90, 384 clocks of the shared memory against some 410 of the
 * tensor cores as mma.sync drives them, so that half of their peak is to be expected and all of it is
 * not. The bits are those of matmul_few: the same chains, the same order of segments. */
#include "model/backend_cuda_matmul.cuh"

enum {
    MANY_TOKENS = 128,
    MANY_GROUPS = 8,
    WARP_GROUPS = 2, /* groups and tiles of tokens of a warp */
    WARP_TILES = 8,
    MANY_STAGES = 5
};

template <bool IS_FP8> struct many_form {
    enum {
        TILE_BYTES = IS_FP8 ? TILE_FP8_BYTES : TILE_BF16_BYTES,
        WEIGHT_BYTES = MANY_GROUPS * TILE_BYTES,
        STAGE_BYTES = WEIGHT_BYTES + MANY_TOKENS / TILE_TOKENS * TILE_TOKEN_BYTES,
        STAGES = MANY_STAGES,
        SHARED_BYTES = STAGES * STAGE_BYTES
    };
};

/* Tile i of the block's groups and tokens; tokens lie as [token][32 k], which is the order of the
 * fragments. */
template <bool IS_FP8, bool IS_ALIGNED>
static __device__ __forceinline__ void many_copy(const struct matmul_job &job, int tile,
                                                 uint8_t *stage)
{
    typedef many_form<IS_FP8> form;
    int thread = static_cast<int>(threadIdx.x),
        first_group = static_cast<int>(blockIdx.y) * MANY_GROUPS;
    const uint8_t *weights = job.weights[blockIdx.z];
    const uint16_t *in = job.in + static_cast<size_t>(blockIdx.z) * static_cast<size_t>(job.n_in);
#pragma unroll
    for (int at = thread * 16; at < form::WEIGHT_BYTES; at += MATMUL_THREADS * 16) {
        int group = first_group + at / form::TILE_BYTES;
        bool valid = group < job.n_groups;
        size_t tiles = static_cast<size_t>(valid ? group : 0) * static_cast<size_t>(job.n_tiles);
        size_t from = (tiles + static_cast<size_t>(tile)) * form::TILE_BYTES;
        copy_async_16(stage + at, weights + from + at % form::TILE_BYTES, valid);
    }
#pragma unroll
    for (int unit = thread; unit < MANY_TOKENS * 4; unit += MATMUL_THREADS) {
        int row = static_cast<int>(blockIdx.x) * MANY_TOKENS + unit / 4,
            k = tile * TILE_K + unit % 4 * 8;
        tokens_copy<IS_ALIGNED>(job, stage + form::WEIGHT_BYTES + unit * 16,
                                in + static_cast<size_t>(row) * job.in_stride + k, row, k);
    }
}

/* A segment has ended: total = its sums, or total + its sums; the next one begins at zero. */
static __device__ __forceinline__ void many_add(float total[WARP_GROUPS][WARP_TILES][4],
                                                float acc[WARP_GROUPS][WARP_TILES][4],
                                                bool is_first)
{
#pragma unroll
    for (int g = 0; g < WARP_GROUPS; g++) {
#pragma unroll
        for (int t = 0; t < WARP_TILES; t++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                total[g][t][i] = is_first ? acc[g][t][i] : total[g][t][i] + acc[g][t][i];
                acc[g][t][i] = 0;
            }
        }
    }
}

/* Block x: 128 tokens (neighbours share their weights in the second-level cache), y: 8 groups. */
template <bool IS_FP8, bool IS_ALIGNED>
static __global__ void __launch_bounds__(MATMUL_THREADS, 1) matmul_many(struct matmul_job job)
{
    typedef many_form<IS_FP8> form;
    CUDA_DYNAMIC_SHARED(uint8_t, shared);
    int warp = static_cast<int>(threadIdx.x) / WARP, lane = static_cast<int>(threadIdx.x) % WARP;
    int first_group = warp % 4 * WARP_GROUPS, first_token = warp / 4 * WARP_TILES * TILE_TOKENS;
    int segment = 0, end = segment_begin(job.n_tiles, job.n_segments, 1);
    float acc[WARP_GROUPS][WARP_TILES][4] = {}, total[WARP_GROUPS][WARP_TILES][4] = {};
    grid_dependency_wait();
    grid_dependency_launch();
    for (int i = 0; i < form::STAGES - 1; i++) {
        if (i < job.n_tiles) many_copy<IS_FP8, IS_ALIGNED>(job, i, shared + i * form::STAGE_BYTES);
        copy_async_commit();
    }
    for (int i = 0; i < job.n_tiles; i++) {
        int next = i + form::STAGES - 1;
        const uint8_t *stage = shared + i % form::STAGES * form::STAGE_BYTES;
        copy_async_wait<form::STAGES - 2>();
        __syncthreads(); /* all have tile i, and are done with the stage of tile i - 1, the next */
        if (next < job.n_tiles) {
            many_copy<IS_FP8, IS_ALIGNED>(job, next,
                                          shared + next % form::STAGES * form::STAGE_BYTES);
        }
        copy_async_commit();
        stage_multiply<WARP_GROUPS, WARP_TILES, IS_FP8>(
            acc, stage + first_group * form::TILE_BYTES,
            stage + form::WEIGHT_BYTES + first_token * (TILE_K * 2), lane);
        if (i + 1 == end) {
            many_add(total, acc, segment == 0);
            segment++;
            end = segment_begin(job.n_tiles, job.n_segments, segment + 1);
        }
    }
    first_group += static_cast<int>(blockIdx.y) * MANY_GROUPS;
    first_token += static_cast<int>(blockIdx.x) * MANY_TOKENS;
#pragma unroll
    for (int f = 0; f < WARP_GROUPS * WARP_TILES; f++) {
        fragment_store<IS_FP8>(job, first_group + f / WARP_TILES,
                               first_token + f % WARP_TILES * TILE_TOKENS, lane,
                               total[f / WARP_TILES][f % WARP_TILES]);
    }
}

template <bool IS_FP8>
static void launch_many(struct backend_cuda *be, const struct matmul_job *job, int n_slices,
                        bool is_aligned)
{
    size_t shared = many_form<IS_FP8>::SHARED_BYTES;
    dim3 grid((unsigned)((job->n_rows + MANY_TOKENS - 1) / MANY_TOKENS),
              (unsigned)((job->n_groups + MANY_GROUPS - 1) / MANY_GROUPS), (unsigned)n_slices);
    if (is_aligned) {
        matmul_launch(be, job, matmul_many<IS_FP8, true>, grid, shared);
    } else {
        matmul_launch(be, job, matmul_many<IS_FP8, false>, grid, shared);
    }
}

void matmul_launch_many(struct backend_cuda *be, const struct matmul_job *job, int n_slices,
                        bool is_fp8, bool is_aligned)
{
    if (is_fp8) {
        launch_many<true>(be, job, n_slices, is_aligned);
    } else {
        launch_many<false>(be, job, n_slices, is_aligned);
    }
}
