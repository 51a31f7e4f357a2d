/* Matrices that are stored in blocks on the CUDA backend: every weight of every kind brought out by
 * unit vectors and compared with the block's exact value, sums compared with double precision, and
 * one arithmetic whatever the number of rows. */
#include "tests/gpu/blocks_rig.h"

/* The weights of a source in the order of its columns, [n_out][n_in]. */
static float *exact_weights(const struct matrix_source *source, int n_out)
{
    float *out = static_cast<float *>(calloc(area(n_out, source->n_in), sizeof *out));
    for (int j = 0; j < n_out; j++) {
        int row;
        const struct matrix_part *part = matrix_source_part(source, j, &row);
        if (!part) continue;
        weight_read_f32(&part->weight, row, part->first_col, source->n_in,
                        out + area(j, source->n_in));
    }
    return out;
}

/* Compares w[column][k] with the stored weight for all columns and the first n of k. */
static void expect_elements(struct rig *rig, const struct matrix_source *source, int n,
                            const char *what)
{
    struct matrix m = open_matrix(rig, source);
    float *exact = exact_weights(source, m.n_out);
    float *out = static_cast<float *>(malloc(area(n, m.n_out) * sizeof *out));
    uint16_t *in = static_cast<uint16_t *>(calloc(area(n, m.n_in), sizeof *in));
    int n_wrong = 0, wrong = -1;
    for (int k = 0; k < n; k++) {
        in[area(k, m.n_in) + static_cast<size_t>(k)] = 0x3f80;
    }
    multiply(rig, &m, in, m.n_in, n, out);
    for (int k = 0; k < n; k++) {
        for (int j = 0; j < m.n_out; j++) {
            bool is_equal = out[area(k, m.n_out) + static_cast<size_t>(j)] ==
                            exact[area(j, m.n_in) + static_cast<size_t>(k)];
            n_wrong += !is_equal;
            if (!is_equal) wrong = j;
        }
    }
    EXPECT(rig, n_wrong == 0, "%s: %d of %d elements, the last in column %d", what, n_wrong,
           n * m.n_out, wrong);
    rig->cuda->ops->matrix_close(rig->cuda, &m);
    free(exact), free(out), free(in);
}

static void blocks_keep_every_weight(struct rig *rig)
{
    for (int i = 0; i < N_CASES; i++) {
        enum block_kind kind = block_cases[i].kind;
        struct weight weight = random_blocks(rig, kind, 23, 512);
        struct matrix_source source = {};
        source.n_in = 288;
        add_part(&source, weight, 2, 25, 192); /* the last 4 rows do not exist */
        expect_elements(rig, &source, rig->is_small ? 33 : 288, block_type_of(kind)->name);
        free_blocks(&weight);
    }
}

/* Kinds without minimums beside others: their integers need an offset. */
static void kinds_may_lie_side_by_side(struct rig *rig)
{
    static const enum block_kind kinds[][3] = {{BLOCK_Q4_K, BLOCK_Q4_K, BLOCK_Q6_K},
                                               {BLOCK_Q4_0, BLOCK_Q5_1, BLOCK_Q3_K},
                                               {BLOCK_Q8_0, BLOCK_Q2_K, BLOCK_IQ4_NL}};
    for (const auto &three : kinds) {
        struct matrix_source source = {};
        struct weight weights[3];
        source.n_in = 64;
        for (int i = 0; i < 3; i++) {
            weights[i] = random_blocks(rig, three[i], 21, 256);
            add_part(&source, weights[i], 0, 21, 96);
        }
        expect_elements(rig, &source, 64, block_type_of(three[2])->name);
        for (const struct weight &weight : weights) {
            free_blocks(&weight);
        }
    }
}

/* Parts of plain numbers beside parts in blocks. */
static void plain_numbers_may_lie_beside_blocks(struct rig *rig)
{
    struct matrix_source source = {};
    struct weight weight = random_blocks(rig, BLOCK_Q4_K, 37, 256);
    uint16_t *plain = random_bf16(rig, area(19, 256), 1);
    uint64_t digests[3] = {}, want[3] = {};
    source.n_in = 96;
    source.digests = digests;
    add_part(&source, weight, 0, 20, 64);
    add_part(&source, file_weight(plain, 19, 256), 0, 19, 128);
    add_part(&source, weight, 20, 17, 0);
    expect_elements(rig, &source, 96, "plain numbers beside Q4_K");
    matrix_source_digest(&source, 0, 56, want);
    EXPECT(rig, memcmp(digests, want, sizeof want) == 0, "the digests of parts are not theirs");
    free_blocks(&weight);
    free(plain);
}

static void sums_of_source(struct rig *rig, const struct matrix_source *source, int n_out)
{
    int n = 70, n_in = source->n_in;
    float *exact = exact_weights(source, n_out);
    float *out = static_cast<float *>(malloc(area(n, n_out) * sizeof *out));
    uint16_t *in = random_bf16(rig, area(n, n_in), 1);
    struct matrix m = open_matrix(rig, source);
    multiply(rig, &m, in, n_in, n, out);
    const struct operands operands = {exact, in, n_in, n_in, n_out};
    expect_near(rig, &operands, 9, out);
    expect_one_arithmetic(rig, &m, in, n_in, n, out);
    rig->cuda->ops->matrix_close(rig->cuda, &m);
    free(exact), free(out), free(in);
}

static void sums_are_right_and_one_arithmetic(struct rig *rig, enum block_kind kind, int n_in,
                                              int n_out)
{
    struct weight weight = random_blocks(rig, kind, n_out, 768);
    struct matrix_source source = {};
    source.n_in = n_in;
    add_part(&source, weight, 0, n_out, 0);
    sums_of_source(rig, &source, n_out);
    free_blocks(&weight);
}

/* fp8 of every code, with a scale for each 3 rows and 32 k; the row of `nan_row` has a NaN. */
static struct weight stored_fp8(struct rig *rig, int n_rows, int n_cols, int nan_row)
{
    struct weight weight = {};
    struct stored_matrix *stored = &weight.stored;
    int n_groups = n_cols / 32, n_scales = (n_rows + 2) / 3 * n_groups;
    uint8_t *data = static_cast<uint8_t *>(malloc(area(n_rows, n_cols)));
    for (size_t i = 0; i < area(n_rows, n_cols); i++) {
        int code = static_cast<int>(i * 7 % 254);
        data[i] = static_cast<uint8_t>(code < 127 ? code : code + 1);
    }
    if (nan_row >= 0) data[area(nan_row, n_cols) + 5] = 0xff;
    weight.dtype = DTYPE_STORED;
    weight.n_rows = n_rows;
    weight.n_cols = n_cols;
    stored->n_rows = n_rows;
    stored->n_cols = n_cols;
    stored->data = data;
    stored->kind = STORED_FP8;
    stored->bits = 8;
    stored->group = 32;
    stored->group_rows = 3;
    stored->n_groups = n_groups;
    stored->scale_type = STORED_F32;
    stored->scales =
        reinterpret_cast<const uint8_t *>(rig_numbers(rig, static_cast<size_t>(n_scales), 0.01f));
    return weight;
}

static void free_fp8(const struct weight *weight)
{
    free(const_cast<uint8_t *>(weight->stored.data));
    free(const_cast<uint8_t *>(weight->stored.scales));
}

static void stored_fp8_keeps_every_weight(struct rig *rig)
{
    struct weight fp8 = stored_fp8(rig, 41, 192, -1), bad = stored_fp8(rig, 7, 64, 4);
    struct weight q4 = random_blocks(rig, BLOCK_Q4_K, 12, 256);
    struct matrix_source source = {}, mixed = {}, of_bad = {};
    source.n_in = 144;
    add_part(&source, fp8, 0, 41, 48);
    expect_elements(rig, &source, 144, "fp8");
    mixed.n_in = 64;
    add_part(&mixed, fp8, 3, 20, 32);
    add_part(&mixed, q4, 0, 12, 32);
    expect_elements(rig, &mixed, 64, "fp8 beside Q4_K");
    sums_of_source(rig, &source, 41);

    uint16_t in[64];
    float out[7];
    of_bad.n_in = 64;
    add_part(&of_bad, bad, 0, 7, 0);
    struct matrix m = open_matrix(rig, &of_bad);
    for (uint16_t &x : in) {
        x = 0x3f80;
    }
    multiply(rig, &m, in, 64, 1, out);
    EXPECT(rig, isnan(out[4]) && !isnan(out[3]) && !isnan(out[5]), "a NaN is one of its row alone");
    rig->cuda->ops->matrix_close(rig->cuda, &m);
    free_fp8(&fp8), free_fp8(&bad), free_blocks(&q4);
}

/* Integers of 8 bits whose groups are not runs of columns, with more rows than are brought into
 * their order at once. */
static void columns_may_have_any_group(struct rig *rig)
{
    enum { N_IN = 16384, N_OUT = 7, GROUPS = 50, N = ORDERED_ELEMENTS / N_IN + 4 };
    struct weight weight = {};
    struct stored_matrix *stored = &weight.stored;
    struct matrix_source source = {};
    uint8_t *data = static_cast<uint8_t *>(malloc(area(N_OUT, N_IN)));
    int32_t *order = static_cast<int32_t *>(malloc(N_IN * sizeof *order));
    float *scales = rig_numbers(rig, area(N_OUT, GROUPS), 0.01f), *out, *exact;
    uint16_t *in = random_bf16(rig, area(N, N_IN), 1);
    for (int k = 0; k < N_IN; k++) {
        order[k] = k * 37 % GROUPS;
    }
    for (size_t i = 0; i < area(N_OUT, N_IN); i++) {
        data[i] = static_cast<uint8_t>(i * 2654435761u >> 13);
    }
    weight.dtype = DTYPE_STORED;
    weight.n_rows = stored->n_rows = N_OUT;
    weight.n_cols = stored->n_cols = N_IN;
    stored->kind = STORED_BYTES;
    stored->bits = 8;
    stored->data = data;
    stored->group = N_IN / GROUPS;
    stored->group_rows = 1;
    stored->n_groups = GROUPS;
    stored->scale_type = STORED_F32;
    stored->scales = reinterpret_cast<const uint8_t *>(scales);
    stored->order = reinterpret_cast<const uint8_t *>(order);
    source.n_in = N_IN;
    add_part(&source, weight, 0, N_OUT, 0);
    exact = exact_weights(&source, N_OUT);
    out = static_cast<float *>(malloc(area(N, N_OUT) * sizeof *out));
    struct matrix m = open_matrix(rig, &source);
    multiply(rig, &m, in, N_IN, N, out);
    const struct operands operands = {exact, in, N_IN, N_IN, N_OUT};
    expect_near(rig, &operands, 3, out);
    for (int row : {2, N - 5, N - 1}) {
        float alone[N_OUT];
        multiply(rig, &m, in + area(row, N_IN), N_IN, 1, alone);
        expect_same(rig, out + area(row, N_OUT), alone, N_OUT, "a row of many", row);
    }
    rig->cuda->ops->matrix_close(rig->cuda, &m);
    free(data), free(order), free(scales), free(in), free(out), free(exact);
}

/* h must be the host's formula on the sums that matmul gives for gate and up as two matrices, also
 * where their kinds differ. */
static void gated_is_the_formula(struct rig *rig, const struct weight *gate,
                                 const struct weight *up)
{
    enum { N = 40 };
    const struct weight *weights[2] = {gate, up};
    struct matrix_source parts[2] = {}, both = {};
    struct matrix m[3];
    int rows = rig->cuda->ops->capacity(rig->cuda, N), n_wrong = 0;
    int n_in = gate->n_cols, n_ffn = gate->n_rows;
    uint16_t *in = random_bf16(rig, area(rows, n_in), 1);
    uint16_t *h = static_cast<uint16_t *>(malloc(area(rows, n_ffn) * sizeof *h));
    float *sums[2];
    both.n_in = n_in;
    both.is_gate_up = true;
    for (int i = 0; i < 2; i++) {
        parts[i].n_in = n_in;
        add_part(&parts[i], *weights[i], 0, n_ffn, 0);
        add_part(&both, *weights[i], 0, n_ffn, 0);
        m[i] = open_matrix(rig, &parts[i]);
        sums[i] = static_cast<float *>(malloc(area(rows, n_ffn) * sizeof *sums[i]));
        multiply(rig, &m[i], in, n_in, N, sums[i]);
    }
    m[2] = open_matrix(rig, &both);
    void *device_in = device_open(rig, in, area(rows, n_in) * sizeof *in);
    void *device_h = device_open(rig, NULL, area(rows, n_ffn) * sizeof *h);
    float *gate_up = device_floats(rig, NULL, 2 * area(rows, n_ffn));
    const struct gated_mlp mlp = {&m[2],
                                  NULL,
                                  ACTIVATION_SILU,
                                  static_cast<uint16_t *>(device_in),
                                  N,
                                  gate_up,
                                  static_cast<uint16_t *>(device_h)};
    rig->cuda->ops->matmul_gated(rig->cuda, &mlp);
    device_read(rig, h, device_h, area(N, n_ffn) * sizeof *h);
    for (size_t i = 0; i < area(N, n_ffn); i++) {
        float x = sums[0][i];
        n_wrong += h[i] != num_float_to_bf16(x / (1.0f + num_exp(-x)) * sums[1][i]);
    }
    EXPECT(rig, n_wrong == 0, "%d of h", n_wrong);
    for (int i = 0; i < 3; i++) {
        rig->cuda->ops->matrix_close(rig->cuda, &m[i]);
    }
    device_close(rig, device_in), device_close(rig, device_h), device_close(rig, gate_up);
    free(in), free(h), free(sums[0]), free(sums[1]);
}

static void gate_and_up_may_differ(struct rig *rig)
{
    enum { N_IN = 256, N_FFN = 20 };
    uint16_t *data = random_bf16(rig, area(N_FFN, N_IN), 1);
    struct weight q6 = random_blocks(rig, BLOCK_Q6_K, N_FFN, N_IN);
    struct weight q5 = random_blocks(rig, BLOCK_Q5_0, N_FFN, N_IN);
    struct weight plain = file_weight(data, N_FFN, N_IN);
    gated_is_the_formula(rig, &q6, &q5);
    gated_is_the_formula(rig, &q6, &plain);
    free_blocks(&q6), free_blocks(&q5);
    free(data);
}

static void a_group_that_two_ranks_would_share_is_refused(struct rig *rig)
{
    struct error err = {};
    struct matrix m = {};
    struct matrix_source source = {};
    struct weight weight = random_blocks(rig, BLOCK_Q8_0, 4, 96);
    source.n_in = 48;
    add_part(&source, weight, 0, 4, 48);
    int rc = rig->cuda->ops->matrix_open(rig->cuda, &m, &source, &err);
    EXPECT(rig, rc == ERR_UNSUPPORTED && strstr(err.text, "from 48 on"), "%d: %s", rc, err.text);
    EXPECT(rig, m.data == NULL && m.bytes == 0, "nothing is left of a matrix that failed");
    free_blocks(&weight);
}

int main(int argc, char **argv)
{
    struct rig rig;
    rig_open(&rig, argc, argv);
    blocks_keep_every_weight(&rig);
    kinds_may_lie_side_by_side(&rig);
    plain_numbers_may_lie_beside_blocks(&rig);
    sums_are_right_and_one_arithmetic(&rig, BLOCK_Q4_0, 96, 20);
    sums_are_right_and_one_arithmetic(&rig, BLOCK_Q4_K, 768, 36);
    sums_are_right_and_one_arithmetic(&rig, BLOCK_Q5_K, 288, 20);
    sums_are_right_and_one_arithmetic(&rig, BLOCK_Q6_K, 512, 68);
    sums_are_right_and_one_arithmetic(&rig, BLOCK_Q8_0, 608, 20);
    sums_are_right_and_one_arithmetic(&rig, BLOCK_Q2_K, 256, 20);
    stored_fp8_keeps_every_weight(&rig);
    gate_and_up_may_differ(&rig);
    columns_may_have_any_group(&rig);
    a_group_that_two_ranks_would_share_is_refused(&rig);
    return rig_close(&rig);
}
