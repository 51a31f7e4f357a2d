/* The dot chains by definition, one step of one column after the other: for runs that a variant's
 * own way does not get right. Slow, and correct in every floating-point mode, because denormals are
 * recognised by their bits and no step here has a denormal fp32 as its result. Before it a variant
 * defines WIDE_ROWS (variant.h) and SCORE_LANES (attention.h). */
#pragma once

#include <stdbool.h>

#include "model/backend/cpu/kernels/step_exact.h"
#include "model/backend/cpu/kernels/tile.h"
#include "model/numerics/numerics.h"

/* One k of an activation's pair. */
static inline float exact_x(const uint16_t *x, bool is_odd)
{
    if (WIDE_ROWS) return num_bits_to_float(dots_word(is_odd ? x : x + 2));
    return num_bf16_to_float(x[is_odd]);
}

/* One column of one row; w and x are its first weight and its first activation. */
static inline void column_exact(float *acc, const uint16_t *w, const uint16_t *x,
                                const struct dots *d)
{
    float sum = *acc;
    for (int pair = 0; pair < d->n_pairs; pair++) {
        sum = step_exact(sum, num_bf16_to_float(w[1]), exact_x(x, true));
        sum = step_exact(sum, num_bf16_to_float(w[0]), exact_x(x, false));
        w += d->w_step;
        x += d->x_step;
    }
    *acc = sum;
}

static inline __attribute__((cold)) void dots_exact(int n_rows, int n_columns, const struct dots *d)
{
    for (int i = 0; i < n_rows; i++) {
        for (int column = 0; column < n_columns; column++) {
            column_exact(d->acc + (size_t)i * d->acc_stride + column, d->w + 2 * column,
                         d->x + (size_t)i * d->x_stride, d);
        }
    }
}

/* The chains of vector v, or of block b, of a tile of attention. Scores begin with zero. */
static inline struct dots score_vector(int n_queries, int v, const struct score_dots *d)
{
    float *out = d->out + v * SCORE_LANES;
    for (int i = 0; i < n_queries; i++) {
        memset(out + (size_t)i * d->out_stride, 0, SCORE_LANES * sizeof *out);
    }
    return (struct dots){.w = d->k[v],
                         .w_step = 32,
                         .x = d->q,
                         .x_stride = d->q_stride,
                         .x_step = d->q_step,
                         .n_pairs = d->n_pairs,
                         .acc = out,
                         .acc_stride = d->out_stride};
}

static inline struct dots value_block(int b, const struct value_dots *d)
{
    return (struct dots){.w = d->v[b] + d->first,
                         .w_step = d->step,
                         .x = d->p + (size_t)(b * d->n_pairs) * d->p_step,
                         .x_stride = d->p_stride,
                         .x_step = d->p_step,
                         .n_pairs = d->n_pairs,
                         .acc = d->acc,
                         .acc_stride = d->acc_stride};
}
