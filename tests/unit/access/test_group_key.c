/* ctest: labels=quick libs=access timeout=60 */
/* The key of a group: where it is read from, which files hold none, and who is let in. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/group_key.h"
#include "tests/support/check_util.h"

static const char good[] = "0123456789abcdef";
static struct error err;
static struct group_key key;
static char path[] = "/tmp/outrider_group_key_XXXXXX";

static void setup(void)
{
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
    unsetenv("OUTRIDER_GROUP_KEY");
}

static void teardown(void)
{
    unlink(path);
}

static int open_file_of(const char *text)
{
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
    return group_key_open(&key, path, &err);
}

START_TEST(key_is_the_first_line_of_the_file)
{
    CHECK_OK(open_file_of("0123456789abcdef\nand more\n"));
    ck_assert_str_eq(group_key_text(&key), good);
    CHECK_OK(open_file_of("0123456789abcdef\r\n"));
    ck_assert_str_eq(group_key_text(&key), good);
}
END_TEST

START_TEST(key_is_in_the_environment_where_there_is_no_file)
{
    CHECK_OK(group_key_open(&key, NULL, &err));
    ck_assert_ptr_null(group_key_text(&key));
    ck_assert_int_eq(setenv("OUTRIDER_GROUP_KEY", "", 1), 0);
    CHECK_OK(group_key_open(&key, NULL, &err));
    ck_assert_ptr_null(group_key_text(&key));
    ck_assert_int_eq(setenv("OUTRIDER_GROUP_KEY", good, 1), 0);
    CHECK_OK(group_key_open(&key, NULL, &err));
    ck_assert_str_eq(group_key_text(&key), good);
    ck_assert_int_eq(setenv("OUTRIDER_GROUP_KEY", "short", 1), 0);
    CHECK_ERR(group_key_open(&key, NULL, &err), ERR_FORMAT, "OUTRIDER_GROUP_KEY holds no group");
    CHECK_OK(open_file_of("another-key-that-counts\n"));
    ck_assert_str_eq(group_key_text(&key), "another-key-that-counts");
}
END_TEST

START_TEST(files_without_a_key_are_refused)
{
    static char longest[GROUP_KEY_BYTES + 1];
    memset(longest, 'k', sizeof longest - 1);
    CHECK_ERR(open_file_of(""), ERR_FORMAT, "holds no group key");
    CHECK_ERR(open_file_of("\n0123456789abcdef\n"), ERR_FORMAT, "holds no group key");
    CHECK_ERR(open_file_of("0123456789abcde\n"), ERR_FORMAT, "a line of 16 to 256");
    CHECK_ERR(open_file_of("0123456789 abcdef\n"), ERR_FORMAT, path);
    CHECK_ERR(open_file_of("0123456789\x80"
                           "bcdef\n"),
              ERR_FORMAT, "holds no group key");
    CHECK_ERR(open_file_of(longest), ERR_FORMAT, "holds no group key");
    longest[GROUP_KEY_BYTES - 1] = '\0';
    CHECK_OK(open_file_of(longest));
    CHECK_ERR(group_key_open(&key, "/nowhere/key", &err), ERR_NOT_FOUND, "/nowhere/key");
    /* A key in the place of a file's name is not repeated, because the text gets into the log. */
    const char *secret = "0123456789abcdef0123456789abcdef";
    CHECK_ERR(group_key_open(&key, secret, &err), ERR_ARGUMENT, "goes into OUTRIDER_GROUP_KEY");
    ck_assert_ptr_null(strstr(err.text, secret));
    ck_assert_ptr_null(group_key_text(&key));
}
END_TEST

START_TEST(files_that_others_can_read_or_write_are_refused)
{
    static const struct {
        mode_t mode;
        bool is_taken;
    } cases[] = {{0600, true}, {0440, true}, {0644, false}, {0620, false}, {0602, false}};
    CHECK_OK(open_file_of(good));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_int_eq(chmod(path, cases[i].mode), 0);
        int rc = group_key_open(&key, path, &err);
        if (cases[i].is_taken) CHECK_OK(rc);
        if (!cases[i].is_taken) CHECK_ERR(rc, ERR_FORMAT, "by others than its owner: chmod");
    }
}
END_TEST

static int admit(const char *authorization)
{
    void *caller = NULL;
    size_t len = authorization ? strlen(authorization) : 0;
    return group_key_admit(&key, authorization, len, &caller, &err);
}

START_TEST(only_the_whole_key_is_let_in)
{
    static const char *const wrong[] = {NULL,
                                        "",
                                        "Bearer ",
                                        "0123456789abcdef",
                                        "Bearer 0123456789abcde",
                                        "Bearer 0123456789abcdef0",
                                        "Bearer 0123456789abcdeF",
                                        "Basic 0123456789abcdef"};
    CHECK_OK(open_file_of(good));
    CHECK_OK(admit("Bearer 0123456789abcdef"));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_ERR(admit(wrong[i]), ERR_UNAUTHENTICATED, "give --group-key FILE");
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("group_key");
    TCase *cases = tcase_create("group_key");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, key_is_the_first_line_of_the_file);
    tcase_add_test(cases, key_is_in_the_environment_where_there_is_no_file);
    tcase_add_test(cases, files_without_a_key_are_refused);
    tcase_add_test(cases, files_that_others_can_read_or_write_are_refused);
    tcase_add_test(cases, only_the_whole_key_is_let_in);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
