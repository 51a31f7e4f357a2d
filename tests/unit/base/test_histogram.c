/* ctest: labels=quick libs=base timeout=30 */
/* The histogram: its resolution, its smallest and largest values, and adding two of them. */
#include "base/metrics/histogram.h"

#include <inttypes.h>
#include <math.h>
#include <stdint.h>

#include "tests/support/check_util.h"

START_TEST(histogram_quantiles_are_within_three_percent)
{
    static const double ratios[] = {0.01, 0.25, 0.5, 0.9, 0.99, 0.999};
    static struct histogram hist;
    enum { N = 100000 };
    for (uint64_t i = 0; i < N; i++)
        histogram_add(&hist, i * 7 + 1);
    for (size_t i = 0; i < sizeof ratios / sizeof ratios[0]; i++) {
        double wanted = ratios[i] * N * 7, got = (double)histogram_quantile_us(&hist, ratios[i]);
        ck_assert_msg(fabs(got / wanted - 1) < 0.032, "%f: %f, wanted %f", ratios[i], got, wanted);
    }
    ck_assert_uint_eq(hist.n, N);
    ck_assert_uint_eq(hist.sum_us, (uint64_t)N * (N - 1) / 2 * 7 + N);
}
END_TEST

START_TEST(histogram_small_values_are_exact_and_the_ends_hold)
{
    static struct histogram hist;
    ck_assert_uint_eq(histogram_quantile_us(&hist, 0.5), 0);
    for (uint64_t value = 1; value < 64; value++) {
        static struct histogram one;
        memset(&one, 0, sizeof one);
        histogram_add(&one, value);
        ck_assert_uint_eq(histogram_quantile_us(&one, 0.5), value);
    }
    histogram_add(&hist, 0);
    ck_assert_uint_eq(histogram_quantile_us(&hist, 0), 1);
    histogram_add(&hist, UINT64_MAX);
    ck_assert_uint_ge(histogram_quantile_us(&hist, 1), (uint64_t)1 << 39);
    ck_assert_uint_eq(histogram_quantile_us(&hist, -5), 1);
    ck_assert_uint_ge(histogram_quantile_us(&hist, 5), (uint64_t)1 << 39);
}
END_TEST

START_TEST(histogram_every_value_falls_near_itself)
{
    for (uint64_t value = 1; value < (uint64_t)1 << 40; value += value / 97 + 1) {
        static struct histogram one;
        memset(&one, 0, sizeof one);
        histogram_add(&one, value);
        double ratio = (double)histogram_quantile_us(&one, 0.5) / (double)value;
        if (fabs(ratio - 1) > 0.0162) ck_abort_msg("%" PRIu64 " became %f of itself", value, ratio);
    }
}
END_TEST

START_TEST(histogram_merge_is_adding_all)
{
    static struct histogram a, b, both;
    for (uint64_t i = 0; i < 1000; i++) {
        histogram_add(i % 3 ? &a : &b, i * i);
        histogram_add(&both, i * i);
    }
    histogram_merge(&a, &b);
    ck_assert_int_eq(memcmp(&a, &both, sizeof a), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("histogram");
    TCase *cases = tcase_create("histogram");
    tcase_add_test(cases, histogram_quantiles_are_within_three_percent);
    tcase_add_test(cases, histogram_small_values_are_exact_and_the_ends_hold);
    tcase_add_test(cases, histogram_every_value_falls_near_itself);
    tcase_add_test(cases, histogram_merge_is_adding_all);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
