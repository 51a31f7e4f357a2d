/* Rows of matrices that are stored in blocks, taken apart for the CUDA backend: every form of
 * model/numerics/group.h as integers of a few widths with fp32 scales and minimums, from which
 * matrix_blocks.cu packs tiles (blocks.cuh). Plain C, for group.h is no C++. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "model/backend/backend.h"

enum { BLOCK_RUN = 16 /* k that share a scale and a minimum, at least */ };

/* How the tiles of a matrix are stored. */
struct block_layout {
    int bits;     /* of an integer: 4, 5, 6 or 8; 0: not in blocks */
    int n_scales; /* of an output in a tile of 32 k: 1 or 2 */
    bool has_mins;
    bool is_fp8; /* e4m3 in place of integers of 8 bits; without minimums */
};

/* A row of n k as scale * q - min. Where the layout has no minimums, q lies around 0, as it does in
 * 8 bits; elsewhere it is unsigned. Of fp8 q is the byte, and a run with a NaN has the scale
 * NaN. */
struct block_row {
    int8_t *q;            /* [n] */
    float *scales, *mins; /* [n / 16], and for a last run that is short */
    const int32_t *order; /* [n] the columns that are read, as matrix.order has them; NULL: a run */
};

/* True if matrices of this form are stored in blocks. */
bool block_form_is_known(enum weight_form form);
/* The k whose multiples a slice of such a matrix must begin at. */
int block_run_of(const struct weight *weight);
/* The layout that holds all sections of a matrix, or one that is not in blocks if one of them is
 * not. */
struct block_layout block_layout_of(const struct matrix *m);
/* Reads elements first .. first + n of a row of a tensor; `first` is a multiple of block_run_of. */
void block_row_read(const struct block_layout *layout, const struct weight *weight, int row,
                    int first, int n, struct block_row *out);
