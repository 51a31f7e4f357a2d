/* Operations of the CUDA backend on rows: norms, and the sums that the tree has still to
 * add.
 *
 * One block of ROW_THREADS works on a row, whatever the row's width: thread t holds the float4s t,
 * t + ROW_THREADS, ... of its row in registers from the first read to the last write. The sum of
 * squares is one chain per thread, then a tree over the warp, then one over the warps, so its order
 * depends on the width alone. What no kernel writes (weights) is read before the wait for the
 * previous kernel, so that it arrives while that one still runs. */
#include "model/backend/cuda/internal.cuh"

#include "model/backend/cuda/device.cuh"

enum {
    ROW_THREADS = 512,
    ROW_WARPS = ROW_THREADS / WARP,
    EARLY_CHUNKS = 4 /* up to here weights are read early; more would take too many registers */
};

static __device__ __forceinline__ float4 add4(float4 a, float4 b)
{
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

/* The sum of `x` over all threads of a block of ROW_THREADS, with the same bits in every thread:
 * partners add the same two numbers, and addition commutes. `shared` is [ROW_WARPS], of its own for
 * each call in a kernel. */
static __device__ __forceinline__ float block_sum(float x, float *shared)
{
    int lane = static_cast<int>(threadIdx.x) % WARP;
    for (int distance = 1; distance < WARP; distance *= 2) {
        x += __shfl_xor_sync(ALL_LANES, x, distance);
    }
    if (lane == 0) shared[threadIdx.x / WARP] = x;
    __syncthreads();
    x = shared[lane % ROW_WARPS];
    for (int distance = 1; distance < ROW_WARPS; distance *= 2) {
        x += __shfl_xor_sync(ALL_LANES, x, distance);
    }
    return x;
}

struct norm_args {
    float *x;                         /* [rows][dim]; written only where there are sums */
    const float *sums;                /* [n_parts][rows][dim] */
    size_t sums_stride;               /* floats between the parts */
    int n_parts;                      /* 0: x stays as it is */
    const float *bias, *weight;       /* weight NULL: h = bf16(x) */
    const float *post_weight;         /* of the norm of what is added; NULL: none */
    float post_scale;                 /* of what is added; 0: none */
    const int32_t *wanted, *n_wanted; /* block i norms row wanted[i]; NULL: row i */
    float eps;
    int dim;
    uint16_t *h; /* NULL: no norm */
};

/* The tree's sum of one float4 of PARTS parts; all reads are under way at once. */
template <int PARTS>
static __device__ __forceinline__ float4 tree4(const struct norm_args *args, size_t at)
{
    float4 part[PARTS];
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
        part[i] = *reinterpret_cast<const float4 *>(
            args->sums + static_cast<size_t>(i) * args->sums_stride + at);
    }
#pragma unroll
    for (int distance = 1; distance < PARTS; distance *= 2) {
#pragma unroll
        for (int i = 0; i + distance < PARTS; i += 2 * distance) {
            part[i] = add4(part[i], part[i + distance]);
        }
    }
    return part[0];
}

template <int CHUNKS>
static __device__ __forceinline__ void load_row(const float *row, int dim, float4 x[CHUNKS])
{
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
        int column = 4 * (static_cast<int>(threadIdx.x) + i * ROW_THREADS);
        x[i] = column < dim ? *reinterpret_cast<const float4 *>(row + column)
                            : make_float4(0, 0, 0, 0);
    }
}

template <int CHUNKS> static __device__ __forceinline__ float sum_of_squares(const float4 x[CHUNKS])
{
    float sum = 0;
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
        sum += x[i].x * x[i].x;
        sum += x[i].y * x[i].y;
        sum += x[i].z * x[i].z;
        sum += x[i].w * x[i].w;
    }
    return sum;
}

template <int CHUNKS>
static __device__ __forceinline__ void store_normed(const float4 x[CHUNKS],
                                                    const float4 weight[CHUNKS], float factor,
                                                    int dim, uint16_t *h)
{
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
        int column = 4 * (static_cast<int>(threadIdx.x) + i * ROW_THREADS);
        if (column >= dim) continue;
        uint2 packed;
        packed.x = bf16_pair(x[i].x * factor * weight[i].x, x[i].y * factor * weight[i].y);
        packed.y = bf16_pair(x[i].z * factor * weight[i].z, x[i].w * factor * weight[i].w);
        *reinterpret_cast<uint2 *>(h + column) = packed;
    }
}

/* x += sums (+ bias) for this thread's float4s of the row that begins at `row_at`. The stores come
 * after all loads, because the compiler cannot know that x lies apart from the sums and would
 * otherwise hold the loads back. */
template <int CHUNKS, int PARTS>
static __device__ __forceinline__ void add_sums(const struct norm_args *args, size_t row_at,
                                                float4 x[CHUNKS])
{
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
        int column = 4 * (static_cast<int>(threadIdx.x) + i * ROW_THREADS);
        if (column >= args->dim) continue;
        float4 sum = tree4<PARTS>(args, row_at + static_cast<size_t>(column));
        if (args->bias) sum = add4(sum, *reinterpret_cast<const float4 *>(args->bias + column));
        x[i] = add4(x[i], sum);
    }
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
        int column = 4 * (static_cast<int>(threadIdx.x) + i * ROW_THREADS);
        if (column >= args->dim) continue;
        *reinterpret_cast<float4 *>(args->x + row_at + static_cast<size_t>(column)) = x[i];
    }
}

static __device__ __forceinline__ float4 scale4(float4 a, float scale)
{
    return make_float4(a.x * scale, a.y * scale, a.z * scale, a.w * scale);
}

/* As add_sums, but what is added is normed and scaled first. */
template <int CHUNKS, int PARTS>
static __device__ __forceinline__ void add_changed(const struct norm_args *args, size_t row_at,
                                                   float4 x[CHUNKS], float *shared)
{
    float4 y[CHUNKS];
    float factor = 1;
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
        int column = 4 * (static_cast<int>(threadIdx.x) + i * ROW_THREADS);
        y[i] = make_float4(0, 0, 0, 0);
        if (column >= args->dim) continue;
        y[i] = tree4<PARTS>(args, row_at + static_cast<size_t>(column));
        if (args->bias) y[i] = add4(y[i], *reinterpret_cast<const float4 *>(args->bias + column));
    }
    if (args->post_weight) {
        float squares = block_sum(sum_of_squares<CHUNKS>(y), shared);
        factor = 1.0f / sqrtf(squares / static_cast<float>(args->dim) + args->eps);
    }
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
        int column = 4 * (static_cast<int>(threadIdx.x) + i * ROW_THREADS);
        if (column >= args->dim) continue;
        if (args->post_weight) {
            float4 weight = *reinterpret_cast<const float4 *>(args->post_weight + column);
            y[i] = scale4(y[i], factor);
            y[i] = make_float4(y[i].x * weight.x, y[i].y * weight.y, y[i].z * weight.z,
                               y[i].w * weight.w);
        }
        if (args->post_scale != 0) y[i] = scale4(y[i], args->post_scale);
        x[i] = add4(x[i], y[i]);
        *reinterpret_cast<float4 *>(args->x + row_at + static_cast<size_t>(column)) = x[i];
    }
}

template <int CHUNKS, int PARTS, bool CHANGED>
static __device__ __forceinline__ void add_parts(const struct norm_args *args, size_t row_at,
                                                 float4 x[CHUNKS], float *shared)
{
    if constexpr (CHANGED) {
        add_changed<CHUNKS, PARTS>(args, row_at, x, shared);
    } else {
        add_sums<CHUNKS, PARTS>(args, row_at, x);
    }
}

/* Ones without a weight. */
template <int CHUNKS>
static __device__ __forceinline__ void load_weight(const struct norm_args *args,
                                                   float4 weight[CHUNKS])
{
    if (args->weight) {
        load_row<CHUNKS>(args->weight, args->dim, weight);
        return;
    }
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
        weight[i] = make_float4(1, 1, 1, 1);
    }
}

/* CHUNKS: the float4s of a thread; dim <= 4 ROW_THREADS CHUNKS. CHANGED: sums are normed or scaled
 * before they are added. */
template <int CHUNKS, bool CHANGED>
static __global__ void __launch_bounds__(ROW_THREADS) norm_kernel(norm_args args)
{
    CUDA_DYNAMIC_SHARED(float, shared);
    float4 x[CHUNKS], weight[CHUNKS];
    int block = static_cast<int>(blockIdx.x), row = block;
    size_t dim = static_cast<size_t>(args.dim);
    float factor = 1;
    grid_dependency_launch();
    if (CHUNKS <= EARLY_CHUNKS && args.h) load_weight<CHUNKS>(&args, weight);
    if (args.wanted) row = block < *args.n_wanted ? args.wanted[block] : 0;
    size_t row_at = static_cast<size_t>(row) * dim;
    grid_dependency_wait();
    load_row<CHUNKS>(args.x + row_at, args.dim, x);
    float *post = shared + ROW_WARPS;
    if (args.n_parts == 1) add_parts<CHUNKS, 1, CHANGED>(&args, row_at, x, post);
    if (args.n_parts == 2) add_parts<CHUNKS, 2, CHANGED>(&args, row_at, x, post);
    if (args.n_parts == 3) add_parts<CHUNKS, 3, CHANGED>(&args, row_at, x, post);
    if (args.n_parts == 4) add_parts<CHUNKS, 4, CHANGED>(&args, row_at, x, post);
    if (args.n_parts == 5) add_parts<CHUNKS, 5, CHANGED>(&args, row_at, x, post);
    if (args.n_parts == 6) add_parts<CHUNKS, 6, CHANGED>(&args, row_at, x, post);
    if (args.n_parts == 7) add_parts<CHUNKS, 7, CHANGED>(&args, row_at, x, post);
    if (args.n_parts == 8) add_parts<CHUNKS, 8, CHANGED>(&args, row_at, x, post);
    if (!args.h) return;
    if (CHUNKS > EARLY_CHUNKS) load_weight<CHUNKS>(&args, weight);
    if (args.weight) {
        float mean = block_sum(sum_of_squares<CHUNKS>(x), shared) / static_cast<float>(args.dim);
        factor = 1.0f / sqrtf(mean + args.eps);
    }
    store_normed<CHUNKS>(x, weight, factor, args.dim, args.h + static_cast<size_t>(block) * dim);
}

static const struct {
    int chunks;
    void (*kernel)(norm_args), (*changed)(norm_args);
} norm_kernels[] = {{1, norm_kernel<1, false>, norm_kernel<1, true>},
                    {2, norm_kernel<2, false>, norm_kernel<2, true>},
                    {4, norm_kernel<4, false>, norm_kernel<4, true>},
                    {8, norm_kernel<8, false>, norm_kernel<8, true>}};

enum { NORM_SHARED_BYTES = 2 * ROW_WARPS * sizeof(float) };

static void launch_norm(struct backend_cuda *be, const char *what, const struct norm_args *args,
                        int n_blocks)
{
    if (n_blocks == 0) return;
    for (const auto &candidate : norm_kernels) {
        if (args->dim > 4 * ROW_THREADS * candidate.chunks) continue;
        cuda_launch(
            be, what,
            args->post_weight || args->post_scale != 0 ? candidate.changed : candidate.kernel,
            dim3(static_cast<unsigned>(n_blocks)), dim3(ROW_THREADS), NORM_SHARED_BYTES, *args);
        return;
    }
    cuda_note(be, cudaErrorInvalidValue, "a model width over 16384 in a norm");
}

void cuda_rmsnorm(struct backend *be, const float *x, const float *weight, float eps, int n,
                  int dim, uint16_t *h)
{
    struct backend_cuda *cuda = backend_cuda_of(be);
    struct norm_args args = {};
    args.x = const_cast<float *>(x); /* without sums it is only read */
    args.weight = weight;
    args.eps = eps;
    args.dim = dim;
    args.h = h;
    launch_norm(cuda, "rmsnorm", &args, cuda_rows(cuda, n));
}

void cuda_rmsnorm_rows(struct backend *be, const struct backend_step *step, const float *x,
                       const float *weight, float eps, int dim, uint16_t *h)
{
    struct backend_cuda *cuda = backend_cuda_of(be);
    struct norm_args args = {};
    args.x = const_cast<float *>(x);
    args.weight = weight;
    args.wanted = cuda->inputs.wanted;
    args.n_wanted = cuda->inputs.counts + STEP_COUNT_WANTED;
    args.eps = eps;
    args.dim = dim;
    args.h = h;
    launch_norm(cuda, "rmsnorm_rows", &args, cuda_rows(cuda, step->n_rows));
}

void cuda_residual_norm(struct backend *be, const struct residual_norm *r)
{
    struct backend_cuda *cuda = backend_cuda_of(be);
    struct norm_args args = {};
    args.x = r->x;
    args.sums = r->sums->data;
    args.sums_stride = r->sums->stride;
    args.n_parts = r->sums->n_parts;
    args.bias = r->bias;
    args.weight = r->weight;
    args.eps = r->eps;
    args.dim = r->dim;
    args.h = r->h;
    args.post_weight = r->post_weight;
    args.post_scale = r->scale;
    launch_norm(cuda, "residual_norm", &args, cuda_rows(cuda, r->n));
}

/* Two bf16 of bf16_pair as the numbers that they are. */
static __device__ __forceinline__ float2 widen_pair(uint32_t pair)
{
    return make_float2(bf16_to_float(static_cast<uint16_t>(pair & 0xffff)),
                       bf16_to_float(static_cast<uint16_t>(pair >> 16)));
}

static __device__ __forceinline__ float part_value(enum part_function function, float x)
{
    if (function == PART_SILU) return x / (1.0f + device_exp(-x));
    return function == PART_RELU && x < 0 ? 0.0f : x;
}

static __device__ __forceinline__ float4 part_value4(enum part_function function, float4 x)
{
    return make_float4(part_value(function, x.x), part_value(function, x.y),
                       part_value(function, x.z), part_value(function, x.w));
}

/* CHUNKS as in norm_kernel. The bits of h are those of norm_kernel. */
template <int CHUNKS>
static __global__ void __launch_bounds__(ROW_THREADS) part_kernel(norm_part args)
{
    CUDA_DYNAMIC_SHARED(float, shared);
    float4 x[CHUNKS];
    float *row = args.x + static_cast<size_t>(blockIdx.x) * args.x_stride;
    float factor = 1;
    grid_dependency_launch();
    grid_dependency_wait();
    load_row<CHUNKS>(row, args.dim, x);
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
        int column = 4 * (static_cast<int>(threadIdx.x) + i * ROW_THREADS);
        bool changes = args.bias || args.function != PART_AS_IS;
        if (!changes || column >= args.dim) continue;
        if (args.bias) x[i] = add4(x[i], *reinterpret_cast<const float4 *>(args.bias + column));
        x[i] = part_value4(args.function, x[i]);
        *reinterpret_cast<float4 *>(row + column) = x[i];
    }
    if (!args.h) return;
    if (args.weight) {
        float mean = block_sum(sum_of_squares<CHUNKS>(x), shared) / static_cast<float>(args.dim);
        factor = 1.0f / sqrtf(mean + args.eps);
    }
    uint16_t *h = args.h + static_cast<size_t>(blockIdx.x) * args.h_stride;
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
        int column = 4 * (static_cast<int>(threadIdx.x) + i * ROW_THREADS);
        if (column >= args.dim) continue;
        float4 w = args.weight ? *reinterpret_cast<const float4 *>(args.weight + column)
                               : make_float4(1, 1, 1, 1);
        uint2 packed;
        packed.x = bf16_pair(x[i].x * factor * w.x, x[i].y * factor * w.y);
        packed.y = bf16_pair(x[i].z * factor * w.z, x[i].w * factor * w.w);
        *reinterpret_cast<uint2 *>(h + column) = packed;
        if (!args.keeps) continue;
        float2 low = widen_pair(packed.x), high = widen_pair(packed.y);
        *reinterpret_cast<float4 *>(row + column) = make_float4(low.x, low.y, high.x, high.y);
    }
}

static const struct {
    int chunks;
    void (*kernel)(norm_part);
} part_kernels[] = {{1, part_kernel<1>},
                    {2, part_kernel<2>},
                    {4, part_kernel<4>},
                    {8, part_kernel<8>},
                    {16, part_kernel<16>}};

void cuda_norm_part(struct backend *be, const struct norm_part *args)
{
    struct backend_cuda *cuda = backend_cuda_of(be);
    unsigned n = static_cast<unsigned>(cuda_rows(cuda, args->n));
    if (n == 0) return;
    for (const auto &candidate : part_kernels) {
        if (args->dim > 4 * ROW_THREADS * candidate.chunks) continue;
        cuda_launch(cuda, "norm_part", candidate.kernel, dim3(n), dim3(ROW_THREADS),
                    NORM_SHARED_BYTES, *args);
        return;
    }
    cuda_note(cuda, cudaErrorInvalidValue, "features over 32768 wide in a norm");
}

enum { COPY_THREADS = 256 };

/* The first dim elements of x[rows][x_stride] from rows of `width`; those whose `recycled` is 0
 * stay, unless it is NULL. */
static __global__ void __launch_bounds__(COPY_THREADS)
    feature_kernel(const uint16_t *features, int width, const int32_t *recycled, float *x,
                   size_t x_stride, int dim)
{
    int row = static_cast<int>(blockIdx.y);
    int column = static_cast<int>(blockIdx.x) * COPY_THREADS + static_cast<int>(threadIdx.x);
    grid_dependency_launch();
    grid_dependency_wait();
    if (column >= dim || (recycled && !recycled[row])) return;
    x[static_cast<size_t>(row) * x_stride + static_cast<size_t>(column)] =
        bf16_to_float(features[static_cast<size_t>(row) * static_cast<size_t>(width) +
                               static_cast<size_t>(column)]);
}

void cuda_feature_rows(struct backend *be, const struct backend_step *step, float *x, int dim,
                       bool only_recycled)
{
    struct backend_cuda *cuda = backend_cuda_of(be);
    unsigned n = static_cast<unsigned>(cuda_rows(cuda, step->n));
    if (n == 0) return;
    cuda_launch(cuda, "feature_rows", feature_kernel,
                dim3(static_cast<unsigned>((dim + COPY_THREADS - 1) / COPY_THREADS), n),
                dim3(COPY_THREADS), 0, cuda->inputs.features, step->feature_width,
                only_recycled ? cuda->inputs.recycled : static_cast<const int32_t *>(NULL), x,
                static_cast<size_t>(dim), dim);
}

void cuda_widen(struct backend *be, const uint16_t *h, int n, int dim, float *x, size_t x_stride)
{
    struct backend_cuda *cuda = backend_cuda_of(be);
    unsigned n_rows = static_cast<unsigned>(cuda_rows(cuda, n));
    if (n_rows == 0) return;
    cuda_launch(cuda, "widen", feature_kernel,
                dim3(static_cast<unsigned>((dim + COPY_THREADS - 1) / COPY_THREADS), n_rows),
                dim3(COPY_THREADS), 0, h, dim, static_cast<const int32_t *>(NULL), x, x_stride,
                dim);
}

const uint16_t *cuda_step_features(struct backend *be, const struct backend_step *step)
{
    (void)step;
    return backend_cuda_of(be)->inputs.features;
}

/* x[n] *= factor, or with a softcap x = softcap * tanh(x * factor). */
static __global__ void __launch_bounds__(COPY_THREADS)
    adjust_kernel(float *x, size_t n, float factor, float softcap)
{
    size_t i = static_cast<size_t>(blockIdx.x) * COPY_THREADS + threadIdx.x;
    grid_dependency_launch();
    grid_dependency_wait();
    if (i >= n) return;
    x[i] = softcap == 0 ? x[i] * factor : softcap * device_tanh(x[i] * factor);
}

void cuda_adjust_logits(struct backend *be, float *logits, size_t stride, int n, float scale,
                        float softcap)
{
    struct backend_cuda *cuda = backend_cuda_of(be);
    size_t count = static_cast<size_t>(cuda_rows(cuda, n)) * stride;
    float factor = scale != 0 ? scale : 1;
    if (count == 0) return;
    if (softcap != 0) factor /= softcap;
    cuda_launch(cuda, "adjust_logits", adjust_kernel,
                dim3(static_cast<unsigned>((count + COPY_THREADS - 1) / COPY_THREADS)),
                dim3(COPY_THREADS), 0, logits, count, factor, softcap);
}

/* logits[wanted[i]][stride] += bias[i][stride] for i < n_wanted; blockIdx.y is i. */
static __global__ void __launch_bounds__(COPY_THREADS)
    add_kernel(float *logits, size_t stride, const float *bias, const int32_t *wanted,
               const int32_t *n_wanted)
{
    size_t column = static_cast<size_t>(blockIdx.x) * COPY_THREADS + threadIdx.x;
    int i = static_cast<int>(blockIdx.y);
    grid_dependency_launch();
    bool is_needed = i < *n_wanted && column < stride;
    size_t row = is_needed ? static_cast<size_t>(wanted[i]) : 0;
    grid_dependency_wait();
    if (!is_needed) return;
    logits[row * stride + column] += bias[static_cast<size_t>(i) * stride + column];
}

void cuda_add_logits(struct backend *be, const struct backend_step *step, float *logits,
                     size_t stride, const float *bias)
{
    struct backend_cuda *cuda = backend_cuda_of(be);
    unsigned n = static_cast<unsigned>(cuda_rows(cuda, step->n_rows));
    if (n == 0) return;
    cuda_launch(cuda, "add_logits", add_kernel,
                dim3(static_cast<unsigned>((stride + COPY_THREADS - 1) / COPY_THREADS), n),
                dim3(COPY_THREADS), 0, logits, stride, bias,
                static_cast<const int32_t *>(cuda->inputs.wanted),
                static_cast<const int32_t *>(cuda->inputs.counts + STEP_COUNT_WANTED));
}

void cuda_rows_prepare(struct backend_cuda *be)
{
    for (const auto &candidate : norm_kernels) {
        cuda_prepare(be, candidate.kernel, NORM_SHARED_BYTES);
        cuda_prepare(be, candidate.changed, NORM_SHARED_BYTES);
    }
    for (const auto &candidate : part_kernels) {
        cuda_prepare(be, candidate.kernel, NORM_SHARED_BYTES);
    }
    cuda_prepare(be, feature_kernel, 0);
    cuda_prepare(be, adjust_kernel, 0);
    cuda_prepare(be, add_kernel, 0);
}
