/* The pair of k of variants that multiply with fma: one fused step with the odd k and one with the
 * even k, on fp32. Before it a variant's file has
 *   wide_odd, wide_even(w)        one k of VEC_LANES pairs of bf16 in memory, as fp32
 *   wide_group(vectors)           how many vectors of weights are held at once
 *   wide_step(acc, w, x)          acc + w * x, fused
 *   wide_row_step(n, acc, w, x)   one fused step of a row: n vectors of weights by *x
 *
 * With more than one row the fma units are the limit, so the inner loop has little else: weights
 * are widened once for all rows of the tile, and activations were widened before (panels of fp32).
 * Rows by vectors fill the registers as in the single-precision micro-kernels of BLIS. 8 chains
 * or more hide the latency of 4 cycles, when two steps begin in each. */
#pragma once

#include "model/backend/cpu/kernels/tile_vector.h"

/* A single row, which memory limits: every vector of weights is loaded once. */
INLINE_ALWAYS void wide_pair_of_one(int n_vectors, int per_part, vec_f *acc,
                                    const uint16_t *const *w, size_t at, const uint16_t *x)
{
    const vec_f x_odd = (vec_f)(dots_word(x) - (vec_u){0});
    const vec_f x_even = (vec_f)(dots_word(x + 2) - (vec_u){0});
#pragma GCC unroll 16
    for (int j = 0; j < n_vectors; j++) {
        vec_u pairs;
        memcpy(&pairs, tile_weights(w, per_part, j) + at, sizeof pairs);
        acc[j] = wide_step(acc[j], (vec_f)(pairs & 0xffff0000u), x_odd);
        acc[j] = wide_step(acc[j], (vec_f)(pairs << 16), x_even);
    }
}

/* One k of several rows and of n vectors from `first` on. */
INLINE_ALWAYS void wide_rows(bool is_odd, int n_rows, int first, int n, int per_part, tile_acc acc,
                             const uint16_t *const *w, size_t at, const uint16_t *x)
{
    vec_f columns[TILE_VECTORS];
#pragma GCC unroll 8
    for (int v = 0; v < n; v++) {
        const uint16_t *from = tile_weights(w, per_part, first + v) + at;
        columns[v] = is_odd ? wide_odd(from) : wide_even(from);
    }
#pragma GCC unroll 16
    for (int i = 0; i < n_rows; i++) {
        wide_row_step(n, &acc[i][first], columns, x + 4 * i + (is_odd ? 0 : 2));
    }
}

/* The vectors go in groups that leave registers for the weights. */
INLINE_ALWAYS void tile_pair(int n_rows, int n_vectors, int per_part, tile_acc acc,
                             const uint16_t *const *w, size_t at, const uint16_t *x,
                             size_t x_stride)
{
    const int n_group = wide_group(n_vectors);
    (void)x_stride; /* 4 */
    if (n_rows == 1) {
        wide_pair_of_one(n_vectors, per_part, acc[0], w, at, x);
        return;
    }
#pragma GCC unroll 8
    for (int j = 0; j < n_vectors; j += n_group) {
        wide_rows(true, n_rows, j, n_group, per_part, acc, w, at, x);
        wide_rows(false, n_rows, j, n_group, per_part, acc, w, at, x);
    }
}
