/* The sums of a tile, and where its weights are. */
#pragma once

#include "model/backend/cpu/kernels/tile.h"
#include "model/backend/cpu/kernels/vector.h"

enum { TILE_VECTORS = KERNEL_COLUMNS / VEC_LANES };

typedef vec_f tile_acc[TILE_ROWS][TILE_VECTORS];

/* A part is what lies together: a vector of positions of K, or all columns of a tile. */
INLINE_ALWAYS const uint16_t *tile_weights(const uint16_t *const *w, int per_part, int vector)
{
    return w[vector / per_part] + 2 * VEC_LANES * (size_t)(vector % per_part);
}
