/* Matrices of the CUDA backend: packed weights checked element by element through unit vectors,
 * weights of files and weights made on the device, and the rounding to fp8 compared with a search
 * through all fp8 numbers. */
#include "tests/gpu/matmul_rig.h"

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

/* Checks w[column][k] for all columns of a matrix and n values of k, which unit vectors bring
 * out. */
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

/* q, k and v side by side; rows and columns from the middle, rows past the end of the tensor, and
 * elements that begin inside of a block of the generator. */
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

/* More than one chunk of the staging buffer, from both kinds of sources, and from 16-bit and 32-bit
 * files. Each row is digested once, whichever thread reads it. */
static void packing_goes_on_over_chunks(struct rig *rig)
{
    enum { N_IN = 320, N_OUT = 8010 };
    uint16_t *data = random_bf16(rig, area(N_OUT, N_IN), 1);
    float *wide = rig_numbers(rig, area(33, 64), 1);
    struct matrix_source file = whole_source(data, N_IN, N_OUT), made = {}, f32 = {};
    made.n_in = N_IN;
    add_part(&made, synthetic_weight(5, N_OUT, N_IN), 0, N_OUT, 0);
    uint64_t digests[MATRIX_PARTS_MAX] = {}, want[MATRIX_PARTS_MAX] = {};
    file.digests = digests;
    expect_elements(rig, &file, 64, 8);
    matrix_source_digest(&file, 0, N_OUT, want);
    EXPECT(rig, memcmp(digests, want, sizeof want) == 0, "the digest is not that of the rows");
    expect_elements(rig, &made, 312, 8);
    f32.n_in = 64;
    add_part(&f32, file_weight(reinterpret_cast<uint16_t *>(wide), 33, 64), 0, 33, 0);
    f32.parts[0].weight.dtype = DTYPE_F32;
    expect_elements(rig, &f32, 0, 64);
    free(data), free(wide);
}

/* ---- fp8 ---- */

/* The value of an e4m3 code 0..0x7e. */
static float e4m3_value(int code)
{
    int exponent = code >> 3, mantissa = code & 7;
    return exponent ? ldexpf(static_cast<float>(8 + mantissa), exponent - 10)
                    : ldexpf(static_cast<float>(mantissa), -9);
}

/* The nearest e4m3, found by trying all of them; of two that are equally near, the one whose last
 * bit is 0. */
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

/* Rows of a matrix as fp8 keeps them: one of huge numbers, one of tiny ones, one of zeros, one of
 * halfway cases. */
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
    const struct operands operands = {kept, in, n_in, n_in, n_out};
    expect_near(rig, &operands, 9, out);
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

int main(int argc, char **argv)
{
    struct rig rig;
    rig_open(&rig, argc, argv);
    bad_shapes_are_refused(&rig);
    packing_keeps_every_element(&rig);
    packing_goes_on_over_chunks(&rig);
    open_fp8(&rig);
    fp8_is_rounded_once(&rig, 96, 40);
    fp8_is_rounded_once(&rig, 1030, 19);
    return rig_close(&rig);
}
