/* ctest: labels=quick libs=bench timeout=60 */
/* The limits that benchmarks compare with: which of them applies, the share of it, and the loops
 * that measure them. Nothing here depends on a time. */
#include <string.h>

#include "bench/limits.h"
#include "model/backend/cpu/kernels/kernels.h"
#include "tests/support/check_util.h"

static bool is_near(double a, double b)
{
    return a - b < 1e-9 * b && b - a < 1e-9 * b;
}

START_TEST(limit_is_the_longer_of_both_times)
{
    const struct bench_cost cost = {.gb = 2, .gflop = 30};
    enum bench_bound bound;
    ck_assert(is_near(bench_limit_seconds(cost, 20, 600, &bound), 0.1));
    ck_assert_str_eq(bench_bound_name(bound), "reading");
    ck_assert(is_near(bench_limit_seconds(cost, 80, 600, &bound), 0.05));
    ck_assert_str_eq(bench_bound_name(bound), "multiplying");
}
END_TEST

START_TEST(what_is_in_the_cache_is_bound_by_multiplying)
{
    const struct bench_cost cost = {.gflop = 30};
    const double units[] = {1, 2, 3}, gflop[] = {60, 120, 90};
    struct bench_share share = bench_share(cost, units, NULL, gflop, 3);
    ck_assert_int_eq(share.bound, BOUND_MULTIPLYING);
    ck_assert(is_near(share.ratio.low, 0.5));
    ck_assert(is_near(share.ratio.median, 0.5));
    ck_assert(is_near(share.ratio.high, 1));
}
END_TEST

/* A machine that is twice as fast in some rounds gives the same share in all of them. */
START_TEST(rounds_are_compared_one_by_one)
{
    const struct bench_cost cost = {.gb = 1, .gflop = 1};
    double units[20], gb[20], gflop[20];
    for (int i = 0; i < 20; i++) {
        double speed = i % 3 ? 1 : 2;
        units[i] = 8 * speed;
        gb[i] = 10 * speed;
        gflop[i] = 100 * speed;
    }
    struct bench_share share = bench_share(cost, units, gb, gflop, 20);
    ck_assert_int_eq(share.bound, BOUND_READING);
    ck_assert(is_near(share.ratio.low, 0.8));
    ck_assert(is_near(share.ratio.high, 0.8));
}
END_TEST

START_TEST(the_bound_is_that_of_most_rounds)
{
    const struct bench_cost cost = {.gb = 1, .gflop = 1};
    const double units[] = {1, 1, 1}, gb[] = {1, 3, 3}, gflop[] = {2, 2, 2};
    ck_assert_int_eq(bench_share(cost, units, gb, gflop, 3).bound, BOUND_MULTIPLYING);
    ck_assert_int_eq(bench_share(cost, units, gb, gflop, 1).bound, BOUND_READING);
}
END_TEST

START_TEST(a_step_multiplies_each_weight_twice_for_each_row)
{
    const struct model_config cfg = {.n_layers = 3,
                                     .dim = 100,
                                     .n_heads = 8,
                                     .n_kv_heads = 2,
                                     .head_dim = 10,
                                     .ffn_dim = 1000,
                                     .vocab_size = 5000};
    double layer = 100 * (80 + 2 * 20) + 80 * 100 + 3 * 100 * 1000, head = 100 * 5000;
    struct bench_cost cost = bench_step_cost(&cfg, 7000, 256, 1);
    ck_assert(is_near(cost.gb, 7e-6));
    ck_assert(is_near(cost.gflop, 2e-9 * (256 * 3 * layer + head)));
    cost = bench_step_cost(&cfg, 7000, 6, 6);
    ck_assert(is_near(cost.gflop, 2e-9 * 6 * (3 * layer + head)));
}
END_TEST

START_TEST(rounds_give_each_arm_its_own_rates)
{
    struct bench_limits limits;
    struct error err;
    double rates[2][BENCH_PAIRS_MAX] = {{0}};
    const int64_t slices_us[] = {0, 0};
    CHECK_OK(bench_limits_open(&limits, 2, "plain", WEIGHTS_BF16, &err));
    CHECK_OK(bench_limits_fill(&limits, 1 << 20, &err));
    const struct timed_arm arms[] = {{bench_limits_read, &limits},
                                     {bench_limits_multiply, &limits}};
    bench_rounds(arms, slices_us, 2, 3, rates);
    for (int i = 0; i < 3; i++) {
        ck_assert(rates[0][i] > 0);
        ck_assert(rates[1][i] > 0);
    }
    ck_assert(rates[0][3] == 0);
    bench_limits_close(&limits);
}
END_TEST

START_TEST(portions_are_taken_in_turn)
{
    struct bench_limits limits;
    struct error err;
    const size_t bytes = ((size_t)48 << 20) + 1000;
    CHECK_OK(bench_limits_open(&limits, 1, "plain", WEIGHTS_BF16, &err));
    CHECK_ERR(bench_limits_fill(&limits, 255, &err), ERR_ARGUMENT, "255 bytes");
    CHECK_OK(bench_limits_fill(&limits, bytes, &err));
    ck_assert_int_eq(limits.n_portions, 3);
    for (int i = 0; i < 7; i++) {
        ck_assert_int_eq(bench_limits_next(&limits), i % 3);
    }
    ck_assert(is_near(bench_limits_read(&limits), 1e-9 * (16 << 20)));
    bench_limits_close(&limits);
}
END_TEST

START_TEST(every_variant_of_this_machine_has_a_loop_for_every_form)
{
    static const char *const names[] = {"auto", "avx512", "avx512fma", "avxvnni",
                                        "avx2", "neon",   "plain"};
    static const enum weight_form forms[] = {WEIGHTS_BF16, WEIGHTS_INT8, WEIGHTS_INT4};
    const struct bench_peak *peak;
    const struct kernels *kernels;
    struct error err;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (kernels_find(&kernels, names[i], &err)) continue;
        for (size_t j = 0; j < sizeof forms / sizeof *forms; j++) {
            CHECK_OK(bench_peak_find(&peak, kernels->name, forms[j], &err));
            ck_assert_str_eq(peak->kernels, kernels->name);
            ck_assert_int_eq(peak->form, forms[j]);
            ck_assert_int_gt(peak->step_operations, 0);
            peak->run(3);
        }
    }
    CHECK_ERR(bench_peak_find(&peak, "plain", WEIGHTS_FP8, &err), ERR_UNSUPPORTED,
              "plain with fp8");
    CHECK_ERR(bench_peak_find(&peak, "mmx", WEIGHTS_BF16, &err), ERR_UNSUPPORTED, "kernels mmx");
}
END_TEST

START_TEST(cold_memory_has_twice_the_cache_within_bounds)
{
    size_t cache = bench_cache_bytes(), cold = bench_cold_bytes(1 << 20);
    ck_assert_uint_le(cold, bench_cold_bytes((size_t)1 << 40));
    ck_assert(cold == 2 * cache || cold == 1 << 20 || cold == bench_cold_bytes((size_t)1 << 60));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bench_limits");
    TCase *tcase = tcase_create("bench_limits");
    tcase_add_test(tcase, limit_is_the_longer_of_both_times);
    tcase_add_test(tcase, what_is_in_the_cache_is_bound_by_multiplying);
    tcase_add_test(tcase, rounds_are_compared_one_by_one);
    tcase_add_test(tcase, the_bound_is_that_of_most_rounds);
    tcase_add_test(tcase, a_step_multiplies_each_weight_twice_for_each_row);
    tcase_add_test(tcase, rounds_give_each_arm_its_own_rates);
    tcase_add_test(tcase, portions_are_taken_in_turn);
    tcase_add_test(tcase, every_variant_of_this_machine_has_a_loop_for_every_form);
    tcase_add_test(tcase, cold_memory_has_twice_the_cache_within_bounds);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
