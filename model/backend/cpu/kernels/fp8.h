/* The matmul of fp8 weights of a variant, with the tiles of matmul.h; included by variant.h.
 *
 * A chunk of a block becomes bf16, which is exact, in memory that stays in the first-level cache,
 * and all tiles of rows pass over it. Their sums are those of a run of k: the chain of cpu-bf16
 * from zero. At the end of the run they are multiplied by the columns' scales and added to the
 * outputs by one fused step, with denormals as IEEE has them. So an output depends on neither the
 * rows nor the blocks that go with it. */
#pragma once

#include "model/backend/cpu/kernels/fp8_matrix.h"
#include "model/backend/cpu/kernels/matmul.h"

enum {
    FP8_CHUNK_PAIRS = 64,        /* pairs of k that become bf16 at once: 16 KiB */
    FP8_TILES = 128 / TILE_ROWS, /* tiles that pass over a chunk together */
    FP8_ROWS = FP8_TILES * TILE_ROWS,
    FP8_PIECE = BLOCK_STEP, /* numbers that are looked at together: a pair of k */
    FP8_AHEAD_BYTES = 4096
};

/* A block, and the tiles of rows that pass over it together. */
struct fp8_group {
    const struct matmul_rows *rows;
    int first_row, n_rows, first_tile, end_tile;
    int first_k;
    const uint8_t *q;    /* of the block */
    uint16_t *bf16;      /* [chunk] */
    float *run, *output; /* [n_rows][64] sums of a run, and of all runs before it */
};

/* Numbers whose exponent is not 0, which are nearly all: it is moved. */
static void fp8_widen_normal(uint16_t *restrict out, const uint8_t *restrict in)
{
    for (int i = 0; i < FP8_PIECE; i++) {
        uint16_t x = in[i];
        out[i] = (uint16_t)((uint16_t)((uint16_t)(x << 4 & 0x7f0) + (uint16_t)(120 << 7)) |
                            (uint16_t)(x << 8 & 0x8000));
    }
}

/* As fp8_widen, for all exponents: of exponent 0 the one before the point, which bf16 implies, is
 * taken away again. */
static __attribute__((noinline)) void fp8_widen_any(uint16_t *restrict out,
                                                    const uint8_t *restrict in)
{
    for (int i = 0; i < FP8_PIECE; i++) {
        uint32_t x = in[i], size = x & 0x7fu, bits = (size << 20) + (120u << 23);
        float half = num_bits_to_float(bits);
        uint32_t small = num_float_to_bits(half + half - 0x1p-6f);
        bits = size < 8 ? small : bits;
        bits = size == 0x7f ? 0x7fc00000u : bits;
        out[i] = (uint16_t)(bits >> 16 | (x & 0x80u) << 8);
    }
}

static bool fp8_is_normal(const uint8_t *in)
{
    uint8_t most = 0;
    for (int i = 0; i < FP8_PIECE; i++) {
        uint8_t above = (uint8_t)((in[i] & 0x7f) - 8); /* of exponent 0 it is 248 and more */
        most = above > most ? above : most;
    }
    return most < 0x7f - 8;
}

/* n is a multiple of FP8_PIECE. */
static void fp8_widen(uint16_t *restrict out, const uint8_t *restrict in, size_t n)
{
    for (size_t i = 0; i < n; i += FP8_PIECE) {
        if (fp8_is_normal(in + i)) {
            fp8_widen_normal(out + i, in + i);
        } else {
            fp8_widen_any(out + i, in + i);
        }
    }
}

/* Pairs first_pair .. + n_pairs, which are a chunk, by all tiles. */
static void fp8_chunk(const struct fp8_group *g, int first_pair, int n_pairs)
{
    const uint8_t *q = g->q + (size_t)first_pair * BLOCK_STEP;
    struct dots d = {.w_step = BLOCK_STEP,
                     .n_pairs = n_pairs,
                     .acc_stride = KERNEL_COLUMNS,
                     .near_step = BLOCK_STEP,
                     .far_step = BLOCK_STEP};
    size_t row = (size_t)g->first_row;
    float *sums = g->run;
    for (size_t at = 0; at < (size_t)n_pairs * BLOCK_STEP; at += 64) {
        __builtin_prefetch(q + FP8_AHEAD_BYTES + at, 0, 3); /* past the end it has no effect */
    }
    fp8_widen(g->bf16, q, (size_t)n_pairs * BLOCK_STEP);
    for (int i = g->first_tile; i < g->end_tile; i++) {
        int n_rows = rows_of(g->rows, i);
        dots_rows(&d, g->rows, n_rows, row, (size_t)g->first_k + 2 * (size_t)first_pair);
        for (int column = 0; column < KERNEL_COLUMNS; column += tiles[n_rows].n_columns) {
            d.w = d.near = d.far = g->bf16 + 2 * (size_t)column;
            d.acc = sums + column;
            tiles[n_rows].run(&d);
        }
        row += (size_t)n_rows;
        sums += n_rows * KERNEL_COLUMNS;
    }
}

/* output = fma(run, scale, output) */
static void fp8_fold(const struct fp8_group *g, const float *restrict scales)
{
    for (int row = 0; row < g->n_rows; row++) {
        const float *restrict run = g->run + row * KERNEL_COLUMNS;
        float *restrict output = g->output + row * KERNEL_COLUMNS;
        for (int i = 0; i < KERNEL_COLUMNS; i++) {
            output[i] = __builtin_fmaf(run[i], scales[i], output[i]);
        }
    }
}

static void fp8_group_run(struct fp8_group *g, const struct fp8_matrix *w, const float *scales)
{
    size_t bytes = sizeof(float) * (size_t)g->n_rows * KERNEL_COLUMNS;
    memset(g->output, 0, bytes);
    for (int run = 0; run < w->n_runs; run++) {
        int end = fp8_matrix_run(w, run + 1) / 2;
        unsigned mode = dots_begin();
        memset(g->run, 0, bytes);
        for (int pair = fp8_matrix_run(w, run) / 2; pair < end; pair += FP8_CHUNK_PAIRS) {
            fp8_chunk(g, pair, end - pair < FP8_CHUNK_PAIRS ? end - pair : FP8_CHUNK_PAIRS);
        }
        dots_end(mode);
        fp8_fold(g, scales + (size_t)run * KERNEL_COLUMNS);
    }
}

static void fp8_matmul(const struct fp8_matrix *w, const struct matmul_call *call)
{
    _Alignas(64) uint16_t bf16[FP8_CHUNK_PAIRS * BLOCK_STEP];
    _Alignas(64) float run[FP8_ROWS * KERNEL_COLUMNS], output[FP8_ROWS * KERNEL_COLUMNS];
    size_t block_bytes = fp8_matrix_bytes(w) / (size_t)w->n_blocks;
    int n_tiles = tiles_of(call->rows->n), n_groups = (n_tiles + FP8_TILES - 1) / FP8_TILES;
    for (int block = call->first_block; block < call->end_block; block++) {
        int column = block * KERNEL_COLUMNS;
        int n_columns = w->n_out - column < KERNEL_COLUMNS ? w->n_out - column : KERNEL_COLUMNS;
        const uint8_t *data = w->data + (size_t)block * block_bytes;
        const float *scales = (const float *)(const void *)data;
        struct fp8_group g = {.rows = call->rows,
                              .first_k = call->first_k,
                              .q = data + (size_t)w->n_runs * KERNEL_COLUMNS * sizeof(float),
                              .bf16 = bf16,
                              .run = run,
                              .output = output};
        for (int i = 0; i < n_groups; i++) {
            g.end_tile = g.first_tile + share_size(n_tiles, n_groups, i);
            g.n_rows = 0;
            for (int tile = g.first_tile; tile < g.end_tile; tile++) {
                g.n_rows += rows_of(g.rows, tile);
            }
            fp8_group_run(&g, w, scales);
            float *out = call->out + (size_t)g.first_row * call->out_stride + column;
            for (int row = 0; row < g.n_rows; row++) {
                memcpy(out + (size_t)row * call->out_stride, output + row * KERNEL_COLUMNS,
                       sizeof(float) * (size_t)n_columns);
            }
            g.first_row += g.n_rows;
            g.first_tile = g.end_tile;
        }
    }
}
