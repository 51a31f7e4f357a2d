/* Sums of squares for norms over all heads of q and of k, before the heads are rotated. A slice's
 * sum is one chain per thread of a warp, then a tree over the warp; slices are added by the fixed
 * tree. So the bits do not depend on how many slices a rank has. */
#include "base/limits.h"
#include "model/backend/cuda/device.cuh"
#include "model/backend/cuda/internal.cuh"

enum { SQUARES_WARPS = 8, SQUARES_THREADS = SQUARES_WARPS * WARP };

struct squares_args {
    struct qk_squares args;
    int q_width, qkv_width; /* of a row of this rank */
    float *out;             /* [rows][2] */
};

/* The sum of x[n]^2, the same in all threads of a warp. */
static __device__ __forceinline__ float warp_squares(const float *x, int n)
{
    float sum = 0;
    for (int i = static_cast<int>(threadIdx.x) % WARP; i < n; i += WARP) {
        sum += x[i] * x[i];
    }
    for (int distance = 1; distance < WARP; distance *= 2) {
        sum += __shfl_xor_sync(ALL_LANES, sum, distance);
    }
    return sum;
}

/* One block for each row. */
static __global__ void __launch_bounds__(SQUARES_THREADS) squares_kernel(squares_args job)
{
    __shared__ float sums[2][SLICES_MAX];
    const struct qk_squares *a = &job.args;
    int row = static_cast<int>(blockIdx.x), warp = static_cast<int>(threadIdx.x) / WARP;
    const float *q = a->qkv + static_cast<size_t>(row) * static_cast<size_t>(job.qkv_width);
    const float *k = q + job.q_width + a->k_first;
    grid_dependency_launch();
    grid_dependency_wait();
    for (int i = warp; i < 2 * a->n_slices; i += SQUARES_WARPS) {
        bool is_k = i % 2;
        const float *from = is_k ? k + i / 2 * a->k_len : q + i / 2 * a->q_len;
        float sum = warp_squares(from, is_k ? a->k_len : a->q_len);
        if (threadIdx.x % WARP == 0) sums[i % 2][i / 2] = sum;
    }
    __syncthreads();
    if (threadIdx.x >= 2) return;
    float *part = sums[threadIdx.x];
    for (int distance = 1; distance < a->n_slices; distance *= 2) {
        for (int i = 0; i + distance < a->n_slices; i += 2 * distance) {
            part[i] += part[i + distance];
        }
    }
    job.out[2 * row + static_cast<int>(threadIdx.x)] = part[0];
}

void cuda_qk_squares(struct backend *be, const struct attention_shape *shape,
                     const struct qk_squares *args, struct slice_sums *sums)
{
    struct backend_cuda *cuda = backend_cuda_of(be);
    int n_rows = cuda_rows(cuda, args->n);
    squares_args job = {};
    job.args = *args;
    job.q_width = shape->n_heads * shape->head_dim;
    job.qkv_width = job.q_width + 2 * shape->n_kv_heads * shape->head_dim;
    job.out = sums->data;
    sums->stride = static_cast<size_t>(n_rows) * 2;
    sums->n_parts = 1;
    if (n_rows == 0) return;
    cuda_launch(cuda, "qk_squares", squares_kernel, dim3(static_cast<unsigned>(n_rows)),
                dim3(SQUARES_THREADS), 0, job);
}

void cuda_squares_prepare(struct backend_cuda *be)
{
    cuda_prepare(be, squares_kernel, 0);
}
