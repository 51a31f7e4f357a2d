/* ctest: labels=quick libs=coordinator timeout=60 */
/* The table of drafters: what every row must have, so that one that lacks a verb is found here and
 * not in a round. */
#include <stdio.h>
#include <string.h>

#include "coordinator/draft/drafters.h"
#include "tests/support/check_util.h"

START_TEST(rows_have_a_name_of_their_own_and_one_interface)
{
    for (int i = 0; i < N_DRAFTERS; i++) {
        const struct drafter_row *row = &drafter_rows[i];
        ck_assert_msg(row->name && row->name[0] != '\0', "row %d", i);
        ck_assert_msg(!row->model != !row->lookup, "%s", row->name);
        for (int other = 0; other < i; other++) {
            ck_assert_str_ne(row->name, drafter_rows[other].name);
        }
    }
}
END_TEST

START_TEST(draft_models_have_all_verbs)
{
    int n_of_every_name = 0;
    for (int i = 0; i < N_DRAFTERS; i++) {
        const struct drafter_row *row = &drafter_rows[i];
        const struct model_draft_ops *ops = row->model;
        if (!ops) continue;
        ck_assert_msg(ops->open && ops->close && ops->set_vocabulary, "%s", row->name);
        ck_assert_msg(ops->begin && ops->read && ops->forget, "%s", row->name);
        ck_assert_msg(ops->reserve && ops->propose && ops->commit, "%s", row->name);
        ck_assert_msg(row->prefix && !row->takes_file && !row->is_of_request && !row->is_of_head,
                      "%s", row->name);
        size_t len = strlen(row->prefix);
        ck_assert_msg(len == 0 || row->prefix[len - 1] == ':', "%s", row->name);
        n_of_every_name += len == 0 ? 1 : 0;
        ck_assert_ptr_eq(drafter_find(row->prefix), row);
    }
    ck_assert_int_eq(n_of_every_name, 1);
    ck_assert_str_eq(drafter_find("deploy/models/tales/draft")->name, "model");
    ck_assert_str_eq(drafter_find("synthetic:tiny,seed=1")->name, "model");
}
END_TEST

START_TEST(finders_have_all_verbs)
{
    for (int i = 0; i < N_DRAFTERS; i++) {
        const struct drafter_row *row = &drafter_rows[i];
        const struct lookup_ops *ops = row->lookup;
        if (!ops) continue;
        ck_assert_msg(ops->open && ops->close, "%s", row->name);
        ck_assert_msg(ops->read && ops->forget, "%s", row->name);
        ck_assert_msg(ops->offer && ops->preview && ops->propose, "%s", row->name);
        ck_assert_msg(!row->prefix && !row->has_tokenizer, "%s", row->name);
        ck_assert_msg(!row->is_of_request == !ops->extra.is_brought, "%s", row->name);
        bool has_look_ahead = ops->extra.look_ahead && ops->extra.check_look_ahead;
        ck_assert_msg(has_look_ahead == (ops->extra.observe_look_ahead != NULL), "%s", row->name);
    }
}
END_TEST

/* The default, which sequences with a K of their own are told to use, looks in their own texts; the
 * help says all names of the list and no other. */
START_TEST(the_default_and_the_help_are_those_of_the_rows)
{
    struct error err;
    char word[64];
    for (int i = 0; i < N_DRAFTERS; i++) {
        const struct drafter_row *row = &drafter_rows[i];
        if (!row->lookup) continue;
        bool is_default = strcmp(row->name, LOOKUP_DEFAULT) == 0;
        snprintf(word, sizeof word, " %s%s (", row->name, row->takes_file ? "=FILE" : "");
        ck_assert_msg(!is_default || row->source == LOOKUP_OWN_TEXT, "%s", row->name);
        bool is_unnamed = row->is_of_request || row->is_of_head;
        ck_assert_msg(!strstr(LOOKUP_HELP, word) == is_unnamed, "%s", row->name);
        snprintf(word, sizeof word, "%s%s", row->name, row->takes_file ? "=FILE" : "");
        ck_assert_msg((drafters_check(word, &err) != 0) == is_unnamed, "%s", row->name);
    }
    ck_assert_int_eq(strncmp(LOOKUP_HELP, ": " LOOKUP_DEFAULT " (", strlen(LOOKUP_DEFAULT) + 4), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("drafter_table");
    TCase *tcase = tcase_create("drafter_table");
    tcase_add_test(tcase, rows_have_a_name_of_their_own_and_one_interface);
    tcase_add_test(tcase, draft_models_have_all_verbs);
    tcase_add_test(tcase, finders_have_all_verbs);
    tcase_add_test(tcase, the_default_and_the_help_are_those_of_the_rows);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
