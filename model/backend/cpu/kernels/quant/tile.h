/* The operands of a tile of the integer kernels. Each variant has its own quant_tile for it.
 *
 * Quantized rows lie in panels, one for each tile of rows, so that everything a tile reads is at a
 * constant distance from one pointer. A panel is a stream over the groups of k, each
 *   [rows] scales, fp32
 *   [rows] sums of the integers, negated
 *   [rows] the same times the scale, in fp32
 *   [rows] negated sums of the first 16 integers
 *   [8 steps][rows][4 k]  integers
 * of 8 bits, or of 16 where the variant says so (quant_is_wide). Weights are unsigned in the
 * products; what an offset adds to a sum is cancelled by a multiple of the negated sum. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/least.h"
#include "model/backend/cpu/kernels/quant/quant.h"
#include "model/backend/cpu/kernels/tile.h"
#include "model/numerics/numerics.h"

enum {
    QUANT_RUNS = 2,
    QUANT_RUN_STEPS = QUANT_STEPS / QUANT_RUNS,
    QUANT_HEAD_BYTES = 16 /* a row's scale and sums in a group of a panel */
};

struct quant_dots {
    const uint8_t *w; /* n_groups groups of a block, from the begin of a super-block on */
    const uint8_t *x; /* the same groups of a panel */
    int n_groups;
    int n_first; /* groups of the first super-block */
    float *acc;  /* [rows][32], read and written */
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
    int32_t sums[QUANT_RUNS];
    float scale;
};

/* ---- what depends on the form alone: constants where the form is one ---- */

INLINE_ALWAYS bool quant_has_runs(enum weight_form form)
{
    return group_forms[form].scale == GROUP_SCALE_RUNS;
}

/* Bits of the unsigned integers that are multiplied. */
INLINE_ALWAYS int quant_bits(enum weight_form form)
{
    return group_forms[form].is_table ? 8
                                      : group_forms[form].low_bits + group_forms[form].high_bits;
}

/* The offset is 1 << this, or none: -1. */
INLINE_ALWAYS int quant_offset_shift(enum weight_form form)
{
    switch (group_forms[form].offset) {
    case 4:
        return 2;
    case 8:
        return 3;
    case 16:
        return 4;
    case 32:
        return 5;
    case 128:
        return 7;
    default:
        return -1;
    }
}

/* Lines of a group, counting one that it has a part of. */
INLINE_ALWAYS int quant_group_lines(enum weight_form form)
{
    return (quant_group_bytes(form) + QUANT_STEP_BYTES - 1) / QUANT_STEP_BYTES;
}

/* Where the low bits of a step are, and by how much they are shifted. */
INLINE_ALWAYS int quant_low_at(enum weight_form form, int step)
{
    return step * group_forms[form].low_bits / 8 * QUANT_STEP_BYTES;
}

INLINE_ALWAYS int quant_low_shift(enum weight_form form, int step)
{
    return step * group_forms[form].low_bits % 8;
}

/* As quant_low_at and quant_low_shift, for the high bits. They are shifted to the left, or to the
 * right if the shift is negative. */
INLINE_ALWAYS int quant_high_at(enum weight_form form, int step)
{
    return quant_low_bytes(form) + step * group_forms[form].high_bits / 8 * QUANT_STEP_BYTES;
}

INLINE_ALWAYS int quant_high_shift(enum weight_form form, int step)
{
    return group_forms[form].low_bits - step * group_forms[form].high_bits % 8;
}

INLINE_ALWAYS int quant_low_mask(enum weight_form form)
{
    return (1 << group_forms[form].low_bits) - 1;
}

INLINE_ALWAYS int quant_high_mask(enum weight_form form)
{
    return ((1 << group_forms[form].high_bits) - 1) << group_forms[form].low_bits;
}

/* ---- prefetching ---- */

/* Prefetches ahead of lines first .. end of a group of weights; both are constants. */
INLINE_ALWAYS void quant_prefetch(const struct quant_dots *d, const uint8_t *w, int first, int end)
{
    const uint8_t *near = w + d->near, *far = w + d->far;
    if (d->near) {
#pragma GCC unroll 20
        for (int i = first; i < end; i++) {
            __builtin_prefetch(near + i * QUANT_STEP_BYTES, 0, 3);
        }
    }
    if (d->far) {
#pragma GCC unroll 20
        for (int i = first; i < end; i++) {
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

/* ---- a group of a panel of n_rows ---- */

INLINE_ALWAYS int32_t quant_word(const uint8_t *at)
{
    int32_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

INLINE_ALWAYS float quant_float(const uint8_t *at)
{
    float x;
    memcpy(&x, at, sizeof x);
    return x;
}

INLINE_ALWAYS float quant_scale(const uint8_t *x, int row)
{
    return quant_float(x + 4 * row);
}

INLINE_ALWAYS int32_t quant_sum(const uint8_t *x, int n_rows, int row)
{
    return quant_word(x + 4 * (n_rows + row));
}

INLINE_ALWAYS float quant_scaled_sum(const uint8_t *x, int n_rows, int row)
{
    return quant_float(x + 4 * (2 * n_rows + row));
}

INLINE_ALWAYS int32_t quant_first_sum(const uint8_t *x, int n_rows, int row)
{
    return quant_word(x + 4 * (3 * n_rows + row));
}

/* The sum of run 0 or 1. */
INLINE_ALWAYS int32_t quant_run_sum(const uint8_t *x, int n_rows, int row, int run)
{
    int32_t first = quant_first_sum(x, n_rows, row);
    return run == 0 ? first : quant_sum(x, n_rows, row) - first;
}

/* Writes the head of row `row`; `panel` is the group's begin. */
INLINE_ALWAYS void quant_store_head(const struct quant_group *group, int n_rows, int row,
                                    uint8_t *panel)
{
    int32_t sum = -(group->sums[0] + group->sums[1]), first = -group->sums[0];
    float scaled = (float)sum * group->scale;
    memcpy(panel + 4 * row, &group->scale, 4);
    memcpy(panel + 4 * (n_rows + row), &sum, 4);
    memcpy(panel + 4 * (2 * n_rows + row), &scaled, 4);
    memcpy(panel + 4 * (3 * n_rows + row), &first, 4);
}

/* Gives the address back, and hides from the compiler that it is the same. What is read through it
 * is loaded again; if a value loaded before were kept, it would push a sum out of the registers. */
INLINE_ALWAYS const uint8_t *quant_again(const uint8_t *at)
{
    __asm__("" : "+r"(at));
    return at;
}
