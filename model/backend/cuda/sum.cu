/* Sums over slices and ranks in the order of the fixed tree (docs/design.md, section 4).
 *
 * A rank adds its own slices in one kernel. Over the ranks there are three ways, all with the same
 * bits:
 *   NCCL, small sums   every rank gathers all of them and adds the tree itself, as do 3, 5, 6 or 7
 *                      ranks with sums of any size
 *   NCCL, large sums   swaps with the ranks at distance 1, 2, 4, and an addition after each; from
 *                      four ranks on that moves half the bytes
 *   host memory        for ranks that share a GPU, through whatever communicator there is
 * NCCL's own all-reduce is an option, with another order. */
#include "base/limits.h"
#include "model/backend/cuda/device.cuh"
#include "model/backend/cuda/internal.cuh"

enum { ADD_THREADS = 256 };
static const size_t GATHER_FLOATS_MAX = 1 << 16;

/* out[n] = the tree's sum of parts i * stride; counted in float4s. */
template <int PARTS>
static __global__ void __launch_bounds__(ADD_THREADS)
    add_parts_kernel(const float4 *parts, size_t stride, float4 *out, unsigned n)
{
    unsigned i = blockIdx.x * ADD_THREADS + threadIdx.x;
    float4 part[PARTS];
    grid_dependency_launch();
    grid_dependency_wait();
    if (i >= n) return;
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        part[p] = parts[static_cast<size_t>(p) * stride + i];
    }
#pragma unroll
    for (int distance = 1; distance < PARTS; distance *= 2) {
#pragma unroll
        for (int p = 0; p + distance < PARTS; p += 2 * distance) {
            const float4 high = part[p + distance];
            part[p].x += high.x;
            part[p].y += high.y;
            part[p].z += high.z;
            part[p].w += high.w;
        }
    }
    out[i] = part[0];
}

/* As add_parts_kernel, in floats and for any number of parts. */
static __global__ void __launch_bounds__(ADD_THREADS)
    add_floats_kernel(const float *parts, size_t stride, int n_parts, float *out, unsigned n)
{
    unsigned i = blockIdx.x * ADD_THREADS + threadIdx.x;
    float part[SLICES_MAX];
    grid_dependency_launch();
    grid_dependency_wait();
    if (i >= n) return;
#pragma unroll
    for (int p = 0; p < SLICES_MAX; p++) {
        if (p < n_parts) part[p] = parts[static_cast<size_t>(p) * stride + i];
    }
#pragma unroll
    for (int distance = 1; distance < SLICES_MAX; distance *= 2) {
#pragma unroll
        for (int p = 0; p + distance < SLICES_MAX; p += 2 * distance) {
            if (p + distance < n_parts) part[p] += part[p + distance];
        }
    }
    out[i] = part[0];
}

/* From two parts on. */
static void (*const add_kernels[])(const float4 *, size_t, float4 *, unsigned) = {
    add_parts_kernel<2>, add_parts_kernel<3>, add_parts_kernel<4>, add_parts_kernel<5>,
    add_parts_kernel<6>, add_parts_kernel<7>, add_parts_kernel<8>};

/* out[n] = the tree's sum of n_parts parts of n floats, `stride` floats apart. */
static void add_parts(struct backend_cuda *be, const float *parts, size_t stride, int n_parts,
                      float *out, size_t n)
{
    unsigned count = static_cast<unsigned>(n / 4);
    if (n == 0) return;
    if (n % 4 != 0 || stride % 4 != 0) {
        count = static_cast<unsigned>(n);
        cuda_launch(be, "tree_sum", add_floats_kernel,
                    dim3((count + ADD_THREADS - 1) / ADD_THREADS), dim3(ADD_THREADS), 0, parts,
                    stride, n_parts, out, count);
        return;
    }
    cuda_launch(be, "tree_sum", add_kernels[n_parts - 2],
                dim3((count + ADD_THREADS - 1) / ADD_THREADS), dim3(ADD_THREADS), 0,
                reinterpret_cast<const float4 *>(parts), stride / 4,
                reinterpret_cast<float4 *>(out), count);
}

/* data[n] += other[n], in float4s: sums that are swapped are large, and so multiples of 4. */
static __global__ void __launch_bounds__(ADD_THREADS)
    add_pair_kernel(float4 *data, const float4 *other, unsigned n)
{
    unsigned i = blockIdx.x * ADD_THREADS + threadIdx.x;
    grid_dependency_launch();
    grid_dependency_wait();
    if (i >= n) return;
    const float4 a = data[i], b = other[i];
    data[i] = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

static void add_pair(struct backend_cuda *be, float *data, const float *other, size_t n)
{
    unsigned count = static_cast<unsigned>(n / 4);
    cuda_launch(be, "tree_sum", add_pair_kernel, dim3((count + ADD_THREADS - 1) / ADD_THREADS),
                dim3(ADD_THREADS), 0, reinterpret_cast<float4 *>(data),
                reinterpret_cast<const float4 *>(other), count);
}

void cuda_sum_prepare(struct backend_cuda *be)
{
    for (auto kernel : add_kernels) {
        cuda_prepare(be, kernel, 0);
    }
    cuda_prepare(be, add_floats_kernel, 0);
    cuda_prepare(be, add_pair_kernel, 0);
}

/* Scratch memory was refused. While a step is being recorded that is not a failure yet, because the
 * step will be given once more. */
static int no_scratch(struct backend_cuda *be, struct error *err)
{
    return be->is_recording ? 0 : cuda_finish(be, err);
}

/* In pieces of GATHER_FLOATS_MAX, which bounds the memory of large ones. */
static int sum_by_gather(struct backend_cuda *be, struct comm *comm, float *data, size_t n,
                         struct error *err)
{
    int rc = 0;
    size_t piece = n < GATHER_FLOATS_MAX ? n : GATHER_FLOATS_MAX;
    float *all = static_cast<float *>(
        cuda_scratch(be, static_cast<size_t>(comm->size) * piece * sizeof *all));
    if (!all) return no_scratch(be, err);
    for (size_t at = 0; at < n; at += piece) {
        size_t count = n - at < piece ? n - at : piece;
        TRY(comm_device_gather(comm, data + at, all, count, be->stream, err));
        add_parts(be, all, count, comm->size, data + at, count);
    }
out:
    return rc;
}

/* Addition commutes, so both partners get the bits of lower + higher. */
static int sum_by_swaps(struct backend_cuda *be, struct comm *comm, float *data, size_t n,
                        struct error *err)
{
    int rc = 0;
    float *theirs = static_cast<float *>(cuda_scratch(be, n * sizeof *theirs));
    if (!theirs) return no_scratch(be, err);
    for (int distance = 1; distance < comm->size; distance *= 2) {
        TRY(comm_device_swap(comm, comm->rank ^ distance, data, theirs, n, be->stream, err));
        add_pair(be, data, theirs, n);
    }
out:
    return rc;
}

/* Waits for the copy back too, because the pinned memory may be used for something else
 * afterwards. */
static int sum_by_host(struct backend_cuda *be, struct comm *comm, float *data, size_t n,
                       struct error *err)
{
    int rc = 0;
    float *host = NULL;
    size_t bytes = n * sizeof(float);
    be->never_records = true; /* the first step of a size is not recorded either */
    host = static_cast<float *>(cuda_host_scratch(be, bytes));
    if (!host) return cuda_finish(be, err); /* reports what was noted */
    cuda_note(be, cudaMemcpyAsync(host, data, bytes, cudaMemcpyDeviceToHost, be->stream),
              "copying sums to the host");
    TRY(cuda_finish(be, err));
    TRY(comm_tree_sum(comm, host, n, err));
    cuda_note(be, cudaMemcpyAsync(data, host, bytes, cudaMemcpyHostToDevice, be->stream),
              "copying sums to the device");
    TRY(cuda_finish(be, err));
out:
    return rc;
}

/* On the device all padded rows are summed, because the step may be replayed with more rows in
 * use. */
int cuda_tree_sum(struct backend *base, struct comm *comm, struct slice_sums *sums, int n, int dim,
                  struct error *err)
{
    struct backend_cuda *be = backend_cuda_of(base);
    size_t count = static_cast<size_t>(cuda_rows(be, n)) * static_cast<size_t>(dim);
    if (sums->n_parts > 1) {
        add_parts(be, sums->data, sums->stride, sums->n_parts, sums->data, count);
    }
    sums->n_parts = 1;
    if (comm->size == 1 || n == 0) return 0;
    if (!comm->device) {
        size_t exact = static_cast<size_t>(n) * static_cast<size_t>(dim);
        return sum_by_host(be, comm, sums->data, exact, err);
    }
    be->comm = comm;
    /* NCCL does not recover from a recording that is lost; the step is given once more. */
    if (be->is_recording && be->status != cudaSuccess) return 0;
    if (be->options.all_reduce) return comm_device_sum(comm, sums->data, count, be->stream, err);
    bool has_pairs = (comm->size & (comm->size - 1)) == 0;
    if (!has_pairs || count <= GATHER_FLOATS_MAX) {
        return sum_by_gather(be, comm, sums->data, count, err);
    }
    return sum_by_swaps(be, comm, sums->data, count, err);
}
