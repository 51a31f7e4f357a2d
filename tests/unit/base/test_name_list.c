/* ctest: labels=quick libs=base timeout=60 */
/* Lists of names that options take. */
#include <string.h>

#include "base/text/name_list.h"
#include "tests/support/check_util.h"

static const struct name_list_name names[] = {{"ab", false}, {"file", true}, {"a", false}};
static const struct name_list list = {"--list", names, 3, false},
                              may_be_none = {"--list", names, 3, true};
static struct name_list_item items[NAME_LIST_NAMES_MAX];
static struct error err;
static int n;

START_TEST(names_come_in_their_order)
{
    CHECK_OK(name_list_read(&list, "a,file=/x/y=z,ab", items, &n, &err));
    ck_assert_int_eq(n, 3);
    ck_assert(items[0].index == 2 && items[1].index == 1 && items[2].index == 0);
    ck_assert(!items[0].file && !items[2].file);
    ck_assert_uint_eq(items[1].file_len, 6);
    ck_assert(memcmp(items[1].file, "/x/y=z,", 7) == 0);
    CHECK_OK(name_list_read(&may_be_none, "none", items, &n, &err));
    ck_assert_int_eq(n, 0);
}
END_TEST

START_TEST(wrong_lists_are_refused_with_the_wrong_word)
{
    static const struct {
        const char *text, *problem;
    } cases[] = {
        {"", "--list : '' is not known; expected comma-separated names from: ab, "
             "file=FILE, a"},
        {"none", "'none' is not known"},
        {"ab,", "'' is not known"},
        {",ab", "'' is not known"},
        {"abc", "'abc' is not known"},
        {"ab=c", "'ab=c' is not known"},
        {"a, ab", "' ab' is not known"},
        {"file", "the name of the file after file= is missing"},
        {"filer", "'filer' is not known"},
        {"a,file=,ab", "the name of the file after file= is missing"},
        {"a,ab,a", "a is named twice"},
        {"file=1,file=2", "file is named twice"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_ERR(name_list_read(&list, cases[i].text, items, &n, &err), ERR_ARGUMENT,
                  cases[i].problem);
        CHECK_ERR(name_list_read(&list, cases[i].text, items, &n, &err), ERR_ARGUMENT,
                  cases[i].text);
    }
    CHECK_ERR(name_list_read(&may_be_none, "none,a", items, &n, &err), ERR_ARGUMENT,
              "--list none,a: 'none' is not known; expected none or comma-separated "
              "names from: ab, file=FILE, a");
}
END_TEST

START_TEST(a_long_name_is_cut)
{
    char text[400];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    CHECK_ERR(name_list_read(&list, text, items, &n, &err), ERR_ARGUMENT,
              "xx' is not known; expected comma-separated names from: ab, file=FILE, a");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("name_list");
    TCase *tests = tcase_create("names");
    tcase_add_test(tests, names_come_in_their_order);
    tcase_add_test(tests, wrong_lists_are_refused_with_the_wrong_word);
    tcase_add_test(tests, a_long_name_is_cut);
    suite_add_tcase(suite, tests);
    return check_main(suite);
}
