/* Matrices of fp8 (e4m3) in the layout that the kernels read: each element is fp8 times a scale
 * that a run of k of a column shares. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "model/backend/cpu/kernels/packed_matrix.h"

/* A packed matrix: blocks of 64 output columns, each
 *   [n_runs][64 columns]                      scales, fp32
 *   [n_in / 2][4 vectors][16 columns][2 k]    fp8
 * The first run has first_run k, the others run, and the last one what is left; all are even.
 * Columns past n_out are zero. */
struct fp8_matrix {
    uint8_t *data;
    int n_in, n_out;
    int n_blocks; /* ceil(n_out / 64) */
    int first_run, run, n_runs;
};

/* first_run and run may be longer than n_in. */
struct fp8_matrix fp8_matrix_of(void *data, int n_in, int n_out, int first_run, int run);
size_t fp8_matrix_bytes(const struct fp8_matrix *w);

/* Where run i begins; n_in for i = n_runs. */
int fp8_matrix_run(const struct fp8_matrix *w, int i);

/* Writes column `column`, k .. k + n, which are of one run: q[n], and the scale of the run. */
typedef void fp8_fill_fn(const void *arg, int column, int k, int n, uint8_t *q, float *scale);
/* Packs blocks first_block .. end_block of w (data allocated by the caller, 64-byte aligned). A run
 * that is longer than FP8_PACK_K is asked for in parts, each with its scale. */
enum { FP8_PACK_K = 512 };
void fp8_matrix_fill(const struct fp8_matrix *w, int first_block, int end_block, fp8_fill_fn *fill,
                     const void *arg);
