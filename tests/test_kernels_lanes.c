/* ctest: labels=quick libs=model timeout=120 */
/* Everything of the kernels that is not matmul: norms, swiglu, exp and attention. Variants must give
 * equal bits, and the bits of the scalar definition where there is one. */
#include <math.h>

#include "tests/kernels_util.h"

enum { N_MAX = 1024, HEAD_MAX = 256, PAIRS_MAX = 128 };

/* exp_sum over floats of every kind against num_exp, one by one. */
static void check_exp(const float *s, int n)
{
    float p[N_MAX];
    for (int v = 0; v < n_variants; v++) {
        variants[v]->exp_sum(s, 0.0f, n, p);
        for (int i = 0; i < n; i++) {
            ck_assert_msg(same(p[i], num_exp(s[i])), "%s: exp(%a) = %a, not %a", variants[v]->name,
                          (double)s[i], (double)p[i], (double)num_exp(s[i]));
        }
    }
}

START_TEST(exp_of_every_variant_is_num_exp)
{
    float s[N_MAX];
    uint32_t bits = 0;
    for (int round = 0; round < 400; round++) {
        for (int i = 0; i < N_MAX; i++) {
            bits += 10007; /* coprime to 2^32, so that all exponents and both signs come by */
            s[i] = num_bits_to_float(bits);
            if (round % 2) s[i] = (float)(next_random() >> 40) * (180.0f * 0x1p-24f) - 90.0f;
        }
        check_exp(s, N_MAX);
    }
}
END_TEST

START_TEST(exp_edges_are_num_exp)
{
    float s[N_MAX] = {0};
    static const float edges[] = {0.0f, -0.0f,     -87.33f, 88.72f,  INFINITY, -INFINITY,
                                  NAN,  -87.3365f, 1e-40f,  -1e-40f, 1e38f,    -1e38f,
                                  0.5f, -0.5f,     88.73f,  88.722f, -88.0f};
    enum { N_EDGES = sizeof edges / sizeof *edges };
    for (int i = 0; i < N_MAX; i++) {
        s[i] = num_bits_to_float(num_float_to_bits(edges[i % N_EDGES]) +
                                 (uint32_t)(i / N_EDGES % 3) - 1);
        if (i < N_EDGES) s[i] = edges[i];
    }
    check_exp(s, N_MAX);
}
END_TEST

START_TEST(exp_sum_adds_16_lanes_by_the_fixed_tree)
{
    float s[N_MAX], p[N_MAX];
    fill_floats(s, N_MAX, 12.0f);
    s[5] = -INFINITY;
    for (int n = 16; n <= N_MAX; n += 16) {
        float lanes[16] = {0};
        for (int i = 0; i < n; i++) {
            lanes[i % 16] += i == 5 ? 0.0f : num_exp(s[i] - 12.0f);
        }
        for (int half = 8; half; half /= 2) {
            for (int i = 0; i < half; i++) {
                lanes[i] += lanes[i + half];
            }
        }
        for (int v = 0; v < n_variants; v++) {
            ck_assert(same(variants[v]->exp_sum(s, 12.0f, n, p), lanes[0]));
            ck_assert(same(p[5], 0.0f));
        }
    }
}
END_TEST

START_TEST(exp_sum_of_masked_positions_is_zero)
{
    float s[16], p[16];
    for (int i = 0; i < 16; i++) {
        s[i] = -INFINITY;
    }
    for (int v = 0; v < n_variants; v++) {
        ck_assert(same(variants[v]->exp_sum(s, -INFINITY, 16, p), 0.0f));
        ck_assert(same(variants[v]->exp_sum(s, 3.0f, 16, p), 0.0f));
        ck_assert(same(p[7], 0.0f));
    }
}
END_TEST

START_TEST(rmsnorm_variants_agree_and_are_near_double)
{
    float x[N_MAX], weight[N_MAX];
    uint16_t h[N_VARIANTS][N_MAX];
    for (int n = 16; n <= N_MAX; n += 16) {
        fill_floats(x, N_MAX, n % 32 ? 3.0f : 1e-3f);
        fill_floats(weight, N_MAX, 2.0f);
        double sum = 0;
        for (int i = 0; i < n; i++) {
            sum += (double)x[i] * (double)x[i];
        }
        double factor = 1 / sqrt(sum / n + 1e-5);
        for (int v = 0; v < n_variants; v++) {
            variants[v]->rmsnorm(x, weight, 1e-5f, n, h[v]);
            ck_assert_mem_eq(h[v], h[0], (size_t)n * sizeof h[0][0]);
            for (int i = 0; i < n; i++) {
                double wanted = (double)x[i] * factor * (double)weight[i];
                double got = (double)num_bf16_to_float(h[v][i]);
                /* half an ulp of bf16 and a little */
                ck_assert_double_le(fabs(got - wanted), fabs(wanted) * 0x1.01p-8);
            }
        }
    }
}
END_TEST

START_TEST(rmsnorm_head_variants_agree_and_are_near_double)
{
    float x[HEAD_MAX], weight[HEAD_MAX], out[N_VARIANTS][HEAD_MAX];
    for (int n = 2; n <= HEAD_MAX; n += 2) {
        fill_floats(x, HEAD_MAX, 5.0f);
        fill_floats(weight, HEAD_MAX, 1.0f);
        double sum = 0;
        for (int i = 0; i < n; i++) {
            sum += (double)x[i] * (double)x[i];
        }
        double factor = 1 / sqrt(sum / n + 1e-6);
        for (int v = 0; v < n_variants; v++) {
            memcpy(out[v], x, sizeof x);
            variants[v]->rmsnorm_head(out[v], weight, 1e-6f, n);
            check_same(out[v], out[0], HEAD_MAX, variants[v]->name);
            for (int i = 0; i < n; i++) {
                double wanted = (double)x[i] * factor * (double)weight[i];
                ck_assert_double_le(fabs((double)out[v][i] - wanted), fabs(wanted) * 1e-5);
            }
            check_same(out[v] + n, x + n, (size_t)(HEAD_MAX - n), "past the end");
        }
    }
}
END_TEST

START_TEST(swiglu_of_every_variant_is_the_scalar_definition)
{
    float gate[N_MAX], up[N_MAX];
    uint16_t h[N_MAX + 1];
    for (int n = 1; n <= N_MAX; n += 1 + n / 8) {
        fill_floats(gate, N_MAX, 100.0f);
        fill_floats(up, N_MAX, 4.0f);
        gate[0] = INFINITY;
        gate[n - 1] = -INFINITY;
        up[n / 2] = NAN;
        h[n] = 0x1234;
        for (int v = 0; v < n_variants; v++) {
            variants[v]->swiglu(gate, up, n, h);
            for (int i = 0; i < n; i++) {
                float value = gate[i] / (1.0f + num_exp(-gate[i])) * up[i];
                ck_assert(
                    same(num_bf16_to_float(h[i]), num_bf16_to_float(num_float_to_bf16(value))));
            }
            ck_assert_uint_eq(h[n], 0x1234);
        }
    }
}
END_TEST

/* Every query's chain is the one that it has alone. */
START_TEST(scores_variants_agree_and_are_near_double)
{
    enum { QUERIES = 17, STRIDE = 40 };
    static uint16_t q[QUERIES * HEAD_MAX], k[HEAD_MAX * 16];
    float out[QUERIES * STRIDE], want[QUERIES][16];
    for (int round = 0; round < 300; round++) {
        int head_dim = 2 * (1 + next_below(HEAD_MAX / 2)), n = 1 + next_below(QUERIES);
        int kind = round % 2 ? KIND_ORDINARY : next_below(N_KINDS);
        fill_bf16(q, sizeof q / sizeof *q, kind);
        fill_bf16(k, sizeof k / sizeof *k, kind);
        for (int i = 0; i < n; i++) {
            variants[0]->scores(q + i * head_dim, 1, k, head_dim, 0.125f, want[i], 16);
        }
        for (int v = 0; v < n_variants; v++) {
            variants[v]->scores(q, n, k, head_dim, 0.125f, out, STRIDE);
            for (int i = 0; i < n; i++) {
                check_same(out + i * STRIDE, want[i], 16, variants[v]->name);
            }
        }
        for (int i = 0; i < 16 * n && kind == KIND_ORDINARY; i++) {
            int query = i / 16, position = i % 16;
            double sum = 0, size = 0;
            for (int e = 0; e < head_dim; e++) {
                double term = (double)num_bf16_to_float(q[query * head_dim + e]) *
                              (double)num_bf16_to_float(k[(e / 2 * 16 + position) * 2 + e % 2]);
                sum += 0.125 * term;
                size += 0.125 * fabs(term);
            }
            ck_assert_double_le(fabs((double)want[query][position] - sum),
                                head_dim * 0x1p-24 * size);
        }
    }
}
END_TEST

START_TEST(weighted_sum_variants_agree_and_are_near_double)
{
    enum { QUERIES = 9, P_STRIDE = 2 * PAIRS_MAX + 6, STRIDE = HEAD_MAX + 5 };
    static uint16_t p[QUERIES * P_STRIDE], value[PAIRS_MAX * HEAD_MAX * 2];
    static float start[QUERIES * STRIDE], acc[QUERIES * STRIDE], want[QUERIES * STRIDE];
    for (int round = 0; round < 100; round++) {
        int head_dim = 16 * (1 + next_below(HEAD_MAX / 16)), n_pairs = 1 + next_below(PAIRS_MAX);
        int kind = round % 2 ? KIND_ORDINARY : next_below(N_KINDS), n = 1 + next_below(QUERIES);
        fill_bf16(p, QUERIES * P_STRIDE, kind);
        fill_bf16(value, sizeof value / sizeof *value, kind);
        fill_floats(start, QUERIES * STRIDE, round % 3 ? 1.0f : 1e-38f);
        memcpy(want, start, sizeof want);
        for (int i = 0; i < n; i++) {
            variants[0]->weighted_sum(p + i * P_STRIDE, 0, 1, value, n_pairs, head_dim,
                                      want + i * STRIDE, 0);
        }
        for (int v = 0; v < n_variants; v++) {
            memcpy(acc, start, sizeof acc);
            variants[v]->weighted_sum(p, P_STRIDE, n, value, n_pairs, head_dim, acc, STRIDE);
            check_same(acc, want, QUERIES * STRIDE, variants[v]->name);
        }
        for (int at = 0; at < n * head_dim && kind == KIND_ORDINARY; at++) {
            int query = at / head_dim, e = at % head_dim;
            double sum = (double)start[query * STRIDE + e], size = fabs(sum);
            for (int i = 0; i < 2 * n_pairs; i++) {
                double term = (double)num_bf16_to_float(p[query * P_STRIDE + i]) *
                              (double)num_bf16_to_float(value[(i / 2 * head_dim + e) * 2 + i % 2]);
                sum += term;
                size += fabs(term);
            }
            ck_assert_double_le(fabs((double)want[query * STRIDE + e] - sum),
                                2 * n_pairs * 0x1p-24 * size);
        }
    }
}
END_TEST

/* The flushing of denormals ends with the chains. */
START_TEST(denormals_live_on_after_a_kernel)
{
    uint16_t w[32] = {0};
    float acc[16] = {0};
    volatile float tiny = 0x1p-130f;
    for (int v = 0; v < n_variants; v++) {
        variants[v]->dot_step(acc, w, 0);
        ck_assert(tiny * 0.5f == 0x1p-131f);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels_lanes");
    TCase *tests = tcase_create("lanes");
    tcase_add_checked_fixture(tests, setup, NULL);
    tcase_add_test(tests, exp_of_every_variant_is_num_exp);
    tcase_add_test(tests, exp_edges_are_num_exp);
    tcase_add_test(tests, exp_sum_adds_16_lanes_by_the_fixed_tree);
    tcase_add_test(tests, exp_sum_of_masked_positions_is_zero);
    tcase_add_test(tests, rmsnorm_variants_agree_and_are_near_double);
    tcase_add_test(tests, rmsnorm_head_variants_agree_and_are_near_double);
    tcase_add_test(tests, swiglu_of_every_variant_is_the_scalar_definition);
    tcase_add_test(tests, scores_variants_agree_and_are_near_double);
    tcase_add_test(tests, weighted_sum_variants_agree_and_are_near_double);
    tcase_add_test(tests, denormals_live_on_after_a_kernel);
    suite_add_tcase(suite, tests);
    return check_main(suite);
}
