/* ctest: labels=quick,threads libs=rpc timeout=60 */
/* A door that is full closes the connection that has had no call for the longest time, and no other
 * one. */
#include <arpa/inet.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/system/network.h"
#include "tests/support/rpc_fixture.h"

enum { FILES = 120, STRANGERS = 70 };

static int strangers[STRANGERS];

/* The server may hold FILES / 3 connections; the process gets its files back for the strangers. */
static void open_small(void)
{
    struct rlimit before, few = {.rlim_cur = FILES};
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    few.rlim_max = before.rlim_max;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    ck_assert_int_eq(network_connections_most(), FILES / 3);
    open_both(false);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
}

static int stranger(void)
{
    const char *colon = strrchr(address, ':');
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(colon + 1))};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(inet_pton(AF_INET, "127.0.0.1", &to.sin_addr), 1);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static void come(int n)
{
    for (int i = 0; i < n; i++)
        strangers[i] = stranger();
}

static void leave(int n)
{
    for (int i = 0; i < n; i++)
        close(strangers[i]);
}

/* True if the server closes the connection. It sends its settings first. */
static bool ends(int fd, int ms)
{
    char bytes[256];
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    while (poll(&wait, 1, ms) > 0) {
        if (recv(fd, bytes, sizeof bytes, 0) <= 0) return true;
    }
    return false;
}

START_TEST(the_oldest_idle_connections_make_room)
{
    open_small();
    struct rpc_stream *used = open_stream("/test.Test/Ping", 0);
    const uint8_t *data;
    size_t len;
    CHECK_OK(rpc_stream_send(used, (const uint8_t *)"x", 1, in_ms(5000), &err));
    CHECK_OK(rpc_stream_receive(used, &data, &len, in_ms(5000), &err));
    come(STRANGERS);
    ck_assert(ends(strangers[0], 10000));
    ck_assert(ends(strangers[STRANGERS - FILES / 3 - 1], 10000));
    ck_assert(!ends(strangers[STRANGERS - 1], 200));
    CHECK_OK(rpc_stream_send(used, (const uint8_t *)"y", 1, in_ms(5000), &err));
    CHECK_OK(rpc_stream_receive(used, &data, &len, in_ms(5000), &err));
    rpc_stream_close(used);
    leave(STRANGERS);
    check_echo();
    close_both();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_connections");
    TCase *cases = tcase_create("rpc_connections");
    tcase_set_timeout(cases, 50);
    tcase_add_test(cases, the_oldest_idle_connections_make_room);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
