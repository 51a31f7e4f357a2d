/* Reading the elements of a weight. Packed matrices are a stream of bytes (int8) or of nibbles, the
 * low one first (int4), in the order of k; each is the integer plus 128 or 8. */
#include "model/checkpoint/read.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "base/least.h"
#include "base/system/file.h"
#include "model/numerics/numerics.h"
#include "model/numerics/synthetic_blocks.h"
#include "model/numerics/synthetic_elements.h"

static uint64_t element_index(const struct weight *weight, int row, int col)
{
    int stored = weight_stored_row(weight, row);
    return (uint64_t)stored * (uint64_t)weight->n_cols + (uint64_t)col;
}

/* A vector whose elements are in another order in the file. */
static bool is_paired_vector(const struct weight *weight)
{
    return weight->paired_rows && weight->n_rows == 1;
}

/* The column of the file that column `col` of the weight is. */
static int stored_col(const struct weight *weight, int col)
{
    return is_paired_vector(weight) ? weight_stored_row(weight, col) : col;
}

/* The elements that are side by side in the file, of n that are in the weight. */
static int run_length(const struct weight *weight, int n)
{
    return is_paired_vector(weight) ? 1 : n;
}

/* Bits of a stored element that is not in a block. */
static size_t dtype_bits(enum dtype dtype)
{
    if (dtype == DTYPE_INT4) return 4;
    if (dtype == DTYPE_INT8) return 8;
    return dtype == DTYPE_F32 ? 32 : 16;
}

static size_t row_bytes(const struct weight *weight)
{
    size_t n = (size_t)weight->n_cols;
    if (weight->dtype == DTYPE_STORED) return n * (size_t)weight->stored.bits / 8;
    if (weight->dtype == DTYPE_BLOCKS) return block_bytes(weight->block, n);
    return n * dtype_bits(weight->dtype) / 8;
}

static const uint8_t *row_blocks(const struct weight *weight, int row)
{
    return weight->data + (size_t)weight_stored_row(weight, row) * row_bytes(weight);
}

/* Elements in a file may lie at odd addresses, hence memcpy. */
static float load_element(const uint8_t *at, enum dtype dtype)
{
    uint16_t half;
    float single;
    if (dtype == DTYPE_F32) {
        memcpy(&single, at, sizeof single);
        return single;
    }
    memcpy(&half, at, sizeof half);
    return dtype == DTYPE_F16 ? num_half_to_float(half) : num_bf16_to_float(half);
}

static void read_synthetic(const struct weight *weight, uint64_t first, int n, uint16_t *out)
{
    synthetic_elements_bf16(weight->seed, weight->mean, weight->scale, first, (size_t)n, out);
}

static void read_synthetic_group(const struct weight *weight, int row, int group,
                                 struct weight_group *out)
{
    uint16_t bits[QUANT_GROUP];
    float values[QUANT_GROUP];
    uint64_t first = (uint64_t)row * (uint64_t)weight->n_cols + (uint64_t)group * QUANT_GROUP;
    read_synthetic(weight, first, QUANT_GROUP, bits);
    for (int i = 0; i < QUANT_GROUP; i++) {
        values[i] = num_bf16_to_float(bits[i]);
    }
    synthetic_round_group(weight->block, weight->scale, values, out);
}

/* Elements of a weight with DTYPE_BLOCKS, of a file or synthetic. */
static void read_blocks_f32(const struct weight *weight, int row, int col, int n, float *out)
{
    float values[QUANT_GROUP];
    struct weight_group group;
    if (weight->data) {
        block_read_f32(weight->block, row_blocks(weight, row), col, n, out);
        return;
    }
    for (int done = 0; done < n;) {
        int skipped = (col + done) % QUANT_GROUP, n_here = least(QUANT_GROUP - skipped, n - done);
        read_synthetic_group(weight, row, (col + done) / QUANT_GROUP, &group);
        group_read_f32(block_form(weight->block), &group, values);
        memcpy(out + done, values + skipped, (size_t)n_here * sizeof *out);
        done += n_here;
    }
}

static void read_blocks_bf16(const struct weight *weight, int row, int col, int n, uint16_t *out)
{
    float values[QUANT_GROUP];
    for (int done = 0; done < n; done += QUANT_GROUP) {
        int n_here = least(QUANT_GROUP, n - done);
        if (weight->dtype == DTYPE_STORED) {
            stored_read_f32(&weight->stored, row, col + done, n_here, values);
        } else {
            read_blocks_f32(weight, row, col + done, n_here, values);
        }
        for (int i = 0; i < n_here; i++) {
            out[done + i] = num_float_to_bf16(values[i]);
        }
    }
}

/* Columns as the file has them. */
static void read_run_bf16(const struct weight *weight, int row, int col, int n, uint16_t *out)
{
    uint64_t first = element_index(weight, row, col);
    assert(!weight->scales); /* packed: weight_read_groups */
    if (weight->dtype == DTYPE_BLOCKS || weight->dtype == DTYPE_STORED) {
        read_blocks_bf16(weight, row, col, n, out);
        return;
    }
    if (!weight->data) {
        read_synthetic(weight, first, n, out);
        return;
    }
    size_t bytes = dtype_bits(weight->dtype) / 8;
    const uint8_t *at = weight->data + first * bytes;
    if (weight->dtype == DTYPE_BF16) {
        memcpy(out, at, (size_t)n * sizeof *out);
        return;
    }
    for (int i = 0; i < n; i++) {
        out[i] = num_float_to_bf16(load_element(at + (size_t)i * bytes, weight->dtype));
    }
}

void weight_read_bf16(const struct weight *weight, int row, int col, int n, uint16_t *out)
{
    int len = run_length(weight, n);
    for (int i = 0; i < n; i += len) {
        read_run_bf16(weight, row, stored_col(weight, col + i), len, out + i);
    }
}

/* Columns as the file has them. */
static void read_run_f32(const struct weight *weight, int row, int col, int n, float *out)
{
    enum { CHUNK = 256 };
    uint16_t chunk[CHUNK];
    assert(!weight->scales); /* packed: weight_read_groups */
    uint64_t first = element_index(weight, row, col);
    if (weight->dtype == DTYPE_BLOCKS) {
        read_blocks_f32(weight, row, col, n, out);
        return;
    }
    if (weight->dtype == DTYPE_STORED) {
        stored_read_f32(&weight->stored, row, col, n, out);
        return;
    }
    if (weight->data) {
        size_t bytes = dtype_bits(weight->dtype) / 8;
        const uint8_t *at = weight->data + first * bytes;
        for (int i = 0; i < n; i++) {
            out[i] = load_element(at + (size_t)i * bytes, weight->dtype);
        }
        return;
    }
    for (int done = 0; done < n; done += CHUNK) {
        int n_here = n - done < CHUNK ? n - done : CHUNK;
        read_synthetic(weight, first + (uint64_t)done, n_here, chunk);
        for (int i = 0; i < n_here; i++) {
            out[done + i] = num_bf16_to_float(chunk[i]);
        }
    }
}

void weight_read_f32(const struct weight *weight, int row, int col, int n, float *out)
{
    int len = run_length(weight, n);
    for (int i = 0; i < n; i += len) {
        read_run_f32(weight, row, stored_col(weight, col + i), len, out + i);
    }
}

enum weight_form weight_form_of(const struct weight *weight)
{
    switch (weight->dtype) {
    case DTYPE_INT8:
        return WEIGHTS_INT8;
    case DTYPE_INT4:
        return WEIGHTS_INT4;
    case DTYPE_BLOCKS:
        return block_form(weight->block);
    case DTYPE_STORED:
        return stored_form(&weight->stored);
    default:
        return WEIGHTS_BF16;
    }
}

void weight_read_group(const struct weight *weight, int row, int group, struct weight_group *out)
{
    if (weight->dtype == DTYPE_STORED) {
        stored_read_group(&weight->stored, row, group, out);
    } else if (!weight->data) {
        read_synthetic_group(weight, row, group, out);
    } else {
        block_read_group(weight->block, row_blocks(weight, row), group, out);
    }
}

const uint8_t *weight_run(const struct weight *weight, int row, int col, int n, size_t *bytes)
{
    assert(n == run_length(weight, n));
    col = stored_col(weight, col);
    if (weight->dtype == DTYPE_BLOCKS) {
        int size = block_type_of(weight->block)->n_elements;
        int first = col / size, end = (col + n + size - 1) / size;
        *bytes = block_bytes(weight->block, (size_t)(end - first) * (size_t)size);
        return row_blocks(weight, row) + block_bytes(weight->block, (size_t)first * (size_t)size);
    }
    size_t bits = dtype_bits(weight->dtype);
    *bytes = (size_t)n * bits / 8;
    return weight->data + (size_t)element_index(weight, row, col) * bits / 8;
}

size_t weight_data_bytes(const struct weight *weight)
{
    return (size_t)weight->n_rows * row_bytes(weight);
}

size_t weight_scale_bytes(const struct weight *weight)
{
    return (size_t)weight->n_rows * (size_t)(weight->n_cols / weight->group) * sizeof(uint16_t);
}

/* n is even, because a packed matrix can only be opened if its slices are whole groups. */
static void read_packed(const struct weight *weight, int row, int col, int n, int8_t *q,
                        uint16_t *scales)
{
    size_t first = (size_t)element_index(weight, row, col);
    if (weight->dtype == DTYPE_INT8) {
        const uint8_t *bytes = weight->data + first;
        for (int i = 0; i < n; i++) {
            q[i] = (int8_t)(bytes[i] - 128);
        }
    } else {
        const uint8_t *bytes = weight->data + first / 2;
        for (int i = 0; i < n / 2; i++) {
            q[2 * i] = (int8_t)((bytes[i] & 15) - 8);
            q[2 * i + 1] = (int8_t)((bytes[i] >> 4) - 8);
        }
    }
    int row_scales = weight->n_cols / weight->group;
    for (int k = 0; k < n; k += QUANT_GROUP) {
        size_t at = (size_t)weight_stored_row(weight, row) * (size_t)row_scales +
                    (size_t)((col + k) / weight->group);
        memcpy(scales++, weight->scales + at * sizeof *scales, sizeof *scales);
    }
}

void weight_read_groups(const struct weight *weight, enum weight_form form, int row, int col, int n,
                        int8_t *q, uint16_t *scales)
{
    enum { CHUNK = 16 * QUANT_GROUP };
    uint16_t values[CHUNK];
    if (weight->dtype == DTYPE_INT8 || weight->dtype == DTYPE_INT4) {
        assert((form == WEIGHTS_INT8) == (weight->dtype == DTYPE_INT8) && col % QUANT_GROUP == 0);
        read_packed(weight, row, col, n, q, scales);
        return;
    }
    for (int done = 0; done < n; done += CHUNK) {
        int n_here = n - done < CHUNK ? n - done : CHUNK;
        weight_read_bf16(weight, row, col + done, n_here, values);
        quant_weights(form, values, n_here, q + done, scales + done / QUANT_GROUP);
    }
}

void weight_expect(const struct weight *weight, int row, int n_rows, int col, int n)
{
    size_t len;
    if (!weight->data || n_rows <= 0 || is_paired_vector(weight)) return;
    if (weight->dtype == DTYPE_STORED) {
        stored_expect(&weight->stored, row, n_rows, col, n);
        return;
    }
    const uint8_t *first = weight_run(weight, row, col, n, &len);
    file_expect_runs(first, row_bytes(weight), len, n_rows);
    if (!weight->scales) return;
    size_t stride = weight_scale_bytes(weight) / (size_t)weight->n_rows;
    file_expect_runs(
        weight->scales + (size_t)row * stride + (size_t)(col / weight->group) * sizeof(uint16_t),
        stride, (size_t)((n + weight->group - 1) / weight->group) * sizeof(uint16_t), n_rows);
}
