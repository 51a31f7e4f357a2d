/* Matmuls of the CUDA backend, over the layout of matmul.cuh. This kernel and that of
 * matmul_many.cu give the same bits, because both compute each output of each token by the same
 * chains of the same mma: a column of the B operand is computed independently of its neighbours,
 * and segments are added in one order.
 *
 * Up to 32 rows the time of a matmul is the time to read the weights: bytes / bandwidth of the
 * memory. A warp owns one segment of 1, 2 or 4 groups of 16 outputs and streams it through a ring
 * of its own in shared memory. A lane waits for, and reads, only the bytes that it copied itself,
 * so the stream needs no barrier. With two or three blocks on a multiprocessor 64 KiB and more are
 * under way; 4.8 TB/s at a latency of 700 ns over 132 multiprocessors need 25 KiB on each. No
 * earlier kernel writes weights, so the ring is filled with them before the kernel waits for its
 * predecessor. */
#include "model/backend/cuda/matmul/matmul.cuh"

enum {
    FEW_ROWS = 32,
    FEW_STAGES_MAX = 6 /* three blocks of the smallest form fit on an sm_90 */
};

/* A form of the kernel: tiles of 8 tokens, groups of a warp, kind of weights, and how tokens_copy
 * reads tokens. */
template <int TILES, int GROUPS, int FORM_KIND, bool ALIGNED> struct few_form {
    static const bool IS_ALIGNED = ALIGNED, IS_BLOCKS = kind_is_blocks(FORM_KIND);
    enum {
        KIND = FORM_KIND,
        N_TILES = TILES,
        N_GROUPS = GROUPS,
        TILE_BYTES = tile_bytes(KIND), /* in shared memory */
        WEIGHT_BYTES = N_GROUPS * TILE_BYTES,
        STAGE_BYTES = WEIGHT_BYTES + N_TILES * TILE_TOKEN_BYTES,
        FIT = RING_BYTES / (MATMUL_WARPS * STAGE_BYTES),
        STAGES = FIT < FEW_STAGES_MAX ? FIT : FEW_STAGES_MAX,
        WARP_BYTES = STAGES * STAGE_BYTES,
        SUM_BYTES = N_GROUPS * N_TILES * WARP * 16 /* a warp's sums, in the place of its ring */
    };
};

/* The part of its warp's segment that a lane still has to copy. */
struct few_share {
    const uint8_t *weights; /* of the first group, for the next tile */
    const uint16_t *tokens; /* of the first 8, for the next tile */
    int k;                  /* of tokens */
    int n_groups;           /* those that exist */
    int n_tiles;            /* of the segment */
};

template <typename FORM>
static __device__ __forceinline__ struct few_share few_share_of(const struct matmul_job &job,
                                                                int warp, int lane)
{
    struct few_share share;
    int segment = warp % job.n_segments, sets = MATMUL_WARPS / job.n_segments;
    int group = (static_cast<int>(blockIdx.x) * sets + warp / job.n_segments) * FORM::N_GROUPS;
    int first = segment_begin(job.n_tiles, job.n_segments, segment);
    share.n_groups = group < job.n_groups ? job.n_groups - group : 0;
    size_t tile =
        static_cast<size_t>(share.n_groups ? group : 0) * static_cast<size_t>(job.n_tiles);
    tile += static_cast<size_t>(first);
    share.weights = job.weights[blockIdx.z] +
                    tile * static_cast<size_t>(stored_bytes<FORM::KIND>(job)) + lane * 16;
    share.k = first * TILE_K + lane % 4 * 8;
    share.tokens = job.in + static_cast<size_t>(blockIdx.z) * static_cast<size_t>(job.n_in) +
                   static_cast<size_t>(lane / 4) * job.in_stride + share.k;
    share.n_tiles = segment_begin(job.n_tiles, job.n_segments, segment + 1) - first;
    return share;
}

template <typename FORM>
static __device__ __forceinline__ void few_copy_weights(const struct matmul_job &job,
                                                        struct few_share *share, uint8_t *to)
{
    int bytes = stored_bytes<FORM::KIND>(job),
        from_lane = static_cast<int>(threadIdx.x) % WARP * 16;
    size_t group_bytes = static_cast<size_t>(job.n_tiles) * static_cast<size_t>(bytes);
#pragma unroll
    for (int g = 0; g < FORM::N_GROUPS; g++) {
        bool valid = g < share->n_groups;
        const uint8_t *from = share->weights + (valid ? g * group_bytes : 0);
#pragma unroll
        for (int part = 0; part < FORM::TILE_BYTES; part += WARP * 16) {
            if (FORM::IS_BLOCKS && part + from_lane >= bytes) break;
            copy_async_16(to + g * FORM::TILE_BYTES + part, from + part, valid);
        }
    }
    share->weights += bytes;
}

template <typename FORM>
static __device__ __forceinline__ void
few_copy_tokens(const struct matmul_job &job, struct few_share *share, uint8_t *to, int lane)
{
    const uint16_t *at = share->tokens;
#pragma unroll
    for (int t = 0; t < FORM::N_TILES; t++) {
        tokens_copy<FORM::IS_ALIGNED>(job, to + FORM::WEIGHT_BYTES + t * TILE_TOKEN_BYTES, at,
                                      t * TILE_TOKENS + lane / 4, share->k);
        at += TILE_TOKENS * job.in_stride;
    }
    share->tokens += TILE_K;
    share->k += TILE_K;
}

/* Multiplies a warp's segment. Once a tile has been used, its stage takes the tile STAGES further
 * on. Every tile commits one group of copies, even an empty one, so that the number of groups tells
 * which tile has arrived. __syncwarp keeps the compiler from moving accesses across the
 * asynchronous copies. */
template <typename FORM>
static __device__ __forceinline__ void few_stream(const struct matmul_job &job, int warp,
                                                  uint8_t *ring, int lane,
                                                  float acc[FORM::N_GROUPS][FORM::N_TILES][4])
{
    struct few_share share = few_share_of<FORM>(job, warp, lane);
    uint8_t *stage = ring, *own = ring + lane * 16;
    for (int i = 0; i < FORM::STAGES && i < share.n_tiles; i++) {
        few_copy_weights<FORM>(job, &share, own + i * FORM::STAGE_BYTES);
    }
    grid_dependency_wait();
    grid_dependency_launch();
    for (int i = 0; i < FORM::STAGES; i++) {
        if (i < share.n_tiles) {
            few_copy_tokens<FORM>(job, &share, own + i * FORM::STAGE_BYTES, lane);
        }
        copy_async_commit();
    }
    for (int n_left = share.n_tiles; n_left > 0; n_left--) {
        copy_async_wait<FORM::STAGES - 1>();
        __syncwarp();
        stage_multiply<FORM::N_GROUPS, FORM::N_TILES, FORM::KIND>(job, acc, stage,
                                                                  stage + FORM::WEIGHT_BYTES, lane);
        __syncwarp();
        if (n_left > FORM::STAGES) {
            few_copy_weights<FORM>(job, &share, stage + lane * 16);
            few_copy_tokens<FORM>(job, &share, stage + lane * 16, lane);
        }
        copy_async_commit();
        stage += FORM::STAGE_BYTES;
        if (stage == ring + FORM::WARP_BYTES) stage = ring;
    }
    copy_async_wait<0>();
    __syncwarp();
}

/* Block x: sets of FORM::N_GROUPS groups, with one warp for each segment of each. */
template <typename FORM>
static __global__ void __launch_bounds__(MATMUL_THREADS, 2) matmul_few(struct matmul_job job)
{
    static_assert(FORM::STAGES >= 2 && FORM::SUM_BYTES <= FORM::WARP_BYTES,
                  "the ring is too small");
    enum { FRAGMENTS = FORM::N_GROUPS * FORM::N_TILES };
    CUDA_DYNAMIC_SHARED(uint8_t, shared);
    int warp = static_cast<int>(threadIdx.x) / WARP, lane = static_cast<int>(threadIdx.x) % WARP;
    uint8_t *ring = shared + warp * FORM::WARP_BYTES;
    float acc[FORM::N_GROUPS][FORM::N_TILES][4] = {};
    few_stream<FORM>(job, warp, ring, lane, acc);
#pragma unroll
    for (int f = 0; f < FRAGMENTS; f++) {
        const float *d = acc[f / FORM::N_TILES][f % FORM::N_TILES];
        reinterpret_cast<float4 *>(ring)[f * WARP + lane] = make_float4(d[0], d[1], d[2], d[3]);
    }
    __syncthreads();
    int sets = MATMUL_WARPS / job.n_segments;
    for (int unit = warp; unit < sets * FRAGMENTS; unit += MATMUL_WARPS) {
        int set = unit / FRAGMENTS, f = unit % FRAGMENTS;
        int group =
            (static_cast<int>(blockIdx.x) * sets + set) * FORM::N_GROUPS + f / FORM::N_TILES;
        float d[4];
        const uint8_t *parts = shared + set * job.n_segments * FORM::WARP_BYTES;
        fragment_add(reinterpret_cast<const float4 *>(parts) + f * WARP + lane,
                     FORM::WARP_BYTES / sizeof(float4), job.n_segments, d);
        fragment_store<FORM::KIND>(job, static_cast<int>(blockIdx.z), group,
                                   f % FORM::N_TILES * TILE_TOKENS, lane, d);
    }
}

/* ---- launching ---- */

static int blocks_of(const struct matmul_job *job, int warp_groups)
{
    int groups = MATMUL_WARPS / job->n_segments * warp_groups;
    return (job->n_groups + groups - 1) / groups;
}

template <typename FORM>
static void launch_form(struct backend_cuda *be, const struct matmul_job *job, int n_slices)
{
    dim3 grid((unsigned)blocks_of(job, FORM::N_GROUPS), 1, (unsigned)n_slices);
    matmul_launch(be, job, matmul_few<FORM>, grid, MATMUL_WARPS * FORM::WARP_BYTES);
}

template <typename FORM> static void prepare_form(struct backend_cuda *be)
{
    cuda_prepare(be, matmul_few<FORM>, MATMUL_WARPS * FORM::WARP_BYTES);
}

/* WIDE groups of a warp share the tokens that it reads from the second-level cache: N_TILES / 2 /
 * WIDE KiB for each KiB of weights. A matrix of too few groups is spread over more warps instead.
 * Up to 8 tokens that is done if some multiprocessor would otherwise have fewer than two blocks;
 * above 8 tokens only if half of the multiprocessors would otherwise be idle. */
template <int N_TILES, int WIDE, int KIND>
static void launch_few(struct backend_cuda *be, const struct matmul_job *job, int n_slices,
                       bool is_aligned)
{
    if constexpr (!kind_is_blocks(KIND)) {
        if (!is_aligned) {
            launch_form<few_form<N_TILES, 1, KIND, false>>(be, job, n_slices);
            return;
        }
    }
    if (blocks_of(job, WIDE) * n_slices >= (N_TILES == 1 ? 2 * be->n_sms : be->n_sms / 2)) {
        launch_form<few_form<N_TILES, WIDE, KIND, true>>(be, job, n_slices);
    } else {
        launch_form<few_form<N_TILES, 1, KIND, true>>(be, job, n_slices);
    }
}

/* The forms that launch_few chooses from. */
template <int N_TILES, int WIDE, int KIND> static void prepare_few(struct backend_cuda *be)
{
    if constexpr (!kind_is_blocks(KIND)) prepare_form<few_form<N_TILES, 1, KIND, false>>(be);
    prepare_form<few_form<N_TILES, WIDE, KIND, true>>(be);
    prepare_form<few_form<N_TILES, 1, KIND, true>>(be);
}

template <int KIND>
static void launch_rows(struct backend_cuda *be, const struct matmul_job *job, int n_slices,
                        bool is_aligned)
{
    if (job->n_rows <= 8) {
        launch_few<1, 4, KIND>(be, job, n_slices, is_aligned);
    } else if (job->n_rows <= 16) {
        launch_few<2, 4, KIND>(be, job, n_slices, is_aligned);
    } else {
        launch_few<4, 2, KIND>(be, job, n_slices, is_aligned);
    }
}

template <int KIND> static void prepare_rows(struct backend_cuda *be)
{
    prepare_few<1, 4, KIND>(be);
    prepare_few<2, 4, KIND>(be);
    prepare_few<4, 2, KIND>(be);
}

/* h = gated of gate_up[n_rows][2 n_out]; one thread for each of h. */
static __global__ void gated_rows(struct matmul_job job, const float *gate_up)
{
    size_t at = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    size_t width = static_cast<size_t>(job.n_out), row = at / width, feature = at % width;
    grid_dependency_wait();
    grid_dependency_launch();
    if (row >= static_cast<size_t>(job.n_rows)) return;
    const float *from = gate_up + row * 2 * width + feature;
    job.h[at] = gated(job, static_cast<int>(feature), from[0], from[width]);
}

/* out[row][slice][width] = the slice's columns of in[row] in its order, and zeros between them. */
static __global__ void order_rows(struct matmul_job job, int n_slices, int n_in, uint16_t *out)
{
    size_t at = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    size_t width = static_cast<size_t>(job.n_in), all = static_cast<size_t>(n_slices) * width;
    size_t row = at / all, slice = at % all / width;
    grid_dependency_wait();
    grid_dependency_launch();
    if (row >= static_cast<size_t>(job.n_rows)) return;
    int32_t column = job.order[slice][at % width];
    const uint16_t *from = job.in + row * job.in_stride + slice * static_cast<size_t>(n_in);
    out[at] = column < 0 ? 0 : from[column];
}

void cuda_matmul_prepare(struct backend_cuda *be)
{
    prepare_rows<KIND_BF16>(be);
    prepare_rows<KIND_FP8>(be);
    prepare_rows<KIND_BLOCKS_4>(be);
    prepare_rows<KIND_BLOCKS_5>(be);
    prepare_rows<KIND_BLOCKS_6>(be);
    prepare_rows<KIND_BLOCKS_8>(be);
    matmul_prepare_many(be);
    matmul_prepare_wgmma(be);
    cuda_prepare(be, gated_rows, 0);
    cuda_prepare(be, order_rows, 0);
}

static void launch_kind(struct backend_cuda *be, const struct matmul_job *job, int n_slices,
                        enum tile_kind kind, bool is_aligned)
{
    switch (kind) {
    case KIND_BF16:
        launch_rows<KIND_BF16>(be, job, n_slices, is_aligned);
        break;
    case KIND_FP8:
        launch_rows<KIND_FP8>(be, job, n_slices, is_aligned);
        break;
    case KIND_BLOCKS_4:
        launch_rows<KIND_BLOCKS_4>(be, job, n_slices, is_aligned);
        break;
    case KIND_BLOCKS_5:
        launch_rows<KIND_BLOCKS_5>(be, job, n_slices, is_aligned);
        break;
    case KIND_BLOCKS_6:
        launch_rows<KIND_BLOCKS_6>(be, job, n_slices, is_aligned);
        break;
    case KIND_BLOCKS_8:
        launch_rows<KIND_BLOCKS_8>(be, job, n_slices, is_aligned);
        break;
    }
}

static struct matmul_job job_of(const struct backend_cuda *be, const struct matrix *slices,
                                int n_slices, const uint16_t *in, size_t in_stride, int n)
{
    struct matmul_job job = {};
    for (int s = 0; s < n_slices; s++) {
        job.weights[s] = static_cast<const uint8_t *>(slices[s].data);
        job.order[s] = slices[s].order;
    }
    job.in = in;
    job.in_stride = in_stride;
    job.n_in = matmul_width(slices);
    job.n_out = slices->n_out;
    job.n_rows = cuda_rows(be, n);
    job.n_tiles = matmul_tiles(job.n_in);
    job.n_groups = matmul_groups(slices->n_out);
    job.n_segments = matmul_segments(job.n_in);
    job.blocks = block_layout_of(slices);
    return job;
}

static bool is_aligned_job(const struct matmul_job *job)
{
    return job->n_in % 8 == 0 && job->in_stride % 8 == 0 &&
           reinterpret_cast<uintptr_t>(job->in) % 16 == 0;
}

static void run_rows(struct backend_cuda *be, struct matmul_job *job, int n_slices,
                     enum tile_kind kind)
{
    bool is_aligned = is_aligned_job(job);
    if (matmul_takes_wgmma(be, job, kind, is_aligned)) {
        matmul_launch_wgmma(be, job, n_slices, kind);
    } else if (job->n_rows > FEW_ROWS) {
        matmul_launch_many(be, job, n_slices, kind, is_aligned);
    } else {
        launch_kind(be, job, n_slices, kind, is_aligned);
    }
}

/* Brings rows into the order of the slices before they are multiplied, as many at once as there is
 * room for. */
static void run_ordered(struct backend_cuda *be, const struct matmul_job *whole, int n_slices,
                        int n_in, enum tile_kind kind)
{
    size_t width = static_cast<size_t>(whole->n_in) * static_cast<size_t>(n_slices);
    int at_once = static_cast<int>(ORDERED_ELEMENTS / width);
    for (int first = 0; first < whole->n_rows; first += at_once) {
        struct matmul_job job = *whole;
        size_t row = static_cast<size_t>(first);
        if (job.n_rows - first < at_once) at_once = job.n_rows - first;
        job.n_rows = at_once;
        job.in += row * job.in_stride;
        if (job.out) job.out += row * job.out_stride;
        if (job.h) job.h += row * static_cast<size_t>(job.n_out);
        size_t n = static_cast<size_t>(at_once) * width;
        cuda_launch(be, "a matmul", order_rows,
                    dim3((unsigned)((n + MATMUL_THREADS - 1) / MATMUL_THREADS)),
                    dim3(MATMUL_THREADS), 0, job, n_slices, n_in, be->ordered);
        job.in = be->ordered;
        job.in_stride = width;
        run_rows(be, &job, n_slices, kind);
    }
}

static void run(struct backend_cuda *be, struct matmul_job *job, const struct matrix *slices,
                int n_slices)
{
    enum tile_kind kind = matmul_kind(slices);
    if (job->n_rows == 0) return;
    if (slices->order) {
        run_ordered(be, job, n_slices, slices->n_in, kind);
    } else {
        run_rows(be, job, n_slices, kind);
    }
}

static void multiply(struct backend_cuda *be, const struct matrix *m, const uint16_t *in,
                     size_t in_stride, float *out, size_t out_stride, int n)
{
    struct matmul_job job = job_of(be, m, 1, in, in_stride, n);
    job.out = out;
    job.out_stride = out_stride;
    run(be, &job, m, 1);
}

void cuda_matmul(struct backend *be, const struct matrix *m, const uint16_t *in, size_t in_stride,
                 float *out, size_t out_stride, int n)
{
    struct backend_cuda *cuda = backend_cuda_of(be);
    if (!matmul_is_split(m)) {
        multiply(cuda, m, in, in_stride, out, out_stride, n);
        return;
    }
    for (int i = 0; i < m->n_sections; i++) {
        struct matrix section = matmul_section(m, i);
        multiply(cuda, &section, in, in_stride, out + m->sections[i].first, out_stride, n);
    }
}

void cuda_matmul_slices(struct backend *be, const struct matrix *slices, int n_slices,
                        const uint16_t *in, size_t in_stride, int n, struct slice_sums *sums)
{
    struct backend_cuda *cuda = backend_cuda_of(be);
    struct matmul_job job = job_of(cuda, slices, n_slices, in, in_stride, n);
    sums->stride = static_cast<size_t>(job.n_rows) * static_cast<size_t>(job.n_out);
    bool adds = matmul_takes_wgmma(cuda, &job, matmul_kind(slices), is_aligned_job(&job)) &&
                matmul_wgmma_adds(cuda, &job, n_slices);
    sums->n_parts = adds ? 1 : n_slices;
    job.out = sums->data;
    job.out_stride = static_cast<size_t>(job.n_out);
    job.slice_stride = sums->stride;
    run(cuda, &job, slices, n_slices);
}

/* gate_up is needed only where gate and up have tiles of their own. Otherwise the kernel keeps both
 * sums in registers until it multiplies them. */
void cuda_matmul_gated(struct backend *be, const struct gated_mlp *args)
{
    struct backend_cuda *cuda = backend_cuda_of(be);
    const struct matrix *m = args->matrix;
    size_t n_in = static_cast<size_t>(m->n_in), n_out = static_cast<size_t>(m->n_out);
    struct matmul_job job = job_of(cuda, m, 1, args->in, n_in, args->n);
    job.h = args->h;
    job.bias = args->bias;
    job.activation = args->activation;
    job.n_out = m->n_out / 2;
    if (!matmul_is_split(m)) {
        run(cuda, &job, m, 1);
        return;
    }
    if (job.n_rows == 0) return;
    cuda_matmul(be, m, args->in, n_in, args->gate_up, n_out, args->n);
    size_t n_h = static_cast<size_t>(job.n_rows) * n_out / 2;
    cuda_launch(cuda, "a matmul", gated_rows,
                dim3((unsigned)((n_h + MATMUL_THREADS - 1) / MATMUL_THREADS)), dim3(MATMUL_THREADS),
                0, job, static_cast<const float *>(args->gate_up));
}
