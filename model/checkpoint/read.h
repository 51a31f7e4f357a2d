/* The elements of one tensor as numbers: from the bytes of a mapped file, or made on the fly for a
 * synthetic model (model/numerics/synthetic_elements.h). Reads may come from several threads. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "model/checkpoint/stored.h"
#include "model/numerics/block.h"
#include "model/numerics/quant.h"

/* INT8 and INT4 are packed, with scales: only weight_read_groups reads them. BLOCKS are blocks of a
 * kind that has integers, STORED ones of model/checkpoint/stored.h; weight_read_group reads both as
 * they are. */
enum dtype { DTYPE_BF16, DTYPE_F16, DTYPE_F32, DTYPE_INT8, DTYPE_INT4, DTYPE_BLOCKS, DTYPE_STORED };

/* A tensor of one or two dimensions, row-major [n_rows][n_cols]; one dimension is [1][n_cols]. */
struct weight {
    enum dtype dtype;
    enum block_kind block; /* DTYPE_BLOCKS; n_cols is a multiple of its elements */
    int n_rows, n_cols;
    const uint8_t *data;   /* little-endian elements in the mapped file; NULL: synthetic */
    const uint8_t *scales; /* packed: bf16 [n_rows][n_cols / group] */
    int group;
    /* E: rows i and i + E / 2 of each run of E rows are rows 2i and 2i + 1 of the file's, as GGUF
     * has q and k; of a vector, its elements. 0: rows are in order. */
    int paired_rows;
    uint64_t seed;               /* synthetic: key of this tensor's random stream */
    float scale;                 /* synthetic: standard deviation of the elements */
    float mean;                  /* synthetic: 1 for norm weights */
    struct stored_matrix stored; /* DTYPE_STORED */
};

/* The row of the file that row `row` of the weight is, or the element of a vector. */
static inline int weight_stored_row(const struct weight *weight, int row)
{
    int e = weight->paired_rows;
    if (e == 0) return row;
    int in_head = row % e;
    return row - in_head + in_head % (e / 2) * 2 + in_head / (e / 2);
}

/* Elements [row][col .. col + n) of a tensor that is not packed, as bf16 (rounded to nearest even;
 * what is bf16 on disk comes out as it is) or as fp32 (blocks: each element is rounded once from
 * its exact value). The caller keeps within the shape. */
void weight_read_bf16(const struct weight *weight, int row, int col, int n, uint16_t *out);
void weight_read_f32(const struct weight *weight, int row, int col, int n, float *out);

/* Elements [row][col .. col + n) as integers of form int8 or int4, with a scale for each 32 of them
 * (model/numerics/quant.h): as they are stored, or quantized from what weight_read_bf16 gives. The
 * weight is either packed in this form or not packed; if it is packed, col is a multiple of 32. */
void weight_read_groups(const struct weight *weight, enum weight_form form, int row, int col, int n,
                        int8_t *q, uint16_t *scales);

/* The form of a matrix that keeps all bits of the weight: that of its stored integers; bf16 for
 * plain numbers, although those of fp32 and fp16 are rounded then. */
enum weight_form weight_form_of(const struct weight *weight);

/* Elements [row][32 * group .. + 32) of a weight with DTYPE_BLOCKS or DTYPE_STORED (but fp8)
 * as they are stored. */
void weight_read_group(const struct weight *weight, int row, int group, struct weight_group *out);

/* The stored bytes that hold elements [row][col .. col + n), without the scales of a packed weight;
 * whole blocks. n is 1 for a vector whose elements are in another order. Not for synthetic and
 * stored weights. */
const uint8_t *weight_run(const struct weight *weight, int row, int col, int n, size_t *bytes);

/* A hint that elements [row .. row + n_rows)[col .. col + n) will be read soon; of rows in another
 * order, whole heads. Without it they are
 * read page by page as they are needed, because a file is mapped as one that is read in parts: a
 * rank's part of a row must not bring the other ranks' parts with it. */
void weight_expect(const struct weight *weight, int row, int n_rows, int col, int n);

/* Bytes of `data`, and of `scales` where the weight is packed. Not for synthetic weights. */
size_t weight_data_bytes(const struct weight *weight);
size_t weight_scale_bytes(const struct weight *weight);
