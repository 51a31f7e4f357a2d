/* ctest: labels=quick libs=access timeout=20 */
/* Which addresses only this machine can reach. */
#include "access/reach.h"
#include "tests/support/check_util.h"

static struct error err;

START_TEST(loopback_and_unix_sockets_are_local)
{
    static const char *const local[] = {
        "unix:/tmp/w",    "unix:w",     "127.0.0.1:7071",
        "127.9.8.7:0",    "[::1]:7071", "[::ffff:127.0.0.1]:7071",
        "localhost:7071",
    };
    for (size_t i = 0; i < sizeof local / sizeof *local; i++) {
        ck_assert_msg(reach_is_local(local[i]), "%s", local[i]);
    }
}
END_TEST

START_TEST(whatever_else_an_address_may_be_is_not_local)
{
    static const char *const others[] = {
        "0.0.0.0:7071",
        "[::]:7071",
        "[::ffff:10.0.0.1]:7071",
        "10.0.0.1:7071",
        "128.0.0.1:7071",
        ":7071",
        "",
        "worker-0:7071",
        "127.0.0.1.example.com:7071",
        "localhost.example.com:7071",
        "127.1:7071",
        "[127.0.0.1:7071",
        "ipv4:127.0.0.1:7071",
        "1270000000000000000000000000000000000000000000000000000000000000000000000000.0.0.1:1",
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        ck_assert_msg(!reach_is_local(others[i]), "%s", others[i]);
    }
}
END_TEST

START_TEST(names_that_somebodys_dns_answers_for)
{
    static const char *const domains[] = {
        "a.example",           "a.example:80", "localhost.a.example:1",
        "127.0.0.1.a.example", "xlocalhost",   "0x7f000001"};
    static const char *const others[] = {"127.0.0.1",      "10.0.0.1:80", "[::1]:8000",  "[::1]",
                                         "localhost:8000", "LOCALHOST",   "a.localhost", ""};
    for (size_t i = 0; i < sizeof domains / sizeof *domains; i++) {
        ck_assert_msg(reach_is_domain(domains[i]), "%s", domains[i]);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        ck_assert_msg(!reach_is_domain(others[i]), "%s", others[i]);
    }
}
END_TEST

START_TEST(path_of_a_unix_socket_is_what_follows_its_name)
{
    ck_assert_str_eq(reach_unix_path("unix:/tmp/w"), "/tmp/w");
    ck_assert_ptr_null(reach_unix_path("127.0.0.1:7071"));
    ck_assert_ptr_null(reach_unix_path("unix"));
}
END_TEST

static int check_door(const char *address, bool is_guarded)
{
    const struct reach_door door = {
        .option = "--listen", .address = address, .is_guarded = is_guarded, .ways = "give --keys"};
    return reach_check(&door, &err);
}

START_TEST(door_that_others_can_reach_must_be_guarded)
{
    CHECK_OK(check_door("127.0.0.1:7070", false));
    CHECK_OK(check_door("unix:/tmp/w", false));
    CHECK_OK(check_door("0.0.0.0:7070", true));
    CHECK_ERR(check_door("0.0.0.0:7070", false), ERR_ARGUMENT, "--listen 0.0.0.0:7070: other");
    CHECK_ERR(check_door("nonsense", true), ERR_ARGUMENT, "--listen 'nonsense': expected HOST:");
    CHECK_ERR(check_door("front.example.com:0", false), ERR_ARGUMENT, "; give --keys");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("reach");
    TCase *addresses = tcase_create("addresses");
    tcase_add_test(addresses, loopback_and_unix_sockets_are_local);
    tcase_add_test(addresses, whatever_else_an_address_may_be_is_not_local);
    tcase_add_test(addresses, names_that_somebodys_dns_answers_for);
    tcase_add_test(addresses, path_of_a_unix_socket_is_what_follows_its_name);
    tcase_add_test(addresses, door_that_others_can_reach_must_be_guarded);
    suite_add_tcase(suite, addresses);
    return check_main(suite);
}
