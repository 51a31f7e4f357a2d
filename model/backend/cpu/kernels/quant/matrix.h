/* Matrices of integers in the layout that the kernels read: weights of 8 and 4 bits, and the forms
 * of model/numerics/group.h, which keep all bits of what is stored. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "model/numerics/group.h"

enum {
    QUANT_COLUMNS = 32, /* columns of a packed block: two vectors of 16 */
    QUANT_VECTORS = QUANT_COLUMNS / 16,
    QUANT_STEPS = QUANT_GROUP / 4, /* of four k */
    QUANT_STEP_BYTES = 64,         /* 16 columns of four bytes */
    QUANT_PACK_GROUPS = 16         /* groups that packing handles at once */
};

/* A packed matrix: blocks of 32 columns, each a stream over the groups of k
 *   scales      [32] bf16, half or fp32; [32] signed bytes, or [2 runs][32] of them
 *   minimums    [32] half; [32] bytes, or [2 runs][32] of them; zeros: [32] bytes; or nothing
 *   padding     to 64 bytes after a scale of one byte without a minimum
 *   [2 vectors] each the low bits of q, then the high bits, in lines of 64 bytes [16 columns][4 k]
 *     8 bits    [8 steps]
 *     4 bits    [4 pairs of steps]  the first step's in the lower half of the byte
 *     2 bits    [2 quadruples]      the first step's in the lowest bits
 *     1 bit     [1]                 the first step's in the lowest bit
 * A line has the bits of as many steps of four k as fit. Where a form has super-blocks, their
 * scales [32] and minimums [32], as halves, come before their first group. n_in begins with group
 * first_group of a super-block. Columns past n_out and k past n_in are zero with scale zero. */
struct quant_matrix {
    uint8_t *data;
    int n_in, n_out;
    int n_groups;    /* ceil(n_in / 32) */
    int n_blocks;    /* ceil(n_out / 32) */
    int first_group; /* 0..7; 0 without super-blocks */
    enum weight_form form;
};

static inline int quant_scales_bytes(enum weight_form form)
{
    const struct group_form *f = &group_forms[form];
    if (f->scale == GROUP_SCALE_F32) return 2 * QUANT_STEP_BYTES;
    bool is_short = f->scale == GROUP_SCALE_BYTE && f->minimum != GROUP_NO_MINIMUM;
    return is_short ? QUANT_COLUMNS : QUANT_STEP_BYTES;
}

static inline int quant_minimums_bytes(enum weight_form form)
{
    enum group_minimum minimum = group_forms[form].minimum;
    if (minimum == GROUP_NO_MINIMUM) return 0;
    return minimum == GROUP_MINIMUM_F16 || minimum == GROUP_MINIMUM_RUNS ? QUANT_STEP_BYTES
                                                                         : QUANT_COLUMNS;
}

/* Bytes of 16 columns of a group: of the low bits of q, and of all. */
static inline int quant_low_bytes(enum weight_form form)
{
    return QUANT_STEP_BYTES * group_forms[form].low_bits;
}

static inline int quant_vector_bytes(enum weight_form form)
{
    return QUANT_STEP_BYTES * (group_forms[form].low_bits + group_forms[form].high_bits);
}

static inline int quant_group_bytes(enum weight_form form)
{
    return quant_scales_bytes(form) + quant_minimums_bytes(form) +
           QUANT_VECTORS * quant_vector_bytes(form);
}

/* Bytes before the first group of a super-block. */
static inline int quant_super_bytes(enum weight_form form)
{
    if (!group_form_is_super(form)) return 0;
    return group_forms[form].minimum == GROUP_NO_MINIMUM ? QUANT_STEP_BYTES : 2 * QUANT_STEP_BYTES;
}

/* first_group: only where the form has super-blocks. */
struct quant_matrix quant_matrix_of(enum weight_form form, void *data, int n_in, int n_out,
                                    int first_group);
size_t quant_block_bytes(const struct quant_matrix *w);
size_t quant_matrix_bytes(const struct quant_matrix *w);

/* Where group `group` of a block begins, or the super-block that begins with it. */
size_t quant_group_offset(const struct quant_matrix *w, int group);

/* Reads groups first .. first + n of column `column` to out[n]. */
typedef void quant_fill_fn(const void *arg, int column, int first, int n, struct weight_group *out);
/* Packs blocks first_block .. end_block of w (data allocated by the caller, 64-byte aligned). */
void quant_matrix_fill(const struct quant_matrix *w, int first_block, int end_block,
                       quant_fill_fn *fill, const void *arg);
