/* ctest: labels=quick libs=coordinator timeout=60 */
/* Tests what the planner is told of a step before guesses are added after those of the draft. */
#include "coordinator/round/round.h"
#include "tests/support/check_util.h"

enum { N_PROMPT = 30, N_WAITING = 5, DRAFT_US = 700 };

static struct round r;

static struct round_lane *add_lane(int n_tokens, int n_guesses)
{
    struct round_lane *lane = &r.lanes[r.n_lanes++];
    *lane = (struct round_lane){.plan = {.n_tokens = n_tokens, .is_last = true}};
    guess_tree_plan(&lane->plan.tree, n_guesses, GUESS_CHAIN);
    for (int i = 0; i < n_guesses; i++) {
        guess_tree_extend(&lane->draft, 0, 100 + i, NULL);
    }
    return lane;
}

/* Plans siblings of the guess for a place, which is the chain's. */
static void plan_siblings(struct round_lane *lane, int place, int n)
{
    struct guess_tree *tree = &lane->plan.tree;
    for (; n > 0; n--) {
        guess_tree_add(tree, place > 0 ? tree->chain[place - 1] : -1, GUESS_SIBLING, -1, NULL);
    }
}

static void begin(void)
{
    r.n_lanes = 0;
    r.plan.n_prompt = N_PROMPT;
    r.plan.n_waiting = N_WAITING;
    r.draft_us = DRAFT_US;
    add_lane(N_PROMPT, 0)->plan.is_last = false;
    add_lane(1, 4);
}

static void expect_rows(int n)
{
    const struct planner_append_load load = round_append_load(&r);
    ck_assert_int_eq(load.n_rows, n);
    ck_assert_int_eq(load.n_wanted, n - N_PROMPT);
    ck_assert_int_eq(load.n_lanes, r.n_lanes - 1 + N_WAITING);
    ck_assert(load.draft_us == DRAFT_US);
}

START_TEST(chains_have_a_row_for_each_token)
{
    begin();
    expect_rows(N_PROMPT + 1 + 4);
}
END_TEST

START_TEST(siblings_branches_and_windows_have_rows)
{
    begin();
    struct round_lane *siblings = add_lane(1, 3), *branch = add_lane(1, 3),
                      *window = add_lane(1, 2);
    static const struct drafter finder;
    plan_siblings(siblings, 0, 2);
    plan_siblings(siblings, 2, 1);
    int sibling = guess_tree_add(&siblings->draft, -1, GUESS_SIBLING, 200, NULL);
    for (int i = 0; i < 5; i++) {
        guess_tree_add(&siblings->draft, sibling, GUESS_GROWN, 201 + i, NULL);
    }
    guess_tree_plan(&branch->plan.tree, 7, GUESS_BRANCH);
    guess_tree_plan(&window->plan.tree, 8, GUESS_BRANCH);
    window->plan.window = &finder;
    siblings->plan.tails = branch->plan.tails = window->plan.tails = &r.plan.tails[0];
    expect_rows(N_PROMPT + 5 + (4 + 3 + 5) + (4 + 7) + (3 + 8));
}
END_TEST

/* There is no tree without KV for its tails, no sibling of a guess that was not made, and no branch
 * where the draft has guessed nothing. */
START_TEST(rows_that_the_step_will_not_have_are_not_counted)
{
    begin();
    struct round_lane *without = add_lane(1, 3), *few = add_lane(1, 1), *none = add_lane(1, 0);
    plan_siblings(without, 0, 3);
    guess_tree_plan(&without->plan.tree, 5, GUESS_BRANCH);
    guess_tree_plan(&few->plan.tree, 1, GUESS_CHAIN);
    plan_siblings(few, 0, 1);
    plan_siblings(few, 1, 3);
    guess_tree_plan(&none->plan.tree, 7, GUESS_BRANCH);
    few->plan.tails = none->plan.tails = &r.plan.tails[0];
    expect_rows(N_PROMPT + 5 + 4 + (2 + 1) + 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("round_append");
    TCase *tcase = tcase_create("load");
    tcase_add_test(tcase, chains_have_a_row_for_each_token);
    tcase_add_test(tcase, siblings_branches_and_windows_have_rows);
    tcase_add_test(tcase, rows_that_the_step_will_not_have_are_not_counted);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
