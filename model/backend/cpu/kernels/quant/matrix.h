/* Matrices of 8 and 4 bits in the layout that the kernels read. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "model/numerics/quant.h"

enum {
    QUANT_COLUMNS = 32, /* columns of a packed block: two vectors of 16 */
    QUANT_PACK_K = 512  /* k that packing handles at once */
};

/* A packed matrix: blocks of 32 columns, each a stream over the groups of k
 *   [32 columns] scales, bf16
 *   [2 vectors][8 steps][16 columns][4 k]  bytes q + 128                   int8, 1088 bytes a group
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

/* Writes column `column`, k .. k + n: q[n] and the scales of its groups. k is a multiple of 32. */
typedef void quant_fill_fn(const void *arg, int column, int k, int n, int8_t *q, uint16_t *scales);
/* Packs blocks first_block .. end_block of w (data allocated by the caller, 64-byte aligned). */
void quant_matrix_fill(const struct quant_matrix *w, int first_block, int end_block,
                       quant_fill_fn *fill, const void *arg);
