/* ctest: labels=quick libs=coordinator timeout=120 */
/* Look-ahead tokens in plans: texts with a K of their own have all that fit their step, whatever
 * company there is; planned ones have as many as their worth pays for, and none without times; they
 * give way where KV is short. What holds for every plan is checked by
 * tests/support/scheduler_world.h with each of them. */
#include "coordinator/schedule/parts.h"
#include "tests/support/look_ahead_folder.h"
#include "tests/support/scheduler_plans.h"

enum { N_AHEAD = 4, WIDTH = 4, STEP_US = 10000 };

static char dir[LOOK_AHEAD_DIR_BYTES];

static void setup(void)
{
    static float rows[N_AHEAD * WIDTH] = {1};
    look_ahead_make(dir, rows, N_AHEAD, WIDTH);
    world_look_ahead = dir;
}

static void teardown(void)
{
    look_ahead_remove(dir);
}

static void open_plain(const struct world_options *options, const char *lookup)
{
    world_open_with(&w, options, lookup);
}

/* The target says the tokens 100, 101, ... after what the text has drawn in its last round. */
static void say(const struct sequence *seq, int n)
{
    int32_t ids[DRAFT_MAX];
    const float logprob = -0.5f;
    struct target_row rows[DRAFT_MAX];
    for (int i = 0; i < n; i++) {
        ids[i] = 100 + i;
        rows[i] = (struct target_row){.n_top = 1, .top_ids = &ids[i], .top_logprobs = &logprob};
    }
    drafters_observe_look_ahead(&w.drafters, seq, &(struct look_ahead_said){0, 0, rows, n});
}

static const struct lane_plan *lane_of(int i)
{
    const struct lane_plan *lane = world_lane(&w, w.active[i]);
    ck_assert_ptr_nonnull(lane);
    return lane;
}

static int rows_of(int i)
{
    return lane_look_ahead_rows(&lane_of(i)->look_ahead);
}

static void plan_again(void)
{
    world_release_tails(&w);
    plan_now();
}

static const struct world_options plain = {512, 256, 1024, 0, 64};

/* Without guesses one chain after the text, and with them one after each of them, too. */
START_TEST(texts_with_their_own_k_have_a_chain_at_each_place)
{
    open_plain(&plain, "none");
    begin_decoding(2, STRATEGY_FIXED, 4);
    plan_again();
    ck_assert(rows_of(0) == N_AHEAD && rows_of(1) == N_AHEAD);
    ck_assert(lane_plan_k(lane_of(0)) == 0);
    say(w.active[0], 4);
    plan_again();
    ck_assert(lane_plan_k(lane_of(0)) == 4 && lane_of(0)->drafter == w.drafters.finders[0]);
    ck_assert(lane_of(0)->look_ahead.n == 5 && rows_of(0) == 5 * N_AHEAD);
    ck_assert(lane_plan_k(lane_of(1)) == 0 && rows_of(1) == N_AHEAD);
    for (int i = 0; i < 20; i++) {
        world_play(&w, i % 2 ? ALL_STAY : NONE_STAYS);
        say(w.active[i % 2], 1 + i % N_AHEAD);
        plan_now();
    }
    world_close(&w);
}
END_TEST

/* A chain is no longer than the guesses that are wanted, and a step not larger than it may be. */
START_TEST(steps_and_requests_limit_them)
{
    static const struct world_options small = {12, 12, 1024, 0, 64};
    open_plain(&plain, "none");
    begin_decoding(1, STRATEGY_FIXED, 2);
    say(w.active[0], 4);
    plan_again();
    ck_assert(lane_of(0)->look_ahead.length == 2 && lane_of(0)->look_ahead.n == 3);
    world_close(&w);
    open_plain(&small, "none");
    begin_decoding(2, STRATEGY_FIXED, 4);
    say(w.active[0], 4);
    say(w.active[1], 4);
    int n_rows[2] = {0};
    for (int i = 0; i < 4; i++) { /* both need nearly all of a step, and take turns */
        plan_again();
        ck_assert_int_eq(w.plan.n_lanes, 1);
        int which = w.plan.lanes[0].seq == w.active[1];
        n_rows[which] = lane_look_ahead_rows(&w.plan.lanes[0].look_ahead);
    }
    ck_assert(n_rows[0] == N_AHEAD && n_rows[1] == N_AHEAD);
    world_close(&w);
}
END_TEST

START_TEST(nothing_is_put_after_the_end_of_a_text)
{
    open_plain(&plain, "none");
    add(8, 6, STRATEGY_FIXED, 4);
    for (int left = 6; left > 0; left--) { /* tokens that the text may still have */
        plan_now();
        ck_assert_int_eq(rows_of(0), left > 1 ? least(N_AHEAD, left - 1) : 0);
        world_play(&w, NONE_STAYS);
    }
    ck_assert_int_eq(w.n_active, 0);
    world_close(&w);
}
END_TEST

/* Their guesses come from the model in every round, and their trees may be full. */
START_TEST(texts_whose_guesses_a_model_makes_have_none)
{
    static const struct tree_widths widths = {.n = 2, .widths = {4, 4}};
    static const struct world_options with_model = {512, 256, 1024, 1024, 64};
    open_plain(&with_model, "none");
    begin_decoding(2, STRATEGY_FIXED, DRAFT_MAX);
    w.active[1]->tree = &widths;
    plan_again();
    for (int i = 0; i < 2; i++) {
        ck_assert(lane_plan_k(lane_of(i)) > 0 && lane_of(i)->drafter == w.drafter);
        ck_assert_int_eq(rows_of(i), 0);
    }
    ck_assert_int_gt(lane_of(1)->tree.n, lane_of(1)->tree.n_chain);
    world_close(&w);
}
END_TEST

/* A lane whose tree is full with look-ahead tokens has a window of what is left. */
START_TEST(windows_leave_their_nodes_to_them)
{
    enum { LEFT = 3, N_CHAINS = (TREE_NODES_MAX - DRAFT_MAX) / N_AHEAD };
    open_plain(&plain, "lookahead");
    begin_decoding(1, STRATEGY_PLANNED, DRAFT_MAX);
    w.active[0]->siblings_max = SIBLINGS_MAX;
    teach_steps(STEP_US, 0);
    plan_again();
    struct lane_plan lane = *lane_of(0), *lanes[] = {&lane};
    struct planning p = {.s = &w.scheduler, .n_tokens = 256, .n_rows = 256};
    guess_tree_begin(&lane.tree, 0);
    guess_tree_plan(&lane.tree, DRAFT_MAX - LEFT, GUESS_CHAIN);
    lane.look_ahead = (struct lane_look_ahead){.length = N_AHEAD, .n = N_CHAINS};
    planning_open_windows(&p, lanes, 1);
    ck_assert(lane.window && plan_n_window(&lane) == LEFT);
    ck_assert_int_eq(lane.tree.n + lane_look_ahead_rows(&lane.look_ahead), TREE_NODES_MAX);
    world_close(&w);
}
END_TEST

static const struct {
    int row_us, n_lanes, n_rows;
} costs[] = {{0, 1, N_AHEAD}, {0, 8, 8 * N_AHEAD}, {10, 1, N_AHEAD}, {1000, 1, 2},
             {1000, 8, 4},    {3000, 1, 1},        {12000, 1, 0}};

/* A new text's chain is taken to be worth half a token, so the step may become a quarter longer. */
START_TEST(planned_texts_have_what_they_are_worth)
{
    open_plain(&plain, "none");
    begin_decoding(costs[_i].n_lanes, STRATEGY_PLANNED, DRAFT_MAX);
    teach_steps(STEP_US, costs[_i].row_us);
    plan_again();
    int n = 0;
    for (int i = 0; i < costs[_i].n_lanes; i++) {
        n += rows_of(i);
    }
    ck_assert_int_eq(n, costs[_i].n_rows);
    world_close(&w);
}
END_TEST

START_TEST(planned_texts_have_none_without_times)
{
    open_plain(&plain, "session");
    begin_decoding(2, STRATEGY_PLANNED, DRAFT_MAX);
    forget_times();
    plan_again();
    ck_assert(rows_of(0) == 0 && rows_of(1) == 0);
    world_close(&w);
}
END_TEST

/* The pool has one block for each text and a few more: guesses are made, and look-ahead tokens only
 * where there are blocks for them. Rounds of all kinds keep what holds for every plan. */
START_TEST(they_give_way_where_kv_is_short)
{
    const struct world_options tight = {512, 256, 6 + _i, 0, 64};
    int n_with = 0, n_without = 0;
    open_plain(&tight, "none");
    for (int i = 0; i < 3; i++) {
        add(8 + 3 * i, 40, i % 2 ? STRATEGY_PLANNED : STRATEGY_FIXED, 6);
    }
    teach_steps(STEP_US, 0);
    for (int round = 0; round < 400 && w.n_active + w.n_waiting > 0; round++) {
        plan_now();
        for (int i = 0; i < w.plan.n_lanes; i++) {
            const struct lane_plan *lane = &w.plan.lanes[i];
            n_with += lane->is_last && lane->look_ahead.n > 0;
            n_without += lane->is_last && lane->look_ahead.n == 0;
        }
        world_play(&w, 50);
        for (int i = 0; i < w.n_active; i++) {
            say(w.active[i], (round + i) % (N_AHEAD + 1));
        }
    }
    ck_assert(w.n_active + w.n_waiting == 0 && n_with > 0 && n_without > 0);
    world_close(&w);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scheduler_look_ahead");
    TCase *tcase = tcase_create("scheduler_look_ahead");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, texts_with_their_own_k_have_a_chain_at_each_place);
    tcase_add_test(tcase, steps_and_requests_limit_them);
    tcase_add_test(tcase, texts_whose_guesses_a_model_makes_have_none);
    tcase_add_test(tcase, windows_leave_their_nodes_to_them);
    tcase_add_test(tcase, nothing_is_put_after_the_end_of_a_text);
    tcase_add_loop_test(tcase, planned_texts_have_what_they_are_worth, 0,
                        (int)(sizeof costs / sizeof *costs));
    tcase_add_test(tcase, planned_texts_have_none_without_times);
    tcase_add_loop_test(tcase, they_give_way_where_kv_is_short, 0, 12);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
