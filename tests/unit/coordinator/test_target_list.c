/* The words of --target. */
/* ctest: labels=quick libs=discovery timeout=60 */
#include <stdio.h>
#include <stdlib.h>

#include "coordinator/discovery/target_list.h"
#include "tests/support/check_util.h"

static struct target_list list;
static struct error err;

static void setup(void)
{
    memset(&list, 0, sizeof list);
    unsetenv("LWS_LEADER_ADDRESS");
    unsetenv("LWS_GROUP_SIZE");
}

START_TEST(words_of_several_options_make_one_list)
{
    CHECK_OK(target_list_add(&list, "127.0.0.1:7071,,unix:/run/rank,dns:workers.ns:7071", &err));
    CHECK_OK(target_list_add(&list, "[::1]:7072", &err));
    ck_assert_int_eq(list.n_addresses, 3);
    ck_assert_str_eq(list.addresses[0], "127.0.0.1:7071");
    ck_assert_str_eq(list.addresses[1], "unix:/run/rank");
    ck_assert_str_eq(list.addresses[2], "[::1]:7072");
    ck_assert_int_eq(list.n_names, 1);
    ck_assert_str_eq(list.names[0].name, "workers.ns");
    ck_assert_int_eq(list.names[0].port, 7071);
}
END_TEST

START_TEST(words_that_make_no_sense_are_refused)
{
    char word[TARGET_ADDRESS_BYTES + 2];
    memset(word, 'a', sizeof word - 1);
    word[sizeof word - 1] = '\0';
    CHECK_ERR(target_list_add(&list, "", &err), ERR_ARGUMENT, "names no address");
    CHECK_ERR(target_list_add(&list, ",,", &err), ERR_ARGUMENT, "names no address");
    CHECK_ERR(target_list_add(&list, "a:1,a:1", &err), ERR_ARGUMENT, "names a:1 twice");
    CHECK_ERR(target_list_add(&list, word, &err), ERR_ARGUMENT, "more than 255 bytes");
    CHECK_ERR(target_list_add(&list, "dns:name", &err), ERR_ARGUMENT, "dns:NAME:PORT");
    CHECK_ERR(target_list_add(&list, "dns::7071", &err), ERR_ARGUMENT, "dns:NAME:PORT");
    CHECK_ERR(target_list_add(&list, "dns:name:65536", &err), ERR_ARGUMENT, "1 to 65535");
    CHECK_ERR(target_list_add(&list, "lws:", &err), ERR_ARGUMENT, "lws:PORT");
    CHECK_ERR(target_list_add(&list, "lws:7071", &err), ERR_ARGUMENT, "LWS_LEADER_ADDRESS");
}
END_TEST

START_TEST(too_many_words_are_refused)
{
    char word[32];
    for (int i = 0; i < TARGET_WORDS_MAX; i++) {
        snprintf(word, sizeof word, "host:%d", i + 1);
        CHECK_OK(target_list_add(&list, word, &err));
    }
    CHECK_ERR(target_list_add(&list, "host:9999", &err), ERR_ARGUMENT, "more than 256 addresses");
    for (int i = 0; i < TARGET_NAMES_MAX; i++) {
        CHECK_OK(target_list_add(&list, "dns:name:1", &err));
    }
    CHECK_ERR(target_list_add(&list, "dns:name:1", &err), ERR_ARGUMENT, "more than 16 names");
}
END_TEST

START_TEST(lws_names_the_pods_of_the_leaders_group)
{
    setenv("LWS_LEADER_ADDRESS", "target-1.target.models", 1);
    setenv("LWS_GROUP_SIZE", "3", 1);
    CHECK_OK(target_list_add(&list, "lws:7071", &err));
    ck_assert_int_eq(list.n_addresses, 3);
    ck_assert_str_eq(list.addresses[0], "target-1.target.models:7071");
    ck_assert_str_eq(list.addresses[1], "target-1-1.target.models:7071");
    ck_assert_str_eq(list.addresses[2], "target-1-2.target.models:7071");
    setenv("LWS_GROUP_SIZE", "many", 1);
    CHECK_ERR(target_list_add(&list, "lws:7072", &err), ERR_ARGUMENT, "LWS_GROUP_SIZE");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("target_list");
    TCase *tcase = tcase_create("target_list");
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, words_of_several_options_make_one_list);
    tcase_add_test(tcase, words_that_make_no_sense_are_refused);
    tcase_add_test(tcase, too_many_words_are_refused);
    tcase_add_test(tcase, lws_names_the_pods_of_the_leaders_group);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
