/* ctest: labels=quick libs=proto timeout=60 */
/* How long a step may take follows what steps have taken. Times are numbers here; nothing waits. */
#include "proto/step_limit.h"
#include "tests/support/check_util.h"

enum { MS = 1000, S = 1000000, MOST_S = 120 };

static struct step_limit limit;

static void setup(void)
{
    step_limit_init(&limit, (int64_t)MOST_S * S);
}

static int64_t limit_of(int64_t n, int64_t attended)
{
    const struct step_work work = {n, attended};
    return step_limit_us(&limit, &work);
}

static void observe(int times, int64_t n, int64_t attended, int64_t took_us)
{
    const struct step_work work = {n, attended};
    for (int i = 0; i < times; i++) {
        step_limit_observe(&limit, &work, took_us);
    }
}

START_TEST(first_steps_have_the_whole_time)
{
    ck_assert_int_eq(limit_of(2, 10), (int64_t)MOST_S * S);
    observe(STEP_LIMIT_STEPS - 1, 2, 10, 30 * MS);
    ck_assert_int_eq(limit_of(2, 10), (int64_t)MOST_S * S);
    observe(1, 2, 10, 30 * MS);
    ck_assert_int_eq(limit_of(2, 10), STEP_LIMIT_FLOOR_US);
}
END_TEST

START_TEST(fast_steps_end_at_the_floor_and_slow_ones_at_a_multiple)
{
    observe(10, 2, 10, 1 * MS);
    ck_assert_int_eq(limit_of(2, 10), STEP_LIMIT_FLOOR_US);
    observe(10, 2, 10, 400 * MS);
    ck_assert_int_eq(limit_of(2, 10), 400 * MS * STEP_LIMIT_FACTOR);
    observe(10, 2, 10, 7 * S);
    ck_assert_int_eq(limit_of(2, 10), (int64_t)MOST_S * S);
}
END_TEST

/* A large model on a slow CPU: the prompt's steps say nothing for certain about a single token but
 * that it takes no longer. */
START_TEST(smaller_steps_are_judged_by_larger_ones)
{
    observe(8, 513, 512 * 256, 5 * S);
    ck_assert_int_eq(limit_of(2, 520), 100 * (int64_t)S);
    observe(8, 2, 520, 300 * MS);
    ck_assert_int_eq(limit_of(2, 520), 6 * S);
}
END_TEST

START_TEST(larger_steps_are_judged_in_proportion_to_smaller_ones)
{
    observe(8, 2, 1 << 20, 500 * MS);
    ck_assert_int_eq(limit_of(9, 100), 40 * (int64_t)S);
    ck_assert_int_eq(limit_of(600, 100), (int64_t)MOST_S * S);
}
END_TEST

/* Texts grow, and a prefix that is found again makes the first step of a request long. */
START_TEST(long_texts_may_take_longer_in_proportion)
{
    observe(8, 2, 1000, 400 * MS);
    ck_assert_int_eq(limit_of(2, 1000), 8 * S);
    ck_assert_int_eq(limit_of(2, 10), 8 * S);
    ck_assert_int_eq(limit_of(2, 4000), 32 * S);
    ck_assert_int_eq(limit_of(2, 1000000), (int64_t)MOST_S * S);
}
END_TEST

START_TEST(outlier_is_forgotten)
{
    observe(10, 2, 100, 30 * MS);
    observe(1, 2, 100, 3 * S);
    ck_assert_int_eq(limit_of(2, 100), 60 * S);
    observe(300, 2, 100, 30 * MS);
    ck_assert_int_eq(limit_of(2, 100), STEP_LIMIT_FLOOR_US);
}
END_TEST

START_TEST(the_limit_never_exceeds_the_option)
{
    step_limit_init(&limit, 2 * S);
    ck_assert_int_eq(limit_of(2, 100), 2 * S);
    observe(10, 2, 100, 30 * MS);
    ck_assert_int_eq(limit_of(2, 100), 2 * S);
}
END_TEST

START_TEST(work_counts_tokens_rows_and_positions)
{
    const struct step_lane lanes[] = {{.position = 100, .n_tokens = 5, .n_rows = 5},
                                      {.position = 0, .n_tokens = 512, .n_rows = 0}};
    const struct step step = {.n_lanes = 2, .lanes = lanes}, more = {.n_more = 1};
    struct step_work work = step_work_of(&step);
    ck_assert_int_eq(work.n, 522);
    ck_assert_int_eq(work.attended, 5 * 105 + 512 * 512);
    work = step_work_of(&more);
    ck_assert_int_eq(work.n, 0);
    observe(100, 0, 0, 1);
    ck_assert_int_eq(limit_of(2, 1), (int64_t)MOST_S * S);
    observe(100, 2, 1, 1);
    ck_assert_int_eq(limit_of(0, 0), (int64_t)MOST_S * S);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("step_limit");
    TCase *cases = tcase_create("step_limit");
    tcase_add_checked_fixture(cases, setup, NULL);
    tcase_add_test(cases, first_steps_have_the_whole_time);
    tcase_add_test(cases, fast_steps_end_at_the_floor_and_slow_ones_at_a_multiple);
    tcase_add_test(cases, smaller_steps_are_judged_by_larger_ones);
    tcase_add_test(cases, larger_steps_are_judged_in_proportion_to_smaller_ones);
    tcase_add_test(cases, long_texts_may_take_longer_in_proportion);
    tcase_add_test(cases, outlier_is_forgotten);
    tcase_add_test(cases, the_limit_never_exceeds_the_option);
    tcase_add_test(cases, work_counts_tokens_rows_and_positions);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
