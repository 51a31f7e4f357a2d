/* ctest: labels=quick libs=speculation timeout=60 */
/* The best tokens of a row, from which drafters learn, also of rows that decide nothing. */
#include "tests/support/merged_rows.h"

/* Best first, one of each slice that has columns, and nothing else about the row changes. */
static void check_best(const struct target_row *row, const struct target_row *without, int n)
{
    int32_t ids[TARGET_ROW_BEST_MAX];
    same_row(row, without);
    ck_assert(without->n_best == 0 && row->n_best == n);
    ck_assert_int_eq(target_row_best(without, ids, TARGET_ROW_BEST_MAX), 1);
    ck_assert_int_eq(ids[0], row->ids[0]);
    ck_assert_int_eq(target_row_best(row, ids, TARGET_ROW_BEST_MAX), n);
    bool has_choice = false;
    for (int i = 0; i < n; i++) {
        ck_assert_int_eq(ids[i], row->best_ids[i]);
        ck_assert(i == 0 || logits[ids[i - 1]] > logits[ids[i]]);
        has_choice |= ids[i] == row->ids[0];
    }
    ck_assert(has_choice);
    ck_assert_int_eq(target_row_best(row, ids, 1), 1);
    ck_assert_int_eq(target_row_best(row, ids, 0), 0);
}

START_TEST(one_hot_rows_list_the_best_tokens_that_came)
{
    static const int n_nonempty[SLICES + 1] = {[1] = 1, [2] = 2, [4] = 4, [8] = 5};
    const struct sampling_params cut = {.temperature = 0.8f, .top_k = 7, .top_p = 1};
    struct target_row row, without;
    for (int n_slices = 1; n_slices <= SLICES; n_slices *= 2) {
        for (int rule = RULE_GREEDY; rule <= RULE_COUPLED; rule++) {
            lists_best = false;
            merged((enum accept_rule)rule, &plain, &q, n_slices, false, &without);
            lists_best = true;
            merged((enum accept_rule)rule, &plain, &q, n_slices, false, &row);
            check_best(&row, &without, n_nonempty[n_slices]);
            if (rule == RULE_GREEDY) ck_assert_int_eq(row.best_ids[0], row.ids[0]);
        }
        lists_best = false;
        merged(RULE_COUPLED, &cut, &q, n_slices, false, &without);
        lists_best = true;
        merged(RULE_COUPLED, &cut, &q, n_slices, false, &row);
        check_best(&row, &without, 7);
        int n_better = 0; /* they are the seven best of all */
        for (int id = 0; id < VOCAB; id++) {
            n_better += logits[id] > logits[row.best_ids[6]];
        }
        ck_assert_int_eq(n_better, 6);
    }
}
END_TEST

static const struct edit edit_of_5 = {.id = 5, .divisor = 1, .bias = 1};
static const struct edit_list edited = {.n = 1, .edits = &edit_of_5};
static const struct edit_list *edits; /* of the wants of spare */

START_TEST(of_equal_tokens_the_lowest_is_better)
{
    struct target_row row;
    lists_best = true;
    logits[5] = logits[300] = logits[599] = 50;
    merged(RULE_GREEDY, &plain, &q, SLICES, false, &row);
    ck_assert(row.n == 1 && row.ids[0] == 5 && row.n_best == 5);
    ck_assert(row.best_ids[0] == 5 && row.best_ids[1] == 300 && row.best_ids[2] == 599);
}
END_TEST

/* Merges what answers the wish of a want as a row that decides nothing, of n_slices slices. */
static int spare(enum accept_rule rule, const struct sampling_params *params, bool full,
                 int n_slices, struct target_row *row)
{
    const struct target_slices all = {slices, n_slices, VOCAB};
    struct target_want want = want_of(rule, params, &q, full);
    struct row_wish wish;
    target_row_wish(&want, &wish);
    answer(&wish, SLICES);
    want.edits = edits;
    target_row_merge_spare(&all, &want, &wish, &arena, row);
    return target_row_best(row, (int32_t[TARGET_ROW_BEST_MAX]){0}, TARGET_ROW_BEST_MAX);
}

START_TEST(rows_that_decide_nothing_are_merged_where_that_is_cheap)
{
    const struct sampling_params cut = {.temperature = 1, .top_k = 7, .top_p = 1};
    struct target_row row, whole;
    ck_assert_int_eq(spare(RULE_GREEDY, &plain, false, SLICES, &row), 0); /* nobody learns */
    lists_best = true;
    for (int i = RULE_REJECTION; i <= RULE_BLOCK; i++) {
        enum accept_rule rule = (enum accept_rule)i;
        ck_assert_int_gt(spare(rule, &plain, false, SLICES, &row), 1);
        merged(rule, &plain, &q, SLICES, false, &whole);
        same_row(&row, &whole);
        ck_assert(spare(rule, &cut, false, SLICES, &row) == 0 || rule == RULE_GREEDY);
        edits = &edited;
        ck_assert_int_eq(spare(rule, &plain, false, SLICES, &row), 0);
        edits = NULL;
        ck_assert_int_eq(spare(rule, &plain, true, SLICES, &row), 0);
        ck_assert_int_eq(spare(rule, &plain, false, SLICES / 2, &row), 0); /* some are missing */
        ck_assert(row.n == 0 && row.n_best == 0 && row.outside_id == -1 && !row.failure);
    }
}
END_TEST

/* Ids with p, and the token that was drawn among all others. */
START_TEST(the_best_tokens_of_a_row_are_those_with_the_most_p)
{
    static const int32_t ids[] = {3, 5, 7, 9}, top[] = {8, 1};
    static const float p[] = {0.125f, 0.25f, 0, 0.125f};
    struct target_row row = {.n = 4, .ids = ids, .p = p, .outside_mass = 0.5, .outside_id = 6};
    int32_t best[TARGET_ROW_BEST_MAX];
    ck_assert_int_eq(target_row_best(&row, best, TARGET_ROW_BEST_MAX), 4);
    ck_assert(best[0] == 6 && best[1] == 5 && best[2] == 3 && best[3] == 9);
    ck_assert_int_eq(target_row_best(&row, best, 2), 2);
    ck_assert(best[0] == 6 && best[1] == 5);
    ck_assert_int_eq(target_row_best(&row, best, 0), 0);
    ck_assert(target_row_best(&row, best, 3) == 3 && best[2] == 3); /* of 3 and 9 the first one */
    row.outside_mass = 0.0625;
    ck_assert(target_row_best(&row, best, 2) == 2 && best[1] == 3);
    ck_assert(target_row_best(&row, best, 4) == 4 && best[0] == 5 && best[3] == 6);
    row.n_top = 2;
    row.top_ids = top;
    ck_assert(target_row_best(&row, best, 4) == 2 && best[0] == 8 && best[1] == 1);
    row = (struct target_row){.outside_id = -1};
    ck_assert_int_eq(target_row_best(&row, best, 4), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("target_row_best");
    TCase *tcase = tcase_create("rows");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, one_hot_rows_list_the_best_tokens_that_came);
    tcase_add_test(tcase, of_equal_tokens_the_lowest_is_better);
    tcase_add_test(tcase, rows_that_decide_nothing_are_merged_where_that_is_cheap);
    tcase_add_test(tcase, the_best_tokens_of_a_row_are_those_with_the_most_p);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
