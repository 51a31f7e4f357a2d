/* The order of columns of matrices whose groups are not runs of columns (GPTQ with "desc_act").
 * Packing takes the columns group by group, and each group is filled up to whole groups of 32; the
 * rows of a matmul are brought into the same order. All slices of a matrix have the width of the
 * widest one, whatever slices a rank has, so that the bits do not depend on the number of ranks. */
#pragma once

#include "model/backend/backend.h"

/* Sets order and n_ordered of a matrix with such a part; the caller frees the order. n_in is set.
 * Errors: ERR_NO_MEMORY, ERR_UNSUPPORTED its parts have different orders. */
int matrix_order_open(struct matrix *m, const struct matrix_source *source, struct error *err);
