/* ctest: labels=quick libs=coordinator timeout=60 */
/* Trees that are the same in every round, as users write them. */
#include "coordinator/draft/trees_option.h"

#include <string.h>

#include "tests/support/check_util.h"
#include "tests/support/guess_tables.h"

static struct tree_widths parsed(const char *text)
{
    struct trees trees;
    struct error err;
    ck_assert_msg(trees_parse(text, &trees, &err) == 0, "%s", err.text);
    ck_assert_int_eq(trees.mode, TREES_AUTO);
    return trees.fixed;
}

START_TEST(each_width_is_the_number_of_guesses_after_each_guess)
{
    static const int8_t wanted[] = {-1, -1, -2, -2, -4, 0, 1, 2, 3};
    const struct tree_widths widths = parsed("3,2,1");
    struct guess_tree plan;
    ck_assert_int_eq(tree_widths_plan(&widths, 3, &plan), 12);
    const struct draft_view view = view_draft(&plan);
    const uint8_t *siblings = view.n_siblings;
    ck_assert(view.n == 3 && siblings[0] == 2 && siblings[1] == 1 && siblings[2] == 0);
    ck_assert_int_eq(view.grown.n, sizeof wanted);
    ck_assert_int_eq(memcmp(view.grown.parents, wanted, sizeof wanted), 0);
}
END_TEST

/* Guesses of place i: the product of the widths up to it. They are in the order of their places,
 * and those of one parent stand together. */
START_TEST(places_have_the_product_of_their_widths)
{
    static const char *const texts[] = {"1", "4", "1,4,2", "2,2,2,2", "1,1,1,1,4", "4,1,1,1,1,1"};
    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
        const struct tree_widths widths = parsed(texts[t]);
        for (int k = 1; k <= widths.n + 2; k++) {
            struct guess_tree plan;
            int counts[DRAFT_MAX] = {0}, before = 0, product = 1, n = 0;
            int n_besides = tree_widths_plan(&widths, k, &plan);
            const struct draft_view view = view_draft(&plan);
            const uint8_t *siblings = view.n_siblings;
            const struct growth growth = view.grown;
            ck_assert_int_eq(view.n, k);
            for (int i = 0; i < growth.n; i++) {
                int place = growth_place(&growth, i);
                ck_assert(place >= before && place < k);
                ck_assert_int_lt(i - growth_first(&growth, i), 1 + SIBLINGS_MAX);
                counts[place]++;
                before = place;
            }
            for (int i = 0; i < k; i++) {
                product *= i < widths.n ? widths.widths[i] : 1;
                counts[i] += 1 + siblings[i];
                ck_assert_int_eq(counts[i], i < widths.n ? product : 1);
                n += counts[i] - 1;
            }
            ck_assert_int_eq(n_besides, n);
        }
    }
}
END_TEST

/* K chains of the same length, that of the sequence's K if it is less: each guess of the chain
 * after the root has siblings, and all others have one after them. */
START_TEST(independent_chains_have_one_length)
{
    static const struct {
        const char *text;
        int n, length;
    } cases[] = {{"chains:2x1", 2, 1},
                 {"chains:3x4", 3, 4},
                 {"chains:4x10", 4, 10},
                 {"chains:2x16", 2, 16},
                 {"chains:3x15", 3, 15}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const struct tree_widths widths = parsed(cases[c].text);
        ck_assert(widths.is_independent && widths.n == cases[c].length);
        for (int k = 1; k <= DRAFT_MAX; k++) {
            struct guess_tree plan;
            int length = k < cases[c].length ? k : cases[c].length;
            ck_assert_int_eq(tree_widths_plan(&widths, k, &plan), (cases[c].n - 1) * length);
            ck_assert(plan.is_independent && plan.n_chain == length);
            ck_assert_int_eq(guess_tree_siblings(&plan, 0), cases[c].n - 1);
            guess_tree_sort(&plan);
            for (int i = 0; i < plan.n; i++) {
                ck_assert_int_eq(plan.parents[i], i % length == 0 ? -1 : i - 1);
            }
        }
    }
    ck_assert(!parsed("3,1,1").is_independent);
}
END_TEST

START_TEST(words_choose_the_kind_of_trees)
{
    static const struct {
        const char *text;
        enum trees_mode mode;
        bool follows_q, fixed_follows_q;
        int n_widths;
    } cases[] = {
        {"dynamic", TREES_AUTO, true, false, 0},       {"static", TREES_AUTO, false, false, 0},
        {"siblings", TREES_SIBLINGS, false, false, 0}, {"off", TREES_OFF, false, false, 0},
        {"auto", TREES_AUTO, false, false, 0},         {"3,2", TREES_AUTO, false, false, 2},
        {"dynamic:3,2,1", TREES_AUTO, false, true, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct trees trees;
        struct error err;
        CHECK_OK(trees_parse(cases[i].text, &trees, &err));
        ck_assert(trees.mode == cases[i].mode && trees.follows_q == cases[i].follows_q);
        ck_assert(trees.fixed_follows_q == cases[i].fixed_follows_q);
        ck_assert_int_eq(trees.fixed.n, cases[i].n_widths);
    }
}
END_TEST

START_TEST(texts_that_are_no_tree_are_refused)
{
    static const struct {
        const char *text, *why;
    } wrong[] = {
        {"", "'': expected auto, dynamic, static"},
        {"bushy",
         "'bushy': expected auto, dynamic, static, siblings, off, or a tree such as 3,2,1, "
         "dynamic:3,2,1, chains:3x4 or choices:FILE"},
        {"0", "'0' is no tree"},
        {"5", "1 to 4 for each"},
        {"3,", "'3,' is no tree"},
        {",3", "',3': expected auto, dynamic, static"},
        {"3;2", "'3;2' is no tree"},
        {"12", "'12' is no tree"},
        {"2,x", "'2,x' is no tree"},
        {"1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", "at most 16 places"},
        {"dynamic:", "'dynamic:' is no tree"},
        {"dynamic:5", "1 to 4 for each"},
        {"dynamic,2", "'dynamic,2': expected auto, dynamic, static"},
        {"static:2", "'static:2': expected auto, dynamic, static"},
        {"chains:", "'chains:': expected chains:KxL"},
        {"chains:3", "K 2 to 4 and L 1 to 16"},
        {"chains:1x4", "'chains:1x4': expected chains:KxL"},
        {"chains:5x2", "'chains:5x2': expected chains:KxL"},
        {"chains:3x0", "'chains:3x0': expected chains:KxL"},
        {"chains:2x17", "'chains:2x17': expected chains:KxL"},
        {"chains:3x4x", "'chains:3x4x': expected chains:KxL"},
        {"chains:3x+4", "'chains:3x+4': expected chains:KxL"},
        {"chains:3x4,2", "'chains:3x4,2': expected chains:KxL"},
        {"chains:4x11", "'chains:4x11' has 33 guesses beside the first chain; 31 are possible"},
        {"2,2,2,2,2", "more than 31 guesses"},
        {"4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4", "more than 31 guesses"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct trees trees;
        struct error err;
        ck_assert_int_eq(trees_parse(wrong[i].text, &trees, &err), ERR_ARGUMENT);
        ck_assert_msg(strncmp(err.text, "--trees '", 9) == 0, "%s", err.text);
        ck_assert_msg(strstr(err.text, wrong[i].why), "%s", err.text);
    }
    ck_assert_int_eq(parsed("1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1").n, DRAFT_MAX);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("trees_option");
    TCase *tcase = tcase_create("trees_option");
    tcase_add_test(tcase, each_width_is_the_number_of_guesses_after_each_guess);
    tcase_add_test(tcase, places_have_the_product_of_their_widths);
    tcase_add_test(tcase, independent_chains_have_one_length);
    tcase_add_test(tcase, words_choose_the_kind_of_trees);
    tcase_add_test(tcase, texts_that_are_no_tree_are_refused);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
