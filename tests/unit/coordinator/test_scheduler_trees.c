/* ctest: labels=quick libs=coordinator timeout=60 */
/* What a plan takes for trees of guesses: blocks for the tails and for path 0, or none. */
#include "tests/support/scheduler_plans.h"

enum { N_PROMPT = 11, STEP_US = 20000 };

static struct world_options options_of(int n_blocks)
{
    return (struct world_options){64, 64, n_blocks, 64, 4};
}

/* A text of 12 tokens whose next step has two guesses of the draft, because the draft's times are
 * not known, and a window of 8, because rows cost nothing. */
static struct sequence *plan_window(int n_blocks)
{
    const struct world_options options = options_of(n_blocks);
    world_open_with(&w, &options, "lookahead");
    for (int rows = 1; rows <= 64; rows *= 2) {
        planner_calibrate_step(&w.planner, rows, STEP_US);
    }
    struct sequence *seq = add(N_PROMPT, 100, STRATEGY_PLANNED, 8);
    seq->siblings_max = 1;
    plan_now();
    ck_assert_int_eq(w.plan.n_lanes, 1);
    world_commit(&w, &w.plan.lanes[0], 0);
    ck_assert_int_eq(seq->target_blocks.n, 1);
    plan_now();
    ck_assert_int_eq(w.plan.n_lanes, 1);
    ck_assert_int_eq(w.plan.lanes[0].k, 2);
    return seq;
}

/* The window reaches into a second block, so path 0 needs one more and the tail two. */
START_TEST(a_window_gets_all_its_blocks)
{
    struct sequence *seq = plan_window(4);
    struct lane_plan *lane = &w.plan.lanes[0];
    ck_assert_int_eq(lane->n_window, 8);
    ck_assert_int_eq(seq->target_blocks.n, 2);
    ck_assert(lane->tails && lane->tails->n == 2);
    block_tails_release(lane->tails, &w.pool);
    world_close(&w);
}
END_TEST

START_TEST(a_window_that_lacks_a_block_takes_none)
{
    for (int n_blocks = 1; n_blocks < 4; n_blocks++) {
        struct sequence *seq = plan_window(n_blocks);
        const struct lane_plan *lane = &w.plan.lanes[0];
        ck_assert_int_eq(lane->n_window, 0);
        ck_assert_ptr_null(lane->tails);
        ck_assert_int_eq(seq->target_blocks.n, 1);
        ck_assert_int_eq(block_pool_room(&w.pool), n_blocks - 1);
        world_close(&w);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scheduler_trees");
    TCase *tcase = tcase_create("blocks");
    tcase_add_test(tcase, a_window_gets_all_its_blocks);
    tcase_add_test(tcase, a_window_that_lacks_a_block_takes_none);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
