/* ctest: labels=quick libs=worker timeout=60 */
/* The addresses of ranks, as they follow from --listen and --lead. */
#include <string.h>
#include <unistd.h>

#include "tests/support/check_util.h"
#include "worker/address.h"

static struct error err;
static char out[ADDRESS_BYTES];

START_TEST(rank_takes_the_port_plus_its_number)
{
    CHECK_OK(address_of_rank("127.0.0.1:7071", 3, 4, out, &err));
    ck_assert_str_eq(out, "127.0.0.1:7074");
    CHECK_OK(address_of_rank("[::1]:7071", 0, 1, out, &err));
    ck_assert_str_eq(out, "[::1]:7071");
    CHECK_OK(address_of_rank("0.0.0.0:0", 3, 4, out, &err));
    ck_assert_str_eq(out, "0.0.0.0:0");
}
END_TEST

START_TEST(rank_of_several_has_a_socket_of_its_own)
{
    CHECK_OK(address_of_rank("unix:/tmp/w", 3, 4, out, &err));
    ck_assert_str_eq(out, "unix:/tmp/w.3");
    CHECK_OK(address_of_rank("unix:/tmp/w", 0, 1, out, &err));
    ck_assert_str_eq(out, "unix:/tmp/w");
}
END_TEST

START_TEST(rank_refuses_other_forms)
{
    static const char *const bad[] = {"nowhere", "host:", "host:port", "host:65530", "host:-1"};
    char longest[ADDRESS_BYTES + 16] = "unix:/";
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_ERR(address_of_rank(bad[i], 0, 1, out, &err), ERR_ARGUMENT,
                  "expected HOST:PORT or unix:PATH (port 0 to 65527)");
    }
    memset(longest + 6, 'x', ADDRESS_BYTES);
    CHECK_ERR(address_of_rank(longest, 0, 1, out, &err), ERR_ARGUMENT, "is too long");
    CHECK_ERR(address_of_lead(longest, "127.0.0.1:7071", 4, out, &err), ERR_ARGUMENT,
              "is too long");
}
END_TEST

START_TEST(lead_is_given_or_follows_from_listen)
{
    CHECK_OK(address_of_lead(NULL, "127.0.0.1:7071", 4, out, &err));
    ck_assert_str_eq(out, "127.0.0.1:7071");
    CHECK_OK(address_of_lead(NULL, "unix:/tmp/w", 4, out, &err));
    ck_assert_str_eq(out, "unix:/tmp/w.0");
    CHECK_ERR(address_of_lead(NULL, "0.0.0.0:0", 4, out, &err), ERR_ARGUMENT, "give --lead");
    CHECK_OK(address_of_lead("worker-0.workers:7071", "0.0.0.0:0", 4, out, &err));
    ck_assert_str_eq(out, "worker-0.workers:7071");
}
END_TEST

START_TEST(wildcard_becomes_the_address_in_a_network)
{
    CHECK_OK(address_in_network("0.0.0.0:7071", NULL, out, &err));
    ck_assert_str_eq(out, "0.0.0.0:7071");
    CHECK_OK(address_in_network("0.0.0.0:7071", "lo", out, &err));
    ck_assert_str_eq(out, "127.0.0.1:7071");
    CHECK_OK(address_in_network("[::]:7071", "127.0.0.0/8", out, &err));
    ck_assert_str_eq(out, "127.0.0.1:7071");
    CHECK_ERR(address_in_network("127.0.0.1:7071", "lo", out, &err), ERR_ARGUMENT,
              "already says where");
}
END_TEST

START_TEST(wildcard_becomes_the_name_of_this_host)
{
    char host[100];
    ck_assert_int_eq(gethostname(host, sizeof host), 0);
    address_make_reachable("0.0.0.0:7071", out);
    ck_assert_ptr_nonnull(strstr(out, ":7071"));
    ck_assert_int_eq(strncmp(out, host, strlen(host)), 0);
    address_make_reachable("[::]:7071", out);
    ck_assert_int_eq(strncmp(out, host, strlen(host)), 0);
    address_make_reachable("10.0.0.7:7071", out);
    ck_assert_str_eq(out, "10.0.0.7:7071");
    address_make_reachable("unix:/tmp/w", out);
    ck_assert_str_eq(out, "unix:/tmp/w");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("address");
    TCase *cases = tcase_create("address");
    tcase_add_test(cases, rank_takes_the_port_plus_its_number);
    tcase_add_test(cases, rank_of_several_has_a_socket_of_its_own);
    tcase_add_test(cases, rank_refuses_other_forms);
    tcase_add_test(cases, lead_is_given_or_follows_from_listen);
    tcase_add_test(cases, wildcard_becomes_the_address_in_a_network);
    tcase_add_test(cases, wildcard_becomes_the_name_of_this_host);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
