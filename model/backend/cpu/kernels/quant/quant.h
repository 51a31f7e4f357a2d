/* Matmul on integers (model/numerics/group.h), as a table for each instruction set; all give the
 * same bits. Activations are rounded to 8 bits with one scale for each group of 32 along k, once
 * for a matmul. An output is one fp32 chain over ascending groups, whose step for a group is
 *   acc = fma(sum, w_scale * x_scale, acc)
 *   acc = fma(minimum, -x_sum * x_scale, acc)    with a minimum; for each run of 16, if it has two
 * Here `sum` is exact, so that its order does not matter: the sum of the products of the group's
 * integers (q - offset, q - zero, or an entry of the table) by the activations', in which a form
 * with runs multiplies the products of a run by its scale. x_sum is the exact sum of the
 * activations' integers. */
#pragma once

#include "model/backend/cpu/kernels/quant/matrix.h"

/* The bytes of a quantized group of a row: the integers in 8 or 16 bits, as the variant multiplies
 * them, a scale, and sums of the integers. */
enum { QUANT_ROW_GROUP_BYTES = 2 * QUANT_GROUP + 16 };

/* Rows of bf16, and where they go when they are quantized. */
struct quant_rows {
    enum weight_form form; /* of the matrix that will be multiplied, or another with its is_wide */
    const uint16_t *in;    /* [n_rows][in_stride] */
    size_t in_stride;
    int n_rows, n_in;
    uint8_t *out; /* n_rows * ceil(n_in / 32) * QUANT_ROW_GROUP_BYTES, 4-byte aligned */
};

/* One call of a matmul: its quantized rows, and the blocks of columns that it computes. */
struct quant_call {
    const uint8_t *in; /* what quantize made of these rows for this form or its like */
    float *out;        /* [n_rows][out_stride] */
    size_t out_stride;
    int n_rows; /* >= 1, the same as in quantize */
    int first_block, end_block;
};

struct kernels_quant {
    /* Forms for which this is the same share their quantized rows. */
    bool (*is_wide)(enum weight_form form);

    /* Quantizes groups first_group .. end_group of all rows. With m a group's largest magnitude:
     * scale = m / 127 and q = x * (127 / m), rounded to nearest, ties to even. A group with m <
     * 2^-100 is zero. A group that holds an infinity or a NaN has scale NaN, so that every output
     * of the row becomes NaN. */
    void (*quantize)(const struct quant_rows *rows, int first_group, int end_group);

    /* out[row][column] for rows 0..n_rows and the columns of blocks first_block .. end_block.
     * Writes only columns < n_out. Never allocates. */
    void (*matmul)(const struct quant_matrix *w, const struct quant_call *call);
};

/* All but the last exist in x86 builds only. */
extern const struct kernels_quant kernels_quant_avx512, kernels_quant_avxvnni, kernels_quant_avx2,
    kernels_quant_plain;
