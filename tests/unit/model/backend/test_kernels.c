/* ctest: labels=quick,bits libs=model timeout=120 */
/* The dot chains: the variants compared with each other, with the definition of the arithmetic, and
 * with double precision. */
#include <float.h>
#include <math.h>

#include "base/memory.h"
#include "model/backend/cpu/kernels/kernels.h"
#include "tests/support/kernels_util.h"

enum { ROWS_TESTED = 300 };

static float random_acc(void)
{
    static const uint32_t edges[] = {0,          0x80000000, 1,          0x80000001, 0x007fffff,
                                     0x00800000, 0x80800000, 0x00800001, 0x7f7fffff, 0xff7fffff,
                                     0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001};
    uint32_t v = (uint32_t)next_random();
    switch (next_below(5)) {
    case 0:
        return num_bits_to_float(edges[v % (sizeof edges / sizeof *edges)]);
    case 1:
        return num_bits_to_float((v & 0x80000003u) | 0x00800000u);
    case 2:
        return num_bits_to_float((v & 0x807fffffu) | (v >> 8 & 3u) << 23);
    case 3:
        return num_bits_to_float((v & 0x807fffffu) | (250u + (v >> 8) % 5u) << 23);
    default:
        return num_bits_to_float((v & 0x807fffffu) | (100u + (v >> 8) % 50u) << 23);
    }
}

/* ---- dot_step ---- */

static float flushed(float x)
{
    return fabsf(x) < FLT_MIN ? copysignf(0.0f, x) : x;
}

/* The fused step as defined. Where fmaf rounds up to the least normal number from below, the result
 * depends on whether 24 bits of any exponent would have been enough; long double decides that
 * exactly. */
static float fused(float acc, uint16_t w, uint16_t x)
{
    float a = flushed(acc), b = flushed(num_bf16_to_float(w)), c = flushed(num_bf16_to_float(x));
    float sum = fmaf(b, c, a);
    if (fabsf(sum) == FLT_MIN) {
        float wide = fmaf(b * 0x1p50f, c * 0x1p50f, a * 0x1p100f);
        return fabsf(wide) < FLT_MIN * 0x1p100f ? copysignf(0.0f, sum) : sum;
    }
    return flushed(sum);
}

START_TEST(dot_step_is_the_odd_step_then_the_even_step)
{
    for (int round = 0; round < 40000; round++) {
        uint16_t w[32], x[2];
        float start[16], wanted[16], acc[16];
        fill_bf16(w, 32, next_below(N_KINDS));
        fill_bf16(x, 2, next_below(N_KINDS));
        for (int i = 0; i < 16; i++) {
            start[i] = random_acc();
            wanted[i] = fused(fused(start[i], w[2 * i + 1], x[1]), w[2 * i], x[0]);
        }
        for (int v = 0; v < n_variants; v++) {
            memcpy(acc, start, sizeof acc);
            variants[v]->dot_step(acc, w, (uint32_t)x[1] << 16 | x[0]);
            check_same(acc, wanted, 16, variants[v]->name);
        }
    }
}
END_TEST

START_TEST(dot_step_edge_cases_have_their_known_results)
{
    /* acc, odd w, odd x, even w, even x, result */
    static const struct {
        uint32_t acc;
        uint16_t w1, x1, w0, x0;
        uint32_t wanted;
    } cases[] = {
        {0x00000000, 0x3f80, 0x3f80, 0x4000, 0x4000, 0x40a00000}, /* 1 + 4 */
        {0x00000001, 0, 0, 0, 0, 0},                              /* a denormal enters as zero */
        {0x80000001, 0, 0x8000, 0x8000, 0, 0x80000000},           /* -0 + -0 stays -0 */
        {0x00000000, 0x0001, 0x7f00, 0, 0, 0},                    /* a denormal weight is zero */
        {0xff7fffff, 0x7f00, 0x4000, 0, 0, 0x73800000}, /* product beyond fp32, sum within */
        {0x7f7fffff, 0x7f00, 0x4000, 0, 0, 0x7f800000}, /* sum beyond fp32 */
        {0x7f800000, 0x7f80, 0xbf80, 0, 0, 0x7fc00000}, /* inf - inf */
        {0x00000000, 0x7f80, 0x0000, 0, 0, 0x7fc00000}, /* inf * 0 */
        {0x00000000, 0x7f80, 0x0001, 0, 0, 0x7fc00000}, /* a denormal is 0 here too */
        {0x00800000, 0x8080, 0x3f00, 0, 0, 0x00000000}, /* 2^-126 - 2^-127 is flushed */
        {0x00800000, 0x9f80, 0x1480, 0, 0, 0x00000000}, /* 2^-126 - 2^-150 has 24 bits: flushed */
        {0x00800000, 0x9f80, 0x1400, 0, 0, 0x00800000}, /* 2^-126 - 2^-151 rounds to 2^-126 */
        {0x00000000, 0x9f80, 0x1f80, 0x8000, 0, 0x80000000}, /* -2^-128: flushed, sign kept */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int v = 0; v < n_variants; v++) {
            uint16_t w[32];
            float acc[16];
            for (int lane = 0; lane < 16; lane++) {
                w[2 * lane] = cases[i].w0;
                w[2 * lane + 1] = cases[i].w1;
                acc[lane] = num_bits_to_float(cases[i].acc);
            }
            variants[v]->dot_step(acc, w, (uint32_t)cases[i].x1 << 16 | cases[i].x0);
            for (int lane = 0; lane < 16; lane++) {
                ck_assert_msg(same(acc[lane], num_bits_to_float(cases[i].wanted)),
                              "%s, case %zu: %08x, not %08x", variants[v]->name, i,
                              num_float_to_bits(acc[lane]), cases[i].wanted);
            }
        }
    }
}
END_TEST

/* ---- matmul ---- */

/* Columns of w as they were before packing. */
struct plain_matrix {
    uint16_t *values; /* [n_out][n_in] */
    int n_in;
};

static void fill_from_plain(const void *arg, int column, int k, int n, uint16_t *out)
{
    const struct plain_matrix *m = arg;
    memcpy(out, m->values + (size_t)column * (size_t)m->n_in + k, (size_t)n * sizeof *out);
}

struct product {
    struct plain_matrix plain;
    struct packed_matrix w;
    uint16_t *in;
    size_t in_stride, out_stride;
    float *out[KERNELS_MAX];
    size_t n_floats;
    int n_rows;
};

static void product_open(struct product *p, int n_in, int n_out, int n_rows, int kind_w, int kind_x)
{
    struct error err = {0};
    size_t bytes = packed_matrix_bytes(n_in, n_out);
    *p = (struct product){.plain.n_in = n_in,
                          .w = {.n_in = n_in, .n_out = n_out, .n_blocks = (n_out + 63) / 64},
                          .in_stride = (size_t)n_in + 2 * (size_t)next_below(3),
                          .out_stride = (size_t)n_out + (size_t)next_below(3),
                          .n_rows = n_rows};
    ck_assert_uint_eq(bytes, (size_t)p->w.n_blocks * 64 * (size_t)n_in * 2);
    p->n_floats = p->out_stride * (size_t)n_rows;
    CHECK_OK(mem_array(&p->plain.values, (size_t)n_in * (size_t)n_out, 2, &err));
    CHECK_OK(mem_array(&p->in, p->in_stride * (size_t)n_rows, 2, &err));
    CHECK_OK(mem_pages(&p->w.data, bytes, &err));
    for (int i = 0; i < n_variants; i++) {
        CHECK_OK(mem_array(&p->out[i], p->n_floats, sizeof(float), &err));
    }
    fill_bf16(p->plain.values, (size_t)n_in * (size_t)n_out, kind_w);
    fill_bf16(p->in, p->in_stride * (size_t)n_rows, kind_x);
    packed_matrix_fill(&p->w, 0, p->w.n_blocks, fill_from_plain, &p->plain);
}

static void product_close(struct product *p)
{
    mem_pages_free(p->w.data, packed_matrix_bytes(p->w.n_in, p->w.n_out));
    free(p->plain.values);
    free(p->in);
    for (int i = 0; i < n_variants; i++) {
        free(p->out[i]);
    }
}

/* Rows first_row .. + n of the product, ready to be multiplied by a variant. */
static struct matmul_rows rows_open(const struct product *p, int v, int first_row, int n)
{
    struct error err = {0};
    struct matmul_rows rows = {.in = p->in + (size_t)first_row * p->in_stride,
                               .stride = p->in_stride,
                               .n = n,
                               .n_in = p->w.n_in};
    size_t words = variants[v]->panel_words(n, p->w.n_in);
    if (words == 0) return rows;
    CHECK_OK(mem_array(&rows.panels, words, sizeof *rows.panels, &err));
    int cut = next_below(p->w.n_in / 2 + 1);
    variants[v]->fill_panels(&rows, cut, p->w.n_in / 2);
    variants[v]->fill_panels(&rows, 0, cut);
    return rows;
}

static void rows_close(struct matmul_rows *rows)
{
    free(rows->panels);
}

static void rows_run(const struct product *p, int v, int first_row, int n, int first_block,
                     int end_block, float *out)
{
    struct matmul_rows rows = rows_open(p, v, first_row, n);
    const struct matmul_call call = {.rows = &rows,
                                     .out = out,
                                     .out_stride = p->out_stride,
                                     .first_block = first_block,
                                     .end_block = end_block};
    variants[v]->matmul(&p->w, &call);
    rows_close(&rows);
}

/* All rows and blocks of the product. */
static void product_run(struct product *p, int v)
{
    rows_run(p, v, 0, p->n_rows, 0, p->w.n_blocks, p->out[v]);
}

START_TEST(matmul_variants_give_equal_bits)
{
    for (int round = 0; round < 60; round++) {
        struct product p;
        int n_in = 2 * (1 + next_below(round % 4 ? 100 : 700));
        product_open(&p, n_in, 1 + next_below(200), 1 + next_below(round % 8 ? 10 : 70),
                     round % 2 ? KIND_ORDINARY : next_below(N_KINDS),
                     round % 2 ? KIND_ORDINARY : next_below(N_KINDS));
        for (int v = 0; v < n_variants; v++) {
            product_run(&p, v);
            check_same(p.out[v], p.out[0], p.n_floats, variants[v]->name);
        }
        product_close(&p);
    }
}
END_TEST

START_TEST(matmul_is_one_chain_of_fused_steps)
{
    struct product p;
    product_open(&p, 520, 70, 3, KIND_ORDINARY, KIND_ORDINARY);
    product_run(&p, 0);
    for (int row = 0; row < p.n_rows; row++) {
        for (int column = 0; column < p.w.n_out; column++) {
            const uint16_t *w = p.plain.values + (size_t)column * (size_t)p.w.n_in;
            const uint16_t *x = p.in + (size_t)row * p.in_stride;
            float sum = 0;
            for (int k = 0; k < p.w.n_in; k += 2) {
                sum = fused(fused(sum, w[k + 1], x[k + 1]), w[k], x[k]);
            }
            ck_assert(same(p.out[0][(size_t)row * p.out_stride + (size_t)column], sum));
        }
    }
    product_close(&p);
}
END_TEST

START_TEST(matmul_of_many_rows_equals_row_by_row)
{
    static const int row_counts[] = {1,  2,  3,  4,  5,  6,  7,  8,   9,   10,  11,         12,
                                     13, 14, 16, 32, 33, 48, 64, 100, 256, 257, ROWS_TESTED};
    struct product p;
    product_open(&p, 402, 130, ROWS_TESTED, KIND_ORDINARY, KIND_ORDINARY);
    float *single = p.out[0];
    float *many = NULL;
    struct error err = {0};
    CHECK_OK(mem_array(&many, p.n_floats, sizeof(float), &err));
    for (int v = 0; v < n_variants; v++) {
        for (size_t row = 0; row < ROWS_TESTED; row++) {
            rows_run(&p, v, (int)row, 1, 0, p.w.n_blocks, single + row * p.out_stride);
        }
        for (size_t i = 0; i < sizeof row_counts / sizeof *row_counts; i++) {
            memset(many, 0, p.n_floats * sizeof(float));
            rows_run(&p, v, 0, row_counts[i], 0, p.w.n_blocks, many);
            check_same(many, single, p.out_stride * (size_t)row_counts[i], variants[v]->name);
        }
    }
    free(many);
    product_close(&p);
}
END_TEST

START_TEST(matmul_writes_its_blocks_and_no_more)
{
    struct product p;
    product_open(&p, 128, 150, 9, KIND_ORDINARY, KIND_ORDINARY);
    for (int v = 0; v < n_variants; v++) {
        product_run(&p, v);
    }
    float *part = NULL;
    struct error err = {0};
    CHECK_OK(mem_array(&part, p.n_floats, sizeof(float), &err));
    for (int v = 0; v < n_variants; v++) {
        for (int block = 0; block < p.w.n_blocks; block++) {
            for (size_t i = 0; i < p.n_floats; i++) {
                part[i] = -77.0f;
            }
            rows_run(&p, v, 0, p.n_rows, block, block + 1, part);
            for (size_t i = 0; i < p.n_floats; i++) {
                int column = (int)(i % p.out_stride);
                bool mine = column < p.w.n_out && column / KERNEL_COLUMNS == block;
                ck_assert(same(part[i], mine ? p.out[v][i] : -77.0f));
            }
        }
    }
    free(part);
    product_close(&p);
}
END_TEST

/* A row-parallel matrix is cut along k: each slice takes its part of the same rows. */
START_TEST(matmul_takes_its_part_of_wider_rows)
{
    static const int row_counts[] = {1, 5, 6, 7, 20};
    struct error err = {0};
    struct product p;
    product_open(&p, 3 * 140, 70, 20, KIND_ORDINARY, KIND_ORDINARY);
    struct packed_matrix slice = {.n_in = 140, .n_out = 70, .n_blocks = 2};
    CHECK_OK(mem_pages(&slice.data, packed_matrix_bytes(slice.n_in, slice.n_out), &err));
    for (int i = 0; i < 3; i++) {
        const struct plain_matrix part = {p.plain.values + i * slice.n_in, p.w.n_in};
        packed_matrix_fill(&slice, 0, slice.n_blocks, fill_from_plain, &part);
        for (size_t r = 0; r < sizeof row_counts / sizeof *row_counts; r++) {
            for (int v = 0; v < n_variants; v++) {
                struct matmul_rows rows = rows_open(&p, v, 0, row_counts[r]);
                const struct matmul_call call = {.rows = &rows,
                                                 .first_k = i * slice.n_in,
                                                 .out = p.out[v],
                                                 .out_stride = p.out_stride,
                                                 .end_block = slice.n_blocks};
                memset(p.out[v], 0, p.n_floats * sizeof(float));
                variants[v]->matmul(&slice, &call);
                rows_close(&rows);
                check_same(p.out[v], p.out[0], p.n_floats, variants[v]->name);
            }
            const uint16_t *w = part.values, *x = p.in + i * slice.n_in;
            float sum = 0;
            for (int k = 0; k < slice.n_in; k += 2) {
                sum = fused(fused(sum, w[k + 1], x[k + 1]), w[k], x[k]);
            }
            ck_assert(same(p.out[0][0], sum));
        }
    }
    mem_pages_free(slice.data, packed_matrix_bytes(slice.n_in, slice.n_out));
    product_close(&p);
}
END_TEST

/* Error of a chain of n steps: n * 2^-24 of the sum of magnitudes. */
START_TEST(matmul_is_near_double_precision)
{
    struct product p;
    product_open(&p, 1026, 65, 4, KIND_ORDINARY, KIND_ORDINARY);
    product_run(&p, 0);
    for (int row = 0; row < p.n_rows; row++) {
        for (int column = 0; column < p.w.n_out; column++) {
            double sum = 0, size = 0;
            for (int k = 0; k < p.w.n_in; k++) {
                double w = (double)num_bf16_to_float(
                    p.plain.values[(size_t)column * (size_t)p.w.n_in + (size_t)k]);
                double x = (double)num_bf16_to_float(p.in[(size_t)row * p.in_stride + (size_t)k]);
                sum += w * x;
                size += fabs(w * x);
            }
            double got = (double)p.out[0][(size_t)row * p.out_stride + (size_t)column];
            ck_assert_double_le(fabs(got - sum), p.w.n_in * 0x1p-24 * size);
        }
    }
    product_close(&p);
}
END_TEST

START_TEST(packing_places_pairs_and_pads_with_zeros)
{
    struct product p;
    product_open(&p, 1100, 100, 1, KIND_ANY, KIND_ORDINARY);
    for (int column = 0; column < 128; column++) {
        for (int k = 0; k < p.w.n_in; k++) {
            size_t at = ((((size_t)(column / 64) * (size_t)(p.w.n_in / 2) + (size_t)(k / 2)) * 4 +
                          (size_t)(column % 64 / 16)) *
                             16 +
                         (size_t)(column % 16)) *
                            2 +
                        (size_t)(k % 2);
            uint16_t wanted = 0;
            if (column < 100) wanted = p.plain.values[(size_t)column * 1100 + (size_t)k];
            ck_assert_uint_eq(p.w.data[at], wanted);
        }
    }
    product_close(&p);
}
END_TEST

START_TEST(kernels_find_refuses_in_words)
{
    struct error err = {0};
    const struct kernels *kernels;
    CHECK_ERR(kernels_find(&kernels, "sse", &err), ERR_ARGUMENT, "auto, ");
    ck_assert_ptr_null(kernels);
    CHECK_ERR(kernels_find(&kernels, "", &err), ERR_ARGUMENT, "''");
    for (int i = 0; kernels_name(i); i++) {
        int rc = kernels_find(&kernels, kernels_name(i), &err);
        ck_assert_str_eq(rc ? kernels_name(i) : kernels->name, kernels_name(i));
        if (!rc) continue;
        ck_assert_int_eq(rc, ERR_UNSUPPORTED);
        ck_assert_ptr_null(kernels);
        ck_assert_msg(strstr(err.text, kernels_name(i)) && strstr(err.text, " need "), "%s",
                      err.text);
        CHECK_ERR(kernels_find(&kernels, "sse", &err), ERR_ARGUMENT, kernels_name(i));
    }
    CHECK_OK(kernels_find(&kernels, "plain", &err));
    ck_assert_str_eq(kernels->name, "plain");
    CHECK_OK(kernels_find(&kernels, "auto", &err));
    bool is_first = kernels == variants[0];
    ck_assert(is_first || (n_variants > 1 && kernels == variants[1])); /* by the CPU's vendor */
}
END_TEST

START_TEST(kernels_reason_says_why)
{
    struct error err = {0};
    const struct kernels *kernels;
    char text[KERNELS_TEXT_BYTES];
    kernels_reason(text, sizeof text, "plain");
    ck_assert_str_eq(text, "asked for");
    kernels_reason(text, sizeof text, "auto");
    CHECK_OK(kernels_find(&kernels, "auto", &err));
    bool is_best = strcmp(text, "the best of this build") == 0;
    ck_assert_msg(is_best || strstr(text, " needs ") || strstr(text, " is slower"), "%s", text);
    if (kernels != variants[0]) ck_assert_msg(strstr(text, variants[0]->name), "%s", text);
}
END_TEST

static void add_matmul(Suite *suite, const char *name, SFun hops)
{
    TCase *tests = tcase_create(name);
    tcase_add_checked_fixture(tests, hops, NULL);
    tcase_add_test(tests, matmul_variants_give_equal_bits);
    tcase_add_test(tests, matmul_is_one_chain_of_fused_steps);
    tcase_add_test(tests, matmul_of_many_rows_equals_row_by_row);
    tcase_add_test(tests, matmul_writes_its_blocks_and_no_more);
    tcase_add_test(tests, matmul_takes_its_part_of_wider_rows);
    suite_add_tcase(suite, tests);
}

int main(void)
{
    Suite *suite = suite_create("kernels");
    TCase *tests = tcase_create("dots");
    tcase_add_checked_fixture(tests, setup, NULL);
    tcase_add_test(tests, dot_step_is_the_odd_step_then_the_even_step);
    tcase_add_test(tests, dot_step_edge_cases_have_their_known_results);
    tcase_add_test(tests, matmul_is_near_double_precision);
    tcase_add_test(tests, packing_places_pairs_and_pads_with_zeros);
    tcase_add_test(tests, kernels_find_refuses_in_words);
    tcase_add_test(tests, kernels_reason_says_why);
    suite_add_tcase(suite, tests);
    add_matmul(suite, "one hop", setup_one_hop);
    add_matmul(suite, "two hops", setup_two_hops);
    return check_main(suite);
}
