/* Rows of synthetic tensors made on the device, with exactly the bits of synthetic_elements_bf16
 * (model/numerics/synthetic_elements.c): pieces of Philox in integers, then one product and one
 * sum in float, in the same order. 8 elements take about 100 instructions, so 16 GB of weights take
 * some tens of milliseconds; most of the loading time goes into launches and allocations. */
#include "model/backend/cuda/matmul/matmul.cuh"

extern "C" {
#include "base/rng.h"
}

enum { FILL_THREADS = 256 };

#ifdef CUDA_EMULATED
#define __grid_constant__
#endif

struct synthetic_part {
    uint64_t seed;
    float mean, step;
    int tensor_rows, tensor_cols;
    int first_row, first_col;
};

struct synthetic_rows {
    struct slot_map map;
    struct synthetic_part parts[MATRIX_PARTS_MAX];
    int n_in, stride; /* elements of a row; of a row of the staging buffer */
};

/* philox4x32 for counter {block, RNG_WEIGHT, 0}. */
static __device__ __forceinline__ void weight_philox(uint64_t seed, uint64_t block, uint32_t out[4])
{
    out[0] = (uint32_t)block;
    out[1] = (uint32_t)(block >> 32);
    out[2] = RNG_WEIGHT;
    out[3] = 0;
    device_philox(out, seed);
}

/* The 16-bit pieces first .. first + 7 of a tensor's stream, in pairs. A Philox block has 8 pieces.
 * If first lies inside of a block, two blocks are shifted together, with fixed indices so that the
 * words stay in registers. */
static __device__ void weight_pieces(uint64_t seed, uint64_t first, uint32_t pairs[4])
{
    uint32_t words[8] = {0}, skip = (uint32_t)first % UNIT;
    weight_philox(seed, first / UNIT, words);
    if (skip) {
        weight_philox(seed, first / UNIT + 1, words + 4);
#pragma unroll
        for (int i = 0; i < 6; i++) {
            words[i] = skip & 4 ? words[i + 2] : words[i];
        }
#pragma unroll
        for (int i = 0; i < 5; i++) {
            words[i] = skip & 2 ? words[i + 1] : words[i];
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            words[i] = skip & 1 ? words[i] >> 16 | words[i + 1] << 16 : words[i];
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        pairs[i] = words[i];
    }
}

/* The element of a piece, as synthetic_elements_bf16 makes it. */
static __device__ __forceinline__ uint16_t weight_element(const struct synthetic_part *part,
                                                          uint32_t piece)
{
    return float_to_bf16(part->mean + (static_cast<float>(piece) - 32767.5f) * part->step);
}

/* staging[slot - first_slot][k .. k + 8): slot = first_slot + blockIdx.y, a thread for each 8 k. */
static __global__ void fill_synthetic(const __grid_constant__ struct synthetic_rows rows,
                                      int first_slot, uint16_t *staging)
{
    int k = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * UNIT, row = 0;
    int part = slot_find(&rows.map, first_slot + static_cast<int>(blockIdx.y), &row);
    uint32_t pairs[4] = {0, 0, 0, 0};
    grid_dependency_wait();
    grid_dependency_launch();
    if (k >= rows.stride) return;
    const struct synthetic_part *p = &rows.parts[part < 0 ? 0 : part];
    row += p->first_row;
    if (part >= 0 && row < p->tensor_rows) {
        uint64_t first = static_cast<uint64_t>(row) * static_cast<uint64_t>(p->tensor_cols) +
                         static_cast<uint64_t>(p->first_col + k);
        weight_pieces(p->seed, first, pairs);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t low = k + 2 * i < rows.n_in ? weight_element(p, pairs[i] & 0xffffu) : 0;
            uint32_t high = k + 2 * i + 1 < rows.n_in ? weight_element(p, pairs[i] >> 16) : 0;
            pairs[i] = high << 16 | low;
        }
    }
    size_t at = static_cast<size_t>(blockIdx.y) * static_cast<size_t>(rows.stride);
    *reinterpret_cast<uint4 *>(staging + at + k) =
        make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

static struct synthetic_rows synthetic_rows_of(const struct matrix_source *source,
                                               const struct slot_map *map)
{
    struct synthetic_rows rows = {};
    rows.map = *map;
    rows.n_in = source->n_in;
    rows.stride = matmul_tiles(source->n_in) * TILE_K;
    for (int i = 0; i < source->n_parts; i++) {
        const struct matrix_part *part = &source->parts[i];
        rows.parts[i].seed = part->weight.seed;
        rows.parts[i].mean = part->weight.mean;
        rows.parts[i].step = part->weight.scale * (3.46410162f / 65536.0f);
        rows.parts[i].tensor_rows = part->weight.n_rows;
        rows.parts[i].tensor_cols = part->weight.n_cols;
        rows.parts[i].first_row = part->first_row;
        rows.parts[i].first_col = part->first_col;
    }
    return rows;
}

void cuda_fill_synthetic(struct backend_cuda *be, const struct matrix_source *source,
                         const struct slot_map *map, int first_slot, int n_slots, uint16_t *staging)
{
    struct synthetic_rows rows = synthetic_rows_of(source, map);
    unsigned blocks = (unsigned)(rows.stride / UNIT + FILL_THREADS - 1) / FILL_THREADS;
    cuda_launch(be, "making synthetic weights", fill_synthetic, dim3(blocks, (unsigned)n_slots),
                dim3(FILL_THREADS), 0, rows, first_slot, staging);
}

/* x[row][k .. k + 8) = scale * row tokens[row] of the table, or zeros: row = blockIdx.y, a thread
 * for each 8 k. */
static __global__ void embed_synthetic(struct synthetic_part table, const int32_t *tokens,
                                       float scale, float *x)
{
    int k = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * UNIT;
    uint32_t pairs[4] = {0, 0, 0, 0};
    int32_t token = tokens[blockIdx.y];
    bool is_there = token != STEP_NO_TOKEN;
    grid_dependency_launch();
    if (k < table.tensor_cols && is_there) {
        uint64_t first = static_cast<uint64_t>(token) * static_cast<uint64_t>(table.tensor_cols) +
                         static_cast<uint64_t>(k);
        weight_pieces(table.seed, first, pairs);
    }
    grid_dependency_wait();
    if (k >= table.tensor_cols) return;
    float *out = x + static_cast<size_t>(blockIdx.y) * static_cast<size_t>(table.tensor_cols) + k;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float low = scale * bf16_to_float(weight_element(&table, pairs[i] & 0xffffu));
        float high = scale * bf16_to_float(weight_element(&table, pairs[i] >> 16));
        out[2 * i] = is_there ? low : 0.0f;
        out[2 * i + 1] = is_there ? high : 0.0f;
    }
}

void cuda_embed_synthetic(struct backend_cuda *be, const struct weight *table, int n, float scale,
                          float *x)
{
    struct synthetic_part part = {};
    unsigned blocks = (unsigned)(table->n_cols / UNIT + FILL_THREADS - 1) / FILL_THREADS;
    part.seed = table->seed;
    part.mean = table->mean;
    part.step = table->scale * (3.46410162f / 65536.0f);
    part.tensor_cols = table->n_cols;
    cuda_launch(be, "embed", embed_synthetic, dim3(blocks, (unsigned)cuda_rows(be, n)),
                dim3(FILL_THREADS), 0, part, be->inputs.tokens, scale, x);
}

void cuda_synthetic_prepare(struct backend_cuda *be)
{
    cuda_prepare(be, embed_synthetic, 0);
}
