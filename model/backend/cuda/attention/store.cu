/* The CUDA backend's work before attention: bias, q/k norm, rope, rounding to bf16, and the store
 * of k and v into the KV blocks of every path that holds the row. In a step with trees the same
 * launch copies the committed positions of the block where a tree begins to its further paths; rows
 * are stored after them. One warp works on one head of a row or of a copy. A head's sum of squares
 * is one chain per thread, then a tree over the warp, so its bits depend on the head
 * alone. */
#include "model/backend/cuda/attention/layout.cuh"

enum {
    STORE_WARPS = 4,
    PAIRS_AT_ONCE = 2 /* float2 of each half of a head that a thread has: E <= 256 */
};

struct store_args {
    struct step_inputs inputs;
    const float *qkv;
    struct attention_input input;
    const float *squares; /* [rows][2]; NULL: norms are of each head alone */
    int n_heads, n_kv_heads, head_dim;
    uint16_t *q, *kv;
    int n_rows; /* the copies come after them */
};

/* How a head is cut. Element i of its lower half rotates with element i of its upper half, if i <
 * rope_half. The elements that rotate lie first, their halves after each other, and then those that
 * do not. */
struct head_cut {
    int half, rope_half; /* E / 2; even */
};

static __device__ __forceinline__ int low_at(head_cut cut, int i)
{
    return i < cut.rope_half ? i : cut.rope_half + i;
}

static __device__ __forceinline__ int high_at(head_cut cut, int i)
{
    return i < cut.rope_half ? cut.rope_half + i : cut.half + i;
}

/* A thread's share of one head: elements i and i + 1 of both halves, i = 2 lane + 64 k. */
struct head_share {
    float2 low[PAIRS_AT_ONCE], high[PAIRS_AT_ONCE];
};

static __device__ __forceinline__ head_share load_head(const float *head, head_cut cut)
{
    head_share out = {};
#pragma unroll
    for (int k = 0; k < PAIRS_AT_ONCE; k++) {
        int i = 2 * (static_cast<int>(threadIdx.x) % WARP) + 2 * WARP * k;
        if (i >= cut.half) continue;
        out.low[k] = *reinterpret_cast<const float2 *>(head + low_at(cut, i));
        out.high[k] = *reinterpret_cast<const float2 *>(head + high_at(cut, i));
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

/* The sum of the head's squares: one chain per thread, then a tree over the warp. */
static __device__ __forceinline__ float share_squares(const head_share *x)
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
    return sum;
}

/* The rmsnorm of `width` elements, of which the head is a part. */
static __device__ __forceinline__ void norm_share(head_share *x, const head_share *weight,
                                                  float squares, int width, float eps)
{
    float factor = 1.0f / sqrtf(squares / static_cast<float>(width) + eps);
#pragma unroll
    for (int k = 0; k < PAIRS_AT_ONCE; k++) {
        x->low[k].x = x->low[k].x * factor * weight->low[k].x;
        x->low[k].y = x->low[k].y * factor * weight->low[k].y;
        x->high[k].x = x->high[k].x * factor * weight->high[k].x;
        x->high[k].y = x->high[k].y * factor * weight->high[k].y;
    }
}

/* Rotates the elements that do. */
static __device__ __forceinline__ void rope_share(head_share *x, const float *cos, const float *sin,
                                                  head_cut cut)
{
#pragma unroll
    for (int k = 0; k < PAIRS_AT_ONCE; k++) {
        int i = 2 * (static_cast<int>(threadIdx.x) % WARP) + 2 * WARP * k;
        if (i >= cut.rope_half) continue;
        float2 c = *reinterpret_cast<const float2 *>(cos + i);
        float2 s = *reinterpret_cast<const float2 *>(sin + i);
        float2 a = x->low[k], b = x->high[k];
        x->low[k] = make_float2(a.x * c.x - b.x * s.x, a.y * c.y - b.y * s.y);
        x->high[k] = make_float2(b.x * c.x + a.x * s.x, b.y * c.y + a.y * s.y);
    }
}

static __device__ __forceinline__ void scale_share(head_share *x, float scale)
{
#pragma unroll
    for (int k = 0; k < PAIRS_AT_ONCE; k++) {
        x->low[k] = make_float2(x->low[k].x * scale, x->low[k].y * scale);
        x->high[k] = make_float2(x->high[k].x * scale, x->high[k].y * scale);
    }
}

/* Stores bf16 values side by side: q, or k of one position. */
static __device__ __forceinline__ void store_share(const head_share *x, head_cut cut, uint16_t *to)
{
#pragma unroll
    for (int k = 0; k < PAIRS_AT_ONCE; k++) {
        int i = 2 * (static_cast<int>(threadIdx.x) % WARP) + 2 * WARP * k;
        if (i >= cut.half) continue;
        *reinterpret_cast<uint32_t *>(to + low_at(cut, i)) = bf16_pair(x->low[k].x, x->low[k].y);
        *reinterpret_cast<uint32_t *>(to + high_at(cut, i)) = bf16_pair(x->high[k].x, x->high[k].y);
    }
}

/* Stores v of one position: every fourth value from `to` on. */
static __device__ __forceinline__ void store_share_apart(const head_share *x, head_cut cut,
                                                         uint16_t *to)
{
#pragma unroll
    for (int k = 0; k < PAIRS_AT_ONCE; k++) {
        int i = 2 * (static_cast<int>(threadIdx.x) % WARP) + 2 * WARP * k;
        if (i >= cut.half) continue;
        uint16_t *low = to + 4 * low_at(cut, i), *high = to + 4 * high_at(cut, i);
        low[0] = float_to_bf16(x->low[k].x);
        low[4] = float_to_bf16(x->low[k].y);
        high[0] = float_to_bf16(x->high[k].x);
        high[4] = float_to_bf16(x->high[k].y);
    }
}

/* Copies n bf16 values, a multiple of 8. */
static __device__ __forceinline__ void copy_values(const uint16_t *from, uint16_t *to, int n)
{
    for (int i = 8 * (static_cast<int>(threadIdx.x) % WARP); i < n; i += 8 * WARP) {
        *reinterpret_cast<uint4 *>(to + i) = *reinterpret_cast<const uint4 *>(from + i);
    }
}

/* Copies the first positions of a block for one head of k or v. Nothing else of v is written, also
 * not of a pair of positions, because the others are rows'. */
static __device__ __forceinline__ void copy_positions(const store_args *args, step_copy copy,
                                                      int kv_head, bool is_v)
{
    int head_dim = args->head_dim;
    const uint16_t *from =
        args->kv + kv_head_offset(copy.from, kv_head, args->n_kv_heads, head_dim);
    uint16_t *to = args->kv + kv_head_offset(copy.to, kv_head, args->n_kv_heads, head_dim);
    if (!is_v) {
        copy_values(from, to, copy.n * head_dim);
        return;
    }
    from += kv_part_elements(head_dim);
    to += kv_part_elements(head_dim);
    for (int i = static_cast<int>(threadIdx.x) % WARP; i < 8 * head_dim; i += WARP) {
        int n = copy.n - (i / (2 * head_dim) * 2 + i % 2 * 8); /* of a pair of positions */
        if (n >= 2) {
            reinterpret_cast<uint32_t *>(to)[i] = reinterpret_cast<const uint32_t *>(from)[i];
        } else if (n == 1) {
            to[2 * i] = from[2 * i];
        }
    }
}

/* Stores k or v of a row in its place of a block. */
static __device__ __forceinline__ void store_position(const store_args *args, const head_share *x,
                                                      int block, int offset, int kv_head, bool is_v)
{
    int head_dim = args->head_dim;
    head_cut cut = {head_dim / 2, args->input.rope_half};
    uint16_t *k_part = args->kv + kv_head_offset(block, kv_head, args->n_kv_heads, head_dim);
    uint16_t *v_part = k_part + kv_part_elements(head_dim);
    if (is_v) {
        int c = offset / 2 % 4;
        store_share_apart(x, cut, v_part + 4 * c * head_dim + offset / 8 * 2 + offset % 2);
    } else {
        store_share(x, cut, k_part + offset * head_dim);
    }
}

/* The weights of a head's norm; NULL: none. */
static __device__ __forceinline__ const float *head_norm(const store_args *args, int head)
{
    const struct attention_input *input = &args->input;
    bool is_q = head < args->n_heads;
    const float *norm = is_q ? input->q_norm : input->k_norm;
    if (!args->squares || !norm) return norm;
    return norm + (is_q ? head : head - args->n_heads) * args->head_dim;
}

/* Norm, rope and scale of a head of q or k. */
static __device__ __forceinline__ void change_share(const store_args *args, head_share *x,
                                                    const head_share *weight, bool has_norm,
                                                    int row, bool is_q, head_cut cut)
{
    const struct attention_input *input = &args->input;
    size_t table = static_cast<size_t>(row * args->inputs.n_ropes + input->rope);
    if (has_norm && args->squares) {
        norm_share(x, weight, args->squares[2 * row + (is_q ? 0 : 1)],
                   is_q ? input->q_width : input->k_width, input->norm_eps);
    } else if (has_norm) {
        norm_share(x, weight, share_squares(x), args->head_dim, input->norm_eps);
    }
    table *= static_cast<size_t>(cut.half);
    rope_share(x, args->inputs.cos + table, args->inputs.sin + table, cut);
    if (is_q && args->inputs.query_scale) scale_share(x, args->inputs.query_scale[row]);
}

/* One warp per head of q, k and v of a row; blockIdx.y is the row, and past the rows the copy. */
static __global__ void __launch_bounds__(STORE_WARPS *WARP) store_kernel(store_args args)
{
    const struct step_inputs *inputs = &args.inputs;
    int row = static_cast<int>(blockIdx.y), head_dim = args.head_dim;
    int head = static_cast<int>(blockIdx.x * STORE_WARPS + threadIdx.x / WARP);
    int n_heads = args.n_heads, n_kv = args.n_kv_heads, n_all = n_heads + 2 * n_kv;
    head_cut cut = {head_dim / 2, args.input.rope_half};
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
    const float *norm = is_v ? NULL : head_norm(&args, head);
    head_share bias = {}, weight = {}, x;
    int position = 0, block = 0, end_lane = 0;
    if (lane >= 0) {
        if (args.input.qkv_bias) bias = load_head(args.input.qkv_bias + head * head_dim, cut);
        if (norm) weight = load_head(norm, cut);
        position = inputs->row_pos[row];
        block = inputs->blocks[inputs->lanes[lane].first_block + position / KV_BLOCK_TOKENS];
        end_lane = inputs->row_end[row];
    }
    grid_dependency_wait();
    if (lane < 0) return;
    size_t index =
        static_cast<size_t>(row) * static_cast<size_t>(n_all) + static_cast<size_t>(head);
    x = load_head(args.qkv + index * static_cast<size_t>(head_dim), cut);
    if (args.input.qkv_bias) add_share(&x, &bias);
    if (!is_v) change_share(&args, &x, &weight, norm != NULL, row, is_q, cut);
    if (is_q) {
        size_t at =
            static_cast<size_t>(row) * static_cast<size_t>(n_heads) + static_cast<size_t>(head);
        store_share(&x, cut, args.q + at * static_cast<size_t>(head_dim));
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
    const float *squares = input->squares ? input->squares->data : NULL;
    store_args args = {cuda->inputs,    qkv, *input, squares, shape->n_heads, shape->n_kv_heads,
                       shape->head_dim, q,   kv,     n_rows};
    if (input->rope_half % 2) {
        cuda_note(cuda, cudaErrorInvalidValue, "a rotation of an odd number of pairs");
        return;
    }
    dim3 grid(static_cast<unsigned>((n_all + STORE_WARPS - 1) / STORE_WARPS),
              static_cast<unsigned>(n_rows + cuda->size.n_copies));
    if (step->n == 0) return;
    cuda_launch(cuda, "attention_store", store_kernel, grid, dim3(STORE_WARPS * WARP), 0, args);
}

void cuda_attention_store_prepare(struct backend_cuda *be)
{
    cuda_prepare(be, store_kernel, 0);
}
