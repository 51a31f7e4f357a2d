/* ctest: labels=quick,bits libs=model timeout=120 */
/* The kernels of fp8 weights: every variant compared with the chains as docs/numerics.md defines
 * them, written here once more without packing, tiles and vectors. */
#include <math.h>
#include <stdio.h>

#include "base/memory.h"
#include "model/backend/cpu/kernels/fp8_matrix.h"
#include "model/backend/cpu/kernels/step_exact.h"
#include "tests/support/kernels_util.h"

enum { K_MOST = 1200, ROWS_MOST = 150, OUT_MOST = 200 };

/* fp8 to float by its definition. */
static float fp8_value(uint8_t x)
{
    int exponent = x >> 3 & 15, mantissa = x & 7;
    float sign = x & 0x80 ? -1.0f : 1.0f;
    if ((x & 0x7f) == 0x7f) return NAN;
    if (exponent == 0) return sign * ldexpf((float)mantissa, -9);
    return sign * ldexpf((float)(8 + mantissa), exponent - 10);
}

START_TEST(all_numbers_are_exact)
{
    for (int x = 0; x < 256; x++) {
        float got = num_fp8_to_float((uint8_t)x), wanted = fp8_value((uint8_t)x);
        ck_assert(isnan(wanted) ? isnan(got) : num_float_to_bits(got) == num_float_to_bits(wanted));
        if (!isnan(wanted)) {
            ck_assert(num_bf16_to_float(num_float_to_bf16(got)) == got);
        }
    }
}
END_TEST

struct product {
    struct fp8_matrix w;
    int n_rows;
    uint8_t *q;    /* [n_out][n_in] */
    float *scales; /* [n_out][n_runs] */
    uint16_t *in;  /* [n_rows][n_in] */
    float *wanted; /* [n_rows][n_out] */
};

/* fp8_fill_fn */
static void fill_from_product(const void *arg, int column, int k, int n, uint8_t *q, float *scale)
{
    const struct product *p = arg;
    int run = 0;
    while (k >= fp8_matrix_run(&p->w, run + 1))
        run++;
    memcpy(q, p->q + (size_t)column * (size_t)p->w.n_in + k, (size_t)n);
    *scale = p->scales[(size_t)column * (size_t)p->w.n_runs + (size_t)run];
}

static void product_open(struct product *p, const struct fp8_matrix *shape, int n_rows, int kind)
{
    struct error err = {0};
    *p = (struct product){.w = *shape, .n_rows = n_rows};
    size_t n_in = (size_t)shape->n_in, n_out = (size_t)shape->n_out;
    CHECK_OK(mem_array(&p->q, n_in * n_out, 1, &err));
    CHECK_OK(mem_array(&p->scales, n_out * (size_t)shape->n_runs, sizeof(float), &err));
    CHECK_OK(mem_array(&p->in, n_in * (size_t)n_rows, 2, &err));
    CHECK_OK(mem_array(&p->wanted, n_out * (size_t)n_rows, sizeof(float), &err));
    CHECK_OK(mem_pages(&p->w.data, fp8_matrix_bytes(shape), &err));
    for (size_t i = 0; i < n_in * n_out; i++) {
        uint8_t x = (uint8_t)next_random();
        bool is_nan = (x & 0x7f) == 0x7f && next_below(4); /* a few of them */
        p->q[i] = is_nan ? 0x3c : x;
    }
    for (size_t i = 0; i < n_out * (size_t)shape->n_runs; i++) {
        p->scales[i] = ldexpf((float)(1 + next_below(1 << 20)), -20 - next_below(60));
    }
    fill_bf16(p->in, n_in * (size_t)n_rows, kind);
    fp8_matrix_fill(&p->w, 0, p->w.n_blocks, fill_from_product, p);
}

static void product_close(struct product *p)
{
    mem_pages_free(p->w.data, fp8_matrix_bytes(&p->w));
    free(p->q);
    free(p->scales);
    free(p->in);
    free(p->wanted);
}

static float define_one(const struct product *p, const uint16_t *in, int column)
{
    const uint8_t *q = p->q + (size_t)column * (size_t)p->w.n_in;
    float out = 0;
    for (int run = 0; run < p->w.n_runs; run++) {
        float chain = 0;
        for (int k = fp8_matrix_run(&p->w, run); k < fp8_matrix_run(&p->w, run + 1); k += 2) {
            chain = step_exact(chain, fp8_value(q[k + 1]), num_bf16_to_float(in[k + 1]));
            chain = step_exact(chain, fp8_value(q[k]), num_bf16_to_float(in[k]));
        }
        out = fmaf(chain, p->scales[column * p->w.n_runs + run], out);
    }
    return out;
}

static void check_variant(const struct product *p, int v, int n)
{
    static float out[ROWS_MOST * (OUT_MOST + 3)];
    static uint32_t panels[ROWS_MOST * K_MOST];
    const struct kernels *kernels = variants[v];
    size_t stride = (size_t)p->w.n_out + 3;
    struct matmul_rows rows = {
        .in = p->in, .stride = (size_t)p->w.n_in, .n = n, .n_in = p->w.n_in, .panels = panels};
    struct matmul_call call = {.rows = &rows, .out = out, .out_stride = stride};
    ck_assert_uint_le(kernels->panel_words(n, p->w.n_in), sizeof panels / sizeof *panels);
    if (kernels->panel_words(n, p->w.n_in)) kernels->fill_panels(&rows, 0, p->w.n_in / 2);
    for (size_t i = 0; i < (size_t)n * stride; i++) {
        out[i] = 12345.0f;
    }
    call.end_block = p->w.n_blocks / 2;
    kernels->fp8_matmul(&p->w, &call);
    call.first_block = call.end_block;
    call.end_block = p->w.n_blocks;
    kernels->fp8_matmul(&p->w, &call);
    for (int row = 0; row < n; row++) {
        for (int column = 0; column < (int)stride; column++) {
            float got = out[(size_t)row * stride + (size_t)column];
            float wanted = column < p->w.n_out
                               ? p->wanted[(size_t)row * (size_t)p->w.n_out + (size_t)column]
                               : 12345.0f;
            ck_assert_msg((isnan(got) && isnan(wanted)) ||
                              num_float_to_bits(got) == num_float_to_bits(wanted),
                          "%s, %d rows, run %d: [%d][%d] is %a, not %a", kernels->name, n, p->w.run,
                          row, column, (double)got, (double)wanted);
        }
    }
}

START_TEST(all_variants_give_the_defined_bits)
{
    static const struct {
        int n_in, n_out, first_run, run, n_rows;
    } shapes[] = {{128, 64, 128, 128, 3},  {256, 200, 64, 128, 150}, {1200, 70, 1200, 1200, 20},
                  {352, 64, 32, 96, 33},   {2, 1, 128, 128, 1},      {1030, 130, 128, 128, 70},
                  {64, 128, 4000, 128, 9}, {160, 64, 2, 32, 65}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct fp8_matrix shape = fp8_matrix_of(NULL, shapes[i].n_in, shapes[i].n_out,
                                                shapes[i].first_run, shapes[i].run);
        struct product p;
        product_open(&p, &shape, shapes[i].n_rows, (int)i % N_KINDS);
        for (int row = 0; row < p.n_rows; row++) {
            for (int column = 0; column < p.w.n_out; column++) {
                p.wanted[row * p.w.n_out + column] =
                    define_one(&p, p.in + (size_t)row * (size_t)p.w.n_in, column);
            }
        }
        for (int v = 0; v < n_variants; v++) {
            check_variant(&p, v, p.n_rows);
            check_variant(&p, v, 1);
            check_variant(&p, v, (p.n_rows + 1) / 2);
        }
        product_close(&p);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels_fp8");
    TCase *tcase = tcase_create("all");
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, all_numbers_are_exact);
    tcase_add_test(tcase, all_variants_give_the_defined_bits);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
