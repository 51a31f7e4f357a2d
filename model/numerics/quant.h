/* Weights in 8 and 4 bits: how numbers become integers with one scale for each group of 32 along k.
 * Symmetric: w is approximately q * scale. How such matrices lie in memory is the backend's
 * business (model/backend/cpu/kernels/quant/matrix.h).
 *
 * Groups begin at the first k of a matrix, or of a slice where the matrix is row-parallel. So no
 * group is shared by two slices, and the bits do not depend on the number of ranks. Where n_in is
 * no multiple of 32, the last group is short, and the kernels see zeros after it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "model/numerics/weight_form.h"

enum {
    QUANT_GROUP = 32 /* k that share a scale, of weights and of activations */
};

/* Rounds n bf16 weights, in groups of 32 and perhaps a short last one, to q[n] and a bf16 scale per
 * group. With m the largest magnitude of a group: int8 has scale bf16(m / 127) and q in -127..127,
 * int4 has bf16(m / 7.5) and q in -8..7. q is w / scale rounded to nearest, ties to even. |w - q *
 * scale| is at most 0.51 * scale, for int4 0.54 * scale. A group with m < 2^-100 is zero. A group
 * that holds an infinity or a NaN has scale NaN, and so does everything that is computed from
 * it. */
void quant_weights(enum weight_form form, const uint16_t *w, int n, int8_t *q, uint16_t *scales);
