/* Loads a matrix into the layout of matmul.cuh. Its outputs are counted in `slots`, the order of
 * the packed rows: 16 in a group. Chunks of whole groups go through a row-major staging buffer on
 * the device, [slot][k padded to 32] bf16. Rows of a file are read into one of two pinned buffers,
 * by several threads, while the other is copied over. Synthetic rows are made on the device
 * (synthetic.cu), unless the part lists chosen rows. Then one kernel packs the chunk; for fp8
 * another one finds the scales first.
 *
 * fp8: an output's scale is the least power of two s with max|w| / s <= 448, the largest e4m3; w /
 * s is then exact and rounded once, to nearest even: an error of at most |w| / 16, or s / 1024 for
 * |w| below s / 64. A power of two loses nothing against max|w| / 448, because e4m3 is a floating
 * format. An output with a weight that is not finite has the scale NaN and is NaN, as it would
 * mostly be in bf16. All matrices are treated alike, the head too, because a matrix_source does not
 * tell what it is for. */
#include <stdlib.h>

#include "model/backend/cuda/matmul/matmul.cuh"
extern "C" {
#include "model/backend/matrix_order.h"
}

/* ---- packing ---- */

/* A chunk: the staged rows and where its first group goes. */
struct chunk {
    const uint16_t *staging;
    int n_groups, n_tiles; /* groups of the chunk, tiles of a group */
    uint8_t *tiles;
    float *scales; /* of its slots; NULL: bf16 */
};

static __device__ __forceinline__ uint4 staged_unit(const struct chunk *chunk, int slot, int tile,
                                                    int lane)
{
    size_t row = static_cast<size_t>(slot) * static_cast<size_t>(chunk->n_tiles);
    size_t at = (row + static_cast<size_t>(tile)) * TILE_K + static_cast<size_t>(lane % 4 * UNIT);
    return *reinterpret_cast<const uint4 *>(chunk->staging + at);
}

/* Packs bf16: one thread for each 16 bytes of the packed chunk. */
static __global__ void pack_bf16(struct chunk chunk)
{
    size_t unit = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    int in_tile = static_cast<int>(unit % (TILE_BF16_BYTES / 16)), lane = in_tile % WARP;
    size_t tile = unit / (TILE_BF16_BYTES / 16);
    int group = static_cast<int>(tile / static_cast<size_t>(chunk.n_tiles));
    grid_dependency_wait();
    grid_dependency_launch();
    if (group >= chunk.n_groups) return;
    int slot = group * TILE_OUTPUTS + in_tile / WARP * (TILE_OUTPUTS / 2) + lane / 4;
    int k_tile = static_cast<int>(tile % static_cast<size_t>(chunk.n_tiles));
    reinterpret_cast<uint4 *>(chunk.tiles)[unit] = staged_unit(&chunk, slot, k_tile, lane);
}

/* The scale for a largest magnitude, which is given as the bits of a bf16. 448 = 1.75 * 2^8. */
static __device__ float fp8_scale(uint32_t max)
{
    if (max >= 0x7f80u) return __uint_as_float(0x7fc00000u);
    if (max == 0) return 1.0f;
    int exponent = static_cast<int>(max >> 7) - 8 + ((max & 0x7fu) > 0x60u);
    return __uint_as_float(static_cast<uint32_t>(exponent < 1 ? 1 : exponent) << 23);
}

/* One warp for each slot of the chunk. */
static __global__ void find_scales(struct chunk chunk)
{
    int slot = static_cast<int>(blockIdx.x), lane = static_cast<int>(threadIdx.x);
    uint32_t max = 0;
    grid_dependency_wait();
    grid_dependency_launch();
    for (int unit = lane; unit < chunk.n_tiles * 4; unit += WARP) {
        uint4 at = staged_unit(&chunk, slot, unit / 4, unit);
        const uint32_t pairs[4] = {at.x, at.y, at.z, at.w};
        for (int i = 0; i < 4; i++) {
            uint32_t low = pairs[i] & 0x7fffu, high = pairs[i] >> 16 & 0x7fffu;
            max = max > low ? max : low;
            max = max > high ? max : high;
        }
    }
    for (int distance = WARP / 2; distance > 0; distance /= 2) {
        uint32_t other = __shfl_xor_sync(ALL_LANES, max, distance);
        max = max > other ? max : other;
    }
    if (lane == 0) chunk.scales[slot] = fp8_scale(max);
}

/* e4m3 of w / scale, |w / scale| <= 448, to nearest even: below 2^-6 in steps of 2^-9, above that
 * with the mantissa cut to 3 bits. A NaN scale gives any byte. */
static __device__ uint32_t fp8_of(uint32_t w, float inverse)
{
    float x = bf16_to_float(static_cast<uint16_t>(w & 0x7fffu)) * inverse;
    uint32_t sign = w >> 8 & 0x80u, bits = __float_as_uint(x);
    if (x < 0x1p-6f) return sign | (__float_as_uint(x * 512.0f + 12582912.0f) & 0xfu);
    bits += 0x7ffffu + (bits >> 20 & 1u);
    return sign | (((bits >> 20) - (120u << 3)) & 0x7fu);
}

/* Four elements in the byte order of e4m3_to_bf16. */
static __device__ uint32_t fp8_word(uint32_t low, uint32_t high, float inverse)
{
    return fp8_of(high & 0xffffu, inverse) | fp8_of(low & 0xffffu, inverse) << 8 |
           fp8_of(high >> 16, inverse) << 16 | fp8_of(low >> 16, inverse) << 24;
}

/* Packs fp8: one thread for each 16 bytes, which are 8 k of slot g and of slot g + 8. */
static __global__ void pack_fp8(struct chunk chunk)
{
    size_t unit = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    size_t tile = unit / (TILE_FP8_BYTES / 16);
    int lane = static_cast<int>(unit % (TILE_FP8_BYTES / 16));
    int group = static_cast<int>(tile / static_cast<size_t>(chunk.n_tiles));
    uint32_t words[4] = {0, 0, 0, 0};
    grid_dependency_wait();
    grid_dependency_launch();
    if (group >= chunk.n_groups) return;
    int k_tile = static_cast<int>(tile % static_cast<size_t>(chunk.n_tiles));
    for (int half = 0; half < 2; half++) {
        int slot = group * TILE_OUTPUTS + half * (TILE_OUTPUTS / 2) + lane / 4;
        uint32_t exponent = __float_as_uint(chunk.scales[slot]) >> 23 & 0xffu;
        float inverse = __uint_as_float((254u - exponent) << 23); /* of a NaN: not used */
        uint4 at = staged_unit(&chunk, slot, k_tile, lane);
        words[2 * half] = fp8_word(at.x, at.y, inverse);
        words[2 * half + 1] = fp8_word(at.z, at.w, inverse);
    }
    reinterpret_cast<uint4 *>(chunk.tiles)[unit] =
        make_uint4(words[0], words[1], words[2], words[3]);
}

static void pack(struct backend_cuda *be, const struct chunk *chunk)
{
    size_t tiles = (size_t)chunk->n_groups * (size_t)chunk->n_tiles;
    size_t units = tiles * (chunk->scales ? TILE_FP8_BYTES : TILE_BF16_BYTES) / 16;
    dim3 grid((unsigned)((units + PACK_THREADS - 1) / PACK_THREADS));
    if (chunk->scales) {
        dim3 slots((unsigned)(chunk->n_groups * TILE_OUTPUTS));
        cuda_launch(be, "finding a matrix's scales", find_scales, slots, dim3(WARP), 0, *chunk);
        cuda_launch(be, "packing a matrix", pack_fp8, grid, dim3(PACK_THREADS), 0, *chunk);
    } else {
        cuda_launch(be, "packing a matrix", pack_bf16, grid, dim3(PACK_THREADS), 0, *chunk);
    }
}

/* ---- the host's part ---- */

/* A matrix being loaded. */
struct filling {
    struct backend_cuda *be;
    const struct matrix_source *source;
    struct slot_map map;
    uint8_t *tiles;
    float *scales;              /* NULL: bf16 */
    int n_in, n_tiles;          /* in a group */
    int n_groups, chunk_groups; /* in the matrix; at most so many at once */
    size_t row_bytes;           /* in the staging buffer */
    uint16_t *staging;          /* device */
};

static struct chunk chunk_of(const struct filling *f, int first_group)
{
    size_t group_bytes = (size_t)f->n_tiles * (f->scales ? TILE_FP8_BYTES : TILE_BF16_BYTES);
    int rest = f->n_groups - first_group;
    struct chunk chunk = {};
    chunk.staging = f->staging;
    chunk.n_groups = rest < f->chunk_groups ? rest : f->chunk_groups;
    chunk.n_tiles = f->n_tiles;
    chunk.tiles = f->tiles + (size_t)first_group * group_bytes;
    chunk.scales = f->scales ? f->scales + (size_t)first_group * TILE_OUTPUTS : NULL;
    return chunk;
}

static void fill_on_device(struct filling *f)
{
    for (int group = 0; group < f->n_groups; group += f->chunk_groups) {
        struct chunk chunk = chunk_of(f, group);
        cuda_fill_synthetic(f->be, f->source, &f->map, group * TILE_OUTPUTS,
                            chunk.n_groups * TILE_OUTPUTS, f->staging);
        pack(f->be, &chunk);
    }
}

static void read_slot(const void *filling, int slot, void *to, uint64_t *digests)
{
    const struct filling *f = static_cast<const struct filling *>(filling);
    uint16_t *out = static_cast<uint16_t *>(to);
    int row = 0, part = slot_find(&f->map, slot, &row), n = 0;
    if (part >= 0) {
        const struct matrix_part *p = &f->source->parts[part];
        row = matrix_part_row(p, row);
        if (row >= 0) {
            n = f->n_in;
            weight_read_bf16(&p->weight, row, p->first_col, n, out);
            if (f->source->digests) {
                digests[part] += weight_digest_unit(&p->weight, row, p->first_col, n);
            }
        }
    }
    memset(out + n, 0, f->row_bytes - (size_t)n * sizeof *out);
}

/* Reads chunk i into its buffer while chunk i - 1 is being copied from the other one. */
static int fill_from_host(struct filling *f, uint8_t *buffers, struct error *err)
{
    int rc = 0, i = 0;
    TRY(cuda_open_readers(f->be, err));
    matrix_source_expect(f->source);
    for (int group = 0; group < f->n_groups; group += f->chunk_groups, i++) {
        struct chunk chunk = chunk_of(f, group);
        int n_slots = chunk.n_groups * TILE_OUTPUTS;
        size_t most = (size_t)f->chunk_groups * TILE_OUTPUTS * f->row_bytes;
        uint8_t *buffer = buffers + (i % 2 ? most : 0);
        const struct readers_job job = {read_slot, f,      group * TILE_OUTPUTS,
                                        n_slots,   buffer, f->row_bytes};
        readers_run(f->be->readers, &job, f->source->digests, f->source->n_parts);
        TRY(cuda_finish(f->be, err));
        cuda_note(f->be,
                  cudaMemcpyAsync(f->staging, buffer, (size_t)n_slots * f->row_bytes,
                                  cudaMemcpyHostToDevice, f->be->stream),
                  "copying weights");
        pack(f->be, &chunk);
    }
out:
    return rc;
}

/* The host reads chosen rows and blocks, even of a synthetic tensor. */
static bool is_made_on_device(const struct matrix_source *source)
{
    for (int i = 0; i < source->n_parts; i++) {
        const struct weight *weight = &source->parts[i].weight;
        bool is_synthetic = !weight->data && weight->dtype != DTYPE_BLOCKS;
        if (!is_synthetic || source->parts[i].row_list) return false;
    }
    return true;
}

static struct filling filling_of(struct backend_cuda *be, const struct matrix *m,
                                 const struct matrix_source *source)
{
    struct filling f = {};
    f.be = be;
    f.source = source;
    f.map = slot_map_of(source);
    f.tiles = static_cast<uint8_t *>(m->data);
    if (matmul_kind(m) == KIND_FP8) {
        f.scales = reinterpret_cast<float *>(f.tiles + matmul_tiles_bytes(m));
    }
    f.n_in = m->n_in;
    f.n_tiles = matmul_tiles(m->n_in);
    f.n_groups = matmul_groups(m->n_out);
    f.row_bytes = (size_t)f.n_tiles * TILE_K * sizeof(uint16_t);
    f.chunk_groups = (int)(STAGING_BYTES / (TILE_OUTPUTS * f.row_bytes));
    if (f.chunk_groups < 1) f.chunk_groups = 1;
    if (f.chunk_groups > f.n_groups) f.chunk_groups = f.n_groups;
    return f;
}

static int fill(struct backend_cuda *be, const struct matrix *m, const struct matrix_source *source,
                struct error *err)
{
    struct filling f = filling_of(be, m, source);
    size_t chunk_bytes = (size_t)f.chunk_groups * TILE_OUTPUTS * f.row_bytes;
    uint8_t *buffers = NULL;
    int rc = 0;
    TRY(cuda_finish(be, err)); /* no kernel uses the scratch memory now */
    f.staging = static_cast<uint16_t *>(cuda_scratch(be, chunk_bytes));
    if (f.staging && is_made_on_device(source)) {
        fill_on_device(&f);
    } else if (f.staging) {
        buffers = static_cast<uint8_t *>(cuda_host_scratch(be, 2 * chunk_bytes));
        if (buffers) TRY(fill_from_host(&f, buffers, err));
    }
    rc = cuda_finish(be, err); /* also reports that there was no memory */
out:
    return rc;
}

/* Checks that packing can take the shape: an even n_in, and a gate as wide as the up. */
static int check_source(const struct matrix_source *source, struct error *err)
{
    const struct matrix_part *parts = source->parts;
    if (source->n_in < 2 || source->n_in % 2) {
        return error_set(err, ERR_UNSUPPORTED,
                         "a matrix of %d inputs: the CUDA backend takes even numbers of them",
                         source->n_in);
    }
    if (source->is_gate_up && (source->n_parts != 2 || parts[0].n_rows != parts[1].n_rows)) {
        return error_set(err, ERR_INTERNAL, "gate and up must be two parts of as many rows");
    }
    return 0;
}

/* Sets the form and the sections of a matrix with parts in blocks, one section for each part.
 * Errors: ERR_UNSUPPORTED a part that begins within a group, or a width that tokens_copy would have
 * to read in pairs. */
static int set_sections(struct matrix *m, const struct matrix_source *source, struct error *err)
{
    size_t at = 0;
    m->form = WEIGHTS_BLOCKS;
    m->n_sections = source->n_parts;
    for (int i = 0, first = 0; i < source->n_parts; i++) {
        const struct matrix_part *part = &source->parts[i];
        m->sections[i].form = weight_form_of(&part->weight);
        m->sections[i].first = first;
        m->sections[i].n_out = part->n_rows;
        m->sections[i].offset = at;
        struct matrix section = matmul_section(m, i);
        at += (matmul_bytes(&section) + 255) / 256 * 256;
        first += part->n_rows;
        int run = block_run_of(&part->weight);
        if (part->weight.stored.order) continue;
        if (part->first_col % run == 0 && m->n_in % UNIT == 0) continue;
        return error_set(err, ERR_UNSUPPORTED,
                         "%d columns of a matrix from %d on: a slice must begin with a run of %d "
                         "weights that share a scale and have a multiple of %d; fewer slices may",
                         m->n_in, part->first_col, run, UNIT);
    }
    m->bytes = matmul_is_split(m) ? at : matmul_bytes(m);
    m->bytes += (size_t)m->n_ordered * sizeof(int32_t);
    return 0;
}

/* A matrix that is stored in blocks keeps them; others have the backend's weights. */
static int set_form(const struct backend_cuda *be, struct matrix *m,
                    const struct matrix_source *source, struct error *err)
{
    int n_blocks = 0;
    m->n_in = source->n_in;
    for (int i = 0; i < source->n_parts; i++) {
        n_blocks += block_form_is_known(weight_form_of(&source->parts[i].weight));
        m->n_out += source->parts[i].n_rows;
    }
    if (n_blocks) {
        int rc = matrix_order_open(m, source, err);
        return rc ? rc : set_sections(m, source, err);
    }
    m->form = be->options.weights == CUDA_WEIGHTS_FP8 ? WEIGHTS_FP8 : WEIGHTS_BF16;
    m->bytes = matmul_bytes(m);
    return 0;
}

static int fill_any(struct backend_cuda *be, const struct matrix *m,
                    const struct matrix_source *source, const int32_t *order, struct error *err)
{
    return m->form == WEIGHTS_BLOCKS ? cuda_matrix_fill_blocks(be, m, source, order, err)
                                     : fill(be, m, source, err);
}

/* Fills the sections of a matrix that is split, each from its part. */
static int fill_sections(struct backend_cuda *be, const struct matrix *m,
                         const struct matrix_source *source, const int32_t *order,
                         struct error *err)
{
    int rc = 0;
    for (int i = 0; i < m->n_sections; i++) {
        struct matrix section = matmul_section(m, i);
        struct matrix_source part = {};
        part.n_in = source->n_in;
        part.n_parts = 1;
        part.parts[0] = source->parts[i];
        part.digests = source->digests ? source->digests + i : NULL;
        TRY(fill_any(be, &section, &part, order, err));
    }
out:
    return rc;
}

/* Copies the order to the end of the matrix's memory. */
static void send_order(struct backend_cuda *be, struct matrix *m, const int32_t *order)
{
    size_t bytes = (size_t)m->n_ordered * sizeof *order;
    m->order = reinterpret_cast<int32_t *>(static_cast<uint8_t *>(m->data) + m->bytes - bytes);
    be->ops.upload(&be->base, m->order, order, bytes);
}

int cuda_matrix_open(struct backend *be, struct matrix *m, const struct matrix_source *source,
                     struct error *err)
{
    struct backend_cuda *cuda = backend_cuda_of(be);
    int32_t *order = NULL;
    int rc = 0;
    memset(m, 0, sizeof *m);
    TRY(check_source(source, err));
    cuda_use_device(cuda);
    rc = set_form(cuda, m, source, err);
    order = m->order; /* the device has its own */
    m->order = NULL;
    if (rc) goto out;
    if (cudaMalloc(&m->data, m->bytes) != cudaSuccess) {
        cudaGetLastError();
        m->data = NULL;
        rc = error_set(
            err, ERR_NO_MEMORY,
            "no memory on the device for a matrix of %d x %d (%zu bytes): more ranks, fp8 "
            "weights or fewer KV blocks need less",
            m->n_in, m->n_out, m->bytes);
        goto out;
    }
    if (order) {
        TRY(cuda_open_ordered(cuda, err));
        send_order(cuda, m, order);
    }
    rc = matmul_is_split(m) ? fill_sections(cuda, m, source, order, err)
                            : fill_any(cuda, m, source, order, err);
out:
    free(order);
    if (rc) cuda_matrix_close(be, m);
    return rc;
}

int cuda_matrix_digest(struct backend *be, const struct matrix_source *source, struct error *err)
{
    int n = 0;
    (void)be;
    (void)err;
    for (int i = 0; i < source->n_parts; i++) {
        n += source->parts[i].n_rows;
    }
    if (!source->digests) return 0;
    matrix_source_expect(source);
    matrix_source_digest(source, 0, n, source->digests);
    return 0;
}

void cuda_matrix_close(struct backend *be, struct matrix *m)
{
    (void)be;
    if (m->data) cudaFree(m->data);
    memset(m, 0, sizeof *m);
}
