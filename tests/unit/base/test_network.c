/* Hosts with their ports, and this host's address in a network. */
/* ctest: labels=quick libs=base timeout=30 */
#include <string.h>

#include "base/system/network.h"
#include "tests/support/check_util.h"

static struct error err;

START_TEST(a_host_and_its_port_are_joined_as_an_address)
{
    static const char *const cases[][3] = {{"127.0.0.1", "7071", "127.0.0.1:7071"},
                                           {"fd00::7", "7071", "[fd00::7]:7071"},
                                           {"fe80::1%eth0", "0", "[fe80::1%eth0]:0"}};
    char out[NETWORK_JOINED_BYTES];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        network_join(cases[i][0], cases[i][1], out);
        ck_assert_str_eq(out, cases[i][2]);
    }
    char longest[400];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    network_join(longest, longest, out);
    ck_assert_uint_eq(strlen(out), 63 + 1 + 20);
}
END_TEST

START_TEST(an_address_is_found_by_interface_and_by_network)
{
    char out[NETWORK_ADDRESS_BYTES];
    CHECK_OK(network_find_address("lo", out, &err));
    ck_assert_str_eq(out, "127.0.0.1");
    CHECK_OK(network_find_address("127.0.0.0/8", out, &err));
    ck_assert_str_eq(out, "127.0.0.1");
}
END_TEST

START_TEST(network_without_an_address_is_refused_with_those_there_are)
{
    static const char *const bad[] = {"",          "10.1.0.0/33", "10.1/16",
                                      "10.1.0.0/", "x/8",         "a-name-that-is-too-long"};
    char out[NETWORK_ADDRESS_BYTES];
    CHECK_ERR(network_find_address("203.0.113.0/24", out, &err), ERR_NOT_FOUND,
              "has no address in it; it has lo 127.0.0.1");
    CHECK_ERR(network_find_address("2001:db8:77::/64", out, &err), ERR_NOT_FOUND,
              "has no address in it; it has lo 127.0.0.1");
    CHECK_ERR(network_find_address("nosuch0", out, &err), ERR_NOT_FOUND,
              "--network nosuch0: this host has no address in it");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_ERR(network_find_address(bad[i], out, &err), ERR_ARGUMENT,
                  "expected the name of an interface");
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("network");
    TCase *tcase = tcase_create("network");
    tcase_add_test(tcase, a_host_and_its_port_are_joined_as_an_address);
    tcase_add_test(tcase, an_address_is_found_by_interface_and_by_network);
    tcase_add_test(tcase, network_without_an_address_is_refused_with_those_there_are);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
