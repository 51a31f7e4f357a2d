/* The CUDA backend's work before attention: bias, q/k norm, rope, rounding to bf16, and the store
 * of k and v into the KV blocks of every path that holds the row. In a step with trees the same
 * launch copies the committed positions of the block where a tree begins to its further paths; rows
 * are stored after them. One warp works on one head of a row or of a copy. A head's sum of squares
 * is one chain per thread, then a tree over the warp, so its bits depend on the head
 * alone. */
#include "model/backend/cuda/attention.cuh"

enum {
    STORE_WARPS = 4,
    PAIRS_AT_ONCE = 2 /* float2 of each half of a head that a thread has: E <= 256 */
};

struct store_args {
    struct step_inputs inputs;
    const float *qkv;
    struct attention_input input;
    int n_heads, n_kv_heads, head_dim;
    uint16_t *q, *kv;
    int n_rows; /* the copies come after them */
};

/* A thread's share of one head: pairs (i, i + 1) and (i + E/2, i + E/2 + 1), i = 2 lane + 64 k. */
struct head_share {
    float2 low[PAIRS_AT_ONCE], high[PAIRS_AT_ONCE];
};

static __device__ __forceinline__ head_share load_head(const float *head, int half)
{
    head_share out = {};
#pragma unroll
    for (int k = 0; k < PAIRS_AT_ONCE; k++) {
        int i = 2 * (static_cast<int>(threadIdx.x) % WARP) + 2 * WARP * k;
        if (i >= half) continue;
        out.low[k] = *reinterpret_cast<const float2 *>(head + i);
        out.high[k] = *reinterpret_cast<const float2 *>(head + half + i);
    }
    return out;
}

static __device__ __forceinline__ void add_share(head_share *x, const head_share *bias)
{
#pragma unroll
    for (int k = 0; k < PAIRS_AT_ONCE; k++) {
        x->low[k].x += bias->low[k].x;
        x->low[k].y += bias->low[k].y;
        x->high[k].x += bias->high[k].x;
        x->high[k].y += bias->high[k].y;
    }
}

/* The head's rmsnorm: one chain per thread, then a tree over the warp. */
static __device__ __forceinline__ void norm_share(head_share *x, const head_share *weight,
                                                  float eps, int head_dim)
{
    float sum = 0;
#pragma unroll
    for (int k = 0; k < PAIRS_AT_ONCE; k++) {
        sum += x->low[k].x * x->low[k].x;
        sum += x->low[k].y * x->low[k].y;
        sum += x->high[k].x * x->high[k].x;
        sum += x->high[k].y * x->high[k].y;
    }
    for (int distance = 1; distance < WARP; distance *= 2) {
        sum += __shfl_xor_sync(ALL_LANES, sum, distance);
    }
    float factor = 1.0f / sqrtf(sum / static_cast<float>(head_dim) + eps);
#pragma unroll
    for (int k = 0; k < PAIRS_AT_ONCE; k++) {
        x->low[k].x = x->low[k].x * factor * weight->low[k].x;
        x->low[k].y = x->low[k].y * factor * weight->low[k].y;
        x->high[k].x = x->high[k].x * factor * weight->high[k].x;
        x->high[k].y = x->high[k].y * factor * weight->high[k].y;
    }
}

/* Rotates pairs (i, i + E/2). */
static __device__ __forceinline__ void rope_share(head_share *x, const float *cos, const float *sin,
                                                  int half)
{
#pragma unroll
    for (int k = 0; k < PAIRS_AT_ONCE; k++) {
        int i = 2 * (static_cast<int>(threadIdx.x) % WARP) + 2 * WARP * k;
        if (i >= half) continue;
        float2 c = *reinterpret_cast<const float2 *>(cos + i);
        float2 s = *reinterpret_cast<const float2 *>(sin + i);
        float2 a = x->low[k], b = x->high[k];
        x->low[k] = make_float2(a.x * c.x - b.x * s.x, a.y * c.y - b.y * s.y);
        x->high[k] = make_float2(b.x * c.x + a.x * s.x, b.y * c.y + a.y * s.y);
    }
}

/* Stores bf16 values side by side: q, or k of one position. */
static __device__ __forceinline__ void store_share(const head_share *x, int half, uint16_t *to)
{
#pragma unroll
    for (int k = 0; k < PAIRS_AT_ONCE; k++) {
        int i = 2 * (static_cast<int>(threadIdx.x) % WARP) + 2 * WARP * k;
        if (i >= half) continue;
        *reinterpret_cast<uint32_t *>(to + i) = bf16_pair(x->low[k].x, x->low[k].y);
        *reinterpret_cast<uint32_t *>(to + half + i) = bf16_pair(x->high[k].x, x->high[k].y);
    }
}

/* Stores v of one position: every other value of the row of its pair, which begins at `to`. */
static __device__ __forceinline__ void store_share_apart(const head_share *x, int half,
                                                         uint16_t *to)
{
#pragma unroll
    for (int k = 0; k < PAIRS_AT_ONCE; k++) {
        int i = 2 * (static_cast<int>(threadIdx.x) % WARP) + 2 * WARP * k;
        if (i >= half) continue;
        to[2 * i] = float_to_bf16(x->low[k].x);
        to[2 * i + 2] = float_to_bf16(x->low[k].y);
        to[2 * (i + half)] = float_to_bf16(x->high[k].x);
        to[2 * (i + half) + 2] = float_to_bf16(x->high[k].y);
    }
}

/* Copies n bf16 values, a multiple of 8. */
static __device__ __forceinline__ void copy_values(const uint16_t *from, uint16_t *to, int n)
{
    for (int i = 8 * (static_cast<int>(threadIdx.x) % WARP); i < n; i += 8 * WARP) {
        *reinterpret_cast<uint4 *>(to + i) = *reinterpret_cast<const uint4 *>(from + i);
    }
}

/* Copies the first positions of a block for one head of k or v. Of the last pair of v only the
 * first half is written when their number is odd, because the other is a row's. */
static __device__ __forceinline__ void copy_positions(const store_args *args, step_copy copy,
                                                      int kv_head, bool is_v)
{
    int head_dim = args->head_dim, n_whole = copy.n / 2 * 2 * head_dim;
    const uint16_t *from =
        args->kv + kv_head_offset(copy.from, kv_head, args->n_kv_heads, head_dim);
    uint16_t *to = args->kv + kv_head_offset(copy.to, kv_head, args->n_kv_heads, head_dim);
    if (!is_v) {
        copy_values(from, to, copy.n * head_dim);
        return;
    }
    from += kv_part_elements(head_dim);
    to += kv_part_elements(head_dim);
    copy_values(from, to, n_whole);
    if (copy.n % 2 == 0) return;
    for (int e = static_cast<int>(threadIdx.x) % WARP; e < head_dim; e += WARP) {
        to[n_whole + 2 * e] = from[n_whole + 2 * e];
    }
}

/* Stores k or v of a row in its place of a block. */
static __device__ __forceinline__ void store_position(const store_args *args, const head_share *x,
                                                      int block, int offset, int kv_head, bool is_v)
{
    int head_dim = args->head_dim, half = head_dim / 2;
    uint16_t *k_part = args->kv + kv_head_offset(block, kv_head, args->n_kv_heads, head_dim);
    uint16_t *v_part = k_part + kv_part_elements(head_dim);
    if (is_v) {
        store_share_apart(x, half, v_part + offset / 2 * 2 * head_dim + offset % 2);
    } else {
        store_share(x, half, k_part + offset * head_dim);
    }
}

/* One warp per head of q, k and v of a row; blockIdx.y is the row, and past the rows the copy. */
static __global__ void __launch_bounds__(STORE_WARPS *WARP) store_kernel(store_args args)
{
    const struct step_inputs *inputs = &args.inputs;
    int row = static_cast<int>(blockIdx.y), head_dim = args.head_dim, half = head_dim / 2;
    int head = static_cast<int>(blockIdx.x * STORE_WARPS + threadIdx.x / WARP);
    int n_heads = args.n_heads, n_kv = args.n_kv_heads, n_all = n_heads + 2 * n_kv;
    grid_dependency_launch();
    bool is_q = head < n_heads, is_v = head >= n_heads + n_kv;
    int kv_head = (head - n_heads) % n_kv;
    if (row >= args.n_rows) {
        grid_dependency_wait();
        if (is_q || head >= n_all) return;
        copy_positions(&args, inputs->copies[row - args.n_rows], kv_head, is_v);
        return;
    }
    int lane = head < n_all ? inputs->row_lane[row] : -1;
    const float *norm = is_v ? NULL : is_q ? args.input.q_norm : args.input.k_norm;
    head_share bias = {}, weight = {}, x;
    int position = 0, block = 0, end_lane = 0;
    if (lane >= 0) {
        if (args.input.qkv_bias) bias = load_head(args.input.qkv_bias + head * head_dim, half);
        if (norm) weight = load_head(norm, half);
        position = inputs->row_pos[row];
        block = inputs->blocks[inputs->lanes[lane].first_block + position / KV_BLOCK_TOKENS];
        end_lane = inputs->row_end[row];
    }
    grid_dependency_wait();
    if (lane < 0) return;
    size_t index =
        static_cast<size_t>(row) * static_cast<size_t>(n_all) + static_cast<size_t>(head);
    x = load_head(args.qkv + index * static_cast<size_t>(head_dim), half);
    if (args.input.qkv_bias) add_share(&x, &bias);
    if (norm) norm_share(&x, &weight, args.input.norm_eps, head_dim);
    size_t at = static_cast<size_t>(row) * static_cast<size_t>(half);
    if (!is_v) rope_share(&x, inputs->cos + at, inputs->sin + at, half);
    if (is_q) {
        at = static_cast<size_t>(row) * static_cast<size_t>(n_heads) + static_cast<size_t>(head);
        store_share(&x, half, args.q + at * static_cast<size_t>(head_dim));
        return;
    }
    store_position(&args, &x, block, position % KV_BLOCK_TOKENS, kv_head, is_v);
    while (++lane < end_lane) {
        block = inputs->blocks[inputs->lanes[lane].first_block + position / KV_BLOCK_TOKENS];
        store_position(&args, &x, block, position % KV_BLOCK_TOKENS, kv_head, is_v);
    }
}

void cuda_attention_store(struct backend *be, const struct attention_shape *shape,
                          const struct attention_input *input, const struct backend_step *step,
                          float *qkv, uint16_t *q, uint16_t *kv)
{
    struct backend_cuda *cuda = backend_cuda_of(be);
    int n_all = shape->n_heads + 2 * shape->n_kv_heads, n_rows = cuda_rows(cuda, step->n);
    store_args args = {cuda->inputs,    qkv, *input, shape->n_heads, shape->n_kv_heads,
                       shape->head_dim, q,   kv,     n_rows};
    dim3 grid(static_cast<unsigned>((n_all + STORE_WARPS - 1) / STORE_WARPS),
              static_cast<unsigned>(n_rows + cuda->size.n_copies));
    if (step->n == 0) return;
    cuda_launch(cuda, "attention_store", store_kernel, grid, dim3(STORE_WARPS * WARP), 0, args);
}

void cuda_attention_store_prepare(struct backend_cuda *be)
{
    cuda_prepare(be, store_kernel, 0);
}
