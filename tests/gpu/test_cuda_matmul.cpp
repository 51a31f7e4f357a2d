/* Matrices and matmuls of the CUDA backend: packed weights element by element through unit vectors,
 * sums against double precision and the CPU backend, and the bits of a row whatever stands beside it.
 * Every shape is tried with the forms for narrow and for wide matrices: they are chosen by the number
 * of multiprocessors, which the test sets. */
#include "tests/gpu/cuda_rig.h"

#include <math.h>

enum { WIDE_SMS = 1, NARROW_SMS = 1 << 20, ROWS_MOST = 200, BF16_INF = 0x7f80 };

static const int row_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 33, 64, 65, 130};

static size_t area(int n, int width)
{
    return static_cast<size_t>(n) * static_cast<size_t>(width);
}

static uint16_t *random_bf16(struct rig *rig, size_t n, float scale)
{
    uint16_t *out = static_cast<uint16_t *>(malloc(n * sizeof *out + 1));
    for (size_t i = 0; i < n; i++) {
        out[i] = num_float_to_bf16(rig_number(rig) * scale);
    }
    return out;
}

/* ---- matrices ---- */

/* A bf16 tensor in host memory, as a mapped file has it. */
static struct weight file_weight(const uint16_t *data, int n_rows, int n_cols)
{
    struct weight weight = {};
    weight.dtype = DTYPE_BF16;
    weight.n_rows = n_rows;
    weight.n_cols = n_cols;
    weight.data = reinterpret_cast<const uint8_t *>(data);
    return weight;
}

static struct weight synthetic_weight(uint64_t seed, int n_rows, int n_cols)
{
    struct weight weight = {};
    weight.n_rows = n_rows;
    weight.n_cols = n_cols;
    weight.seed = seed;
    weight.scale = 0.0371f;
    weight.mean = 0.25f;
    return weight;
}

static void add_part(struct matrix_source *source, struct weight weight, int first_row, int n_rows,
                     int first_col)
{
    struct matrix_part *part = &source->parts[source->n_parts++];
    part->weight = weight;
    part->first_row = first_row;
    part->n_rows = n_rows;
    part->first_col = first_col;
}

static struct matrix_source whole_source(const uint16_t *w, int n_in, int n_out)
{
    struct matrix_source source = {};
    source.n_in = n_in;
    add_part(&source, file_weight(w, n_out, n_in), 0, n_out, 0);
    return source;
}

static struct matrix open_matrix(struct rig *rig, const struct matrix_source *source)
{
    struct error err = {};
    struct matrix m = {};
    MUST(rig->cuda->ops->matrix_open(rig->cuda, &m, source, &err), err);
    return m;
}

/* Row `column` of the matrix as the checkpoint has it. */
static void read_column(const struct matrix_source *source, int column, uint16_t *out)
{
    memset(out, 0, static_cast<size_t>(source->n_in) * sizeof *out);
    for (int i = 0; i < source->n_parts; i++) {
        const struct matrix_part *part = &source->parts[i];
        int row = part->first_row + column;
        if (column < part->n_rows) {
            if (row < part->weight.n_rows) {
                weight_read_bf16(&part->weight, row, part->first_col, source->n_in, out);
            }
            return;
        }
        column -= part->n_rows;
    }
}

/* ---- one matmul ---- */

/* out[n][n_out] = in[n][in_stride] * m. Columns beside the result must stay as they were. */
static void multiply(struct rig *rig, const struct matrix *m, const uint16_t *in, int in_stride,
                     int n, float *out)
{
    enum { BESIDE = 3 };
    int rows = rig->cuda->ops->capacity(rig->cuda, n), stride = m->n_out + BESIDE, n_touched = 0;
    float *got = static_cast<float *>(malloc(area(rows, stride) * sizeof *got));
    uint16_t *device_in =
        static_cast<uint16_t *>(device_open(rig, NULL, area(rows, in_stride) * sizeof *in));
    rig->cuda->ops->upload(rig->cuda, device_in, in, area(n, in_stride) * sizeof *in);
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
    free(got);
}

static void expect_same(struct rig *rig, const float *got, const float *want, size_t n,
                        const char *what, int rows)
{
    size_t at = 0;
    while (at < n && memcmp(&got[at], &want[at], sizeof *got) == 0)
        at++;
    EXPECT(rig, at == n, "%s, %d rows: element %zu of %zu is %a, wanted %a", what, rows, at, n,
           static_cast<double>(got[at]), static_cast<double>(want[at]));
}

/* w[column][k] for all of a matrix: what unit vectors bring out, eight (or all) of them at a time. */
static void expect_elements(struct rig *rig, const struct matrix_source *source, int first_k, int n)
{
    struct matrix m = open_matrix(rig, source);
    uint16_t *in = static_cast<uint16_t *>(calloc(area(n, m.n_in), sizeof *in));
    uint16_t *column =
        static_cast<uint16_t *>(malloc(static_cast<size_t>(m.n_in) * sizeof *column));
    float *out = static_cast<float *>(malloc(area(n, m.n_out) * sizeof *out));
    int n_wrong = 0, wrong_column = -1;
    for (int i = 0; i < n; i++) {
        in[area(i, m.n_in) + static_cast<size_t>(first_k + i)] = 0x3f80;
    }
    multiply(rig, &m, in, m.n_in, n, out);
    for (int j = 0; j < m.n_out; j++) {
        read_column(source, j, column);
        for (int i = 0; i < n; i++) {
            float want = num_bf16_to_float(column[first_k + i]);
            bool is_wrong = out[area(i, m.n_out) + static_cast<size_t>(j)] != want;
            n_wrong += is_wrong;
            if (is_wrong) wrong_column = j;
        }
    }
    EXPECT(rig, n_wrong == 0, "%d x %d: %d elements, the last in column %d", m.n_in, m.n_out,
           n_wrong, wrong_column);
    rig->cuda->ops->matrix_close(rig->cuda, &m);
    EXPECT(rig, m.data == NULL && m.bytes == 0, "a closed matrix is zeroed");
    free(in), free(column), free(out);
}

/* q, k and v side by side; rows and columns from the middle, a tail that the tensor lacks, elements that
 * begin inside of a block of the generator. */
static void packing_keeps_every_element(struct rig *rig)
{
    uint16_t *data = random_bf16(rig, area(90, 131), 2);
    for (int is_synthetic = 0; is_synthetic < 2; is_synthetic++) {
        for (int first_col = 0; first_col < 9; first_col += rig->is_small ? 5 : 1) {
            struct matrix_source source = {};
            struct weight weight = is_synthetic ? synthetic_weight(987654321098765u, 90, 131)
                                                : file_weight(data, 90, 131);
            source.n_in = 86;
            add_part(&source, weight, 3, 41, first_col);
            add_part(&source, weight, 0, 17, 45 - first_col);
            add_part(&source, weight, 80, 30, 7); /* 20 of these rows do not exist */
            expect_elements(rig, &source, 0, 86);
        }
    }
    free(data);
}

/* More than one chunk of the staging buffer, from both kinds of sources, and 16-bit and 32-bit files. */
static void packing_goes_on_over_chunks(struct rig *rig)
{
    enum { N_IN = 320, N_OUT = 8010 };
    uint16_t *data = random_bf16(rig, area(N_OUT, N_IN), 1);
    float *wide = rig_numbers(rig, area(33, 64), 1);
    struct matrix_source file = whole_source(data, N_IN, N_OUT), made = {}, f32 = {};
    made.n_in = N_IN;
    add_part(&made, synthetic_weight(5, N_OUT, N_IN), 0, N_OUT, 0);
    expect_elements(rig, &file, 64, 8);
    expect_elements(rig, &made, 312, 8);
    f32.n_in = 64;
    add_part(&f32, file_weight(reinterpret_cast<uint16_t *>(wide), 33, 64), 0, 33, 0);
    f32.parts[0].weight.dtype = DTYPE_F32;
    expect_elements(rig, &f32, 0, 64);
    free(data), free(wide);
}

/* ---- sums ---- */

/* Each sum within 3e-5 of the magnitudes that go into it: 24 bits, with some room for the fewer that a
 * tensor core keeps. */
static void expect_near(struct rig *rig, const float *w, const uint16_t *in, int in_stride,
                        int n_in, int n_out, int n, const float *got)
{
    int n_wrong = 0;
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n_out; j++) {
            double sum = 0, size = 0;
            for (int k = 0; k < n_in; k++) {
                float x = num_bf16_to_float(in[area(i, in_stride) + static_cast<size_t>(k)]);
                double product = static_cast<double>(x) *
                                 static_cast<double>(w[area(j, n_in) + static_cast<size_t>(k)]);
                sum += product;
                size += fabs(product);
            }
            double is = static_cast<double>(got[area(i, n_out) + static_cast<size_t>(j)]);
            n_wrong += !(fabs(is - sum) <= 3e-5 * size);
        }
    }
    EXPECT(rig, n_wrong == 0, "%d x %d: %d of %d sums", n_in, n_out, n_wrong, n * n_out);
}

static void expect_near_cpu(struct rig *rig, const struct matrix_source *source, const uint16_t *in,
                            int in_stride, int n, const float *got)
{
    struct error err = {};
    struct matrix m = {};
    MUST(rig->cpu->ops->matrix_open(rig->cpu, &m, source, &err), err);
    float *want = static_cast<float *>(malloc(area(n, m.n_out) * sizeof *want));
    int n_wrong = 0;
    rig->cpu->ops->matmul(rig->cpu, &m, in, static_cast<size_t>(in_stride), want,
                          static_cast<size_t>(m.n_out), n);
    for (size_t i = 0; i < area(n, m.n_out); i++) {
        n_wrong += !rig_near(got[i], want[i], 3e-5f * static_cast<float>(m.n_in));
    }
    EXPECT(rig, n_wrong == 0, "%d x %d: %d sums unlike the CPU's", m.n_in, m.n_out, n_wrong);
    rig->cpu->ops->matrix_close(rig->cpu, &m);
    free(want);
}

/* All counts of rows, and single rows, against the first `most` rows at once. Rows are wider than n_in
 * and go on with infinities, which must not be touched. */
static void expect_one_arithmetic(struct rig *rig, const struct matrix *m, const uint16_t *in,
                                  int in_stride, int most, const float *want)
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

static void sums_are_right_and_one_arithmetic(struct rig *rig, int n_in, int n_out, int beside)
{
    int in_stride = n_in + beside, n = rig->is_small ? 70 : ROWS_MOST;
    uint16_t *w = random_bf16(rig, area(n_out, n_in), 1);
    uint16_t *in = random_bf16(rig, area(n, in_stride), 1);
    float *exact = static_cast<float *>(malloc(area(n_out, n_in) * sizeof *exact));
    float *out = static_cast<float *>(malloc(area(n, n_out) * sizeof *out));
    struct matrix_source source = whole_source(w, n_in, n_out);
    struct matrix m = open_matrix(rig, &source);
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < beside; j++) {
            in[area(i, in_stride) + static_cast<size_t>(n_in + j)] = BF16_INF;
        }
    }
    for (size_t i = 0; i < area(n_out, n_in); i++) {
        exact[i] = num_bf16_to_float(w[i]);
    }
    multiply(rig, &m, in, in_stride, n, out);
    expect_near(rig, exact, in, in_stride, n_in, n_out, n < 20 ? n : 20, out);
    if (n_in % 2 == 0) expect_near_cpu(rig, &source, in, in_stride, n < 9 ? n : 9, out);
    expect_one_arithmetic(rig, &m, in, in_stride, n, out);
    rig->cuda->ops->matrix_close(rig->cuda, &m);
    free(w), free(in), free(exact), free(out);
}

/* ---- slices and swiglu ---- */

/* A slice's sums are those of its matrix alone, on its columns. */
static void slices_are_matmuls_side_by_side(struct rig *rig, int n_in, int n_slices, int n)
{
    enum { N_OUT = 52, SLICES_MAX = 8 };
    int in_stride = n_in * n_slices, rows = rig->cuda->ops->capacity(rig->cuda, n);
    uint16_t *w = random_bf16(rig, area(N_OUT, in_stride), 1);
    uint16_t *in = random_bf16(rig, area(rows, in_stride), 1);
    float *all = static_cast<float *>(malloc(area(rows, N_OUT) * SLICES_MAX * sizeof *all));
    float *one = static_cast<float *>(malloc(area(rows, N_OUT) * sizeof *one));
    struct matrix slices[SLICES_MAX] = {};
    for (int s = 0; s < n_slices; s++) {
        struct matrix_source source = {};
        source.n_in = n_in;
        add_part(&source, file_weight(w, N_OUT, in_stride), 0, N_OUT, s * n_in);
        slices[s] = open_matrix(rig, &source);
    }
    uint16_t *device_in =
        static_cast<uint16_t *>(device_open(rig, in, area(rows, in_stride) * sizeof *in));
    struct slice_sums sums = {device_floats(rig, NULL, area(rows, N_OUT) * SLICES_MAX), 0, 0};
    rig->cuda->ops->matmul_slices(rig->cuda, slices, n_slices, device_in,
                                  static_cast<size_t>(in_stride), n, &sums);
    EXPECT(rig, sums.n_parts == n_slices && sums.stride == area(rows, N_OUT),
           "%d parts, stride %zu", sums.n_parts, sums.stride);
    device_read(rig, all, sums.data,
                area(rows, N_OUT) * static_cast<size_t>(n_slices) * sizeof *all);
    for (int s = 0; s < n_slices; s++) {
        multiply(rig, &slices[s], in + s * n_in, in_stride, n - 1, one);
        expect_same(rig, all + static_cast<size_t>(s) * sums.stride, one, area(n - 1, N_OUT),
                    "slice", s);
        rig->cuda->ops->matrix_close(rig->cuda, &slices[s]);
    }
    device_close(rig, device_in);
    device_close(rig, sums.data);
    free(w), free(in), free(all), free(one);
}

/* h of the host's formula on the sums that matmul gives for gate and up as two matrices. */
static void swiglu_is_the_formula(struct rig *rig, int n_in, int n_ffn, int n, bool has_bias)
{
    int rows = rig->cuda->ops->capacity(rig->cuda, n), n_wrong = 0;
    size_t n_h = area(rows, n_ffn);
    uint16_t *w = random_bf16(rig, area(2 * n_ffn, n_in), 1);
    uint16_t *in = random_bf16(rig, area(rows, n_in), 1);
    uint16_t *h = static_cast<uint16_t *>(malloc((n_h + 1) * sizeof *h));
    float *bias = rig_numbers(rig, static_cast<size_t>(2 * n_ffn), 1);
    float *gate = static_cast<float *>(malloc(n_h * sizeof *gate));
    float *up = static_cast<float *>(malloc(n_h * sizeof *up));
    struct matrix_source parts[2] = {whole_source(w, n_in, n_ffn),
                                     whole_source(w + area(n_ffn, n_in), n_in, n_ffn)};
    struct matrix_source both = parts[0];
    both.is_gate_up = true;
    add_part(&both, file_weight(w, 2 * n_ffn, n_in), n_ffn, n_ffn, 0);
    struct matrix m[3] = {open_matrix(rig, &parts[0]), open_matrix(rig, &parts[1]),
                          open_matrix(rig, &both)};
    uint16_t *device_in =
        static_cast<uint16_t *>(device_open(rig, in, area(rows, n_in) * sizeof *in));
    uint16_t *device_h = static_cast<uint16_t *>(device_open(rig, NULL, (n_h + 1) * sizeof *h));
    float *device_bias = device_floats(rig, bias, static_cast<size_t>(2 * n_ffn));
    float *scratch = device_floats(rig, NULL, 2 * n_h);
    multiply(rig, &m[0], in, n_in, n, gate);
    multiply(rig, &m[1], in, n_in, n, up);
    rig->cuda->ops->matmul_swiglu(rig->cuda, &m[2], has_bias ? device_bias : NULL, device_in, n,
                                  scratch, device_h);
    device_read(rig, h, device_h, (n_h + 1) / 2 * 4);
    for (size_t i = 0; i < area(n, n_ffn); i++) {
        size_t j = i % static_cast<size_t>(n_ffn);
        float g = gate[i], u = up[i];
        if (has_bias) g += bias[j], u += bias[j + static_cast<size_t>(n_ffn)];
        n_wrong += h[i] != num_float_to_bf16(g / (1.0f + num_exp(-g)) * u);
    }
    EXPECT(rig, n_wrong == 0, "%d x %d, %d rows: %d of h", n_in, n_ffn, n, n_wrong);
    for (int i = 0; i < 3; i++) {
        rig->cuda->ops->matrix_close(rig->cuda, &m[i]);
    }
    device_close(rig, device_in), device_close(rig, device_h);
    device_close(rig, device_bias), device_close(rig, scratch);
    free(w), free(in), free(h), free(bias), free(gate), free(up);
}

/* ---- fp8 ---- */

/* The value of an e4m3 code 0..0x7e. */
static float e4m3_value(int code)
{
    int exponent = code >> 3, mantissa = code & 7;
    return exponent ? ldexpf(static_cast<float>(8 + mantissa), exponent - 10)
                    : ldexpf(static_cast<float>(mantissa), -9);
}

/* The nearest e4m3 by looking at all of them; of two as near, the one whose last bit is 0. */
static float e4m3_nearest(float x)
{
    int best = 0;
    for (int code = 1; code <= 0x7e; code++) {
        float distance = fabsf(fabsf(x) - e4m3_value(code));
        float least = fabsf(fabsf(x) - e4m3_value(best));
        if (distance < least || (distance <= least && code % 2 == 0)) best = code;
    }
    return copysignf(e4m3_value(best), x);
}

/* Rows of a matrix as fp8 keeps them; one of huge numbers, one of tiny ones, one of zeros, halfway
 * cases. */
static void round_rows(uint16_t *w, int n_in, int n_out, float *kept, struct rig *rig)
{
    int n_far = 0;
    for (int j = 0; j < n_out; j++) {
        uint16_t *row = w + area(j, n_in);
        float max = 0, scale = 0x1p-126f;
        for (int k = 0; k < n_in; k++) {
            float x = num_bf16_to_float(row[k]);
            if (j == 1) x *= 0x1p60f;
            if (j == 2) x *= 0x1p-60f;
            if (j == 3) x = 0;
            if (j == 4) x = static_cast<float>(k % 40 - 20) * 0.0625f + (k == 5 ? 28.0f : 0.0f);
            row[k] = num_float_to_bf16(x);
            max = fmaxf(max, fabsf(num_bf16_to_float(row[k])));
        }
        while (max / scale > 448)
            scale *= 2;
        for (int k = 0; k < n_in; k++) {
            float x = num_bf16_to_float(row[k]), *y = &kept[area(j, n_in) + static_cast<size_t>(k)];
            *y = e4m3_nearest(x / scale) * scale;
            n_far += fabsf(*y - x) > fmaxf(fabsf(x) / 16, max / 224 / 1024);
        }
    }
    EXPECT(rig, n_far == 0, "%d weights beyond the bound on rounding", n_far);
}

static void fp8_is_rounded_once(struct rig *rig, int n_in, int n_out)
{
    int n = 70, n_wrong = 0;
    uint16_t *w = random_bf16(rig, area(n_out, n_in), 1), *in = random_bf16(rig, area(n, n_in), 1);
    uint16_t *unit = static_cast<uint16_t *>(calloc(area(n_in, n_in), sizeof *unit));
    float *kept = static_cast<float *>(malloc(area(n_out, n_in) * sizeof *kept));
    float *out = static_cast<float *>(malloc(area(n_in > n ? n_in : n, n_out) * sizeof *out));
    struct matrix_source source = whole_source(w, n_in, n_out);
    round_rows(w, n_in, n_out, kept, rig);
    struct matrix m = open_matrix(rig, &source);
    for (int k = 0; k < n_in; k++) {
        unit[area(k, n_in) + static_cast<size_t>(k)] = 0x3f80;
    }
    multiply(rig, &m, unit, n_in, n_in, out);
    for (int j = 0; j < n_out; j++) {
        for (int k = 0; k < n_in; k++) {
            n_wrong += out[area(k, n_out) + static_cast<size_t>(j)] !=
                       kept[area(j, n_in) + static_cast<size_t>(k)];
        }
    }
    EXPECT(rig, n_wrong == 0, "%d x %d: %d fp8 elements", n_in, n_out, n_wrong);
    multiply(rig, &m, in, n_in, n, out);
    expect_near(rig, kept, in, n_in, n_in, n_out, 9, out);
    expect_one_arithmetic(rig, &m, in, n_in, n, out);
    rig->cuda->ops->matrix_close(rig->cuda, &m);
    w[area(6, n_in) + 3] = BF16_INF;
    m = open_matrix(rig, &source);
    multiply(rig, &m, in, n_in, 2, out);
    EXPECT(rig, isnan(out[6]) && !isnan(out[5]) && !isnan(out[7]), "an infinite weight gives NaN");
    rig->cuda->ops->matrix_close(rig->cuda, &m);
    free(w), free(in), free(unit), free(kept), free(out);
}

/* ---- refusals ---- */

static void bad_shapes_are_refused(struct rig *rig)
{
    struct error err = {};
    struct matrix m = {};
    struct matrix_source source = {};
    source.n_in = 33;
    add_part(&source, synthetic_weight(1, 8, 33), 0, 8, 0);
    int rc = rig->cuda->ops->matrix_open(rig->cuda, &m, &source, &err);
    EXPECT(rig, rc == ERR_UNSUPPORTED && strstr(err.text, "33 inputs"), "%d: %s", rc, err.text);
    source.n_in = 1 << 22;
    source.parts[0].n_rows = source.parts[0].weight.n_rows = 1 << 20;
    source.parts[0].weight.n_cols = 1 << 22;
    rc = rig->cuda->ops->matrix_open(rig->cuda, &m, &source, &err);
    EXPECT(rig, rc == ERR_NO_MEMORY && strstr(err.text, "4194304 x 1048576"), "%d: %s", rc,
           err.text);
    EXPECT(rig, m.data == NULL && m.bytes == 0, "nothing is left of a matrix that failed");
}

static void open_fp8(struct rig *rig)
{
    struct backend_cuda_options options = backend_cuda_of(rig->cuda)->options;
    struct error err = {};
    rig->cuda->ops->close(rig->cuda);
    options.weights = CUDA_WEIGHTS_FP8;
    MUST(backend_cuda_open(&rig->cuda, &options, &err), err);
}

int main(int argc, char **argv)
{
    struct rig rig;
    rig_open(&rig, argc, argv);
    bad_shapes_are_refused(&rig);
    packing_keeps_every_element(&rig);
    packing_goes_on_over_chunks(&rig);
    sums_are_right_and_one_arithmetic(&rig, 86, 20, 0);
    sums_are_right_and_one_arithmetic(&rig, 344, 130, 8);
    sums_are_right_and_one_arithmetic(&rig, 1000, 64, 2); /* 4 segments, rows not aligned */
    sums_are_right_and_one_arithmetic(&rig, 1000, 1, 0);
    sums_are_right_and_one_arithmetic(&rig, 2080, 36, 16); /* 8 segments */
    slices_are_matmuls_side_by_side(&rig, 86, 8, 5);
    slices_are_matmuls_side_by_side(&rig, 48, 4, 12);
    slices_are_matmuls_side_by_side(&rig, 528, 2, 66);
    swiglu_is_the_formula(&rig, 96, 20, 3, false);
    swiglu_is_the_formula(&rig, 86, 64, 40, true);
    swiglu_is_the_formula(&rig, 528, 131, 100, true);
    open_fp8(&rig);
    fp8_is_rounded_once(&rig, 96, 40);
    fp8_is_rounded_once(&rig, 1030, 19);
    swiglu_is_the_formula(&rig, 96, 20, 3, true);
    return rig_close(&rig);
}
