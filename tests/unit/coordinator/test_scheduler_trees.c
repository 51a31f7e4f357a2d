/* ctest: labels=quick libs=coordinator timeout=60 */
/* Tests what a plan takes for trees of guesses: blocks for the tails and for path 0, or none. */
#include "coordinator/draft/trees_option.h"
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
    ck_assert_int_eq(lane_plan_k(&w.plan.lanes[0]), 2);
    return seq;
}

/* The window reaches into a second block, so path 0 needs one more and the tail two. */
START_TEST(a_window_gets_all_its_blocks)
{
    struct sequence *seq = plan_window(4);
    struct lane_plan *lane = &w.plan.lanes[0];
    ck_assert_int_eq(plan_n_window(lane), 8);
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
        ck_assert_int_eq(plan_n_window(lane), 0);
        ck_assert_ptr_null(lane->tails);
        ck_assert_int_eq(seq->target_blocks.n, 1);
        ck_assert_int_eq(block_pool_room(&w.pool), n_blocks - 1);
        world_close(&w);
    }
}
END_TEST

/* A text of one token whose step may have as many rows as there are, and a draft that costs next to
 * nothing, so that guesses go on after siblings if there is KV for them. */
static const struct lane_plan *plan_growth(int n_blocks, bool follows_q)
{
    const struct world_options options = options_of(n_blocks);
    world_open(&w, &options);
    for (int rows = 1; rows <= 64; rows *= 2) {
        planner_calibrate_step(&w.planner, rows, STEP_US);
        planner_calibrate_draft(&w.planner, 0, rows, STEP_US / 1000);
    }
    struct sequence *seq = add(N_PROMPT, 100, STRATEGY_PLANNED, 5);
    seq->siblings_max = SIBLINGS_MAX;
    seq->grows = true;
    seq->follows_q = follows_q;
    plan_now();
    if (w.plan.lanes[0].tails) block_tails_release(w.plan.lanes[0].tails, &w.pool);
    world_commit(&w, &w.plan.lanes[0], 0);
    plan_now();
    ck_assert_int_eq(w.plan.n_lanes, 1);
    return &w.plan.lanes[0];
}

/* The blocks of the largest tree that a lane's guesses can be. */
static int count_most_tails(const struct lane_plan *lane)
{
    struct guess_tree packed;
    struct tree_layout layout;
    struct error err;
    guess_tree_pack(&lane->tree, &packed);
    guess_tree_sort(&packed);
    CHECK_OK(tree_layout_init(&layout, packed.parents, packed.n, &err));
    return tree_layout_tails(&layout, lane->seq->n_tokens, WORLD_BLOCK);
}

/* With fewer and fewer blocks a plan loses first that its tree follows q, which may need more of
 * them than the planned one, then what follows siblings, then these, and its chain last; and it
 * never takes a part of what it needs. */
START_TEST(guesses_after_siblings_give_way_first)
{
    bool has_seen_planned = false, has_seen_siblings = false, has_seen_chain = false;
    for (int n_blocks = 64; n_blocks > 1; n_blocks--) {
        const struct lane_plan *lane = plan_growth(n_blocks, _i > 0);
        int n_siblings = plan_n_siblings(lane);
        bool grows = plan_n_grown(lane) > 0;
        ck_assert_int_gt(lane_plan_k(lane), 0);
        ck_assert_int_eq(lane->tails != NULL, n_siblings > 0);
        ck_assert(n_siblings > 0 || !grows);
        ck_assert(n_blocks < 64 || (grows && lane->follows_q == (_i > 0)));
        ck_assert(!grows || !has_seen_siblings);
        ck_assert(n_siblings == 0 || !has_seen_chain);
        ck_assert(!grows || lane_plan_k(lane) + n_siblings + plan_n_grown(lane) < TREE_PATHS_MAX);
        ck_assert(!grows || (plan_n_branch(lane) == 0 && plan_n_append(lane) == 0 &&
                             plan_n_window(lane) == 0));
        ck_assert(!lane->follows_q || (grows && !has_seen_planned));
        has_seen_planned |= grows && !lane->follows_q;
        has_seen_siblings |= n_siblings > 0 && !grows;
        has_seen_chain |= n_siblings == 0;
        int n_tails = lane->tails ? lane->tails->n : 0;
        if (lane->follows_q) ck_assert_int_eq(n_tails, count_most_tails(lane));
        ck_assert_int_eq(block_pool_room(&w.pool) + n_tails + lane->seq->target_blocks.n, n_blocks);
        if (lane->tails) block_tails_release(lane->tails, &w.pool);
        world_close(&w);
    }
    ck_assert(has_seen_planned && has_seen_siblings && has_seen_chain);
}
END_TEST

/* A text with a K of its own and the tree 3,2,1 in a step of so many rows. */
static const struct lane_plan *plan_fixed(int n_rows, int k)
{
    static const struct tree_widths tree = {.n = 3, .widths = {3, 2, 1}};
    const struct world_options options = {64, n_rows, 64, 64, 4};
    world_open(&w, &options);
    struct sequence *seq = add(N_PROMPT, 100, STRATEGY_FIXED, k);
    seq->tree = &tree;
    plan_now();
    if (w.plan.lanes[0].tails) block_tails_release(w.plan.lanes[0].tails, &w.pool);
    world_commit(&w, &w.plan.lanes[0], 0);
    plan_now();
    ck_assert_int_eq(w.plan.n_lanes, 1);
    ck_assert_int_eq(lane_plan_k(&w.plan.lanes[0]), k);
    return &w.plan.lanes[0];
}

/* 3, 6 and 6 guesses, and the token before them. With fewer rows there is the chain alone. */
START_TEST(tree_of_the_option_is_whole_or_absent)
{
    static const struct {
        int n_rows, k, n_siblings, n_grown;
    } cases[] = {{16, 3, 3, 9}, {15, 3, 0, 0}, {64, 2, 3, 4}, {64, 1, 2, 0}, {18, 5, 3, 9}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct lane_plan *lane = plan_fixed(cases[i].n_rows, cases[i].k);
        ck_assert_int_eq(plan_n_siblings(lane), cases[i].n_siblings);
        ck_assert_int_eq(plan_n_grown(lane), cases[i].n_grown);
        ck_assert_int_eq(lane->tails != NULL, cases[i].n_siblings > 0);
        if (lane->tails) block_tails_release(lane->tails, &w.pool);
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
    tcase_add_loop_test(tcase, guesses_after_siblings_give_way_first, 0, 2);
    tcase_add_test(tcase, tree_of_the_option_is_whole_or_absent);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
