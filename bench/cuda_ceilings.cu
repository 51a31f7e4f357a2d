/* Ceilings of a GPU: memory and tensor cores. cuBLASLt is loaded only when it is needed, so that
 * the benchmark starts without it. */
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

extern "C" {
#include "base/error.h"
#include "bench/cuda_ceilings.h"
}

enum { REPEATS = 20, SIDE = 8192, READ_THREADS = 512, WORKSPACE_BYTES = 64 << 20 };

static const size_t copy_bytes = static_cast<size_t>(2) << 30;

struct ceilings_work {
    cudaStream_t stream;
    cudaEvent_t begin, end;
    void *a, *b, *c, *workspace; /* copy_bytes each, but the last */
    float times_ms[REPEATS];
};

static int device_error(struct error *err, const char *what, cudaError_t status)
{
    return error_set(err, status == cudaErrorMemoryAllocation ? ERR_NO_MEMORY : ERR_UNAVAILABLE,
                     "%s: %s", what, cudaGetErrorString(status));
}

static int by_value(const void *a, const void *b)
{
    float x = *static_cast<const float *>(a), y = *static_cast<const float *>(b);
    return (x > y) - (x < y);
}

/* The median time of `run` in seconds after one warm-up; <= 0: it failed. */
static double median_s(struct ceilings_work *work, bool (*run)(struct ceilings_work *, void *),
                       void *arg)
{
    if (!run(work, arg)) return 0;
    for (int i = 0; i < REPEATS; i++) {
        cudaEventRecord(work->begin, work->stream);
        if (!run(work, arg)) return 0;
        cudaEventRecord(work->end, work->stream);
        if (cudaEventSynchronize(work->end) != cudaSuccess) return 0;
        cudaEventElapsedTime(&work->times_ms[i], work->begin, work->end);
    }
    qsort(work->times_ms, REPEATS, sizeof *work->times_ms, by_value);
    return 1e-3 * static_cast<double>(work->times_ms[REPEATS / 2]);
}

static bool run_copy(struct ceilings_work *work, void *arg)
{
    (void)arg;
    return cudaMemcpyAsync(work->b, work->a, copy_bytes, cudaMemcpyDeviceToDevice, work->stream) ==
           cudaSuccess;
}

static __global__ void __launch_bounds__(READ_THREADS)
    read_kernel(const uint4 *data, size_t n, uint32_t *out)
{
    uint32_t sum = 0;
    size_t step = static_cast<size_t>(gridDim.x) * READ_THREADS * 8;
    size_t at = static_cast<size_t>(blockIdx.x) * READ_THREADS * 8 + threadIdx.x;
    for (; at + 7 * READ_THREADS < n; at += step) {
        uint4 x[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            x[i] = __ldcs(data + at + static_cast<size_t>(i) * READ_THREADS);
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            sum ^= x[i].x ^ x[i].y ^ x[i].z ^ x[i].w;
        }
    }
    if (sum == 0x12345678u) *out = sum; /* never true, which the compiler cannot know */
}

static bool run_read(struct ceilings_work *work, void *arg)
{
    unsigned n_blocks = 4 * *static_cast<unsigned *>(arg);
    read_kernel<<<n_blocks, READ_THREADS, 0, work->stream>>>(static_cast<const uint4 *>(work->a),
                                                             copy_bytes / sizeof(uint4),
                                                             static_cast<uint32_t *>(work->b));
    return cudaGetLastError() == cudaSuccess;
}

/* cuBLASLt's functions by name. */
struct blas {
    void *library;
    decltype(&cublasLtCreate) create;
    decltype(&cublasLtDestroy) destroy;
    decltype(&cublasLtMatmulDescCreate) desc_create;
    decltype(&cublasLtMatmulDescSetAttribute) desc_set;
    decltype(&cublasLtMatrixLayoutCreate) layout_create;
    decltype(&cublasLtMatmulPreferenceCreate) preference_create;
    decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
    decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
    decltype(&cublasLtMatmul) matmul;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t layout;
    cublasLtMatmulHeuristicResult_t best;
};

template <typename F> static bool blas_find(struct blas *blas, F *function, const char *name)
{
    *function = reinterpret_cast<F>(dlsym(blas->library, name));
    return *function != NULL;
}

static bool blas_load(struct blas *blas)
{
    blas->library = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
    if (!blas->library) blas->library = dlopen("libcublasLt.so", RTLD_NOW | RTLD_LOCAL);
    return blas->library && blas_find(blas, &blas->create, "cublasLtCreate") &&
           blas_find(blas, &blas->destroy, "cublasLtDestroy") &&
           blas_find(blas, &blas->desc_create, "cublasLtMatmulDescCreate") &&
           blas_find(blas, &blas->desc_set, "cublasLtMatmulDescSetAttribute") &&
           blas_find(blas, &blas->layout_create, "cublasLtMatrixLayoutCreate") &&
           blas_find(blas, &blas->preference_create, "cublasLtMatmulPreferenceCreate") &&
           blas_find(blas, &blas->preference_set, "cublasLtMatmulPreferenceSetAttribute") &&
           blas_find(blas, &blas->heuristic, "cublasLtMatmulAlgoGetHeuristic") &&
           blas_find(blas, &blas->matmul, "cublasLtMatmul");
}

/* Nothing closes the descriptions, because the benchmark ends after it has used them. */
static bool blas_prepare(struct blas *blas)
{
    cublasLtMatmulPreference_t preference;
    cublasOperation_t transposed = CUBLAS_OP_T;
    size_t workspace = WORKSPACE_BYTES;
    int n_found = 0;
    return blas->create(&blas->handle) == CUBLAS_STATUS_SUCCESS &&
           !blas->desc_create(&blas->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) &&
           !blas->desc_set(blas->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                           sizeof transposed) &&
           !blas->layout_create(&blas->layout, CUDA_R_16BF, SIDE, SIDE, SIDE) &&
           !blas->preference_create(&preference) &&
           !blas->preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                 sizeof workspace) &&
           !blas->heuristic(blas->handle, blas->desc, blas->layout, blas->layout, blas->layout,
                            blas->layout, preference, 1, &blas->best, &n_found) &&
           n_found > 0;
}

static bool run_matmul(struct ceilings_work *work, void *arg)
{
    struct blas *blas = static_cast<struct blas *>(arg);
    const float one = 1, zero = 0;
    return blas->matmul(blas->handle, blas->desc, &one, work->a, blas->layout, work->b,
                        blas->layout, &zero, work->c, blas->layout, work->c, blas->layout,
                        &blas->best.algo, work->workspace, WORKSPACE_BYTES,
                        work->stream) == CUBLAS_STATUS_SUCCESS;
}

static double matmul_tflop_s(struct ceilings_work *work)
{
    struct blas blas = {};
    if (!blas_load(&blas) || !blas_prepare(&blas)) return 0;
    double seconds = median_s(work, run_matmul, &blas);
    return seconds > 0 ? 2e-12 * SIDE * SIDE * SIDE / seconds : 0;
}

/* Numbers of about 1 with mixed signs, because a GPU multiplies zeros faster. */
static __global__ void fill_kernel(uint32_t *data, size_t n)
{
    size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) data[i] = (static_cast<uint32_t>(i) * 2654435761u & 0x807f807fu) | 0x3f003f00u;
}

static int open_work(struct ceilings_work *work, struct error *err)
{
    size_t n = copy_bytes / sizeof(uint32_t);
    cudaError_t status = cudaStreamCreate(&work->stream);
    if (status == cudaSuccess) status = cudaEventCreate(&work->begin);
    if (status == cudaSuccess) status = cudaEventCreate(&work->end);
    if (status == cudaSuccess) status = cudaMalloc(&work->a, copy_bytes);
    if (status == cudaSuccess) status = cudaMalloc(&work->b, copy_bytes);
    if (status == cudaSuccess) status = cudaMalloc(&work->c, copy_bytes);
    if (status == cudaSuccess) status = cudaMalloc(&work->workspace, WORKSPACE_BYTES);
    if (status != cudaSuccess) return device_error(err, "room for the ceilings' matrices", status);
    fill_kernel<<<static_cast<unsigned>(n / 256), 256, 0, work->stream>>>(
        static_cast<uint32_t *>(work->a), n);
    return 0;
}

static void close_work(struct ceilings_work *work)
{
    cudaFree(work->a);
    cudaFree(work->b);
    cudaFree(work->c);
    cudaFree(work->workspace);
    if (work->begin) cudaEventDestroy(work->begin);
    if (work->end) cudaEventDestroy(work->end);
    if (work->stream) cudaStreamDestroy(work->stream);
}

int cuda_ceilings_measure(struct cuda_ceilings *ceilings, int device, struct error *err)
{
    struct ceilings_work work = {};
    struct cudaDeviceProp properties;
    cudaError_t status = cudaSetDevice(device);
    int rc = 0;
    *ceilings = {};
    if (status == cudaSuccess) status = cudaGetDeviceProperties(&properties, device);
    if (status != cudaSuccess) {
        return error_set(err, ERR_UNSUPPORTED, "no GPU %d: %s", device, cudaGetErrorString(status));
    }
    snprintf(ceilings->device, sizeof ceilings->device, "%.100s", properties.name);
    rc = open_work(&work, err);
    if (!rc) {
        unsigned n_sms = static_cast<unsigned>(properties.multiProcessorCount);
        double copy_s = median_s(&work, run_copy, NULL), read_s = median_s(&work, run_read, &n_sms);
        if (copy_s > 0) ceilings->copy_gb_s = 2e-9 * static_cast<double>(copy_bytes) / copy_s;
        if (read_s > 0) ceilings->read_gb_s = 1e-9 * static_cast<double>(copy_bytes) / read_s;
        ceilings->tflop_s = matmul_tflop_s(&work); /* b holds a copy of a by now */
        status = cudaStreamSynchronize(work.stream);
        if (status != cudaSuccess) rc = device_error(err, "measuring the ceilings", status);
    }
    close_work(&work);
    return rc;
}
