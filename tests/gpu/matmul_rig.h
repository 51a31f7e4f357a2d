/* Helpers that the tests of matrices and of matmuls share: matrices from host memory, one matmul on
 * the device, sums compared with double precision, and a check that the bits of a row do not depend
 * on the rows beside it. Every shape is tried with the forms for narrow and for wide matrices, and
 * with the segments of many rows in one block and in a block each. The backend chooses among these
 * by the number of multiprocessors, which the tests therefore set. */
#pragma once

#include <math.h>

#include "tests/gpu/rig.h"

enum { WIDE_SMS = 1, NARROW_SMS = 1 << 20, ROWS_MOST = 200, BF16_INF = 0x7f80 };

static const int row_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 33, 64, 65, 130};

static inline size_t area(int n, int width)
{
    return static_cast<size_t>(n) * static_cast<size_t>(width);
}

static inline uint16_t *random_bf16(struct rig *rig, size_t n, float scale)
{
    uint16_t *out = static_cast<uint16_t *>(malloc(n * sizeof *out + 1));
    for (size_t i = 0; i < n; i++) {
        out[i] = num_float_to_bf16(rig_number(rig) * scale);
    }
    return out;
}

/* ---- matrices ---- */

/* A bf16 tensor in host memory, as a mapped file has it. */
static inline struct weight file_weight(const uint16_t *data, int n_rows, int n_cols)
{
    struct weight weight = {};
    weight.dtype = DTYPE_BF16;
    weight.n_rows = n_rows;
    weight.n_cols = n_cols;
    weight.data = reinterpret_cast<const uint8_t *>(data);
    return weight;
}

static inline void add_part(struct matrix_source *source, struct weight weight, int first_row,
                            int n_rows, int first_col)
{
    struct matrix_part *part = &source->parts[source->n_parts++];
    part->weight = weight;
    part->first_row = first_row;
    part->n_rows = n_rows;
    part->first_col = first_col;
}

static inline struct matrix_source whole_source(const uint16_t *w, int n_in, int n_out)
{
    struct matrix_source source = {};
    source.n_in = n_in;
    add_part(&source, file_weight(w, n_out, n_in), 0, n_out, 0);
    return source;
}

static inline struct matrix open_matrix(struct rig *rig, const struct matrix_source *source)
{
    struct error err = {};
    struct matrix m = {};
    MUST(rig->cuda->ops->matrix_open(rig->cuda, &m, source, &err), err);
    return m;
}

/* ---- one matmul ---- */

/* out[n][n_out] = in[n][in_stride] * m; rows of padding are NaN. The columns beside the result must
 * stay as they were. */
static inline void multiply(struct rig *rig, const struct matrix *m, const uint16_t *in,
                            int in_stride, int n, float *out)
{
    enum { BESIDE = 3 };
    int rows = rig->cuda->ops->capacity(rig->cuda, n), stride = m->n_out + BESIDE, n_touched = 0;
    float *got = static_cast<float *>(malloc(area(rows, stride) * sizeof *got));
    size_t in_bytes = area(rows, in_stride) * sizeof *in;
    uint16_t *padded = static_cast<uint16_t *>(malloc(in_bytes));
    memset(padded, 0xff, in_bytes);
    memcpy(padded, in, area(n, in_stride) * sizeof *in);
    uint16_t *device_in = static_cast<uint16_t *>(device_open(rig, padded, in_bytes));
    for (size_t i = 0; i < area(rows, stride); i++) {
        got[i] = 77;
    }
    float *device_out = device_floats(rig, got, area(rows, stride));
    rig->cuda->ops->matmul(rig->cuda, m, device_in, static_cast<size_t>(in_stride), device_out,
                           static_cast<size_t>(stride), n);
    device_read(rig, got, device_out, area(rows, stride) * sizeof *got);
    for (int i = 0; i < n; i++) {
        memcpy(out + area(i, m->n_out), got + area(i, stride),
               static_cast<size_t>(m->n_out) * sizeof *out);
        for (int j = 0; j < BESIDE; j++) {
            n_touched += got[area(i, stride) + static_cast<size_t>(m->n_out + j)] != 77;
        }
    }
    EXPECT(rig, n_touched == 0, "%d of %d columns beside the result", n_touched, n * BESIDE);
    device_close(rig, device_in);
    device_close(rig, device_out);
    free(got), free(padded);
}

static inline void expect_same(struct rig *rig, const float *got, const float *want, size_t n,
                               const char *what, int rows)
{
    size_t at = 0;
    while (at < n && memcmp(&got[at], &want[at], sizeof *got) == 0)
        at++;
    EXPECT(rig, at == n, "%s, %d rows: element %zu of %zu is %a, wanted %a", what, rows, at, n,
           static_cast<double>(got[at]), static_cast<double>(want[at]));
}

/* The operands of a matmul on the host: w[n_out][n_in] exactly as the matrix keeps it, and rows of
 * in_stride elements. */
struct operands {
    const float *w;
    const uint16_t *in;
    int in_stride, n_in, n_out;
};

/* Each sum lies within 3e-5 of the magnitudes that go into it: 24 bits, with some room because a
 * tensor core keeps fewer. */
static inline void expect_near(struct rig *rig, const struct operands *operands, int n,
                               const float *got)
{
    int n_wrong = 0, n_in = operands->n_in, n_out = operands->n_out;
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n_out; j++) {
            double sum = 0, size = 0;
            for (int k = 0; k < n_in; k++) {
                float x = num_bf16_to_float(
                    operands->in[area(i, operands->in_stride) + static_cast<size_t>(k)]);
                double product =
                    static_cast<double>(x) *
                    static_cast<double>(operands->w[area(j, n_in) + static_cast<size_t>(k)]);
                sum += product;
                size += fabs(product);
            }
            double is = static_cast<double>(got[area(i, n_out) + static_cast<size_t>(j)]);
            n_wrong += !(fabs(is - sum) <= 3e-5 * size);
        }
    }
    EXPECT(rig, n_wrong == 0, "%d x %d: %d of %d sums", n_in, n_out, n_wrong, n * n_out);
}

/* Compares all counts of rows, and single rows, with the first `most` rows at once. Rows are longer
 * than n_in and continue with infinities, which the matmul must not touch. */
static inline void expect_one_arithmetic(struct rig *rig, const struct matrix *m,
                                         const uint16_t *in, int in_stride, int most,
                                         const float *want)
{
    float *got = static_cast<float *>(malloc(area(most, m->n_out) * sizeof *got));
    struct backend_cuda *be = backend_cuda_of(rig->cuda);
    int n_sms = be->n_sms;
    for (int wide = 0; wide < 2; wide++) {
        be->n_sms = wide ? WIDE_SMS : NARROW_SMS;
        for (size_t i = 0; i < sizeof row_counts / sizeof *row_counts; i++) {
            int n = row_counts[i];
            if (n > most || (rig->is_small && n > 9 && n % 8 == 1)) continue;
            multiply(rig, m, in, in_stride, n, got);
            expect_same(rig, got, want, area(n, m->n_out), wide ? "wide" : "narrow", n);
        }
        for (int row = 1; row < most; row += row < 9 ? 1 : 37) {
            multiply(rig, m, in + area(row, in_stride), in_stride, 1, got);
            expect_same(rig, got, want + area(row, m->n_out), area(1, m->n_out), "a row alone",
                        row);
        }
    }
    be->n_sms = n_sms;
    free(got);
}

/* From here on with fp8 weights. */
static inline void open_fp8(struct rig *rig)
{
    struct backend_cuda_options options = backend_cuda_of(rig->cuda)->options;
    struct error err = {};
    rig->cuda->ops->close(rig->cuda);
    options.weights = CUDA_WEIGHTS_FP8;
    MUST(backend_cuda_open(&rig->cuda, &options, &err), err);
}
