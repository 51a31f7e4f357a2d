/* The packed matmul of a variant; included by variant.h.
 *
 * A matmul goes block by block. For up to a tile of rows whose 64 columns fit into registers, a
 * block is read in one pass. Otherwise k is taken in chunks that stay in the first-level cache:
 * every tile of rows runs over the chunk, and its accumulators rest in `park` in between. So the
 * weights are read from memory once for up to PARK_ROWS rows, while their panels and accumulators
 * stream from the second-level cache. Storing and loading a float changes nothing, so an output is
 * one chain either way. */
#pragma once

#include <stdbool.h>
#include <string.h>

#include "model/backend/cpu/kernels/panels.h"

enum {
    BLOCK_STEP = 2 * KERNEL_COLUMNS,                /* bf16 of a block for one pair of k */
    PARK_TILES = (256 + TILE_ROWS - 1) / TILE_ROWS, /* tiles that pass over a chunk together */
    PARK_ROWS = PARK_TILES * TILE_ROWS,             /* whose accumulators are parked: 64 KiB */
    /* Pairs of k that the prefetch of a single pass runs ahead: in one hop, or in the first and in
     * the second of two. */
    ONE_HOP_STEPS = 32,
    FAR_STEPS = 16,
    NEAR_STEPS = 4
};

/* Pairs of k of a chunk: 32 KiB of weights, or 16 where a chunk and the next one must fit into the
 * first-level cache together. */
static int chunk_pairs(void)
{
    return kernels_two_hops() ? 128 : 64;
}

/* A block, and the tiles of rows that pass over it together. */
struct group {
    const struct matmul_rows *rows;
    int first_row, first_tile, end_tile, n_passes; /* n_passes: tile runs over one chunk */
    const uint16_t *w;
    int first_k, n_pairs;
    float *park; /* [rows of the tiles][64] */
};

static int rows_of(const struct matmul_rows *rows, int tile)
{
    return share_size(rows->n, tiles_of(rows->n), tile);
}

static int group_passes(const struct group *g)
{
    int n_passes = 0;
    for (int i = g->first_tile; i < g->end_tile; i++) {
        n_passes += KERNEL_COLUMNS / tiles[rows_of(g->rows, i)].n_columns;
    }
    return n_passes;
}

/* Where a tile finds its activations. */
static void dots_rows(struct dots *d, const struct matmul_rows *rows, int n_rows, size_t row,
                      size_t k)
{
    if (panel_words(rows->n, rows->n_in)) {
        const uint32_t *panel = rows->panels + row * (size_t)(rows->n_in / 2) * PAIR_WORDS;
        d->x = (const uint16_t *)(panel + k / 2 * (size_t)n_rows * PAIR_WORDS);
        d->x_stride = PAIR_STEP;
        d->x_step = (size_t)n_rows * PAIR_STEP;
    } else {
        d->x = rows->in + row * rows->stride + k;
        d->x_stride = rows->stride;
        d->x_step = 2;
    }
}

/* Runs all tiles over the pairs first_pair .. first_pair + n_pairs. The passes divide the prefetch
 * of as many weights among them, so that the memory is busy all the time. */
static void group_chunk(const struct group *g, int first_pair, int n_pairs)
{
    const uint16_t *w = g->w + (size_t)first_pair * BLOCK_STEP;
    bool hops = kernels_two_hops();
    size_t n_ahead = g->n_passes > 1 ? (size_t)n_pairs : hops ? FAR_STEPS : ONE_HOP_STEPS;
    const uint16_t *ahead = w + n_ahead * BLOCK_STEP;
    const uint16_t *ahead_end = ahead + (g->n_passes > 1 ? (size_t)n_pairs : n_ahead) * BLOCK_STEP;
    size_t ahead_step = (size_t)(BLOCK_STEP + g->n_passes - 1) / (size_t)g->n_passes;
    struct dots d = {
        .w_step = BLOCK_STEP, .n_pairs = n_pairs, .acc_stride = KERNEL_COLUMNS, .far = g->w};
    size_t row = (size_t)g->first_row;
    float *park = g->park;
    for (int i = g->first_tile; i < g->end_tile; i++) {
        int n_rows = rows_of(g->rows, i);
        dots_rows(&d, g->rows, n_rows, row, (size_t)g->first_k + 2 * (size_t)first_pair);
        for (int column = 0; column < KERNEL_COLUMNS; column += tiles[n_rows].n_columns) {
            d.w = w + 2 * (size_t)column;
            d.acc = park + column;
            if (hops) {
                d.near = d.w + NEAR_STEPS * BLOCK_STEP;
                d.near_step = BLOCK_STEP;
                d.far = ahead;
                d.far_step = ahead_step;
            } else {
                d.near = ahead;
                d.near_step = ahead_step;
            }
            tiles[n_rows].run(&d);
            ahead += (size_t)n_pairs * ahead_step;
            if (ahead >= ahead_end) ahead_step = 0;
        }
        row += (size_t)n_rows;
        park += n_rows * KERNEL_COLUMNS;
    }
}

static void group_run(struct group *g, float *out, size_t out_stride, int n_columns)
{
    int n_rows = 0;
    for (int i = g->first_tile; i < g->end_tile; i++) {
        n_rows += rows_of(g->rows, i);
    }
    g->n_passes = group_passes(g);
    memset(g->park, 0, sizeof(float) * (size_t)n_rows * KERNEL_COLUMNS);
    int step = WHOLE_K && g->n_passes == 1 ? g->n_pairs : chunk_pairs();
    for (int pair = 0; pair < g->n_pairs; pair += step) {
        group_chunk(g, pair, g->n_pairs - pair < step ? g->n_pairs - pair : step);
    }
    for (int row = 0; row < n_rows; row++) {
        memcpy(out + (size_t)row * out_stride, g->park + (size_t)row * KERNEL_COLUMNS,
               sizeof(float) * (size_t)n_columns);
    }
    g->first_row += n_rows;
}

static void matmul_blocks(const struct packed_matrix *w, const struct matmul_call *call)
{
    _Alignas(64) float park[PARK_ROWS * KERNEL_COLUMNS];
    int n_tiles = tiles_of(call->rows->n), n_groups = (n_tiles + PARK_TILES - 1) / PARK_TILES;
    for (int block = call->first_block; block < call->end_block; block++) {
        int column = block * KERNEL_COLUMNS;
        int n_columns = w->n_out - column < KERNEL_COLUMNS ? w->n_out - column : KERNEL_COLUMNS;
        struct group g = {.rows = call->rows,
                          .w = w->data + (size_t)block * (size_t)w->n_in * KERNEL_COLUMNS,
                          .first_k = call->first_k,
                          .n_pairs = w->n_in / 2,
                          .park = park};
        for (int i = 0; i < n_groups; i++, g.first_tile = g.end_tile) {
            g.end_tile = g.first_tile + share_size(n_tiles, n_groups, i);
            group_run(&g, call->out + (size_t)g.first_row * call->out_stride + column,
                      call->out_stride, n_columns);
        }
    }
}

static void matmul(const struct packed_matrix *w, const struct matmul_call *call)
{
    unsigned mode = dots_begin();
    matmul_blocks(w, call);
    dots_end(mode);
}
