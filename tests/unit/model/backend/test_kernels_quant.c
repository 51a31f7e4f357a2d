/* ctest: labels=quick,bits libs=model timeout=120 */
/* The integer kernels: every variant compared with the chain as docs/numerics.md defines it,
 * written here once more without packing, tiles and vectors; and how far rounding may move a
 * weight. */
#include <math.h>
#include <stdio.h>

#include "base/memory.h"
#include "model/backend/cpu/kernels/quant/matrix.h"
#include "model/numerics/block.h"
#include "tests/support/kernels_util.h"

/* Other machines than x86 have the plain variant alone, whose largest tile has two rows, and are
 * mostly emulated here. */
#ifdef __x86_64__
enum { K_MOST = 1500, OUT_MOST = 200, ROWS_MOST = 310, FEW_MOST = 40, PLACES = 24, ROUNDS = 150 };
#else
enum { K_MOST = 1500, OUT_MOST = 200, ROWS_MOST = 65, FEW_MOST = 9, PLACES = 8, ROUNDS = 20 };
#endif

/* The first two are rounded from bf16; the others keep what is stored. */
static const enum weight_form forms[] = {
    WEIGHTS_INT8,   WEIGHTS_INT4,   WEIGHTS_Q4_0,   WEIGHTS_Q4_1,    WEIGHTS_Q5_0,   WEIGHTS_Q5_1,
    WEIGHTS_Q8_0,   WEIGHTS_Q2_K,   WEIGHTS_Q3_K,   WEIGHTS_Q4_K,    WEIGHTS_Q5_K,   WEIGHTS_Q6_K,
    WEIGHTS_IQ4_NL, WEIGHTS_IQ4_XS, WEIGHTS_U4_F16, WEIGHTS_U4_BF16, WEIGHTS_U4_F32, WEIGHTS_U8_F32,
};

enum { N_FORMS = sizeof forms / sizeof *forms, N_ROUNDED = 2 };

/* bf16 numbers of a kind, with some groups of zeros among them. */
static void fill_groups(uint16_t *x, size_t n, int kind)
{
    fill_bf16(x, n, kind);
    for (size_t at = 0; at < n; at += 32) {
        if (next_below(8) == 0) memset(x + at, 0, 2 * (n - at < 32 ? n - at : 32));
    }
}

static uint16_t random_half(int kind)
{
    static const uint16_t edges[] = {0,      0x8000, 0x7c00, 0xfc00, 0x7e00, 1,
                                     0x83ff, 0x0400, 0x7bff, 0xfbff, 0x3c00, 0xbc00};
    uint16_t bits = (uint16_t)next_random();
    switch (kind) {
    case KIND_ORDINARY:
        return (uint16_t)((bits & 0x83ff) | (0x2000 + next_below(4) * 0x400));
    case KIND_TINY:
    case KIND_UNDERFLOW:
        return bits & 0x87ff;
    case KIND_HUGE:
        return (bits & 0x83ff) | 0x7800;
    case KIND_EDGE:
        return edges[next_below(sizeof edges / sizeof *edges)];
    default:
        return bits;
    }
}

/* A group with any integers and bytes. */
static void fill_group(enum weight_form form, int kind, struct weight_group *group)
{
    const struct group_form *f = &group_forms[form];
    int n_values = 1 << (f->low_bits + f->high_bits);
    for (int i = 0; i < QUANT_GROUP; i++) {
        group->q[i] = (uint8_t)next_below(n_values);
    }
    group->scale = random_half(kind);
    if (f->scale == GROUP_SCALE_BF16) fill_bf16(&group->scale, 1, kind);
    uint16_t wide[2];
    fill_bf16(wide, 2, kind);
    group->scale_f32 = num_bits_to_float((uint32_t)wide[0] << 16 | wide[1]);
    group->minimum = random_half(kind);
    for (int run = 0; run < 2; run++) {
        group->scales[run] = (int8_t)(next_below(256) - 128);
        group->minimums[run] = (uint8_t)next_below(256);
    }
    group->zero = (uint8_t)next_below(n_values);
}

struct product {
    enum weight_form form;
    struct quant_matrix w;
    int n_rows;
    uint16_t *in;                /* [n_rows][n_in] */
    struct weight_group *groups; /* [n_out][n_groups] */
    float *wanted;               /* [n_rows][n_out] */
};

/* quant_fill_fn */
static void fill_from_product(const void *arg, int column, int first, int n,
                              struct weight_group *out)
{
    const struct product *p = arg;
    memcpy(out, p->groups + (size_t)column * (size_t)p->w.n_groups + first,
           (size_t)n * sizeof *out);
}

static void fill_rounded(const struct product *p, int kind, struct weight_group *groups)
{
    static uint16_t row[K_MOST], scales[K_MOST / QUANT_GROUP + 1];
    static int8_t q[K_MOST];
    fill_groups(row, (size_t)p->w.n_in, kind);
    quant_weights(p->form, row, p->w.n_in, q, scales);
    for (int k = 0; k < p->w.n_in; k++) {
        groups[k / QUANT_GROUP].q[k % QUANT_GROUP] = (uint8_t)(q[k] + group_forms[p->form].offset);
        groups[k / QUANT_GROUP].scale = scales[k / QUANT_GROUP];
    }
}

static void fill_column(const struct product *p, int kind, struct weight_group *groups)
{
    if (p->form == WEIGHTS_INT8 || p->form == WEIGHTS_INT4) {
        fill_rounded(p, kind, groups);
        return;
    }
    for (int g = 0; g < p->w.n_groups; g++) {
        fill_group(p->form, kind, &groups[g]);
        if (g == 0 || !group_form_is_super(p->form) || (g + p->w.first_group) % 8 == 0) continue;
        groups[g].scale = groups[g - 1].scale;
        groups[g].minimum = groups[g - 1].minimum;
    }
}

static void product_open(struct product *p, enum weight_form form, int n_in, int n_out, int n_rows,
                         int kind_w, int kind_x)
{
    struct error err = {0};
    *p = (struct product){.form = form,
                          .w = quant_matrix_of(form, NULL, n_in, n_out, next_below(8)),
                          .n_rows = n_rows};
    CHECK_OK(mem_array(&p->in, (size_t)n_in * (size_t)n_rows, 2, &err));
    CHECK_OK(mem_array(&p->groups, (size_t)p->w.n_groups * (size_t)n_out, sizeof *p->groups, &err));
    CHECK_OK(mem_array(&p->wanted, (size_t)n_out * (size_t)n_rows, sizeof(float), &err));
    CHECK_OK(mem_pages(&p->w.data, quant_matrix_bytes(&p->w), &err));
    fill_groups(p->in, (size_t)n_in * (size_t)n_rows, kind_x);
    for (size_t i = 0; i < (size_t)n_out; i++) {
        fill_column(p, kind_w, p->groups + i * (size_t)p->w.n_groups);
    }
    quant_matrix_fill(&p->w, 0, p->w.n_blocks, fill_from_product, p);
}

static void product_close(struct product *p)
{
    mem_pages_free(p->w.data, quant_matrix_bytes(&p->w));
    free(p->in);
    free(p->groups);
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

static const uint8_t table[16] = {GROUP_TABLE_16};

/* The sum of the products of a run, from k = first on. */
static int run_sum(enum weight_form form, const struct weight_group *group, const int *x, int first,
                   int n)
{
    const struct group_form *f = &group_forms[form];
    int offset = f->minimum == GROUP_ZERO ? group->zero : f->offset, sum = 0;
    for (int i = first; i < first + n; i++) {
        sum += ((f->is_table ? table[group->q[i]] : group->q[i]) - offset) * x[i];
    }
    return sum;
}

static int x_run_sum(const int *x, int first, int n)
{
    int sum = 0;
    for (int i = first; i < first + n; i++) {
        sum += x[i];
    }
    return sum;
}

/* One step of a chain as docs/numerics.md defines it. */
static float chain_define(enum weight_form form, const struct weight_group *group, const int *x,
                          float x_scale, float acc)
{
    const struct group_form *f = &group_forms[form];
    float scale = num_half_to_float(group->scale), minimum = num_half_to_float(group->minimum);
    float sum = (float)run_sum(form, group, x, 0, 32);
    if (f->scale == GROUP_SCALE_BF16) scale = num_bf16_to_float(group->scale);
    if (f->scale == GROUP_SCALE_F32) scale = group->scale_f32;
    if (f->scale == GROUP_SCALE_BYTE) scale *= (float)group->scales[0];
    if (f->scale == GROUP_SCALE_RUNS) {
        sum = (float)run_sum(form, group, x, 0, 16) * (float)group->scales[0];
        sum = fmaf((float)run_sum(form, group, x, 16, 16), (float)group->scales[1], sum);
    }
    acc = fmaf(sum, scale * x_scale, acc);
    if (f->minimum == GROUP_MINIMUM_F16 || f->minimum == GROUP_MINIMUM_BYTE) {
        if (f->minimum == GROUP_MINIMUM_BYTE) minimum *= (float)group->minimums[0];
        acc = fmaf(minimum, (float)-x_run_sum(x, 0, 32) * x_scale, acc);
    }
    for (int run = 0; f->minimum == GROUP_MINIMUM_RUNS && run < 2; run++) {
        float x_sum = (float)-x_run_sum(x, 16 * run, 16) * x_scale;
        acc = fmaf(minimum * (float)group->minimums[run], x_sum, acc);
    }
    return acc;
}

static void product_define(struct product *p)
{
    int n_in = p->w.n_in, x[QUANT_GROUP];
    memset(p->wanted, 0, sizeof(float) * (size_t)p->n_rows * (size_t)p->w.n_out);
    for (int row = 0; row < p->n_rows; row++) {
        float *out = p->wanted + (size_t)row * (size_t)p->w.n_out;
        for (int g = 0; g < p->w.n_groups; g++) {
            int n = n_in - 32 * g < 32 ? n_in - 32 * g : 32;
            float x_scale = round_group(p->in + (size_t)row * (size_t)n_in + 32 * g, n, x);
            for (int column = 0; column < p->w.n_out; column++) {
                const struct weight_group *group =
                    &p->groups[(size_t)column * (size_t)p->w.n_groups + (size_t)g];
                out[column] = chain_define(p->form, group, x, x_scale, out[column]);
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
    product_open(&p, forms[_i], 1024, 70, ROWS_MOST, KIND_ORDINARY, KIND_ORDINARY);
    product_define(&p);
    for (int v = 0; v < n_variants; v++) {
        for (int n = 1; n <= FEW_MOST; n++) {
            check_rows(&p, v, ROWS_MOST - n, n);
        }
        for (size_t i = 0; i < sizeof many / sizeof *many && many[i] <= ROWS_MOST; i++) {
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
    product_open(&p, forms[_i], 353, 33, PLACES, KIND_ORDINARY, KIND_ORDINARY);
    product_define(&p);
    for (int v = 0; v < n_variants; v++) {
        for (int first = 0; first < PLACES; first++) {
            for (int n = 1; n <= PLACES - first; n++) {
                check_rows(&p, v, first, n);
            }
        }
    }
    product_close(&p);
}
END_TEST

START_TEST(any_shape_and_any_numbers_give_the_defined_bits)
{
    for (int round = 0; round < ROUNDS; round++) {
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

/* The largest integers and scales of groups that there are: sums of 16 bits must not saturate, and
 * sums of runs must be exact. */
START_TEST(extreme_integers_give_the_defined_bits)
{
    for (int signs = 0; signs < 8; signs++) {
        struct product p;
        product_open(&p, forms[_i], 96, 33, 13, KIND_ORDINARY, KIND_ORDINARY);
        const struct group_form *f = &group_forms[p.form];
        int most = (1 << (f->low_bits + f->high_bits)) - 1;
        for (int i = 0; i < p.w.n_groups * 33; i++) {
            memset(p.groups[i].q, signs & 1 ? 0 : most, QUANT_GROUP);
            memset(p.groups[i].scales, signs & 4 ? -128 : 127, 2);
            memset(p.groups[i].minimums, 255, 2);
            p.groups[i].zero = (uint8_t)(signs & 4 ? 0 : most);
        }
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

/* Against double precision on the stored weights: rounding activations to 8 bits moves each of them
 * by at most half of its group's scale, besides the chain's rounding. */
START_TEST(a_product_is_as_near_as_rounded_activations_allow)
{
    struct product p;
    float weights[QUANT_GROUP];
    product_open(&p, forms[_i], 480, 40, 3, KIND_ORDINARY, KIND_ORDINARY);
    product_define(&p);
    for (int i = 0; i < 3 * 40; i++) {
        const uint16_t *in = p.in + (size_t)(i / 40) * 480;
        double sum = 0, bound = 0, size = 0;
        for (int g = 0; g < p.w.n_groups; g++) {
            int x[QUANT_GROUP];
            float x_scale = round_group(in + 32 * g, 32, x);
            group_read_f32(p.form, &p.groups[i % 40 * p.w.n_groups + g], weights);
            for (int k = 0; k < QUANT_GROUP; k++) {
                double w = (double)weights[k];
                sum += w * (double)num_bf16_to_float(in[32 * g + k]);
                bound += fabs(w) * 0.501 * (double)x_scale;
                size += fabs(w) * 127 * (double)x_scale;
            }
        }
        double distance = fabs(sum - (double)p.wanted[i]);
        ck_assert_msg(distance <= bound + 1e-5 * size, "%s: %g instead of %g, at most %g apart",
                      weight_form_name(p.form), (double)p.wanted[i], sum, bound);
    }
    for (int v = 0; v < n_variants; v++) {
        check_rows(&p, v, 0, 3);
    }
    product_close(&p);
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

/* Packed matrices take little more memory than the blocks of a file. */
START_TEST(packed_blocks_are_hardly_larger_than_those_of_a_file)
{
    for (int kind = BLOCK_Q4_0; kind < BLOCK_KINDS; kind++) {
        enum weight_form form = block_form((enum block_kind)kind);
        const struct quant_matrix w = quant_matrix_of(form, NULL, 4096, 1024, 0);
        double stored = (double)block_bytes((enum block_kind)kind, (size_t)4096 * 1024);
        double ratio = (double)quant_matrix_bytes(&w) / stored;
        ck_assert_msg(ratio <= (kind == BLOCK_Q2_K ? 1.20 : 1.08), "%s: %.3f",
                      weight_form_name(form), ratio);
    }
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
    tcase_add_loop_test(tcase, every_number_of_rows_gives_the_defined_bits, 0, N_FORMS);
    tcase_add_loop_test(tcase, a_row_has_its_bits_wherever_it_is, 0, N_FORMS);
    tcase_add_loop_test(tcase, any_shape_and_any_numbers_give_the_defined_bits, 0, N_FORMS);
    suite_add_tcase(suite, tcase);
}

int main(void)
{
    Suite *suite = suite_create("kernels_quant");
    TCase *tcase = tcase_create("all");
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_loop_test(tcase, extreme_integers_give_the_defined_bits, 0, N_FORMS);
    tcase_add_loop_test(tcase, a_product_is_as_near_as_rounded_activations_allow, 0, N_FORMS);
    tcase_add_loop_test(tcase, an_infinity_or_a_nan_spoils_its_row_alone, 0, N_FORMS);
    tcase_add_test(tcase, packed_blocks_are_hardly_larger_than_those_of_a_file);
    tcase_add_loop_test(tcase, a_rounded_weight_is_within_its_bound, 0, N_ROUNDED);
    tcase_add_test(tcase, known_groups_have_their_known_integers);
    suite_add_tcase(suite, tcase);
    add_tests(suite, "one hop", setup_one_hop);
    add_tests(suite, "two hops", setup_two_hops);
    return check_main(suite);
}
