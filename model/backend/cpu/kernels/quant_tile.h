/* What a tile of the integer kernels works on. Each variant has its own quant_tile for it. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "model/backend/cpu/kernels/quant.h"
#include "model/backend/cpu/kernels/tile.h"
#include "model/numerics/numerics.h"

enum {
    QUANT_VECTORS = QUANT_COLUMNS / 16,
    QUANT_STEPS = QUANT_GROUP / 4, /* of four k */
    QUANT_SCALE_BYTES = QUANT_COLUMNS * (int)sizeof(uint16_t),
    QUANT_STEP_BYTES = 64 /* 16 columns of four bytes */
};

struct quant_dots {
    const uint8_t *w; /* n_groups groups of a block */
    const struct quant_group *x;
    size_t x_stride; /* from row to row */
    int n_groups;
    float *acc; /* [rows][32], read and written */
    /* Prefetch into the first- and the second-level cache: lines for each vector of a group. Both
     * may run past the end, where they have no effect. */
    const uint8_t *near, *far;
    int near_lines, far_lines;
};

/* The lines of one vector of a group. */
INLINE_ALWAYS void quant_prefetch(const uint8_t **near, const uint8_t **far,
                                  const struct quant_dots *d)
{
    for (int i = 0; i < d->near_lines; i++) {
        __builtin_prefetch(*near, 0, 3);
        *near += QUANT_STEP_BYTES;
    }
    for (int i = 0; i < d->far_lines; i++) {
        __builtin_prefetch(*far, 0, 2);
        *far += QUANT_STEP_BYTES;
    }
}

/* Bytes of 16 columns of a group. */
INLINE_ALWAYS int quant_vector_bytes(enum weight_form form)
{
    return (form == WEIGHTS_INT8 ? QUANT_STEPS : QUANT_STEPS / 2) * QUANT_STEP_BYTES;
}

/* Four k of a row. */
INLINE_ALWAYS int32_t quant_quad(const struct quant_group *x, int step)
{
    int32_t quad;
    memcpy(&quad, x->q + 4 * step, sizeof quad);
    return quad;
}
