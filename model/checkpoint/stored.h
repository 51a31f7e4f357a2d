/* Matrices that a Hugging Face folder stores quantized: integers of 4 or 8 bits, or fp8. An
 * element is scale * (q - zero), or scale * fp8, exactly. A matrix X.weight of N rows and K columns
 * is these tensors (G: groups of k that share a scale; P integers fill a word of 32 bits, the first
 * one in its lowest bits):
 *   AWQ    X.qweight I32 [K][N / 8], X.qzeros I32 [G][N / 8], X.scales [G][N]; the nibbles of a
 *          word are rows 0, 2, 4, 6, 1, 3, 5, 7 of eight
 *   GPTQ   X.qweight I32 [K / P][N], X.qzeros I32 [G][N / P], X.scales [G][N], X.g_idx I32 [K]: the
 *          group of each k. In the first version of the format the zeros are less by one.
 *   packed X.weight_packed I32 [N][K / P], X.weight_scale [N][G], X.weight_zero_point
 *          I32 [N / P][G] or I8 [N][G], X.weight_g_idx I32 [K]; without zeros they are the middle,
 *          2^(bits - 1)
 *   bytes  X.weight I8 [N][K], X.weight_scale [N][G], X.weight_zero_point I8 [N][G]
 *   fp8    X.weight F8_E4M3 [N][K], X.weight_scale or, with the same meaning, X.weight_scale_inv:
 *          one for the tensor, [N][1] for rows, or one for each block of rows and columns
 * Scales are BF16, F16 or F32. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "model/numerics/group.h"

enum stored_kind { STORED_NONE, STORED_AWQ, STORED_GPTQ, STORED_PACKED, STORED_BYTES, STORED_FP8 };

enum stored_scale { STORED_BF16, STORED_F16, STORED_F32 };

/* A part of struct weight (read.h), which has the shape and the integers besides. Pointers are into
 * mapped files. */
struct stored_matrix {
    enum stored_kind kind;
    int n_rows, n_cols;
    int line_rows;       /* of AWQ's and GPTQ's tensors, of which these may be some; else n_rows */
    const uint8_t *data; /* the integers, or fp8 */
    int bits;
    int group;      /* k that share a scale */
    int group_rows; /* rows that share one: 1, but of fp8 any number */
    int n_groups;   /* ceil(K / group) */
    enum stored_scale scale_type;
    const uint8_t *scales;
    const uint8_t *zeros; /* NULL: the middle */
    bool has_byte_zeros;  /* I8 and not packed */
    bool has_low_zeros;   /* the first version of GPTQ's */
    const uint8_t *order; /* I32 [K]; NULL: the group of k is k / group */
};

/* Reads elements [row][32 * group .. + 32), for kinds of integers without an order. Past the row's
 * end they are zero. */
void stored_read_group(const struct stored_matrix *s, int row, int group, struct weight_group *out);

/* Reads the columns first_col + list[0..32), which are of one group; -1 is an element of zero. */
void stored_read_listed(const struct stored_matrix *s, int row, int first_col, const int32_t *list,
                        struct weight_group *out);

/* The group of scales that a column belongs to. */
int stored_group_of(const struct stored_matrix *s, int col);

/* Writes the n bytes of fp8 from [row][col] on; and the scale of [row][col]. */
void stored_read_fp8(const struct stored_matrix *s, int row, int col, int n, uint8_t *out);
float stored_scale_of(const struct stored_matrix *s, int row, int col);

/* Elements [row][col .. col + n), each rounded once from its exact value. */
void stored_read_f32(const struct stored_matrix *s, int row, int col, int n, float *out);

/* The form of a matrix that keeps all bits. */
enum weight_form stored_form(const struct stored_matrix *s);

/* The hash of elements [row][col .. col + n) and their scales, as stored_read_group gives them. */
uint64_t stored_hash(const struct stored_matrix *s, int row, int col, int n);

/* As weight_expect (read.h). */
void stored_expect(const struct stored_matrix *s, int row, int n_rows, int col, int n);
