/* ctest: labels=quick libs=coordinator timeout=60 */
/* Measurements of a draft, one at a time: which are made, what the planner learns of them, and how
 * long a request may have to wait for one. The target's begin after them, and find no group or no
 * blocks. */
#include <string.h>

#include "base/clock.h"
#include "coordinator/engine/calibration.h"
#include "tests/support/check_util.h"

enum { N_LANES = 20, N_BLOCKS = 64, MOST = 200, PASS_US = 70, SLOW_LANES = 4, SLOW_US = 150000 };

static struct {
    struct drafter base;
    int lanes[MOST]; /* of each measurement */
    int n;
    bool is_slow;
    int64_t sleep_us; /* each time */
    int fails_from;   /* measurements after which every pass fails; 0: none does */
} fake;

static struct block_pool pool;
static struct planner planner;
static struct target *target;
static struct calibration *calibration;
static struct error err;

static void fake_propose(struct drafter *drafter, struct draft_lane *lanes, int n,
                         struct arena *arena, struct draft_cost *cost)
{
    (void)arena;
    ck_assert_int_lt(fake.n, MOST);
    fake.lanes[fake.n++] = n;
    int k = drafter->is_parallel ? 1 : 2;
    ck_assert_int_eq(lanes[0].k, k);
    *cost = (struct draft_cost){.n_passes = k, .pass_us = {PASS_US}};
    cost->pass_us[k - 1] = PASS_US * n;
    if (fake.fails_from > 0 && fake.n > fake.fails_from) cost->n_passes = 1;
    if (fake.is_slow && n == SLOW_LANES) clock_sleep_us(SLOW_US);
    clock_sleep_us(fake.sleep_us);
}

static void fake_forget(struct drafter *drafter, int slot)
{
    (void)drafter;
    ck_assert(slot >= 0 && slot < N_LANES);
}

static const struct model_draft_ops ops = {.propose = fake_propose, .forget = fake_forget};
static const struct drafter_row row = {.name = "fake", .model = &ops};

static void open_with(int64_t budget_us)
{
    static struct drafters drafters;
    drafters = (struct drafters){.n_models = 1, .models = {&fake.base}};
    const struct calibration_options options = {.target = target,
                                                .drafters = &drafters,
                                                .pool = &pool,
                                                .planner = &planner,
                                                .n_lanes = N_LANES,
                                                .budget_us = budget_us};
    CHECK_OK(calibration_open(&calibration, &options, &err));
}

static void setup(void)
{
    const struct target_options options = {.step_timeout_s = 1};
    memset(&fake, 0, sizeof fake);
    fake.base.row = &row;
    planner = (struct planner){0};
    CHECK_OK(block_pool_open(&pool, N_BLOCKS, 16, &err));
    CHECK_OK(target_open(&target, &options, &err));
}

static void teardown(void)
{
    calibration_close(calibration);
    calibration = NULL;
    target_close(target);
    block_pool_close(&pool);
}

static int most_lanes(void)
{
    int most = 0;
    for (int i = 0; i < fake.n; i++) {
        if (fake.lanes[i] > most) most = fake.lanes[i];
    }
    return most;
}

/* Makes the draft's measurements; the target's first one fails, because there is no group. */
static void measure_draft(void)
{
    bool is_done = false;
    int rc = 0;
    while (!rc) {
        int n = fake.n;
        rc = calibration_next(calibration, &is_done, &err);
        ck_assert(!is_done);
        ck_assert_int_eq(fake.n, n + (rc ? 0 : 1)); /* one at a time */
    }
    ck_assert_int_eq(rc, ERR_UNAVAILABLE);
}

START_TEST(every_size_is_measured_once_before_one_is_again)
{
    static const int first[] = {1, 1, 1, 2, 4, 8, 16};
    open_with(60000000);
    measure_draft();
    ck_assert_int_gt(fake.n, (int)(sizeof first / sizeof *first));
    ck_assert_mem_eq(fake.lanes, first, sizeof first);
    ck_assert_int_eq(most_lanes(), 16); /* 32 are more than the lanes */
}
END_TEST

/* Takes all blocks but some. */
static void take_blocks(int n_left)
{
    for (int last = -1; pool.n_free > n_left;) {
        last = block_pool_take(&pool, last);
    }
}

/* Makes all measurements of a draft and none of a target, for which there are no blocks. */
static void measure_all(void)
{
    bool is_done = false;
    take_blocks(0);
    while (!is_done) {
        CHECK_OK(calibration_next(calibration, &is_done, &err));
    }
}

static void check_draft_times(void)
{
    struct planner_tables tables;
    planner_tables_get(&planner, &tables);
    const struct planner_point *points = tables.draft[0];
    for (int lanes = 1; lanes <= 16; lanes *= 2, points++) {
        ck_assert_double_eq_tol(points->rows, lanes, 0.01);
        ck_assert_double_eq_tol(points->us, PASS_US * lanes, 0.01 * PASS_US * lanes);
    }
}

START_TEST(planner_is_taught_when_all_is_measured)
{
    open_with(60000000);
    measure_draft();
    ck_assert_int_eq(planner.models[0].draft.largest, 0); /* the target is still to come */
    measure_all();
    check_draft_times();
}
END_TEST

/* A draft that makes all guesses in one pass is timed by that. */
START_TEST(only_pass_of_a_parallel_draft_is_timed)
{
    fake.base.is_parallel = true;
    open_with(60000000);
    measure_all();
    check_draft_times();
}
END_TEST

START_TEST(measurement_that_fails_takes_no_time_away)
{
    open_with(60000000);
    fake.fails_from = 7; /* in the second try */
    measure_all();
    ck_assert_int_gt(fake.n, fake.fails_from);
    check_draft_times();
}
END_TEST

/* The next size is expected to take twice as long. */
START_TEST(size_that_would_let_a_request_wait_longer_is_left_out)
{
    fake.is_slow = true;
    open_with(60000000);
    measure_draft();
    ck_assert_int_eq(most_lanes(), SLOW_LANES);
}
END_TEST

START_TEST(measurements_end_when_their_time_is_over)
{
    fake.sleep_us = 1000;
    open_with(1);
    measure_draft();
    ck_assert_int_le(fake.n, 3);
}
END_TEST

/* A request that came between has left its prefix there. */
START_TEST(draft_is_measured_without_free_blocks_of_the_target)
{
    open_with(60000000);
    take_blocks(0);
    measure_all();
    ck_assert_int_eq(most_lanes(), 16);
}
END_TEST

/* Not even the first ones, which are made before every other. */
START_TEST(target_is_not_measured_in_blocks_that_are_taken)
{
    open_with(60000000);
    measure_all();
    ck_assert_int_eq(pool.n_free, 0);
    ck_assert_int_eq(planner.step.largest, 0);
    ck_assert(!planner.is_calibrated);
    ck_assert(!calibration_is_whole(calibration));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("calibration");
    TCase *tests = tcase_create("calibration");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, every_size_is_measured_once_before_one_is_again);
    tcase_add_test(tests, planner_is_taught_when_all_is_measured);
    tcase_add_test(tests, size_that_would_let_a_request_wait_longer_is_left_out);
    tcase_add_test(tests, measurements_end_when_their_time_is_over);
    tcase_add_test(tests, measurement_that_fails_takes_no_time_away);
    tcase_add_test(tests, only_pass_of_a_parallel_draft_is_timed);
    tcase_add_test(tests, draft_is_measured_without_free_blocks_of_the_target);
    tcase_add_test(tests, target_is_not_measured_in_blocks_that_are_taken);
    suite_add_tcase(suite, tests);
    return check_main(suite);
}
