/* Matrices of bf16 in the layout that the kernels read. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
    KERNEL_LANES = 16,   /* columns of a vector, one output each */
    KERNEL_COLUMNS = 64, /* columns of a packed block: four vectors */
};

/* A matrix packed for matmul: blocks of 64 output columns, each a stream
 *   [n_in / 2][4 vectors][16 columns][2 k]  bf16
 * Columns past n_out are zero. n_in is even. */
struct packed_matrix {
    uint16_t *data;
    int n_in, n_out;
    int n_blocks; /* ceil(n_out / 64) */
};

/* Bytes of a packed matrix, and packing one. Columns come from a callback, so that mapped files,
 * synthetic weights and conversions look alike: fill(arg, column, k, n, out) writes w[column][k ..
 * k + n). */
typedef void packed_fill_fn(const void *arg, int column, int k, int n, uint16_t *out);
size_t packed_matrix_bytes(int n_in, int n_out);
/* Packs blocks first_block .. end_block of w (data allocated by the caller, 64-byte aligned). Uses
 * 64 KiB of the stack. */
void packed_matrix_fill(const struct packed_matrix *w, int first_block, int end_block,
                        packed_fill_fn *fill, const void *arg);
