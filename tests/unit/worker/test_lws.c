/* ctest: labels=quick libs=worker timeout=60 */
/* The place of a rank in a LeaderWorkerSet, and a sentence for every environment without one. */
#include <stdlib.h>

#include "tests/support/check_util.h"
#include "worker/lws.h"

static struct error err;
static struct lws_place place;

/* NULL: the variable is not set. */
static void set_environment(const char *index, const char *size, const char *leader)
{
    const char *const names[] = {"LWS_WORKER_INDEX", "LWS_GROUP_SIZE", "LWS_LEADER_ADDRESS"};
    const char *const values[] = {index, size, leader};
    for (int i = 0; i < 3; i++) {
        if (values[i])
            ck_assert_int_eq(setenv(names[i], values[i], 1), 0);
        else
            ck_assert_int_eq(unsetenv(names[i]), 0);
    }
}

START_TEST(place_is_that_of_the_pod_and_the_lead_has_our_port)
{
    set_environment("3", "4", "target-0.target.default");
    CHECK_OK(lws_read(&place, "0.0.0.0:7071", &err));
    ck_assert_int_eq(place.rank, 3);
    ck_assert_int_eq(place.n_ranks, 4);
    ck_assert_str_eq(place.lead, "target-0.target.default:7071");
    set_environment("0", "1", "target-0");
    CHECK_OK(lws_read(&place, "[::]:9", &err));
    ck_assert_str_eq(place.lead, "target-0:9");
}
END_TEST

START_TEST(missing_and_wrong_variables_are_named)
{
    const struct {
        const char *index, *size, *leader, *text;
    } bad[] = {
        {NULL, "2", "h", "LWS_WORKER_INDEX is not set"},
        {"0", NULL, "h", "LWS_GROUP_SIZE is not set"},
        {"0", "2", NULL, "LWS_LEADER_ADDRESS is not set"},
        {"0", "2", "", "LWS_LEADER_ADDRESS is not set"},
        {"one", "2", "h", "LWS_WORKER_INDEX: 'one' is not a whole number"},
        {"-1", "2", "h", "LWS_WORKER_INDEX: '-1' is not a whole number"},
        {"0", "0", "h", "LWS_GROUP_SIZE: '0' is not a whole number from 1"},
        {"2", "2", "h", "LWS_WORKER_INDEX 2 of LWS_GROUP_SIZE 2"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        set_environment(bad[i].index, bad[i].size, bad[i].leader);
        CHECK_ERR(lws_read(&place, "0.0.0.0:7071", &err), ERR_ARGUMENT, bad[i].text);
    }
}
END_TEST

START_TEST(ranks_in_other_pods_need_a_port)
{
    const char *const bad[] = {"unix:/tmp/w", "0.0.0.0:0", "0.0.0.0", "0.0.0.0:"};
    char leader[300] = "h";
    set_environment("0", "2", leader);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_ERR(lws_read(&place, bad[i], &err), ERR_ARGUMENT, "give HOST:PORT");
    }
    for (size_t i = 0; i + 1 < sizeof leader; i++)
        leader[i] = 'h';
    set_environment("0", "2", leader);
    CHECK_ERR(lws_read(&place, "0.0.0.0:7071", &err), ERR_ARGUMENT, "is too long");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lws");
    TCase *cases = tcase_create("lws");
    tcase_add_test(cases, place_is_that_of_the_pod_and_the_lead_has_our_port);
    tcase_add_test(cases, missing_and_wrong_variables_are_named);
    tcase_add_test(cases, ranks_in_other_pods_need_a_port);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
