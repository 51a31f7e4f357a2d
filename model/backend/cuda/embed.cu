/* Embedding rows of the CUDA backend. Rows of a table that the device has a copy of are read there;
 * rows of any other file come with the step's inputs, and those of a synthetic table are made on
 * the device. All of them have the bits of backend_step_embed, times the step's scale. */
#include "model/backend/cuda/internal.cuh"

#include "model/backend/cuda/device.cuh"

enum { EMBED_THREADS = 256 };

static __device__ __forceinline__ float4 scale4(float4 a, float scale)
{
    return make_float4(a.x * scale, a.y * scale, a.z * scale, a.w * scale);
}

/* to[n] = from[n] * scale, float4s. */
static __global__ void __launch_bounds__(EMBED_THREADS)
    copy_kernel(const float4 *from, float scale, float4 *to, unsigned n)
{
    unsigned i = blockIdx.x * EMBED_THREADS + threadIdx.x;
    float4 value = make_float4(0, 0, 0, 0);
    grid_dependency_launch();
    if (i < n) value = scale4(from[i], scale);
    grid_dependency_wait();
    if (i < n) to[i] = value;
}

/* num_half_to_float of numerics.h, bit for bit. */
static __device__ __forceinline__ float half_to_float(uint16_t x)
{
    uint32_t sign = (x & 0x8000u) << 16, exponent = x >> 10 & 0x1fu, fraction = x & 0x3ffu;
    if (exponent == 0) {
        float small = static_cast<float>(fraction) * 0x1p-24f;
        return __uint_as_float(__float_as_uint(small) | sign);
    }
    uint32_t wide = exponent == 31 ? 255 : exponent + 112;
    return __uint_as_float(sign | wide << 23 | fraction << 13);
}

/* A table in device memory. */
struct device_table {
    const void *rows;
    enum dtype dtype;
};

/* Elements at .. at + 3 of a table. */
static __device__ __forceinline__ float4 read4(struct device_table table, size_t at)
{
    if (table.dtype == DTYPE_F32) {
        return *reinterpret_cast<const float4 *>(static_cast<const float *>(table.rows) + at);
    }
    uint2 bits = *reinterpret_cast<const uint2 *>(static_cast<const uint16_t *>(table.rows) + at);
    const uint16_t h[4] = {static_cast<uint16_t>(bits.x), static_cast<uint16_t>(bits.x >> 16),
                           static_cast<uint16_t>(bits.y), static_cast<uint16_t>(bits.y >> 16)};
    if (table.dtype == DTYPE_F16) {
        return make_float4(half_to_float(h[0]), half_to_float(h[1]), half_to_float(h[2]),
                           half_to_float(h[3]));
    }
    return make_float4(bf16_to_float(h[0]), bf16_to_float(h[1]), bf16_to_float(h[2]),
                       bf16_to_float(h[3]));
}

struct gather_args {
    struct device_table table, look_ahead;
    int look_ahead_first; /* ids from here on are rows of look_ahead */
    const int32_t *tokens;
    float scale;
    float *x;
    int dim;
};

/* x[row][column .. + 3], row = blockIdx.y. No kernel writes tables and tokens, so they are read
 * before the wait. */
static __global__ void __launch_bounds__(EMBED_THREADS) gather_kernel(struct gather_args args)
{
    int column = 4 * static_cast<int>(blockIdx.x * EMBED_THREADS + threadIdx.x);
    int32_t token = args.tokens[blockIdx.y];
    size_t dim = static_cast<size_t>(args.dim);
    float4 value = make_float4(0, 0, 0, 0);
    grid_dependency_launch();
    if (column < args.dim && token != STEP_NO_TOKEN) {
        bool is_ahead = token >= args.look_ahead_first;
        size_t row = static_cast<size_t>(is_ahead ? token - args.look_ahead_first : token);
        value =
            read4(is_ahead ? args.look_ahead : args.table, row * dim + static_cast<size_t>(column));
        value = scale4(value, args.scale);
    }
    grid_dependency_wait();
    if (column >= args.dim) return;
    *reinterpret_cast<float4 *>(args.x + static_cast<size_t>(blockIdx.y) * dim +
                                static_cast<size_t>(column)) = value;
}

static void gather(struct backend_cuda *be, const struct backend_step *step, float scale, float *x)
{
    struct gather_args args = {};
    args.table = {step->embedding_copy, step->embedding->dtype};
    args.look_ahead_first = INT32_MAX;
    if (step->look_ahead) {
        args.look_ahead = {step->look_ahead_copy, step->look_ahead->dtype};
        args.look_ahead_first = step->look_ahead_first;
    }
    args.tokens = be->inputs.tokens;
    args.scale = scale;
    args.x = x;
    args.dim = step->embedding->n_cols;
    unsigned columns = static_cast<unsigned>(args.dim) / 4;
    cuda_launch(be, "embed", gather_kernel,
                dim3((columns + EMBED_THREADS - 1) / EMBED_THREADS,
                     static_cast<unsigned>(cuda_rows(be, step->n))),
                dim3(EMBED_THREADS), 0, args);
}

/* The step's inputs hold the rows of a table that the device has no copy of, with zeros for
 * padding. They are copied, so that a recording keeps its addresses. */
void cuda_embed(struct backend *be, const struct backend_step *step, float *x)
{
    struct backend_cuda *cuda = backend_cuda_of(be);
    unsigned n = static_cast<unsigned>(cuda_rows(cuda, step->n)) *
                 static_cast<unsigned>(step->embedding->n_cols / 4);
    float scale = step->embedding_scale != 0 ? step->embedding_scale : 1;
    if (n == 0) return;
    if (step->embedding_copy) {
        gather(cuda, step, scale, x);
    } else if (!step_plan_has_embedding(step)) {
        cuda_embed_synthetic(cuda, step->embedding, step->n, scale, x);
    } else {
        cuda_launch(cuda, "embed", copy_kernel, dim3((n + EMBED_THREADS - 1) / EMBED_THREADS),
                    dim3(EMBED_THREADS), 0,
                    reinterpret_cast<const float4 *>(cuda->inputs.embedding), scale,
                    reinterpret_cast<float4 *>(x), n);
    }
}

void cuda_embed_prepare(struct backend_cuda *be)
{
    cuda_prepare(be, copy_kernel, 0);
    cuda_prepare(be, gather_kernel, 0);
}
