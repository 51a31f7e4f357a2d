/* Weights in 8 and 4 bits: how numbers become integers with one scale for each group of 32 along k, and
 * how such matrices lie in memory for the kernels (kernels_quant.h). Symmetric: w is nearly q * scale.
 *
 * Groups begin at the first k of a matrix, for row-parallel ones of a slice, so that no group is shared
 * by two slices and the bits do not depend on the number of ranks. Where n_in is no multiple of 32, the
 * last group is short: the kernels see zeros behind it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum {
    QUANT_GROUP = 32,   /* k that share a scale, of weights and of activations */
    QUANT_COLUMNS = 32, /* columns of a packed block: two vectors of 16 */
    QUANT_PACK_K = 512  /* k that packing handles at once */
};

enum weight_form { WEIGHTS_BF16, WEIGHTS_INT8, WEIGHTS_INT4 };

/* "bf16", "int8", "int4". */
const char *weight_form_name(enum weight_form form);
/* Errors: ERR_ARGUMENT --weights NAME is none of these. */
int weight_form_find(enum weight_form *form, const char *name, struct error *err);

/* n bf16 weights, groups of 32 and perhaps a short last one, to q[n] and a bf16 scale per group. With m
 * the largest magnitude of a group: int8 has scale bf16(m / 127) and q in -127..127, int4 has
 * bf16(m / 7.5) and q in -8..7; q is w / scale to the nearest, ties to even. |w - q * scale| is at most
 * 0.51 * scale, for int4 0.54 * scale. A group with m < 2^-100 is zero; a group that holds an infinity
 * or a NaN has scale NaN, and so has whatever is computed from it. */
void quant_weights(enum weight_form form, const uint16_t *w, int n, int8_t *q, uint16_t *scales);

/* A packed matrix: blocks of 32 columns, each a stream over the groups of k
 *   [32 columns] scales, bf16
 *   [2 vectors][8 steps][16 columns][4 k]  bytes q + 128                     int8, 1088 bytes a group
 *   [2 vectors][4 pairs of steps][16 columns][4 k]  q + 8: the first step's
 *       in the lower half of the byte, the second's in the upper           int4,  576 bytes a group
 * Columns past n_out and k past n_in are zero with scale zero. */
struct quant_matrix {
    uint8_t *data;
    int n_in, n_out;
    int n_groups; /* ceil(n_in / 32) */
    int n_blocks; /* ceil(n_out / 32) */
    enum weight_form form;
};

struct quant_matrix quant_matrix_of(enum weight_form form, void *data, int n_in, int n_out);
size_t quant_group_bytes(enum weight_form form);
size_t quant_matrix_bytes(enum weight_form form, int n_in, int n_out);

/* Gives column `column`, k .. k + n: q[n] and the scales of its groups; k is a multiple of 32. */
typedef void quant_fill_fn(void *arg, int column, int k, int n, int8_t *q, uint16_t *scales);
/* Packs blocks first_block .. end_block of w (data allocated by the caller, 64-byte aligned). */
void quant_matrix_fill(const struct quant_matrix *w, int first_block, int end_block,
                       quant_fill_fn *fill, void *arg);
