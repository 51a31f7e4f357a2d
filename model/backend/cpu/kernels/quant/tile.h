/* The operands of a tile of the integer kernels. Each variant has its own quant_tile for it.
 *
 * Quantized rows lie in panels, one for each tile of rows, so that everything a tile reads is at a
 * constant distance from one pointer. A panel is a stream over the groups of k, each
 *   [rows] scales, fp32
 *   [rows] starts: with which a row's sums begin, because the weights are stored with an offset
 *   [8 steps][rows][4 k]  integers
 * In which form starts and integers are is the variant's choice. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "model/backend/cpu/kernels/quant/quant.h"
#include "model/backend/cpu/kernels/tile.h"
#include "model/numerics/numerics.h"

enum {
    QUANT_VECTORS = QUANT_COLUMNS / 16,
    QUANT_STEPS = QUANT_GROUP / 4, /* of four k */
    QUANT_SCALE_BYTES = QUANT_COLUMNS * (int)sizeof(uint16_t),
    QUANT_STEP_BYTES = 64, /* 16 columns of four bytes */
    QUANT_HEAD_BYTES = 8   /* a row's scale and start in a group of a panel */
};

struct quant_dots {
    const uint8_t *w; /* n_groups groups of a block */
    const uint8_t *x; /* the same groups of a panel */
    int n_groups;
    float *acc; /* [rows][32], read and written */
    /* How far ahead of the weights themselves the tile prefetches into the first- and the
     * second-level cache; 0 for not at all. */
    int near, far;
    /* Other weights to be prefetched meanwhile: lines for each vector of a group, into the first-
     * or the second-level cache. Whatever is prefetched may lie past the end, where that has no
     * effect. */
    const uint8_t *next;
    int next_lines;
    bool next_is_near;
};

/* A group of a row between rounding and the panel. */
struct quant_group {
    _Alignas(32) int16_t q[QUANT_GROUP]; /* -127..127; zero past the row's end */
    int32_t sums[2];                     /* of k % 4 < 2, and of the others */
    float scale;
};

/* Prefetches ahead of n_lines lines of weights; n_lines is a constant. */
INLINE_ALWAYS void quant_prefetch(const struct quant_dots *d, const uint8_t *w, int n_lines)
{
    const uint8_t *near = w + d->near, *far = w + d->far;
    if (d->near) {
#pragma GCC unroll 8
        for (int i = 0; i < n_lines; i++) {
            __builtin_prefetch(near + i * QUANT_STEP_BYTES, 0, 3);
        }
    }
    if (d->far) {
#pragma GCC unroll 8
        for (int i = 0; i < n_lines; i++) {
            __builtin_prefetch(far + i * QUANT_STEP_BYTES, 0, 2);
        }
    }
}

/* The lines of other weights for one vector of a group; gives back where to go on. */
INLINE_ALWAYS const uint8_t *quant_prefetch_next(const struct quant_dots *d, const uint8_t *next)
{
    for (int i = 0; i < d->next_lines; i++) {
        if (d->next_is_near) {
            __builtin_prefetch(next, 0, 3);
        } else {
            __builtin_prefetch(next, 0, 2);
        }
        next += QUANT_STEP_BYTES;
    }
    return next;
}

/* Bytes of 16 columns of a group. */
INLINE_ALWAYS int quant_vector_bytes(enum weight_form form)
{
    return (form == WEIGHTS_INT8 ? QUANT_STEPS : QUANT_STEPS / 2) * QUANT_STEP_BYTES;
}

INLINE_ALWAYS int32_t quant_word(const uint8_t *at)
{
    int32_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* The scale of a row of a group of a panel of n_rows. */
INLINE_ALWAYS float quant_scale(const uint8_t *x, int row)
{
    float scale;
    memcpy(&scale, x + row * (int)sizeof scale, sizeof scale);
    return scale;
}

INLINE_ALWAYS int32_t quant_start(const uint8_t *x, int n_rows, int row)
{
    return quant_word(x + (n_rows + row) * (int)sizeof(int32_t));
}

/* Gives the address back, and hides from the compiler that it is the same. What is read through it
 * is loaded again; if a value loaded before were kept, it would push a sum out of the registers. */
INLINE_ALWAYS const uint8_t *quant_again(const uint8_t *at)
{
    __asm__("" : "+r"(at));
    return at;
}
