/* ctest: labels=quick libs=coordinator timeout=60 */
/* When a step is overdue and when a rank is taken to hang. Times are numbers; nothing waits. */
#include "coordinator/target/step_watch.h"
#include "tests/support/check_util.h"

enum { MS = 1000, S = 1000000, MOST_S = 120, LOOK = 20 * MS };

static const struct target_description group = {.vocab_size = 100000, .n_slices = 8};
static struct step_watch watch;
static int64_t now_us;

static void setup(void)
{
    now_us = 5 * (int64_t)S;
    step_watch_init(&watch, (int64_t)MOST_S * S);
}

static void begin(int n_tokens, int position)
{
    static struct step_lane lane;
    static const struct step_row row;
    lane =
        (struct step_lane){.n_tokens = n_tokens, .n_rows = 1, .rows = &row, .position = position};
    const struct step step = {.n_lanes = 1, .lanes = &lane};
    step_watch_begin(&watch, &step, &group, now_us);
}

/* Looks every 20 ms for so long. */
static void wait_for(int64_t us)
{
    for (int64_t end_us = now_us + us; now_us < end_us;) {
        now_us += LOOK;
        step_watch_look(&watch, now_us);
    }
}

static void take(int times, int n_tokens, int position, int64_t took_us)
{
    for (int i = 0; i < times; i++) {
        begin(n_tokens, position);
        wait_for(took_us);
        step_watch_end(&watch, took_us);
    }
}

START_TEST(first_steps_are_waited_for)
{
    begin(5, 0);
    wait_for(100 * (int64_t)S);
    ck_assert(!step_watch_is_overdue(&watch));
    ck_assert(!step_watch_is_over(&watch));
}
END_TEST

START_TEST(a_step_is_overdue_2_s_after_it_was_expected)
{
    take(STEP_LIMIT_STEPS, 5, 0, 500 * MS);
    begin(5, 0);
    wait_for(2480 * MS);
    ck_assert(!step_watch_is_overdue(&watch));
    wait_for(40 * MS);
    ck_assert(step_watch_is_overdue(&watch));
    ck_assert(!step_watch_is_over(&watch));
}
END_TEST

START_TEST(a_rank_hangs_after_5_s_where_steps_are_short)
{
    take(STEP_LIMIT_STEPS, 5, 0, 5 * MS);
    begin(5, 0);
    wait_for(4980 * MS);
    ck_assert(!step_watch_is_over(&watch));
    wait_for(60 * MS);
    ck_assert(step_watch_is_over(&watch));
}
END_TEST

START_TEST(a_rank_hangs_after_20_times_what_long_steps_take)
{
    take(STEP_LIMIT_STEPS, 5, 0, 500 * MS);
    begin(5, 0);
    wait_for(9900 * MS);
    ck_assert(!step_watch_is_over(&watch));
    wait_for(200 * MS);
    ck_assert(step_watch_is_over(&watch));
}
END_TEST

/* 64 times the tokens may take 64 times as long, and what they attend to counts, too. */
START_TEST(a_long_prompt_has_more_time)
{
    take(STEP_LIMIT_STEPS, 1, 0, 500 * MS);
    begin(127, 0);
    wait_for(30 * (int64_t)S);
    ck_assert(!step_watch_is_overdue(&watch));
    wait_for(80 * (int64_t)S);
    ck_assert(!step_watch_is_over(&watch));
}
END_TEST

/* A pause of the machine that this process shares with the ranks: nobody looks meanwhile. */
START_TEST(time_without_looks_does_not_count)
{
    take(STEP_LIMIT_STEPS, 5, 0, 5 * MS);
    begin(5, 0);
    now_us += 600 * (int64_t)S;
    step_watch_look(&watch, now_us);
    ck_assert(!step_watch_is_overdue(&watch));
    wait_for(1500 * MS);
    ck_assert(!step_watch_is_overdue(&watch));
}
END_TEST

/* A rank that was stopped for 4 s and goes on leaves the limit as it was. */
START_TEST(one_pause_does_not_lengthen_the_limit)
{
    take(STEP_LIMIT_STEPS, 5, 0, 5 * MS);
    take(1, 5, 0, 4 * (int64_t)S);
    begin(5, 0);
    wait_for(6100 * MS);
    ck_assert(step_watch_is_over(&watch));
}
END_TEST

START_TEST(steps_that_become_slow_for_good_are_followed)
{
    take(STEP_LIMIT_STEPS, 5, 0, 5 * MS);
    take(12, 5, 0, 4 * (int64_t)S);
    begin(5, 0);
    wait_for(5 * (int64_t)S);
    ck_assert(!step_watch_is_overdue(&watch));
    wait_for(50 * (int64_t)S);
    ck_assert(!step_watch_is_over(&watch));
}
END_TEST

/* Further values of a row are not computed again, but a rank can hang then, too. */
START_TEST(further_questions_are_watched)
{
    take(STEP_LIMIT_STEPS, 5, 0, 5 * MS);
    static const struct step_row row;
    struct step_more more = {.n_rows = 1, .rows = &row};
    const struct step step = {.n_more = 1, .more = &more};
    step_watch_begin(&watch, &step, &group, now_us);
    wait_for(5100 * MS);
    ck_assert(step_watch_is_over(&watch));
}
END_TEST

/* 20 rows of 400 kB may come over a slow link; what steps took before was without them. */
START_TEST(long_answers_have_time_on_their_way)
{
    enum { N = 20 };
    static struct step_row rows[N];
    for (int i = 0; i < N; i++) {
        rows[i].wish.full = true;
    }
    struct step_lane lane = {.n_tokens = 5, .n_rows = N, .rows = rows};
    const struct step step = {.n_lanes = 1, .lanes = &lane};
    take(STEP_LIMIT_STEPS, 25, 0, 5 * MS);
    step_watch_begin(&watch, &step, &group, now_us);
    wait_for(9900 * MS);
    ck_assert(!step_watch_is_overdue(&watch));
    wait_for(3000 * MS);
    ck_assert(step_watch_is_overdue(&watch) && !step_watch_is_over(&watch));
    wait_for(200 * MS);
    ck_assert(step_watch_is_over(&watch));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("step_watch");
    TCase *cases = tcase_create("step_watch");
    tcase_add_checked_fixture(cases, setup, NULL);
    tcase_add_test(cases, first_steps_are_waited_for);
    tcase_add_test(cases, a_step_is_overdue_2_s_after_it_was_expected);
    tcase_add_test(cases, a_rank_hangs_after_5_s_where_steps_are_short);
    tcase_add_test(cases, a_rank_hangs_after_20_times_what_long_steps_take);
    tcase_add_test(cases, a_long_prompt_has_more_time);
    tcase_add_test(cases, time_without_looks_does_not_count);
    tcase_add_test(cases, one_pause_does_not_lengthen_the_limit);
    tcase_add_test(cases, steps_that_become_slow_for_good_are_followed);
    tcase_add_test(cases, further_questions_are_watched);
    tcase_add_test(cases, long_answers_have_time_on_their_way);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
