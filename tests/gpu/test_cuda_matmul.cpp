/* Matmuls of the CUDA backend: sums compared with double precision and the CPU backend; the bits of
 * a row must not depend on the rows beside it; slices and swiglu compared with single matmuls. */
#include "base/limits.h"
#include "tests/gpu/matmul_rig.h"

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
    const struct operands operands = {exact, in, in_stride, n_in, n_out};
    expect_near(rig, &operands, n < 20 ? n : 20, out);
    if (n_in % 2 == 0) expect_near_cpu(rig, &source, in, in_stride, n < 9 ? n : 9, out);
    expect_one_arithmetic(rig, &m, in, in_stride, n, out);
    rig->cuda->ops->matrix_close(rig->cuda, &m);
    free(w), free(in), free(exact), free(out);
}

/* ---- slices and swiglu ---- */

/* A slice's sums are those of its matrix alone on the slice's columns. */
static void slices_are_matmuls_side_by_side(struct rig *rig, int n_in, int n_slices, int n)
{
    enum { N_OUT = 52 };
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

/* h must be the host's formula on the sums that matmul gives for gate and up as two matrices. */
static void gated_is_the_formula(struct rig *rig, int n_in, int n_ffn, int n, bool has_bias,
                                 enum activation activation)
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
    const struct gated_mlp mlp = {
        &m[2], has_bias ? device_bias : NULL, activation, device_in, n, scratch, device_h};
    rig->cuda->ops->matmul_gated(rig->cuda, &mlp);
    device_read(rig, h, device_h, (n_h + 1) / 2 * 4);
    for (size_t i = 0; i < area(n, n_ffn); i++) {
        size_t j = i % static_cast<size_t>(n_ffn);
        float g = gate[i], u = up[i];
        if (has_bias) g += bias[j], u += bias[j + static_cast<size_t>(n_ffn)];
        float a = activation == ACTIVATION_SILU ? g / (1.0f + num_exp(-g)) : num_gelu_tanh(g);
        n_wrong += h[i] != num_float_to_bf16(a * u);
    }
    EXPECT(rig, n_wrong == 0, "%d x %d, %d rows: %d of h", n_in, n_ffn, n, n_wrong);
    for (int i = 0; i < 3; i++) {
        rig->cuda->ops->matrix_close(rig->cuda, &m[i]);
    }
    device_close(rig, device_in), device_close(rig, device_h);
    device_close(rig, device_bias), device_close(rig, scratch);
    free(w), free(in), free(h), free(bias), free(gate), free(up);
}

int main(int argc, char **argv)
{
    struct rig rig;
    rig_open(&rig, argc, argv);
    sums_are_right_and_one_arithmetic(&rig, 86, 20, 0);
    sums_are_right_and_one_arithmetic(&rig, 344, 130, 8);
    sums_are_right_and_one_arithmetic(&rig, 1000, 64, 2); /* 4 segments, rows not aligned */
    sums_are_right_and_one_arithmetic(&rig, 1000, 1, 0);
    sums_are_right_and_one_arithmetic(&rig, 2080, 36, 16); /* 8 segments */
    slices_are_matmuls_side_by_side(&rig, 86, 8, 5);
    slices_are_matmuls_side_by_side(&rig, 48, 4, 12);
    slices_are_matmuls_side_by_side(&rig, 528, 2, 66);
    for (int is_fp8 = 0; is_fp8 < 2; is_fp8++) {
        if (is_fp8) open_fp8(&rig);
        gated_is_the_formula(&rig, 96, 20, 3, false, ACTIVATION_GELU_TANH);
        gated_is_the_formula(&rig, 86, 64, 40, true, ACTIVATION_SILU);
        gated_is_the_formula(&rig, 528, 131, 100, true, ACTIVATION_SILU);
    }
    return rig_close(&rig);
}
