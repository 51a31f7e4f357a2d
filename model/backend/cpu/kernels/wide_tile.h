/* The tiles of variants that have fused multiply-add but no bf16 dot product: a pair of k is one
 * fused step with the odd k and one with the even k, on fp32. Before it a variant's file defines
 *   wide_f, WIDE_LANES            a vector of fp32 and its lanes
 *   WIDE_ROWS_MAX, _VECTORS_MAX   the most rows, and the most vectors, of a tile
 *   wide_load, wide_store, wide_zero
 *   wide_odd, wide_even(w)        one k of WIDE_LANES pairs of bf16 in memory, as fp32
 *   wide_split(w, odd, even)      both at once
 *   wide_all(x), wide_step        one fp32 in all lanes; acc + w * x, fused
 *   wide_group(vectors)           how many vectors of weights are held at once
 *   wide_row_step(n, acc, w, x)   one fused step of a row: n vectors of weights by *x
 *   wide_fits(rows, vectors, acc) whether the steps of a tile were flushed as vdpbf16ps does it;
 *                                 otherwise the tile is repeated by definition
 *
 * With more than one row the fma units are the limit, so the inner loop has little else: weights
 * are widened once for all rows of the tile, and activations were widened before (panels of fp32).
 * Rows by vectors fill the registers as in the single-precision micro-kernels of BLIS. 8 chains
 * or more hide the latency of 4 cycles, when two steps begin in each. */
#pragma once

#include "model/backend/cpu/kernels/exact.h"

typedef wide_f wide_tile_acc[WIDE_ROWS_MAX][WIDE_VECTORS_MAX];

/* A pair of k of a single row, which memory limits: every vector of weights is loaded once. */
INLINE_ALWAYS void wide_pair_of_one(int n_vectors, int per_part, wide_f *acc,
                                    const uint16_t *const *w, size_t at, const uint16_t *x)
{
    wide_f x_odd = wide_all(x), x_even = wide_all(x + 2);
#pragma GCC unroll 8
    for (int j = 0; j < n_vectors; j++) {
        wide_f odd, even;
        wide_split(w[j / per_part] + at + 2 * WIDE_LANES * (size_t)(j % per_part), &odd, &even);
        acc[j] = wide_step(acc[j], odd, x_odd);
        acc[j] = wide_step(acc[j], even, x_even);
    }
}

/* A pair of k. Vector j of the weights is at w[j / per_part] + ..., where a part is what lies
 * together: 16 positions of K, or all columns of a tile. The vectors go in groups that leave
 * registers for the weights. */
INLINE_ALWAYS void wide_pair(int n_rows, int n_vectors, int per_part, wide_tile_acc acc,
                             const uint16_t *const *w, size_t at, const uint16_t *x)
{
    const int n_group = wide_group(n_vectors);
    if (n_rows == 1) {
        wide_pair_of_one(n_vectors, per_part, acc[0], w, at, x);
        return;
    }
#pragma GCC unroll 8
    for (int j = 0; j < n_vectors; j += n_group) {
        wide_f columns[WIDE_VECTORS_MAX];
#pragma GCC unroll 8
        for (int v = 0; v < n_group; v++) {
            int vector = j + v;
            columns[v] =
                wide_odd(w[vector / per_part] + at + 2 * WIDE_LANES * (size_t)(vector % per_part));
        }
#pragma GCC unroll 16
        for (int i = 0; i < n_rows; i++) {
            wide_row_step(n_group, &acc[i][j], columns, x + 4 * i);
        }
#pragma GCC unroll 8
        for (int v = 0; v < n_group; v++) {
            int vector = j + v;
            columns[v] =
                wide_even(w[vector / per_part] + at + 2 * WIDE_LANES * (size_t)(vector % per_part));
        }
#pragma GCC unroll 16
        for (int i = 0; i < n_rows; i++) {
            wide_row_step(n_group, &acc[i][j], columns, x + 4 * i + 2);
        }
    }
}

INLINE_ALWAYS void wide_acc_load(int n_rows, int n_vectors, wide_tile_acc acc, const float *from,
                                 size_t stride)
{
#pragma GCC unroll 16
    for (int i = 0; i < n_rows; i++) {
#pragma GCC unroll 8
        for (int j = 0; j < n_vectors; j++) {
            acc[i][j] = wide_load(from + (size_t)i * stride + WIDE_LANES * j);
        }
    }
}

INLINE_ALWAYS void wide_acc_store(int n_rows, int n_vectors, wide_tile_acc acc, float *to,
                                  size_t stride)
{
#pragma GCC unroll 16
    for (int i = 0; i < n_rows; i++) {
#pragma GCC unroll 8
        for (int j = 0; j < n_vectors; j++) {
            wide_store(to + (size_t)i * stride + WIDE_LANES * j, acc[i][j]);
        }
    }
}

/* Activations are panels, so their strides are those of the tile. */
INLINE_ALWAYS void dot_tile(int n_rows, int n_columns, const struct dots *d)
{
    const int n_vectors = n_columns / WIDE_LANES;
    const size_t w_step = d->w_step, near_step = d->near_step, far_step = d->far_step;
    const uint16_t *w = d->w, *x = d->x, *near = d->near, *far = d->far;
    wide_tile_acc acc;
    wide_acc_load(n_rows, n_vectors, acc, d->acc, d->acc_stride);
    for (int n_left = d->n_pairs; n_left > 0; n_left--) {
#pragma GCC unroll 8
        for (int column = 0; column < n_columns; column += 16) {
            dots_prefetch(near + 2 * column, far + 2 * column);
        }
        wide_pair(n_rows, n_vectors, n_vectors, acc, &w, 0, x);
        w += w_step;
        x += 4 * n_rows;
        near += near_step;
        far += far_step;
    }
    if (wide_fits(n_rows, n_vectors, acc)) {
        wide_acc_store(n_rows, n_vectors, acc, d->acc, d->acc_stride);
    } else {
        dots_exact(n_rows, n_columns, d);
    }
}

INLINE_ALWAYS void score_tile(int n_queries, int n_vectors, const struct score_dots *d)
{
    const int lines = 16 / WIDE_LANES; /* vectors of a line */
    const uint16_t *q = d->q, *k[WIDE_VECTORS_MAX], *ahead[WIDE_VECTORS_MAX],
                   *far[WIDE_VECTORS_MAX];
    wide_tile_acc acc;
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
            acc[i][j] = wide_zero();
        }
    }
    size_t end = 32 * (size_t)d->n_pairs;
    for (size_t at = 0; at < end; at += 32) {
#pragma GCC unroll 8
        for (int j = 0; j < n_vectors; j += lines) {
            dots_prefetch(ahead[j] + at, far[j] + at);
        }
        wide_pair(n_queries, n_vectors, 1, acc, k, at, q);
        q += 4 * n_queries;
    }
    if (wide_fits(n_queries, n_vectors, acc)) {
        wide_acc_store(n_queries, n_vectors, acc, d->out, d->out_stride);
        return;
    }
    for (int j = 0; j < n_vectors; j++) {
        const struct dots dots = score_vector(n_queries, j, d);
        dots_exact(n_queries, SCORE_LANES, &dots);
    }
}

INLINE_ALWAYS void value_tile(int n_queries, int n_columns, const struct value_dots *d)
{
    const int n_vectors = n_columns / WIDE_LANES;
    const uint16_t *p = d->p;
    const size_t step = d->step;
    wide_tile_acc acc;
    wide_acc_load(n_queries, n_vectors, acc, d->acc, d->acc_stride);
    for (int b = 0; b < d->n_blocks; b++) {
        const uint16_t *v = d->v[b] + d->first, *ahead = d->ahead[b] + d->first;
        const uint16_t *far = d->far[b] + d->first;
        for (int n_left = d->n_pairs; n_left > 0; n_left--) {
#pragma GCC unroll 8
            for (int column = 0; column < n_columns; column += 16) {
                dots_prefetch(ahead + 2 * column, far + 2 * column);
            }
            wide_pair(n_queries, n_vectors, n_vectors, acc, &v, 0, p);
            v += step;
            ahead += step;
            far += step;
            p += 4 * n_queries;
        }
    }
    if (wide_fits(n_queries, n_vectors, acc)) {
        wide_acc_store(n_queries, n_vectors, acc, d->acc, d->acc_stride);
        return;
    }
    for (int b = 0; b < d->n_blocks; b++) {
        const struct dots dots = value_block(b, d);
        dots_exact(n_queries, n_columns, &dots);
    }
}
