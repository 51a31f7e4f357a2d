/* Loads a matrix that is stored in blocks into the tiles of blocks.cuh, as matrix.cu does with
 * others. The host takes a row apart into integers, scales and minimums (block_rows.h), and a
 * kernel packs them. No weight is rounded. */
#include "model/backend/cuda/matmul/matmul.cuh"

/* A chunk: staged rows, and where its first group goes. */
struct block_chunk {
    const uint8_t *staging;
    int n_groups, n_tiles; /* groups of the chunk, tiles of a group */
    size_t row_bytes;
    struct block_layout layout;
    uint8_t *tiles;
};

/* A lane's integers of a tile: [output g, output g + 8][half][element]. */
struct lane_integers {
    uint32_t u[2][2][4];
};

static __device__ struct lane_integers lane_integers_of(const struct block_chunk *chunk, int slot,
                                                        int tile, int lane)
{
    struct lane_integers out;
    int offset = block_offset(&chunk->layout);
    for (int row = 0; row < 2; row++) {
        const int8_t *q = reinterpret_cast<const int8_t *>(
            chunk->staging + static_cast<size_t>(slot + row * TILE_OUTPUTS / 2) * chunk->row_bytes);
        for (int half = 0; half < 2; half++) {
            const int8_t *at = q + tile * TILE_K + half * TILE_K / 2 + lane % 4 * 4;
            for (int i = 0; i < 4; i++) {
                out.u[row][half][i] = static_cast<uint32_t>(at[i] + offset) & 0xffu;
            }
        }
    }
    return out;
}

static __device__ void pack_bytes(const struct lane_integers *in, uint8_t *tile, int lane)
{
    for (int i = 0; i < 4; i++) {
        const uint32_t *u = in->u[i / 2][i % 2];
        reinterpret_cast<uint32_t *>(tile)[lane * 4 + i] =
            u[0] | u[2] << 8 | u[1] << 16 | u[3] << 24;
    }
}

/* The four lower bits of each integer, then the bits above them. */
static __device__ void pack_nibbles(const struct lane_integers *in, int bits, uint8_t *tile,
                                    int lane)
{
    uint32_t words[2] = {0, 0}, fifth = 0, upper = 0;
    for (int pair = 0; pair < 8; pair++) {
        const uint32_t *u = in->u[pair / 4][pair % 4 / 2] + pair % 2 * 2;
        words[pair / 4] |= (u[0] & 15u) << (pair % 4 * 4) | (u[1] & 15u) << (pair % 4 * 4 + 16);
        fifth |= (u[0] >> 4 & 1u) << pair | (u[1] >> 4 & 1u) << (pair + 8);
        upper |= (u[0] >> 4 & 3u) << (2 * pair) | (u[1] >> 4 & 3u) << (2 * pair + 16);
    }
    reinterpret_cast<uint2 *>(tile)[lane] = make_uint2(words[0], words[1]);
    tile += block_packed_bytes(4);
    if (bits == 5) reinterpret_cast<uint16_t *>(tile)[lane] = static_cast<uint16_t>(fifth);
    if (bits == 6) reinterpret_cast<uint32_t *>(tile)[lane] = upper;
}

/* One warp for each tile. */
static __global__ void pack_blocks(struct block_chunk chunk)
{
    size_t thread = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    size_t tile = thread / WARP, n_tiles = static_cast<size_t>(chunk.n_tiles);
    int lane = static_cast<int>(thread % WARP), group = static_cast<int>(tile / n_tiles);
    int k_tile = static_cast<int>(tile % n_tiles), n_scales = chunk.layout.n_scales;
    grid_dependency_wait();
    grid_dependency_launch();
    if (group >= chunk.n_groups) return;
    uint8_t *to = chunk.tiles + tile * static_cast<size_t>(block_tile_bytes(&chunk.layout));
    struct lane_integers in =
        lane_integers_of(&chunk, group * TILE_OUTPUTS + lane / 4, k_tile, lane);
    if (chunk.layout.bits == 8) {
        pack_bytes(&in, to, lane);
    } else {
        pack_nibbles(&in, chunk.layout.bits, to, lane);
    }
    float *rows = reinterpret_cast<float *>(to + block_packed_bytes(chunk.layout.bits));
    int n = n_scales * TILE_OUTPUTS * (chunk.layout.has_mins ? 2 : 1);
    for (int i = lane; i < n; i += WARP) {
        int slot = group * TILE_OUTPUTS + i % TILE_OUTPUTS, row = i / TILE_OUTPUTS;
        const uint8_t *staged = chunk.staging + static_cast<size_t>(slot) * chunk.row_bytes;
        const float *scales =
            reinterpret_cast<const float *>(staged + n_tiles * TILE_K); /* then minimums */
        size_t at = static_cast<size_t>(k_tile) * 2 + static_cast<size_t>(row % n_scales);
        rows[i] = scales[at + (row < n_scales ? 0 : 2 * n_tiles)];
    }
}

/* ---- the host's part ---- */

/* A matrix being loaded. */
struct block_filling {
    struct backend_cuda *be;
    const struct matrix_source *source;
    struct slot_map map;
    struct block_layout layout;
    const int32_t *order;                /* host; NULL: columns are a run */
    int n_tiles, n_groups, chunk_groups; /* of a group, of the matrix, at most so many at once */
    size_t row_bytes;
    uint8_t *tiles, *staging; /* device */
};

static void read_slot(const void *filling, int slot, void *to_row, uint64_t *digests)
{
    const struct block_filling *f = static_cast<const struct block_filling *>(filling);
    uint8_t *out = static_cast<uint8_t *>(to_row);
    int row = 0, part = slot_find(&f->map, slot, &row);
    size_t k = (size_t)f->n_tiles * TILE_K;
    struct block_row to = {};
    to.q = reinterpret_cast<int8_t *>(out);
    to.scales = reinterpret_cast<float *>(out + k);
    to.mins = to.scales + k / BLOCK_RUN;
    to.order = f->order;
    memset(out, 0, f->row_bytes);
    if (part < 0) return;
    const struct matrix_part *p = &f->source->parts[part];
    row = matrix_part_row(p, row);
    if (row < 0) return;
    block_row_read(&f->layout, &p->weight, row, p->first_col, f->order ? (int)k : f->source->n_in,
                   &to);
    if (f->source->digests) {
        digests[part] += weight_digest_unit(&p->weight, row, p->first_col, f->source->n_in);
    }
}

static void pack(const struct block_filling *f, int first_group, int n_groups)
{
    struct block_chunk chunk = {};
    size_t tiles = (size_t)n_groups * (size_t)f->n_tiles;
    chunk.staging = f->staging;
    chunk.n_groups = n_groups;
    chunk.n_tiles = f->n_tiles;
    chunk.row_bytes = f->row_bytes;
    chunk.layout = f->layout;
    chunk.tiles =
        f->tiles + (size_t)first_group * (size_t)f->n_tiles * (size_t)block_tile_bytes(&f->layout);
    dim3 grid((unsigned)((tiles * WARP + PACK_THREADS - 1) / PACK_THREADS));
    cuda_launch(f->be, "packing a matrix", pack_blocks, grid, dim3(PACK_THREADS), 0, chunk);
}

/* Reads chunk i into its buffer while chunk i - 1 is being copied from the other one. */
static int fill_chunks(const struct block_filling *f, uint8_t *buffers, size_t chunk_bytes,
                       struct error *err)
{
    int rc = 0, i = 0;
    TRY(cuda_open_readers(f->be, err));
    matrix_source_expect(f->source);
    for (int group = 0; group < f->n_groups; group += f->chunk_groups, i++) {
        int rest = f->n_groups - group, n = rest < f->chunk_groups ? rest : f->chunk_groups;
        uint8_t *buffer = buffers + (i % 2 ? chunk_bytes : 0);
        const struct readers_job job = {read_slot,        f,      group * TILE_OUTPUTS,
                                        n * TILE_OUTPUTS, buffer, f->row_bytes};
        readers_run(f->be->readers, &job, f->source->digests, f->source->n_parts);
        TRY(cuda_finish(f->be, err));
        cuda_note(f->be,
                  cudaMemcpyAsync(f->staging, buffer, (size_t)n * TILE_OUTPUTS * f->row_bytes,
                                  cudaMemcpyHostToDevice, f->be->stream),
                  "copying weights");
        pack(f, group, n);
    }
out:
    return rc;
}

int cuda_matrix_fill_blocks(struct backend_cuda *be, const struct matrix *m,
                            const struct matrix_source *source, const int32_t *order,
                            struct error *err)
{
    struct block_filling f = {};
    uint8_t *buffers = NULL;
    size_t chunk_bytes;
    int rc = 0;
    f.be = be;
    f.source = source;
    f.map = slot_map_of(source);
    f.layout = block_layout_of(m);
    f.order = m->n_ordered ? order : NULL;
    f.n_tiles = matmul_tiles(matmul_width(m));
    f.n_groups = matmul_groups(m->n_out);
    f.row_bytes = (size_t)f.n_tiles * (TILE_K + 4 * sizeof(float));
    f.chunk_groups = (int)(STAGING_BYTES / (TILE_OUTPUTS * f.row_bytes));
    if (f.chunk_groups < 1) f.chunk_groups = 1;
    if (f.chunk_groups > f.n_groups) f.chunk_groups = f.n_groups;
    chunk_bytes = (size_t)f.chunk_groups * TILE_OUTPUTS * f.row_bytes;
    f.tiles = static_cast<uint8_t *>(m->data);
    TRY(cuda_finish(be, err)); /* no kernel uses the scratch memory now */
    f.staging = static_cast<uint8_t *>(cuda_scratch(be, chunk_bytes));
    if (f.staging) buffers = static_cast<uint8_t *>(cuda_host_scratch(be, 2 * chunk_bytes));
    if (buffers) TRY(fill_chunks(&f, buffers, chunk_bytes, err));
    rc = cuda_finish(be, err); /* also reports that there was no memory */
out:
    return rc;
}
