/* ctest: labels=quick libs=coordinator timeout=60 */
/* Files of Medusa's choices as trees of --trees. */
#include "coordinator/draft/tree_choices.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "coordinator/draft/trees_option.h"
#include "tests/support/check_util.h"
#include "tests/support/write_file.h"

enum { SHOWN_BYTES = 1024 };

/* medusa/model/medusa_choices.py. */
static const char mc_sim_7b_63[] =
    "[[0], [0, 0], [1], [0, 1], [2], [0, 0, 0], [1, 0], [0, 2], [3], [0, 3], [4], [0, 4], [2, 0], "
    "[0, 5], [0, 0, 1], [5], [0, 6], [6], [0, 7], [0, 1, 0], [1, 1], [7], [0, 8], [0, 0, 2], "
    "[3, 0], [0, 9], [8], [9], [1, 0, 0], [0, 2, 0], [1, 2], [0, 0, 3], [4, 0], [2, 1], "
    "[0, 0, 4], [0, 0, 5], [0, 0, 0, 0], [0, 1, 1], [0, 0, 6], [0, 3, 0], [5, 0], [1, 3], "
    "[0, 0, 7], [0, 0, 8], [0, 0, 9], [6, 0], [0, 4, 0], [1, 4], [7, 0], [0, 1, 2], [2, 0, 0], "
    "[3, 1], [2, 2], [8, 0], [0, 5, 0], [1, 5], [1, 0, 1], [0, 2, 1], [9, 0], [0, 6, 0], "
    "[0, 0, 0, 1], [1, 6], [0, 7, 0]]";

static char folder[] = "/tmp/outrider-choices-XXXXXX", option[128];
static struct error err;

static const char *write_choices(const char *text)
{
    write_file(folder, "choices.json", text, strlen(text), NULL, 0);
    snprintf(option, sizeof option, "choices:%s/choices.json", folder);
    return option;
}

static int parse(const char *text, struct trees *trees)
{
    return trees_parse(write_choices(text), trees, &err);
}

/* The ranks that lead to each node, in the order of the plan. */
static const char *show(const struct guess_tree *plan, char text[SHOWN_BYTES])
{
    size_t len = 0;
    text[0] = '\0';
    for (int node = 0; node < plan->n; node++) {
        int ranks[DRAFT_MAX], n = guess_tree_depth(plan, node);
        for (int i = n, at = node; i-- > 0; at = plan->parents[at]) {
            ranks[i] = guess_tree_rank(plan, at);
        }
        for (int i = 0; i < n; i++) {
            len += (size_t)snprintf(text + len, SHOWN_BYTES - len, "%s%d",
                                    i      ? "."
                                    : node ? " "
                                           : "",
                                    ranks[i]);
        }
    }
    return text;
}

static void check_plan(const char *choices, int k, const char *wanted)
{
    struct trees trees;
    struct guess_tree plan;
    char text[SHOWN_BYTES];
    CHECK_OK(parse(choices, &trees));
    ck_assert(trees.mode == TREES_AUTO && !trees.fixed_follows_q && !trees.fixed.is_independent);
    int n = tree_widths_plan(&trees.fixed, k, &plan);
    ck_assert_int_eq(n, plan.n - plan.n_chain);
    ck_assert_int_eq(plan.n_chain, k);
    ck_assert_str_eq(show(&plan, text), wanted);
    for (int i = 0; i < plan.n; i++) {
        bool is_sibling = plan.marks[i] & GUESS_SIBLING;
        bool has_chains_parent = plan.parents[i] < 0 || plan.marks[plan.parents[i]] & GUESS_CHAIN;
        ck_assert_int_eq(is_sibling, has_chains_parent && !(plan.marks[i] & GUESS_CHAIN));
    }
}

START_TEST(paths_are_the_chain_its_siblings_and_guesses_after_them)
{
    check_plan("[[0], [0, 0], [1], [0, 1], [1, 0], [1, 0, 0], [0, 0, 0], [1, 1]]", 3,
               "0 1 0.0 0.1 0.0.0 1.0 1.1 1.0.0");
    check_plan("[[0], [0, 0], [1], [0, 1], [1, 0], [1, 0, 0], [0, 0, 0], [1, 1]]", 2,
               "0 1 0.0 0.1 1.0 1.1");
    check_plan("[[0]]", 1, "0");
}
END_TEST

/* A K of more places than the file has makes the chain longer, and nothing else. */
START_TEST(the_chain_goes_on_alone_where_the_file_ends)
{
    check_plan("[[0], [1]]", 3, "0 1 0.0 0.0.0");
    check_plan("[[0], [1], [1, 0]]", 4, "0 1 0.0 0.0.0 0.0.0.0 1.0");
}
END_TEST

START_TEST(the_order_of_the_file_does_not_matter_and_gaps_are_closed)
{
    check_plan("[[1, 0], [0, 0], [1], [0]]", 2, "0 1 0.0 1.0");
    check_plan("[[0], [2], [7], [2, 5]]", 2, "0 1 2 0.0 1.0");
}
END_TEST

/* Ranks above 3 of the published tree go, and what comes after them. */
START_TEST(the_tree_of_the_paper_is_cut_to_what_a_round_has_room_for)
{
    struct trees trees;
    CHECK_OK(parse(mc_sim_7b_63, &trees));
    ck_assert_int_eq(trees.fixed.choices.n, 32);
    ck_assert_int_eq(trees.fixed.n, 4);
    check_plan(mc_sim_7b_63, 4,
               "0 1 2 3 0.0 0.1 0.2 0.3 0.0.0 0.0.1 0.0.2 0.0.3 0.0.0.0 0.0.0.1 1.0 1.1 1.2 1.3 "
               "2.0 2.1 2.2 3.0 3.1 0.1.0 0.1.1 0.1.2 0.2.0 0.2.1 0.3.0 1.0.0 1.0.1 2.0.0");
}
END_TEST

/* 4 guesses for each of 3 places are 84; the first 31 of the file beside the chain of 3 stay. */
START_TEST(the_first_guesses_of_a_wide_tree_stay)
{
    struct trees trees;
    struct guess_tree plan;
    char text[4096] = "[";
    size_t len = 1;
    for (int i = 0; i < 84; i++) {
        int n = i < 4 ? 1 : i < 20 ? 2 : 3, at = i < 4 ? i : i < 20 ? i - 4 : i - 20;
        const char *between = i ? ", " : "";
        if (n == 1) len += (size_t)snprintf(text + len, sizeof text - len, "%s[%d]", between, at);
        if (n == 2) {
            len += (size_t)snprintf(text + len, sizeof text - len, ", [%d, %d]", at / 4, at % 4);
        }
        if (n == 3) {
            len += (size_t)snprintf(text + len, sizeof text - len, ", [%d, %d, %d]", at / 16,
                                    at / 4 % 4, at % 4);
        }
    }
    snprintf(text + len, sizeof text - len, "]");
    CHECK_OK(parse(text, &trees));
    ck_assert_int_eq(trees.fixed.choices.n, 34);
    ck_assert_int_eq(tree_widths_plan(&trees.fixed, 3, &plan), GROWN_MAX - 1);
    ck_assert_int_eq(guess_tree_count(&plan, GUESS_SIBLING), 9);
}
END_TEST

START_TEST(places_after_the_last_of_a_round_are_left_out)
{
    struct trees trees;
    char text[2048] = "[[0]";
    for (int n = 2; n <= DRAFT_MAX + 4; n++) {
        strcat(text, ", [0");
        for (int i = 1; i < n; i++) {
            strcat(text, ", 0");
        }
        strcat(text, "]");
    }
    strcat(text, "]");
    CHECK_OK(parse(text, &trees));
    ck_assert_int_eq(trees.fixed.choices.n, DRAFT_MAX);
    ck_assert_int_eq(trees.fixed.n, DRAFT_MAX);
}
END_TEST

START_TEST(files_that_are_no_tree_are_refused)
{
    static const struct {
        const char *text, *why;
    } wrong[] = {
        {"", "choices"},
        {"{}", "must be a list of 1 to 1024 lists of ranks"},
        {"[]", "must be a list of 1 to 1024 lists of ranks"},
        {"[[0], 1]", "element 1 of the list must be a list of ranks"},
        {"[[0], []]", "element 1 of the list must be a list of ranks"},
        {"[[0], [0, -1]]", "has a rank that is no number of 0 to 255"},
        {"[[0], [0, 1.5]]", "has a rank that is no number of 0 to 255"},
        {"[[0], [256]]", "has a rank that is no number of 0 to 255"},
        {"[[0], [99999999999999999999]]", "choices"},
        {"[[0], [0, 0], [0, 0]]", "has [0, 0] twice"},
        {"[[0], [1, 0]]", "has [1, 0], but not [1] before it"},
        {"[[0], [4, 0, 2]]", "has [4, 0, 2], but not [4, 0] before it"},
        {"[[1]]", "lacks [0], the best guess for the first place"},
        {"mc = [[0]]", "choices"},
    };
    struct trees trees;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_ERR(parse(wrong[i].text, &trees), ERR_ARGUMENT, wrong[i].why);
        ck_assert_msg(strncmp(err.text, "--trees choices:", 16) == 0, "%s", err.text);
        ck_assert_ptr_nonnull(strstr(err.text, "choices.json"));
    }
    CHECK_ERR(trees_parse("choices:/nowhere/at.all", &trees, &err), ERR_ARGUMENT,
              "/nowhere/at.all");
    CHECK_ERR(trees_parse("choices:", &trees, &err), ERR_ARGUMENT, "choices");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tree_choices");
    TCase *tcase = tcase_create("tree_choices");
    char path[128];
    if (!mkdtemp(folder)) return 1;
    tcase_add_test(tcase, paths_are_the_chain_its_siblings_and_guesses_after_them);
    tcase_add_test(tcase, the_chain_goes_on_alone_where_the_file_ends);
    tcase_add_test(tcase, the_order_of_the_file_does_not_matter_and_gaps_are_closed);
    tcase_add_test(tcase, the_tree_of_the_paper_is_cut_to_what_a_round_has_room_for);
    tcase_add_test(tcase, the_first_guesses_of_a_wide_tree_stay);
    tcase_add_test(tcase, places_after_the_last_of_a_round_are_left_out);
    tcase_add_test(tcase, files_that_are_no_tree_are_refused);
    suite_add_tcase(suite, tcase);
    int rc = check_main(suite);
    snprintf(path, sizeof path, "%s/choices.json", folder);
    unlink(path);
    rmdir(folder);
    return rc;
}
