/* ctest: labels=quick libs=speculation timeout=60 */
/* EAGLE-2's two choices: which guesses of a place grow, and how many guesses there are after
 * each. */
#include "speculation/accept/tree_follow.h"

#include "tests/support/check_util.h"

/* 0.5 * 0.9; 0.4 * 0.4 and 0.4 * 0.3; then 0.5 * 0.1. */
static const struct tree_follow_parent sharp = {.value = 0.5, .n_best = 2, .best = {0.9f, 0.1f}};
static const struct tree_follow_parent flat = {
    .value = 0.4, .n_best = 3, .best = {0.4f, 0.3f, 0.3f}};

START_TEST(the_largest_values_grow_and_ties_go_to_the_first)
{
    const double values[] = {0.1, 0.5, 0.2, 0.5, 0.3};
    int chosen[5];
    ck_assert_int_eq(tree_follow_expand(values, 5, 3, chosen), 3);
    ck_assert(chosen[0] == 1 && chosen[1] == 3 && chosen[2] == 4);
    ck_assert_int_eq(tree_follow_expand(values, 2, 3, chosen), 2);
    ck_assert(chosen[0] == 1 && chosen[1] == 0);
    ck_assert_int_eq(tree_follow_expand(values, 5, 0, chosen), 0);
    ck_assert_int_eq(tree_follow_expand(values, 0, 3, chosen), 0);
}
END_TEST

START_TEST(the_best_of_q_come_first)
{
    int32_t ids[] = {1, 2, 3, 5, 8, 13};
    float p[] = {0.1f, 0, 0.3f, 0.25f, 0.3f, 0.05f}, best[TREE_CHILDREN_MAX];
    const struct sparse_dist q = {6, ids, p}, one = {1, ids, p};
    ck_assert_int_eq(tree_follow_best(&q, best), 4);
    ck_assert(best[0] == p[2] && best[1] == p[4] && best[2] == p[3] && best[3] == p[0]);
    ck_assert_int_eq(tree_follow_best(&one, best), 1);
    const struct sparse_dist three = {3, ids, p}; /* one of them without mass */
    ck_assert_int_eq(tree_follow_best(&three, best), 2);
    ck_assert(best[0] == p[2] && best[1] == p[0]);
}
END_TEST

static void share(int budget, double constant_ratio, int least, const int *wanted, int n_given)
{
    struct tree_follow_parent parents[] = {sharp, flat};
    parents[1].n_children = least;
    ck_assert_int_eq(tree_follow_share(parents, 2, budget, constant_ratio), n_given);
    ck_assert_int_eq(parents[0].n_children, wanted[0]);
    ck_assert_int_eq(parents[1].n_children, wanted[1]);
}

START_TEST(each_guess_goes_where_it_is_worth_the_most)
{
    share(0, 0, 0, (int[]){0, 0}, 0);
    share(1, 0, 0, (int[]){1, 0}, 1);
    share(3, 0, 0, (int[]){1, 2}, 3);
    share(4, 0, 0, (int[]){1, 3}, 4); /* the second 0.3 is as good as the first */
    share(9, 0, 0, (int[]){2, 3}, 5); /* only what has mass */
    /* Where the first guess stays in any case, all first guesses come before any other. */
    share(2, 0.9, 0, (int[]){1, 1}, 2);
    share(1, 0.9, 1, (int[]){1, 1}, 1); /* the other has its first one already */
}
END_TEST

START_TEST(ties_go_to_the_first_parent)
{
    struct tree_follow_parent parents[] = {flat, flat, flat};
    ck_assert_int_eq(tree_follow_share(parents, 3, 4, 0), 4);
    ck_assert(parents[0].n_children == 2 && parents[1].n_children == 1);
    ck_assert_int_eq(parents[2].n_children, 1);
}
END_TEST

START_TEST(a_value_is_what_its_path_is_worth)
{
    ck_assert_double_eq_tol(tree_follow_value(0.5, 0.4f, 0, 0), 0.2, 1e-7);
    ck_assert_double_eq_tol(tree_follow_value(0.5, 0.4f, 2, 0), 0.2, 1e-7);
    ck_assert_double_eq_tol(tree_follow_value(0.5, 0.4f, 0, 0.5), 0.35, 1e-7);
    ck_assert_double_eq_tol(tree_follow_value(0.5, 0.4f, 1, 0.5), 0.1, 1e-7);
    ck_assert_double_eq_tol(tree_follow_value(0.5, 0.4f, 0, 1), 0.5, 1e-7);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tree_follow");
    TCase *tcase = tcase_create("tree_follow");
    tcase_add_test(tcase, the_largest_values_grow_and_ties_go_to_the_first);
    tcase_add_test(tcase, the_best_of_q_come_first);
    tcase_add_test(tcase, each_guess_goes_where_it_is_worth_the_most);
    tcase_add_test(tcase, ties_go_to_the_first_parent);
    tcase_add_test(tcase, a_value_is_what_its_path_is_worth);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
