/* ctest: labels=quick,bits libs=model timeout=120 */
/* Everything of the kernels that is not matmul: norms, swiglu, exp and attention. Variants must
 * give equal bits, and the bits of the scalar definition where there is one. */
#include <math.h>

#include "tests/support/kernels_util.h"

enum { N_MAX = 1024, HEAD_MAX = 256 };

/* exp_sum over floats of every kind against num_exp, one by one. */
static bool same_bf16(uint16_t p, float want)
{
    return same(num_bf16_to_float(p), num_bf16_to_float(num_float_to_bf16(want)));
}

static void check_exp(const float *s, int n)
{
    uint16_t p[N_MAX], one[16];
    float alone[16];
    for (int v = 0; v < n_variants; v++) {
        variants[v]->exp_sum(s, 1.0f, 0.0f, n, p, NULL);
        for (int i = 0; i < n; i++) {
            float want = num_exp(s[i]);
            ck_assert(same_bf16(p[i], want));
            if (i % 8) continue; /* 8 is coprime to the number of edges */
            for (int lane = 0; lane < 16; lane++) {
                alone[lane] = lane == i % 16 ? s[i] : -INFINITY;
            }
            float sum = variants[v]->exp_sum(alone, 1.0f, 0.0f, 16, one, NULL);
            ck_assert_msg(same(sum, want), "%s: exp(%a) = %a, not %a", variants[v]->name,
                          (double)s[i], (double)sum, (double)want);
        }
    }
}

START_TEST(exp_of_every_variant_is_num_exp)
{
    float s[N_MAX];
    uint32_t bits = 0;
    for (int round = 0; round < 400; round++) {
        for (int i = 0; i < N_MAX; i++) {
            bits += 10007; /* coprime to 2^32, so that all exponents and both signs occur */
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
    float s[N_MAX];
    uint16_t p[N_MAX];
    fill_floats(s, N_MAX, 12.0f);
    s[5] = -INFINITY;
    for (int n = 16; n <= N_MAX; n += 16) {
        float lanes[16] = {0};
        for (int i = 0; i < n; i++) {
            lanes[i % 16] += i == 5 ? 0.0f : num_exp(s[i] * 0.7f - 12.0f);
        }
        for (int half = 8; half; half /= 2) {
            for (int i = 0; i < half; i++) {
                lanes[i] += lanes[i + half];
            }
        }
        for (int v = 0; v < n_variants; v++) {
            ck_assert(same(variants[v]->exp_sum(s, 0.7f, 12.0f, n, p, NULL), lanes[0]));
            ck_assert_uint_eq(p[5], 0);
        }
    }
}
END_TEST

START_TEST(exp_sum_of_masked_positions_is_zero)
{
    float s[16];
    uint16_t p[16];
    for (int i = 0; i < 16; i++) {
        s[i] = -INFINITY;
    }
    for (int v = 0; v < n_variants; v++) {
        ck_assert(same(variants[v]->exp_sum(s, 1.0f, -INFINITY, 16, p, NULL), 0.0f));
        ck_assert(same(variants[v]->exp_sum(s, 1.0f, 3.0f, 16, p, NULL), 0.0f));
        ck_assert_uint_eq(p[7], 0);
    }
}
END_TEST

START_TEST(max_ignores_nan)
{
    float s[N_MAX];
    for (int round = 0; round < 200; round++) {
        int n = 16 * (1 + next_below(N_MAX / 16));
        float want = -INFINITY;
        fill_floats(s, N_MAX, 100.0f);
        for (int i = 0; i < n; i++) {
            if (round % 4 == 0) s[i] = -INFINITY;
            if (round % 4 == 1 && next_below(3) == 0) s[i] = NAN;
            if (s[i] > want) want = s[i];
        }
        for (int v = 0; v < n_variants; v++) {
            ck_assert(same(variants[v]->max(s, n), want));
        }
    }
    for (int round = 0; round < 200; round++) { /* zeros of both signs, whichever comes first */
        for (int i = 0; i < N_MAX; i++) {
            s[i] = next_below(8) ? -INFINITY : next_below(2) ? 0.0f : -0.0f;
        }
        s[next_below(N_MAX)] = -0.0f;
        for (int v = 0; v < n_variants; v++) {
            ck_assert(same(variants[v]->max(s, N_MAX), 0.0f));
        }
    }
}
END_TEST

START_TEST(rmsnorm_variants_agree_and_are_near_double)
{
    float x[N_MAX], weight[N_MAX];
    uint16_t h[KERNELS_MAX][N_MAX];
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
    float x[HEAD_MAX], weight[HEAD_MAX], out[KERNELS_MAX][HEAD_MAX];
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

/* GELU with tanh, from the formula in double. */
static double gelu_of(double x)
{
    double u = sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);
    return x / (1 + exp(-2 * u));
}

/* The functions of one number are near double where their results are normal. */
START_TEST(gelu_and_tanh_are_near_double)
{
    float x[N_MAX];
    for (int round = 0; round < 20; round++) {
        fill_floats(x, N_MAX, round % 2 ? 20.0f : 3.0f);
        for (int i = 0; i < N_MAX; i++) {
            double wanted = gelu_of((double)x[i]);
            ck_assert_double_le(fabs((double)num_gelu_tanh(x[i]) - wanted),
                                fabs(wanted) * 2e-5 + 1e-36);
            ck_assert_double_le(fabs((double)num_tanh(x[i]) - tanh((double)x[i])), 2e-7);
        }
    }
    ck_assert(num_tanh(INFINITY) == 1 && num_tanh(-INFINITY) == -1 && num_tanh(0) == 0);
}
END_TEST

START_TEST(geglu_of_every_variant_is_the_scalar_definition)
{
    float gate[N_MAX], up[N_MAX];
    uint16_t h[N_MAX + 1];
    for (int n = 1; n <= N_MAX; n += 1 + n / 8) {
        fill_floats(gate, N_MAX, n % 2 ? 100.0f : 3.0f);
        fill_floats(up, N_MAX, 4.0f);
        gate[0] = INFINITY;
        gate[n - 1] = -INFINITY;
        up[n / 2] = NAN;
        h[n] = 0x1234;
        for (int v = 0; v < n_variants; v++) {
            variants[v]->geglu(gate, up, n, h);
            for (int i = 0; i < n; i++) {
                float value = num_gelu_tanh(gate[i]) * up[i];
                ck_assert(
                    same(num_bf16_to_float(h[i]), num_bf16_to_float(num_float_to_bf16(value))));
            }
            ck_assert_uint_eq(h[n], 0x1234);
        }
    }
}
END_TEST

START_TEST(softcap_of_every_variant_is_the_scalar_definition)
{
    float x[N_MAX], out[N_MAX];
    for (int n = 1; n < N_MAX; n += 1 + n / 8) {
        fill_floats(x, N_MAX, n % 2 ? 500.0f : 2.0f);
        x[0] = INFINITY;
        x[n - 1] = -INFINITY;
        x[n / 2] = NAN;
        for (int v = 0; v < n_variants; v++) {
            memcpy(out, x, sizeof x);
            variants[v]->softcap(out, n, 0.05f, 30.0f);
            for (int i = 0; i < n; i++) {
                ck_assert(same(out[i], 30.0f * num_tanh(x[i] * 0.05f)));
            }
            check_same(out + n, x + n, (size_t)(N_MAX - n), "past the end");
        }
    }
}
END_TEST

START_TEST(squares_of_every_variant_are_those_of_rmsnorm)
{
    float x[HEAD_MAX], ones[HEAD_MAX], normed[HEAD_MAX];
    for (int i = 0; i < HEAD_MAX; i++) {
        ones[i] = 1;
    }
    for (int n = 2; n <= HEAD_MAX; n += 2) {
        fill_floats(x, HEAD_MAX, 5.0f);
        float sum = variants[0]->squares(x, n);
        for (int v = 0; v < n_variants; v++) {
            ck_assert(same(variants[v]->squares(x, n), sum));
        }
        memcpy(normed, x, sizeof x);
        variants[0]->rmsnorm_head(normed, ones, 1e-6f, n);
        float factor = 1.0f / sqrtf(sum / (float)n + 1e-6f);
        for (int i = 0; i < n; i++) {
            ck_assert(same(normed[i], x[i] * factor * ones[i]));
        }
    }
}
END_TEST

/* Pointers to n parts of `size` elements each, in a shuffled order. */
static struct kv_parts scatter(const uint16_t *data, size_t size, int n, const uint16_t **at)
{
    for (int i = 0; i < n; i++) {
        at[i] = data + size * (size_t)((i * 5 + 2) % n);
    }
    return (struct kv_parts){at, at, at, n};
}

static bool is_scattered(int n)
{
    return n % 5 != 0; /* 5 then walks over all n */
}

/* Each chain is the one that its query and block have alone. */
START_TEST(scores_variants_agree_and_are_near_double)
{
    enum { QUERIES = 17, BLOCKS_MAX = 9, STRIDE = BLOCKS_MAX * 16 + 8 };
    static uint16_t q[QUERIES * HEAD_MAX], k[BLOCKS_MAX * HEAD_MAX * 16];
    static float out[QUERIES * STRIDE], want[QUERIES][BLOCKS_MAX][16];
    for (int round = 0; round < 300; round++) {
        int head_dim = 2 * (1 + next_below(HEAD_MAX / 2)), n = 1 + next_below(QUERIES);
        int kind = round % 2 ? KIND_ORDINARY : next_below(N_KINDS);
        int n_blocks = 1 + next_below(BLOCKS_MAX);
        const uint16_t *at[BLOCKS_MAX];
        if (!is_scattered(n_blocks)) n_blocks++;
        fill_bf16(q, sizeof q / sizeof *q, kind);
        fill_bf16(k, sizeof k / sizeof *k, kind);
        const struct kv_parts parts = scatter(k, (size_t)head_dim * 16, n_blocks, at);
        for (int i = 0; i < n * n_blocks; i++) {
            const struct kv_parts one = {&at[i % n_blocks], &at[i % n_blocks], &at[i % n_blocks],
                                         1};
            const struct query_rows row = {q + i / n_blocks * head_dim, 0, 1};
            variants[0]->scores(&row, &one, head_dim, want[i / n_blocks][i % n_blocks], 16);
        }
        for (int v = 0; v < n_variants; v++) {
            const struct query_rows rows = {q, (size_t)head_dim, n};
            variants[v]->scores(&rows, &parts, head_dim, out, STRIDE);
            for (int i = 0; i < n * n_blocks; i++) {
                check_same(out + i / n_blocks * STRIDE + i % n_blocks * 16,
                           want[i / n_blocks][i % n_blocks], 16, variants[v]->name);
            }
        }
        for (int i = 0; i < 16 * n * n_blocks && kind == KIND_ORDINARY; i++) {
            int query = i / 16 / n_blocks, block = i / 16 % n_blocks, position = i % 16;
            double sum = 0, size = 0;
            for (int e = 0; e < head_dim; e++) {
                double term =
                    (double)num_bf16_to_float(q[query * head_dim + e]) *
                    (double)num_bf16_to_float(at[block][(e / 2 * 16 + position) * 2 + e % 2]);
                sum += term;
                size += fabs(term);
            }
            ck_assert_double_le(fabs((double)want[query][block][position] - sum),
                                head_dim * 0x1p-24 * size);
        }
    }
}
END_TEST

START_TEST(weighted_sum_variants_agree_and_are_near_double)
{
    enum { QUERIES = 9, BLOCKS_MAX = 9, PAIRS = 8 };
    enum { P_STRIDE = 2 * BLOCKS_MAX * PAIRS + 6, STRIDE = HEAD_MAX + 5 };
    static uint16_t p[QUERIES * P_STRIDE], value[BLOCKS_MAX * PAIRS * HEAD_MAX * 2];
    static float start[QUERIES * STRIDE], acc[QUERIES * STRIDE], want[QUERIES * STRIDE];
    for (int round = 0; round < 200; round++) {
        int head_dim = 16 * (1 + next_below(HEAD_MAX / 16)), n_pairs = 1 + next_below(PAIRS);
        int kind = round % 2 ? KIND_ORDINARY : next_below(N_KINDS), n = 1 + next_below(QUERIES);
        int n_blocks = 1 + next_below(BLOCKS_MAX);
        const uint16_t *at[BLOCKS_MAX];
        if (!is_scattered(n_blocks)) n_blocks++;
        fill_bf16(p, QUERIES * P_STRIDE, kind);
        fill_bf16(value, sizeof value / sizeof *value, kind);
        fill_floats(start, QUERIES * STRIDE, round % 3 ? 1.0f : 1e-38f);
        memcpy(want, start, sizeof want);
        const struct kv_parts parts =
            scatter(value, (size_t)(n_pairs * head_dim * 2), n_blocks, at);
        for (int i = 0; i < n * n_blocks; i++) {
            const struct kv_parts one = {&at[i % n_blocks], &at[i % n_blocks], &at[i % n_blocks],
                                         1};
            const struct query_rows row = {p + i / n_blocks * P_STRIDE + i % n_blocks * 2 * n_pairs,
                                           0, 1};
            variants[0]->weighted_sum(&row, &one, n_pairs, head_dim, want + i / n_blocks * STRIDE,
                                      0);
        }
        for (int v = 0; v < n_variants; v++) {
            memcpy(acc, start, sizeof acc);
            const struct query_rows rows = {p, P_STRIDE, n};
            variants[v]->weighted_sum(&rows, &parts, n_pairs, head_dim, acc, STRIDE);
            check_same(acc, want, QUERIES * STRIDE, variants[v]->name);
        }
        for (int out = 0; out < n * head_dim && kind == KIND_ORDINARY; out++) {
            int query = out / head_dim, e = out % head_dim;
            double sum = (double)start[query * STRIDE + e], size = fabs(sum);
            for (int i = 0; i < 2 * n_pairs * n_blocks; i++) {
                const uint16_t *v = at[i / (2 * n_pairs)] + i % (2 * n_pairs) / 2 * head_dim * 2;
                double term = (double)num_bf16_to_float(p[query * P_STRIDE + i]) *
                              (double)num_bf16_to_float(v[2 * e + i % 2]);
                sum += term;
                size += fabs(term);
            }
            ck_assert_double_le(fabs((double)want[query * STRIDE + e] - sum),
                                2 * n_pairs * n_blocks * 0x1p-24 * size);
        }
    }
}
END_TEST

/* Denormals are flushed in the chains only, not after them. */
START_TEST(kernels_leave_the_callers_denormals_on)
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
    tcase_add_test(tests, max_ignores_nan);
    tcase_add_test(tests, rmsnorm_variants_agree_and_are_near_double);
    tcase_add_test(tests, rmsnorm_head_variants_agree_and_are_near_double);
    tcase_add_test(tests, swiglu_of_every_variant_is_the_scalar_definition);
    tcase_add_test(tests, gelu_and_tanh_are_near_double);
    tcase_add_test(tests, geglu_of_every_variant_is_the_scalar_definition);
    tcase_add_test(tests, softcap_of_every_variant_is_the_scalar_definition);
    tcase_add_test(tests, squares_of_every_variant_are_those_of_rmsnorm);
    tcase_add_test(tests, scores_variants_agree_and_are_near_double);
    tcase_add_test(tests, weighted_sum_variants_agree_and_are_near_double);
    tcase_add_test(tests, kernels_leave_the_callers_denormals_on);
    suite_add_tcase(suite, tests);
    return check_main(suite);
}
