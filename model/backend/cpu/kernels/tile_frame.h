/* The tiles of variants that keep all sums of a tile in registers: of matmul, and of attention's
 * two products. Before it a variant's file has VEC_BYTES, TILE_ROWS and WIDE_ROWS (variant.h) and
 *   tile_pair(rows, vectors, per_part, acc, w, at, x, x_stride)
 *                     a pair of k: vector j of the weights is VEC_LANES pairs of bf16, and they
 *                     are at tile_weights(w, per_part, j) + at
 *   tile_fits(rows, vectors, acc)
 *                     whether the steps of a tile were flushed as vdpbf16ps does it; otherwise
 *                     the tile is repeated by definition */
#pragma once

#include "model/backend/cpu/kernels/tile_vector.h"

enum { SCORE_LANES = VEC_LANES };
_Static_assert((int)ATTENTION_ROWS <= (int)TILE_ROWS,
               "tiles of attention use the sums of tile_acc");

#include "model/backend/cpu/kernels/exact.h"

/* From a pair of k to the next: panels of fp32 have the stride of their tile. */
INLINE_ALWAYS size_t tile_x_step(int n_rows, size_t x_step)
{
    return WIDE_ROWS ? 4 * (size_t)n_rows : x_step;
}

INLINE_ALWAYS void tile_acc_load(int n_rows, int n_vectors, tile_acc acc, const float *from,
                                 size_t stride)
{
#pragma GCC unroll 16
    for (int i = 0; i < n_rows; i++) {
#pragma GCC unroll 8
        for (int j = 0; j < n_vectors; j++) {
            acc[i][j] = vec_load(from + (size_t)i * stride + VEC_LANES * j);
        }
    }
}

INLINE_ALWAYS void tile_acc_store(int n_rows, int n_vectors, tile_acc acc, float *to, size_t stride)
{
#pragma GCC unroll 16
    for (int i = 0; i < n_rows; i++) {
#pragma GCC unroll 8
        for (int j = 0; j < n_vectors; j++) {
            vec_store(to + (size_t)i * stride + VEC_LANES * j, acc[i][j]);
        }
    }
}

INLINE_ALWAYS void dot_tile(int n_rows, int n_columns, const struct dots *d)
{
    const int n_vectors = n_columns / VEC_LANES;
    const size_t w_step = d->w_step, near_step = d->near_step, far_step = d->far_step;
    const size_t x_step = tile_x_step(n_rows, d->x_step), x_stride = d->x_stride;
    const uint16_t *w = d->w, *x = d->x, *near = d->near, *far = d->far;
    tile_acc acc;
    tile_acc_load(n_rows, n_vectors, acc, d->acc, d->acc_stride);
    for (int n_left = d->n_pairs; n_left > 0; n_left--) {
#pragma GCC unroll 8
        for (int column = 0; column < n_columns; column += 16) {
            dots_prefetch(near + 2 * column, far + 2 * column);
        }
        tile_pair(n_rows, n_vectors, n_vectors, acc, &w, 0, x, x_stride);
        w += w_step;
        x += x_step;
        near += near_step;
        far += far_step;
    }
    if (tile_fits(n_rows, n_vectors, acc)) {
        tile_acc_store(n_rows, n_vectors, acc, d->acc, d->acc_stride);
    } else {
        dots_exact(n_rows, n_columns, d);
    }
}

INLINE_ALWAYS void score_tile(int n_queries, int n_vectors, const struct score_dots *d)
{
    const int lines = 16 / VEC_LANES; /* vectors of a line */
    const uint16_t *q = d->q, *k[TILE_VECTORS], *ahead[TILE_VECTORS], *far[TILE_VECTORS];
    tile_acc acc;
#pragma GCC unroll 8
    for (int j = 0; j < n_vectors; j++) {
        k[j] = d->k[j];
        ahead[j] = d->ahead[j];
        far[j] = d->far[j];
    }
#pragma GCC unroll 16
    for (int i = 0; i < n_queries; i++) {
#pragma GCC unroll 8
        for (int j = 0; j < n_vectors; j++) {
            acc[i][j] = (vec_f){0};
        }
    }
    const size_t q_step = tile_x_step(n_queries, d->q_step), q_stride = d->q_stride;
    const size_t end = 32 * (size_t)d->n_pairs;
    for (size_t at = 0; at < end; at += 32) {
#pragma GCC unroll 8
        for (int j = 0; j < n_vectors; j += lines) {
            dots_prefetch(ahead[j] + at, far[j] + at);
        }
        tile_pair(n_queries, n_vectors, 1, acc, k, at, q, q_stride);
        q += q_step;
    }
    if (tile_fits(n_queries, n_vectors, acc)) {
        tile_acc_store(n_queries, n_vectors, acc, d->out, d->out_stride);
        return;
    }
    for (int j = 0; j < n_vectors; j++) {
        const struct dots dots = score_vector(n_queries, j, d);
        dots_exact(n_queries, SCORE_LANES, &dots);
    }
}

INLINE_ALWAYS void value_tile(int n_queries, int n_columns, const struct value_dots *d)
{
    const int n_vectors = n_columns / VEC_LANES;
    const uint16_t *p = d->p;
    const size_t step = d->step, p_stride = d->p_stride;
    const size_t p_step = tile_x_step(n_queries, d->p_step);
    tile_acc acc;
    tile_acc_load(n_queries, n_vectors, acc, d->acc, d->acc_stride);
    for (int b = 0; b < d->n_blocks; b++) {
        const uint16_t *v = d->v[b] + d->first, *ahead = d->ahead[b] + d->first;
        const uint16_t *far = d->far[b] + d->first;
        for (int n_left = d->n_pairs; n_left > 0; n_left--) {
#pragma GCC unroll 8
            for (int column = 0; column < n_columns; column += 16) {
                dots_prefetch(ahead + 2 * column, far + 2 * column);
            }
            tile_pair(n_queries, n_vectors, n_vectors, acc, &v, 0, p, p_stride);
            v += step;
            ahead += step;
            far += step;
            p += p_step;
        }
    }
    if (tile_fits(n_queries, n_vectors, acc)) {
        tile_acc_store(n_queries, n_vectors, acc, d->acc, d->acc_stride);
        return;
    }
    for (int b = 0; b < d->n_blocks; b++) {
        const struct dots dots = value_block(b, d);
        dots_exact(n_queries, n_columns, &dots);
    }
}
