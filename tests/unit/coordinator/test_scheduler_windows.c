/* ctest: labels=quick libs=coordinator timeout=60 */
/* Windows of lookahead decoding in plans: they have as many rows as cost next to nothing by the
 * times of the step, never more, in equal shares; and which lanes have none. What holds for every
 * plan is checked by tests/support/scheduler_world.h with each of them. */
#include <math.h>

#include "base/least.h"
#include "coordinator/schedule/parts.h"
#include "speculation/planner/times.h"
#include "tests/support/scheduler_plans.h"

enum { WINDOW = 8 /* tokens at most */, STEP_US = 10000 };

static const struct world_options no_draft = {512, 256, 1024, 0, 64};

/* n texts that decode and may have trees. Times are taught after this. */
static void begin_texts(const struct world_options *options, const char *lookup, int n)
{
    world_open_with(&w, options, lookup);
    begin_decoding(n, STRATEGY_PLANNED, DRAFT_MAX);
    for (int i = 0; i < n; i++) {
        w.active[i]->siblings_max = SIBLINGS_MAX;
    }
}

static int count_windows(void)
{
    int n = 0;
    for (int i = 0; i < w.plan.n_lanes; i++) {
        n += plan_n_window(&w.plan.lanes[i]);
    }
    return n;
}

/* Plans anew, as if the plan before had not been. */
static int plan_windows(void)
{
    world_release_tails(&w);
    plan_now();
    return count_windows();
}

/* Rows of the planned step besides windows. */
static int count_others(void)
{
    int n = 0;
    for (int i = 0; i < w.plan.n_lanes; i++) {
        const struct lane_plan *lane = &w.plan.lanes[i];
        n += lane->n_tokens + lane->tree.n - plan_n_window(lane);
    }
    return n;
}

/* Each of 30 lanes could have a window, but the step has no room for more rows than 226. */
static const struct {
    int row_us, n_lanes, n_windows;
} costs[] = {{0, 1, 8},  {0, 4, 32}, {0, 30, 226}, {10, 1, 8},  {10, 4, 10}, {10, 16, 10},
             {50, 4, 2}, {99, 1, 1}, {101, 1, 1},  {102, 1, 0}, {150, 4, 0}, {1000, 4, 0}};

START_TEST(as_many_rows_are_checked_as_cost_next_to_nothing)
{
    int n = costs[_i].n_lanes, lowest = WINDOW, highest = 0;
    begin_texts(&no_draft, "lookahead", n);
    teach_steps(STEP_US, costs[_i].row_us);
    int n_windows = plan_windows();
    ck_assert(w.plan.n_lanes == n && count_others() == n);
    ck_assert_int_eq(n_windows, costs[_i].n_windows);
    for (int i = 0; i < n; i++) {
        const struct lane_plan *lane = &w.plan.lanes[i];
        ck_assert(lane->window ==
                  (plan_n_window(lane) > 0 ? drafters_extra_rows(&w.drafters) : NULL));
        lowest = least(lowest, plan_n_window(lane));
        highest = most(highest, plan_n_window(lane));
    }
    ck_assert_int_le(highest, least(lowest + 1, WINDOW));
    world_close(&w);
}
END_TEST

/* Steps that cost the same up to some number of rows and rise then, with a draft and without one:
 * the step is at most a hundredth longer, and one row more would be too long. */
START_TEST(a_step_becomes_hardly_longer)
{
    for (int n_lanes = 1; n_lanes <= 12; n_lanes += 3) {
        for (int flat = 4; flat <= 128; flat *= 2) {
            int n_guesses = 0;
            begin_texts(_i ? &large : &no_draft, "lookahead", n_lanes);
            forget_times();
            for (int rows = 1; rows <= 512; rows *= 2) {
                planner_calibrate_step(&w.planner, rows, STEP_US * fmax(1, (double)rows / flat));
                planner_calibrate_draft(&w.planner, 0, rows, 100);
            }
            int n_windows = plan_windows(), n_others = count_others();
            for (int i = 0; i < n_lanes; i++) {
                n_guesses += lane_plan_k(&w.plan.lanes[i]);
            }
            double limit_us = 1.01 * planner_curve_at(&w.planner.step, n_others);
            double us = planner_curve_at(&w.planner.step, n_others + n_windows);
            double more_us = planner_curve_at(&w.planner.step, n_others + n_windows + 1);
            ck_assert_msg(us <= limit_us, "%d lanes, flat up to %d: %d and %d rows, %.0f us",
                          n_lanes, flat, n_others, n_windows, us);
            ck_assert_msg(more_us > limit_us || n_windows == WINDOW * n_lanes,
                          "%d lanes, flat up to %d: %d and %d rows, one more: %.0f us", n_lanes,
                          flat, n_others, n_windows, more_us);
            ck_assert((n_guesses > 0) == (_i && n_lanes < flat));
            world_close(&w);
        }
    }
}
END_TEST

/* Both the tokens and the rows that a step may have. */
START_TEST(windows_have_what_others_leave_of_the_step)
{
    static const struct world_options few_tokens = {20, 256, 1024, 0, 64},
                                      few_rows = {512, 20, 1024, 0, 64};
    for (int i = 0; i < 2; i++) {
        begin_texts(i ? &few_rows : &few_tokens, "lookahead", 4);
        teach_steps(STEP_US, 0);
        ck_assert_int_eq(plan_windows(), 16);
        for (int l = 0; l < 4; l++) {
            ck_assert_int_eq(plan_n_window(&w.plan.lanes[l]), 4);
        }
        world_close(&w);
    }
}
END_TEST

START_TEST(no_window_is_planned_where_no_times_are_known)
{
    begin_texts(&no_draft, "lookahead", 4);
    forget_times();
    ck_assert_int_eq(plan_windows(), 0);
    world_close(&w);
}
END_TEST

START_TEST(there_are_no_windows_where_nobody_asks_for_them)
{
    begin_texts(&no_draft, "session", 2);
    teach_steps(STEP_US, 0);
    ck_assert_int_eq(plan_windows(), 0);
    world_close(&w);
    begin_texts(&no_draft, "session,lookahead", 2);
    teach_steps(STEP_US, 0);
    ck_assert_int_gt(plan_windows(), 0);
    world_close(&w);
}
END_TEST

/* A text whose guesses may be no trees, one with a K of its own, one that makes no guesses, one
 * that reads its prompt, and one that has room for two guesses only. */
START_TEST(some_lanes_have_no_windows)
{
    begin_texts(&no_draft, "lookahead", 2);
    struct sequence *plain = w.active[0], *usual = w.active[1];
    struct sequence *own = add(8, 400, STRATEGY_FIXED, 4);
    struct sequence *none = add(8, 400, STRATEGY_PLANNED, 0);
    struct sequence *ending = add(8, 4, STRATEGY_PLANNED, DRAFT_MAX);
    world_round(&w, NONE_STAYS);
    ck_assert(own->n_tokens == 9 && none->n_tokens == 9 && ending->n_tokens == 9);
    own->siblings_max = none->siblings_max = ending->siblings_max = SIBLINGS_MAX;
    plain->siblings_max = 0;
    struct sequence *reading = add(8, 400, STRATEGY_PLANNED, DRAFT_MAX);
    reading->siblings_max = SIBLINGS_MAX;
    teach_steps(STEP_US, 0);
    ck_assert_int_eq(plan_windows(), WINDOW + 2);
    ck_assert_int_eq(w.plan.n_lanes, 6);
    ck_assert_int_eq(plan_n_window(world_lane(&w, usual)), WINDOW);
    ck_assert_int_eq(plan_n_window(world_lane(&w, ending)), 2);
    world_close(&w);
}
END_TEST

/* A branch has the place of a window, and what a lane gets the next ones do not have. */
START_TEST(a_lane_with_a_branch_has_no_window)
{
    begin_texts(&no_draft, "lookahead", 3);
    teach_steps(STEP_US, 0);
    plan_windows();
    struct lane_plan *lanes[] = {&w.plan.lanes[0], &w.plan.lanes[1], &w.plan.lanes[2]};
    struct planning planning = {
        .s = &w.scheduler, .plan = &w.plan, .n_tokens = w.target.max_step_tokens - 3, .n_rows = 9};
    for (int i = 0; i < 3; i++) {
        guess_tree_drop(&lanes[i]->tree, GUESS_BRANCH);
        lanes[i]->window = NULL;
    }
    guess_tree_plan(&lanes[1]->tree, 1, GUESS_BRANCH);
    planning_open_windows(&planning, lanes, 3);
    ck_assert(plan_n_window(lanes[0]) == 4 && plan_n_window(lanes[1]) == 0 &&
              plan_n_window(lanes[2]) == 5);
    ck_assert_int_eq(planning.n_tokens, w.target.max_step_tokens - 3 - 9);
    ck_assert_int_eq(planning.n_rows, 0);
    world_close(&w);
}
END_TEST

/* KV that a window lacks costs nobody a place. */
START_TEST(a_window_gives_way_where_there_is_no_kv)
{
    for (int n_blocks = 2; n_blocks <= 4; n_blocks++) {
        const struct world_options few_blocks = {512, 256, n_blocks, 0, 64};
        begin_texts(&few_blocks, "lookahead", 2); /* of 9 tokens each: a block, and 2 after 16 */
        teach_steps(STEP_US, 0);
        ck_assert_int_eq(plan_windows(), WINDOW * (n_blocks - 2));
        ck_assert(w.plan.n_lanes == 2 && w.n_evictions == 0);
        world_close(&w);
    }
}
END_TEST

/* A tree needs blocks for each of its paths: where there are too few for a window as well, the
 * siblings of the draft's guesses come first. */
START_TEST(a_window_gives_way_to_siblings)
{
    int n_both = 0, n_siblings_alone = 0;
    for (int n_blocks = 4; n_blocks <= 16; n_blocks++) {
        const struct world_options some_blocks = {512, 256, n_blocks, 1024, 64};
        begin_texts(&some_blocks, "lookahead", 1);
        teach_steps(STEP_US, 0);
        int n_windows = plan_windows();
        int n_siblings = plan_n_siblings(&w.plan.lanes[0]);
        n_both += n_windows > 0 && n_siblings > 0;
        n_siblings_alone += n_windows == 0 && n_siblings > 0;
        world_close(&w);
    }
    ck_assert(n_both > 0 && n_siblings_alone > 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scheduler_windows");
    TCase *tcase = tcase_create("windows");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, as_many_rows_are_checked_as_cost_next_to_nothing, 0,
                        sizeof costs / sizeof *costs);
    tcase_add_loop_test(tcase, a_step_becomes_hardly_longer, 0, 2);
    tcase_add_test(tcase, windows_have_what_others_leave_of_the_step);
    tcase_add_test(tcase, no_window_is_planned_where_no_times_are_known);
    tcase_add_test(tcase, there_are_no_windows_where_nobody_asks_for_them);
    tcase_add_test(tcase, some_lanes_have_no_windows);
    tcase_add_test(tcase, a_lane_with_a_branch_has_no_window);
    tcase_add_test(tcase, a_window_gives_way_where_there_is_no_kv);
    tcase_add_test(tcase, a_window_gives_way_to_siblings);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
