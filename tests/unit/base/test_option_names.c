/* ctest: labels=quick libs=base timeout=30 */
/* Mistyped options and words: what is refused before argp, with which name, and what is not. */
#include "base/text/option_names.h"

#include <string.h>

#include "tests/support/check_util.h"

static const struct argp_option below[] = {{"temperature", 256, "T", 0, "", 0}, {0}};
static const struct argp_option above[] = {{"listen", 'l', "ADDRESS", 0, "", 0},
                                           {"json", 257, NULL, 0, "", 0},
                                           {"serve", 258, "A", OPTION_ARG_OPTIONAL, "", 0},
                                           {0}};
static const struct argp below_argp = {.options = below};
static const struct argp_child children[] = {{&below_argp, 0, NULL, 0}, {0}};
static const struct argp tree = {.options = above, .children = children};

enum { WORDS_MAX = 8 };

static int check(const char *const *words, bool in_order, char **last, struct error *err)
{
    static char copies[WORDS_MAX][32];
    char *argv[WORDS_MAX + 1] = {NULL};
    int argc = 0;
    for (; words[argc]; argc++) {
        argv[argc] = strcpy(copies[argc], words[argc]);
    }
    int rc = option_names_check(&tree, argc, argv, in_order, err);
    if (last) *last = argv[argc - 1];
    return rc;
}

START_TEST(a_mistyped_option_is_refused_with_the_one_that_is_meant)
{
    struct error err;
    CHECK_ERR(check((const char *[]){"p", "--temprature=1", NULL}, false, NULL, &err), ERR_ARGUMENT,
              "--temprature is not an option; do you mean --temperature?");
    CHECK_ERR(check((const char *[]){"p", "word", "--lisetn", NULL}, false, NULL, &err),
              ERR_ARGUMENT, "do you mean --listen?");
    CHECK_ERR(check((const char *[]){"p", "--hepl", NULL}, false, NULL, &err), ERR_ARGUMENT,
              "do you mean --help?");
    CHECK_ERR(check((const char *[]){"p", "--bogus", NULL}, false, NULL, &err), ERR_ARGUMENT,
              "--bogus is not an option; see --help");
    CHECK_ERR(check((const char *[]){"p", "--port", "80", NULL}, false, NULL, &err), ERR_ARGUMENT,
              "--listen=HOST:PORT");
}
END_TEST

START_TEST(what_argp_takes_is_left_alone)
{
    static const char *const good[][WORDS_MAX] = {
        {"p", "--listen", "--bogus"},
        {"p", "-l", "--bogus"},
        {"p", "-l--bogus"},
        {"p", "--temp", "--1"},
        {"p", "--json", "--", "--bogus"},
        {"p", "--serve=x", "--usage"},
        {"p", "-", "--version"},
    };
    struct error err;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        CHECK_OK(check(good[i], false, NULL, &err));
    }
    CHECK_OK(check((const char *[]){"p", "command", "--bogus", NULL}, true, NULL, &err));
    CHECK_ERR(check((const char *[]){"p", "--serve", "--bogus", NULL}, false, NULL, &err),
              ERR_ARGUMENT, "--bogus");
}
END_TEST

START_TEST(h_is_help)
{
    struct error err;
    char *last;
    CHECK_OK(check((const char *[]){"p", "-h", NULL}, false, &last, &err));
    ck_assert_str_eq(last, "--help");
}
END_TEST

START_TEST(the_nearest_word_is_near)
{
    static const char *const names[] = {"generate", "score", "jobs"};
    ck_assert_str_eq(option_names_nearest("genrate", names, 3), "generate");
    ck_assert_str_eq(option_names_nearest("socre", names, 3), "score");
    ck_assert_str_eq(option_names_nearest("job", names, 3), "jobs");
    ck_assert_ptr_null(option_names_nearest("serve-it", names, 3));
    ck_assert_ptr_null(option_names_nearest("", names, 3));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("option_names");
    TCase *cases = tcase_create("option_names");
    tcase_add_test(cases, a_mistyped_option_is_refused_with_the_one_that_is_meant);
    tcase_add_test(cases, what_argp_takes_is_left_alone);
    tcase_add_test(cases, h_is_help);
    tcase_add_test(cases, the_nearest_word_is_near);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
