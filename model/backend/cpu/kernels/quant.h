/* Matmul on weights of 8 and 4 bits (model/numerics/quant.h), as a table for each instruction set;
 * all give the same bits. Activations are rounded to 8 bits with one scale for each group of 32
 * along k, once for a matmul. An output is one fp32 chain over ascending groups: acc = fma(sum,
 * w_scale * x_scale, acc). Here `sum`, the sum of the products of a group's integers, is exact, so
 * that its order does not matter. */
#pragma once

#include "model/backend/cpu/kernels/quant_matrix.h"

/* A group of a row of activations: x is approximately q * scale. */
struct quant_group {
    float scale;
    int32_t
        start; /* the sum of q * -128 (of int4, q * -8), which cancels the offset of the weights */
    int8_t q[QUANT_GROUP]; /* -127..127; zero past the row's end */
};

/* One call of a matmul: its quantized rows, and the blocks of columns that it computes. */
struct quant_call {
    const struct quant_group *in; /* [n_rows][in_stride], quantized for the matrix's form */
    size_t in_stride;
    float *out; /* [n_rows][out_stride] */
    size_t out_stride;
    int n_rows; /* >= 1 */
    int first_block, end_block;
};

struct kernels_quant {
    /* Quantizes a row of n bf16 to ceil(n / 32) groups. With m the largest magnitude: scale = m /
     * 127 and q = x * (127 / m), rounded to nearest, ties to even. A group with m < 2^-100 is zero.
     * A group that holds an infinity or a NaN has scale NaN, so that every output of the row
     * becomes NaN. */
    void (*quantize)(enum weight_form form, const uint16_t *in, int n, struct quant_group *out);

    /* out[row][column] for rows 0..n_rows and the columns of blocks first_block .. end_block.
     * Writes only columns < n_out. Never allocates. */
    void (*matmul)(const struct quant_matrix *w, const struct quant_call *call);
};

/* The first two exist in x86 builds only. */
extern const struct kernels_quant kernels_quant_avx512, kernels_quant_avx2, kernels_quant_plain;
