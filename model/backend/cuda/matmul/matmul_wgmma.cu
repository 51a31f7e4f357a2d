/* The matmul of more than 32 rows on sm_90a, by wgmma: bf16 and fp8 weights as they lie, the bits
 * of matmul_few and matmul_many.
 *
 * A block computes 128 outputs x N tokens. Four of its twelve warps copy the weights of 64 k (two
 * tiles of 8 groups) and the tokens into a ring of stages in shared memory, in bulk; eight warps
 * take their weights from there into registers, where they are operand A in the order that
 * matmul.cuh gives them, and multiply them with all tokens of the stage. While one stage is
 * multiplied the weights of the next are loaded. Blocks stay for the whole matmul and take one unit
 * of work (slice, outputs, tokens) after the other, so that the copies of the next unit are under
 * way while a block stores the last one.
 *
 * The order of sums is that of matmul.cuh: a segment is one chain that starts from zero, and
 * segments are added in ascending order. If there are too few units for the device, each segment is
 * a unit of its own, and a second kernel adds what they leave in scratch memory. If there are many,
 * a unit takes all slices of a matrix and adds them by the fixed tree.
 *
 * Tokens are packed first, once for a matmul, in the order that operand B needs: [64 k][rows][128
 * bytes], the k of each tile in the order of the two mma that take it, in the swizzle of wgmma.cuh.
 * Any N rows from a multiple of 8 on are one contiguous piece. */
#include <string.h>

#include "model/backend/cuda/matmul/wgmma_sums.cuh"

template <typename FORM>
static __global__ void __launch_bounds__(WG_THREADS, 1) matmul_wgmma(matmul_job job, wg_work work)
{
#ifdef HAS_WGMMA
    CUDA_DYNAMIC_SHARED(uint8_t, shared);
    uint8_t *stages = shared + (WG_ALIGNMENT - __cvta_generic_to_shared(shared) % WG_ALIGNMENT);
    uint8_t *pending = stages + FORM::STAGES * FORM::STAGE_BYTES;
    uint64_t *full = reinterpret_cast<uint64_t *>(pending + FORM::PENDING_BYTES);
    uint64_t *empty = full + FORM::STAGES;
    if (threadIdx.x == 0) {
        for (int i = 0; i < FORM::STAGES; i++) {
            barrier_init(full + i, WG_COPIERS);
            barrier_init(empty + i, WG_GROUPS);
        }
        barriers_are_ready();
    }
    __syncthreads();
    if (threadIdx.x >= WG_GROUPS * WARP) {
        if constexpr (FORM::MOVES_REGISTERS) registers_give<WG_REGISTERS_FEW>();
        int copier = static_cast<int>(threadIdx.x) / WARP - WG_GROUPS;
        if (elect_one()) wg_produce<FORM>(job, work, copier, stages, full, empty);
    } else {
        if constexpr (FORM::MOVES_REGISTERS) registers_take<WG_REGISTERS_MANY>();
        wg_ring ring = {stages, full, empty, 0, 0, -1};
        wg_consume<FORM>(job, work, &ring, reinterpret_cast<float4 *>(pending));
    }
#else
    (void)job, (void)work;
#endif
}

/* Adds the segments that the units of matmul_wgmma left; a block for each of their blocks. */
template <typename FORM>
static __global__ void __launch_bounds__(WG_GROUPS *WARP)
    wg_add_partials(matmul_job job, wg_work work)
{
#ifdef HAS_WGMMA
    int warp = static_cast<int>(threadIdx.x) / WARP, lane = static_cast<int>(threadIdx.x) % WARP;
    wg_unit unit = unit_of(job, work, static_cast<int>(blockIdx.x) * work.n_parts);
    const float4 *from = job.partials + wg_partial<FORM>(work, unit);
    grid_dependency_wait();
    grid_dependency_launch();
    for (int j = 0; j < FORM::N_TOKENS / TILE_TOKENS; j++) {
        float d[4];
        fragment_add(from + j * WARP, wg_partials<FORM>(work), job.n_segments, d);
        fragment_store<FORM::KIND>(job, unit.slice, unit.m * WG_GROUPS + warp,
                                   unit.t * FORM::N_TOKENS + j * TILE_TOKENS, lane, d);
    }
#else
    (void)job, (void)work;
#endif
}

/* One thread packs a tile of one row: 64 bytes, read as four pieces of 8 k and written as four
 * pieces of 8 places. Word 4 c + 2 m + h of the tile goes to mma m, half h, place c. */
static __global__ void __launch_bounds__(MATMUL_THREADS)
    pack_rows(const uint16_t *in, size_t in_stride, int n_rows, int n_tiles, uint8_t *packed)
{
    size_t at = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    size_t n = static_cast<size_t>(n_tiles), row = at / n, tile = at % n;
    grid_dependency_wait();
    grid_dependency_launch();
    if (row >= static_cast<size_t>(n_rows)) return;
    const uint4 *from = reinterpret_cast<const uint4 *>(in + row * in_stride + tile * TILE_K);
    uint4 w[4] = {from[0], from[1], from[2], from[3]};
    uint8_t *to = packed + (tile / WG_TILES * static_cast<size_t>(n_rows) + row) * WGMMA_ROW_BYTES;
    const uint4 pieces[4] = {
        make_uint4(w[0].x, w[1].x, w[2].x, w[3].x), make_uint4(w[0].y, w[1].y, w[2].y, w[3].y),
        make_uint4(w[0].z, w[1].z, w[2].z, w[3].z), make_uint4(w[0].w, w[1].w, w[2].w, w[3].w)};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        size_t piece = (tile % WG_TILES * 4 + static_cast<size_t>(i)) ^ (row & 7);
        *reinterpret_cast<uint4 *>(to + piece * 16) = pieces[i];
    }
}

/* ---- launching ---- */

bool matmul_takes_wgmma(const struct backend_cuda *be, const struct matmul_job *job,
                        enum tile_kind kind, bool is_aligned)
{
    return be->has_wgmma && !kind_is_blocks(kind) && is_aligned && job->n_in % WG_K == 0 &&
           job->n_rows >= WG_ROWS_LEAST;
}

/* The blocks of outputs and tokens of a slice. */
static int blocks_of(const struct matmul_job *job, int n_tokens)
{
    return (job->n_groups + WG_GROUPS - 1) / WG_GROUPS * ((job->n_rows + n_tokens - 1) / n_tokens);
}

/* Scratch memory for n_blocks times n sums of a form's block. */
template <typename FORM> static float4 *take_sums(struct backend_cuda *be, int n_blocks, int n)
{
    return static_cast<float4 *>(
        cuda_scratch(be, static_cast<size_t>(n_blocks) * static_cast<size_t>(n) * FORM::SUM_BYTES));
}

template <typename FORM>
static void launch_form(struct backend_cuda *be, struct matmul_job *job, int n_slices,
                        const uint8_t *packed)
{
    struct wg_work work = {};
    int n_blocks = blocks_of(job, FORM::N_TOKENS) * (FORM::ADDS_SLICES ? 1 : n_slices);
    work.packed = packed;
    work.n_m = (job->n_groups + WG_GROUPS - 1) / WG_GROUPS;
    work.n_t = (job->n_rows + FORM::N_TOKENS - 1) / FORM::N_TOKENS;
    work.n_parts = 1;
    work.n_slices = FORM::ADDS_SLICES ? n_slices : 1;
    if (FORM::ADDS_SLICES) {
        work.pending = take_sums<FORM>(be, be->n_sms, 2);
        if (!work.pending) return;
    } else if (job->n_segments > 1 && 3 * n_blocks < be->n_sms) {
        job->partials = take_sums<FORM>(be, n_blocks, job->n_segments);
        if (!job->partials) return;
        work.n_parts = job->n_segments;
    }
    work.n_units = n_blocks * work.n_parts;
    int grid = work.n_units < be->n_sms ? work.n_units : be->n_sms;
    cuda_launch(be, "a matmul", matmul_wgmma<FORM>, dim3((unsigned)grid), dim3(WG_THREADS),
                FORM::SHARED_BYTES, *job, work);
    if (!job->partials) return;
    cuda_launch(be, "a matmul", wg_add_partials<FORM>, dim3((unsigned)n_blocks),
                dim3(WG_GROUPS * WARP), 0, *job, work);
}

bool matmul_wgmma_adds(const struct backend_cuda *be, const struct matmul_job *job, int n_slices)
{
    return n_slices > 1 && 10 * blocks_of(job, WG_TOKENS_MOST) >= 9 * be->n_sms;
}

template <int KIND>
static void launch_kind(struct backend_cuda *be, struct matmul_job *job, int n_slices,
                        const uint8_t *packed)
{
    if (matmul_wgmma_adds(be, job, n_slices)) {
        launch_form<wg_form<WG_TOKENS_MOST, KIND, true>>(be, job, n_slices, packed);
    } else if (job->n_rows <= WG_TOKENS_LEAST) {
        launch_form<wg_form<WG_TOKENS_LEAST, KIND, false>>(be, job, n_slices, packed);
    } else {
        launch_form<wg_form<WG_TOKENS_MOST, KIND, false>>(be, job, n_slices, packed);
    }
}

void matmul_launch_wgmma(struct backend_cuda *be, struct matmul_job *job, int n_slices,
                         enum tile_kind kind)
{
    int n_tiles = job->n_tiles * n_slices;
    size_t n = static_cast<size_t>(job->n_rows) * static_cast<size_t>(n_tiles);
    uint8_t *packed = static_cast<uint8_t *>(cuda_packed(be, n * TILE_K * sizeof(uint16_t)));
    if (!packed) return;
    cuda_launch(be, "packing rows", pack_rows,
                dim3((unsigned)((n + MATMUL_THREADS - 1) / MATMUL_THREADS)), dim3(MATMUL_THREADS),
                0, job->in, job->in_stride, job->n_rows, n_tiles, packed);
    if (kind == KIND_FP8) {
        launch_kind<KIND_FP8>(be, job, n_slices, packed);
    } else {
        launch_kind<KIND_BF16>(be, job, n_slices, packed);
    }
}

template <typename FORM> static void prepare_form(struct backend_cuda *be)
{
    cuda_prepare(be, matmul_wgmma<FORM>, FORM::SHARED_BYTES);
    cuda_prepare(be, wg_add_partials<FORM>, 0);
}

template <int KIND> static void prepare_kind(struct backend_cuda *be)
{
    prepare_form<wg_form<WG_TOKENS_LEAST, KIND, false>>(be);
    prepare_form<wg_form<WG_TOKENS_MOST, KIND, false>>(be);
    prepare_form<wg_form<WG_TOKENS_MOST, KIND, true>>(be);
}

void matmul_prepare_wgmma(struct backend_cuda *be)
{
    if (be->sm != 90) return;
    prepare_kind<KIND_BF16>(be);
    prepare_kind<KIND_FP8>(be);
    cuda_prepare(be, pack_rows, 0);
}

/* ---- the comparison ---- */

/* A bf16 number whose exponent is one of 16, so that sums lose bits as the order of their terms has
 * it. */
static uint16_t wide_number(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    uint32_t bits = *state >> 16;
    return static_cast<uint16_t>((bits & 0x807fu) | (119u + (bits >> 7 & 15u)) << 7);
}

/* Compares sums of random numbers by both kernels; how they lie in the matrix does not matter. The
 * two segments of 13 tiles end within a stage. device, host: COMPARED_BYTES. */
enum {
    COMPARED_IN = 832,
    COMPARED_OUT = WG_GROUPS * TILE_OUTPUTS,
    COMPARED_ROWS = WG_TOKENS_MOST,
    COMPARED_SUMS = COMPARED_ROWS * COMPARED_OUT,
    COMPARED_INPUTS = COMPARED_IN * (COMPARED_OUT + COMPARED_ROWS),
    COMPARED_BYTES = 2 * COMPARED_INPUTS + 2 * 4 * COMPARED_SUMS
};

static int compare_rows(struct backend_cuda *be, int n_rows, uint8_t *device, uint8_t *host,
                        bool *is_equal, struct error *err)
{
    struct matmul_job job = {};
    size_t n_bytes = static_cast<size_t>(n_rows) * COMPARED_OUT * sizeof(float);
    uint8_t *sums = host + 2 * COMPARED_INPUTS;
    uint32_t state = 1;
    for (int i = 0; i < COMPARED_INPUTS; i++) {
        reinterpret_cast<uint16_t *>(host)[i] = wide_number(&state);
    }
    memset(sums, 0, n_bytes);
    memset(sums + n_bytes, 0xff, n_bytes); /* other bits, should nothing be written */
    cuda_note(be, cudaMemcpyAsync(device, host, COMPARED_BYTES, cudaMemcpyHostToDevice, be->stream),
              "comparing wgmma");
    job.weights[0] = device;
    job.in = reinterpret_cast<uint16_t *>(device) + COMPARED_IN * COMPARED_OUT;
    job.in_stride = job.n_in = COMPARED_IN;
    job.out_stride = job.n_out = COMPARED_OUT;
    job.n_rows = n_rows;
    job.n_tiles = matmul_tiles(COMPARED_IN);
    job.n_groups = matmul_groups(COMPARED_OUT);
    job.n_segments = matmul_segments(COMPARED_IN);
    for (size_t i = 0; i < 2; i++) {
        struct matmul_job one = job;
        one.out = reinterpret_cast<float *>(device + 2 * COMPARED_INPUTS + i * n_bytes);
        if (i == 0) matmul_launch_many(be, &one, 1, KIND_BF16, true);
        if (i == 1) matmul_launch_wgmma(be, &one, 1, KIND_BF16);
    }
    cuda_note(be, cudaMemcpyAsync(host, device, COMPARED_BYTES, cudaMemcpyDeviceToHost, be->stream),
              "comparing wgmma");
    int rc = cuda_finish(be, err);
    *is_equal = *is_equal && memcmp(sums, sums + n_bytes, n_bytes) == 0;
    return rc;
}

int cuda_compare_wgmma(struct backend_cuda *be, bool *is_equal, struct error *err)
{
    uint8_t *device = NULL, *host = static_cast<uint8_t *>(cuda_host_scratch(be, COMPARED_BYTES));
    int rc = 0;
    *is_equal = true;
    if (host) {
        cuda_note(be, cudaMalloc(reinterpret_cast<void **>(&device), COMPARED_BYTES),
                  "comparing wgmma");
    }
    if (be->status == cudaSuccess) {
        rc = compare_rows(be, WG_TOKENS_LEAST, device, host, is_equal, err);
        if (!rc) rc = compare_rows(be, WG_TOKENS_MOST, device, host, is_equal, err);
    }
    cudaFree(device);
    return rc ? rc : cuda_finish(be, err);
}
