/* ctest: labels=quick,bits libs=model timeout=120 */
/* The integer kernels: every variant compared with the chain as docs/numerics.md defines it,
 * written here once more without packing, tiles and vectors; and how far rounding may move a
 * weight. */
#include <math.h>
#include <stdio.h>

#include "base/memory.h"
#include "model/backend/cpu/kernels/quant/matrix.h"
#include "tests/support/kernels_util.h"

enum { K_MOST = 1500, OUT_MOST = 200, ROWS_MOST = 310 };

static const enum weight_form forms[] = {WEIGHTS_INT8, WEIGHTS_INT4};

/* bf16 numbers of a kind, with some groups of zeros among them. */
static void fill_groups(uint16_t *x, size_t n, int kind)
{
    fill_bf16(x, n, kind);
    for (size_t at = 0; at < n; at += 32) {
        if (next_below(8) == 0) memset(x + at, 0, 2 * (n - at < 32 ? n - at : 32));
    }
}

struct product {
    enum weight_form form;
    struct quant_matrix w;
    int n_rows;
    uint16_t *weights, *in; /* [n_out][n_in], [n_rows][n_in] */
    int8_t *q;              /* [n_out][n_in] */
    uint16_t *scales;       /* [n_out][n_groups] */
    float *wanted;          /* [n_rows][n_out] */
};

static void fill_from_product(const void *arg, int column, int k, int n, int8_t *q,
                              uint16_t *scales)
{
    const struct product *p = arg;
    memcpy(q, p->q + (size_t)column * (size_t)p->w.n_in + k, (size_t)n);
    memcpy(scales, p->scales + (size_t)column * (size_t)p->w.n_groups + k / QUANT_GROUP,
           sizeof *scales * (size_t)((n + QUANT_GROUP - 1) / QUANT_GROUP));
}

static void product_open(struct product *p, enum weight_form form, int n_in, int n_out, int n_rows,
                         int kind_w, int kind_x)
{
    struct error err = {0};
    size_t n = (size_t)n_in * (size_t)n_out;
    *p = (struct product){
        .form = form, .w = quant_matrix_of(form, NULL, n_in, n_out), .n_rows = n_rows};
    CHECK_OK(mem_array(&p->weights, n, 2, &err));
    CHECK_OK(mem_array(&p->in, (size_t)n_in * (size_t)n_rows, 2, &err));
    CHECK_OK(mem_array(&p->q, n, 1, &err));
    CHECK_OK(mem_array(&p->scales, (size_t)p->w.n_groups * (size_t)n_out, 2, &err));
    CHECK_OK(mem_array(&p->wanted, (size_t)n_out * (size_t)n_rows, sizeof(float), &err));
    CHECK_OK(mem_pages(&p->w.data, quant_matrix_bytes(form, n_in, n_out), &err));
    fill_groups(p->in, (size_t)n_in * (size_t)n_rows, kind_x);
    for (size_t i = 0; i < (size_t)n_out; i++) {
        uint16_t *row = p->weights + i * (size_t)n_in;
        fill_groups(row, (size_t)n_in, kind_w);
        quant_weights(form, row, n_in, p->q + i * (size_t)n_in,
                      p->scales + i * (size_t)p->w.n_groups);
    }
    quant_matrix_fill(&p->w, 0, p->w.n_blocks, fill_from_product, p);
}

static void product_close(struct product *p)
{
    mem_pages_free(p->w.data, quant_matrix_bytes(p->form, p->w.n_in, p->w.n_out));
    free(p->weights);
    free(p->in);
    free(p->q);
    free(p->scales);
    free(p->wanted);
}

/* One group of activations as defined: returns its scale. */
static float round_group(const uint16_t *x, int n, int *q)
{
    float most = 0;
    memset(q, 0, sizeof *q * QUANT_GROUP);
    for (int i = 0; i < n; i++) {
        float value = fabsf(num_bf16_to_float(x[i]));
        if (!isfinite(value)) return NAN;
        most = fmaxf(most, value);
    }
    if (most < 0x1p-100f) return 0;
    for (int i = 0; i < n; i++) {
        float scaled = num_bf16_to_float(x[i]) * (127.0f / most);
        q[i] = (int)nearbyintf(scaled);
    }
    return most / 127.0f;
}

static void product_define(struct product *p)
{
    int n_in = p->w.n_in, x[QUANT_GROUP];
    for (int row = 0; row < p->n_rows; row++) {
        float *out = p->wanted + (size_t)row * (size_t)p->w.n_out;
        for (int g = 0; g < p->w.n_groups; g++) {
            int n = n_in - 32 * g < 32 ? n_in - 32 * g : 32;
            float x_scale = round_group(p->in + (size_t)row * (size_t)n_in + 32 * g, n, x);
            for (int column = 0; column < p->w.n_out; column++) {
                const int8_t *q = p->q + (size_t)column * (size_t)n_in + 32 * g;
                uint16_t scale = p->scales[(size_t)column * (size_t)p->w.n_groups + (size_t)g];
                int sum = 0;
                for (int i = 0; i < n; i++) {
                    sum += q[i] * x[i];
                }
                out[column] = fmaf((float)sum, num_bf16_to_float(scale) * x_scale, out[column]);
            }
        }
    }
}

/* Rows first .. first + n of the product by a variant, compared with the definition. */
static void check_rows(const struct product *p, int v, int first, int n)
{
    static uint32_t
        groups[ROWS_MOST * (K_MOST / QUANT_GROUP + 1) * QUANT_ROW_GROUP_BYTES / sizeof(uint32_t)];
    static float out[ROWS_MOST * (OUT_MOST + 3)];
    size_t out_stride = (size_t)p->w.n_out + 3;
    const struct kernels_quant *kernels = variants[v]->quant;
    const struct quant_rows rows = {.form = p->form,
                                    .in = p->in + (size_t)first * (size_t)p->w.n_in,
                                    .in_stride = (size_t)p->w.n_in,
                                    .n_rows = n,
                                    .n_in = p->w.n_in,
                                    .out = (uint8_t *)groups};
    char what[80];
    kernels->quantize(&rows, p->w.n_groups / 3, p->w.n_groups); /* in two parts, as two threads */
    kernels->quantize(&rows, 0, p->w.n_groups / 3);
    for (size_t i = 0; i < out_stride * (size_t)n; i++) {
        out[i] = 12345.0f;
    }
    int half = p->w.n_blocks / 2; /* here too */
    struct quant_call call = {.in = (const uint8_t *)groups,
                              .out = out,
                              .out_stride = out_stride,
                              .n_rows = n,
                              .first_block = half,
                              .end_block = p->w.n_blocks};
    kernels->matmul(&p->w, &call);
    call.first_block = 0;
    call.end_block = half;
    if (half) kernels->matmul(&p->w, &call);
    snprintf(what, sizeof what, "%s %s, %d x %d, %d rows", variants[v]->name,
             weight_form_name(p->form), p->w.n_in, p->w.n_out, n);
    for (int i = 0; i < n; i++) {
        const float *row = out + (size_t)i * out_stride;
        check_same(row, p->wanted + (size_t)(first + i) * (size_t)p->w.n_out, (size_t)p->w.n_out,
                   what);
        for (int j = 0; j < 3; j++) {
            ck_assert_msg(row[p->w.n_out + j] == 12345.0f, "%s: wrote past the columns", what);
        }
    }
}

START_TEST(every_number_of_rows_gives_the_defined_bits)
{
    static const int many[] = {64, 65, 100, 130, 256, 288, 289, ROWS_MOST};
    struct product p;
    product_open(&p, forms[_i], 672, 70, ROWS_MOST, KIND_ORDINARY, KIND_ORDINARY);
    product_define(&p);
    for (int v = 0; v < n_variants; v++) {
        for (int n = 1; n <= 40; n++) {
            check_rows(&p, v, ROWS_MOST - n, n);
        }
        for (size_t i = 0; i < sizeof many / sizeof *many; i++) {
            check_rows(&p, v, ROWS_MOST - many[i], many[i]);
        }
    }
    product_close(&p);
}
END_TEST

/* A row's bits depend neither on the rows beside it nor on its place among them, so that a tile and
 * a start may lie anywhere. */
START_TEST(a_row_has_its_bits_wherever_it_is)
{
    struct product p;
    product_open(&p, forms[_i], 353, 33, 24, KIND_ORDINARY, KIND_ORDINARY);
    product_define(&p);
    for (int v = 0; v < n_variants; v++) {
        for (int first = 0; first < 24; first++) {
            for (int n = 1; n <= 24 - first; n++) {
                check_rows(&p, v, first, n);
            }
        }
    }
    product_close(&p);
}
END_TEST

START_TEST(any_shape_and_any_numbers_give_the_defined_bits)
{
    for (int round = 0; round < 150; round++) {
        struct product p;
        int n_in = round % 5 ? 1 + next_below(200) : 1 + next_below(K_MOST);
        product_open(&p, forms[_i], n_in, 1 + next_below(OUT_MOST), 1 + next_below(20),
                     round % 3 ? KIND_ORDINARY : next_below(N_KINDS),
                     round % 3 == 1 ? KIND_ORDINARY : next_below(N_KINDS));
        product_define(&p);
        for (int v = 0; v < n_variants; v++) {
            check_rows(&p, v, 0, p.n_rows);
        }
        product_close(&p);
    }
}
END_TEST

/* The largest integers that there are: sums of 16 bits must not saturate. */
START_TEST(extreme_integers_give_the_defined_bits)
{
    for (int signs = 0; signs < 4; signs++) {
        struct product p;
        product_open(&p, forms[_i], 96, 33, 13, KIND_ORDINARY, KIND_ORDINARY);
        int extreme = p.form == WEIGHTS_INT8 ? (signs & 1 ? -128 : 127) : (signs & 1 ? -8 : 7);
        memset(p.q, extreme, (size_t)96 * 33);
        for (int i = 0; i < 96 * 13; i++) {
            p.in[i] = signs & 2 ? 0xbf80 : 0x3f80;
        }
        quant_matrix_fill(&p.w, 0, p.w.n_blocks, fill_from_product, &p);
        product_define(&p);
        for (int v = 0; v < n_variants; v++) {
            check_rows(&p, v, 0, 13);
        }
        product_close(&p);
    }
}
END_TEST

START_TEST(an_infinity_or_a_nan_spoils_its_row_alone)
{
    struct product p;
    product_open(&p, forms[_i], 100, 40, 4, KIND_ORDINARY, KIND_ORDINARY);
    p.in[100 + 99] = 0x7f80;    /* row 1: an infinity in the short group */
    p.in[2 * 100 + 3] = 0xffc1; /* row 2: a NaN */
    product_define(&p);
    for (int i = 0; i < 4 * 40; i++) {
        ck_assert_int_eq(isnan(p.wanted[i]), i / 40 == 1 || i / 40 == 2);
    }
    for (int v = 0; v < n_variants; v++) {
        check_rows(&p, v, 0, 4);
    }
    product_close(&p);
}
END_TEST

START_TEST(a_rounded_weight_is_within_its_bound)
{
    static uint16_t w[K_MOST], scales[K_MOST / QUANT_GROUP + 1];
    static int8_t q[K_MOST];
    double bound = forms[_i] == WEIGHTS_INT8 ? 0.51 : 0.54;
    int most = forms[_i] == WEIGHTS_INT8 ? 127 : 8, n_far = 0;
    for (int round = 0; round < 400; round++) {
        int n = 1 + next_below(K_MOST);
        fill_groups(w, (size_t)n, round % 2 ? KIND_ORDINARY : KIND_HUGE);
        quant_weights(forms[_i], w, n, q, scales);
        for (int k = 0; k < n; k++) {
            float value = num_bf16_to_float(w[k]), scale = num_bf16_to_float(scales[k / 32]);
            if (!isfinite(value) || isnan(scale)) {
                ck_assert(isnan(scale));
                continue;
            }
            double distance = fabs((double)value - (double)q[k] * (double)scale);
            ck_assert_msg(distance <= bound * (double)scale, "%a becomes %d * %a", (double)value,
                          q[k], (double)scale);
            ck_assert_int_le(abs(q[k]), most);
            n_far += distance > 0.4 * (double)scale;
        }
    }
    ck_assert_int_gt(n_far, 1000); /* otherwise the bound says nothing */
}
END_TEST

START_TEST(known_groups_have_their_known_integers)
{
    /* bf16 of 127, -63.5 (a tie: to even), 0.5, 1.5, 2.5 of scale 1 in int8. */
    const uint16_t w[] = {0x42fe, 0xc27e, 0x3f00, 0x3fc0, 0x4020};
    const int8_t wanted[] = {127, -64, 0, 2, 2};
    uint16_t scale;
    int8_t q[5];
    quant_weights(WEIGHTS_INT8, w, 5, q, &scale);
    ck_assert_uint_eq(scale, 0x3f80);
    ck_assert_mem_eq(q, wanted, 5);
    /* 7.5 and -7.5 of scale 1 in int4. */
    const uint16_t four[] = {0x40f0, 0xc0f0, 0x3f00, 0xbfc0};
    const int8_t wanted_four[] = {7, -8, 0, -2};
    quant_weights(WEIGHTS_INT4, four, 4, q, &scale);
    ck_assert_uint_eq(scale, 0x3f80);
    ck_assert_mem_eq(q, wanted_four, 4);
    const uint16_t tiny[] = {1, 0x8003, 0x0d00};
    quant_weights(WEIGHTS_INT8, tiny, 3, q, &scale);
    ck_assert_uint_eq(scale, 0);
    ck_assert_mem_eq(q, "\0\0\0", 3);
}
END_TEST

static void add_tests(Suite *suite, const char *name, SFun hops)
{
    TCase *tcase = tcase_create(name);
    tcase_add_checked_fixture(tcase, hops, NULL);
    tcase_add_loop_test(tcase, every_number_of_rows_gives_the_defined_bits, 0, 2);
    tcase_add_loop_test(tcase, a_row_has_its_bits_wherever_it_is, 0, 2);
    tcase_add_loop_test(tcase, any_shape_and_any_numbers_give_the_defined_bits, 0, 2);
    suite_add_tcase(suite, tcase);
}

int main(void)
{
    Suite *suite = suite_create("kernels_quant");
    TCase *tcase = tcase_create("all");
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_loop_test(tcase, extreme_integers_give_the_defined_bits, 0, 2);
    tcase_add_loop_test(tcase, an_infinity_or_a_nan_spoils_its_row_alone, 0, 2);
    tcase_add_loop_test(tcase, a_rounded_weight_is_within_its_bound, 0, 2);
    tcase_add_test(tcase, known_groups_have_their_known_integers);
    suite_add_tcase(suite, tcase);
    add_tests(suite, "one hop", setup_one_hop);
    add_tests(suite, "two hops", setup_two_hops);
    return check_main(suite);
}
