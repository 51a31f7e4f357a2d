/* ctest: labels=quick,threads,slow libs=rpc timeout=120 */
/* Deadlines, cancellation, absent and closing servers, and peers that do not speak gRPC. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "tests/support/rpc_fixture.h"

START_TEST(deadline_ends_a_call_that_is_never_answered)
{
    open_both(_i);
    struct buffer reply = {0};
    int64_t begin_us = clock_now_us();
    CHECK_ERR(call_method("/test.Test/Silent", "x", 1, 300, &reply), ERR_TIMEOUT, address);
    int64_t took_us = clock_now_us() - begin_us;
    ck_assert_int_ge(took_us, 250000);
    ck_assert_int_lt(took_us, 2000000);
    wait_until(&service.n_done, 1);
    ck_assert_int_eq(service.n_cancelled, 1);
    ck_assert_int_gt(service.deadline_us, begin_us + 200000);
    ck_assert_int_lt(service.deadline_us, begin_us + 400000);
    buffer_free(&reply);
    close_both();
}
END_TEST

START_TEST(receive_deadline_leaves_the_stream_alive)
{
    open_both(_i);
    const uint8_t *data;
    size_t len;
    struct rpc_stream *stream = open_stream("/test.Test/Ping", 0);
    CHECK_ERR(rpc_stream_receive(stream, &data, &len, in_ms(50), &err), ERR_TIMEOUT, address);
    CHECK_OK(rpc_stream_send(stream, (const uint8_t *)"x", 1, in_ms(5000), &err));
    CHECK_OK(rpc_stream_receive(stream, &data, &len, in_ms(5000), &err));
    ck_assert_uint_eq(len, 1);
    rpc_stream_close(stream);
    close_both();
}
END_TEST

static void *cancel_soon(void *arg)
{
    sleep_ms(50);
    rpc_stream_cancel(arg);
    return NULL;
}

START_TEST(cancel_wakes_the_receive_and_reaches_the_server)
{
    open_both(_i);
    const uint8_t *data;
    size_t len;
    pthread_t thread;
    struct rpc_stream *stream = open_stream("/test.Test/Silent", 0);
    CHECK_OK(rpc_stream_send(stream, (const uint8_t *)"x", 1, in_ms(5000), &err));
    CHECK_ERR(rpc_stream_receive(stream, &data, &len, in_ms(50), &err), ERR_TIMEOUT, "");
    pthread_create(&thread, NULL, cancel_soon, stream);
    CHECK_ERR(rpc_stream_receive(stream, &data, &len, in_ms(5000), &err), ERR_CANCELLED, address);
    int64_t cancelled_us = clock_now_us();
    pthread_join(thread, NULL);
    wait_until(&service.n_done, 1);
    ck_assert_int_eq(service.n_cancelled, 1);
    ck_assert_int_lt(service.done_us - cancelled_us, 100000);
    CHECK_ERR(rpc_stream_send(stream, (const uint8_t *)"x", 1, in_ms(5000), &err), ERR_CANCELLED,
              address);
    rpc_stream_close(stream);
    close_both();
}
END_TEST

START_TEST(server_close_cancels_live_streams_after_grace)
{
    open_both(_i);
    char name[64];
    const uint8_t *data;
    size_t len;
    pthread_t thread;
    int grace_ms = 200;
    snprintf(name, sizeof name, "%s", address);
    struct rpc_stream *stream = open_stream("/test.Test/Silent", 0);
    CHECK_OK(rpc_stream_send(stream, (const uint8_t *)"x", 1, in_ms(5000), &err));
    CHECK_ERR(rpc_stream_receive(stream, &data, &len, in_ms(50), &err), ERR_TIMEOUT, "");
    int64_t begin_us = clock_now_us();
    pthread_create(&thread, NULL, close_server, &grace_ms);
    CHECK_ERR(rpc_stream_receive(stream, &data, &len, in_ms(5000), &err), ERR_UNAVAILABLE, name);
    pthread_join(thread, NULL);
    int64_t took_us = clock_now_us() - begin_us;
    ck_assert_int_ge(took_us, 190000);
    ck_assert_int_lt(took_us, 1500000);
    ck_assert_int_eq(service.n_done, 1);
    rpc_stream_close(stream);
    rpc_client_close(client);
}
END_TEST

START_TEST(server_close_lets_a_running_call_end)
{
    open_both(_i);
    const uint8_t *data;
    size_t len;
    pthread_t thread;
    int grace_ms = 60000;
    struct rpc_stream *stream = open_request("/test.Test/Late", "", 0);
    CHECK_ERR(rpc_stream_receive(stream, &data, &len, in_ms(30), &err), ERR_TIMEOUT, "");
    int64_t begin_us = clock_now_us();
    pthread_create(&thread, NULL, close_server, &grace_ms);
    CHECK_OK(rpc_stream_receive(stream, &data, &len, in_ms(30000), &err));
    ck_assert_mem_eq(data, "late", 4);
    CHECK_ERR(rpc_stream_receive(stream, &data, &len, in_ms(30000), &err), ERR_CLOSED, "ended");
    rpc_stream_close(stream);
    rpc_client_close(client);
    pthread_join(thread, NULL);
    ck_assert_int_lt(clock_now_us() - begin_us, 30000000);
    pthread_join(service.pushers[0], NULL);
}
END_TEST

START_TEST(call_that_is_kept_outlives_its_server)
{
    open_both(_i);
    const uint8_t *data;
    size_t len;
    struct rpc_stream *stream = open_request("/test.Test/Keep", "", 0);
    CHECK_OK(rpc_stream_receive(stream, &data, &len, in_ms(5000), &err));
    rpc_server_close(server, 0);
    rpc_stream_close(stream);
    rpc_client_close(client);
    pthread_join(service.pushers[0], NULL);
    ck_assert_int_eq(service.keep_code, ERR_CANCELLED);
}
END_TEST

START_TEST(absent_server_fails_at_once_and_is_named)
{
    open_both(_i);
    char name[64];
    struct buffer reply = {0};
    snprintf(name, sizeof name, "%s", address);
    rpc_server_close(server, 0);
    int64_t begin_us = clock_now_us();
    struct rpc_request request = {
        .address = name, .path = "/test.Test/Echo", .deadline_us = in_ms(60000)};
    CHECK_ERR(rpc_client_call(client, &request, &reply, &err), ERR_UNAVAILABLE, name);
    ck_assert_int_lt(clock_now_us() - begin_us, 30000000);
    request.wait_for_ready = true;
    request.deadline_us = in_ms(200);
    CHECK_ERR(rpc_client_call(client, &request, &reply, &err), ERR_TIMEOUT, name);
    buffer_free(&reply);
    rpc_client_close(client);
}
END_TEST

/* With gRPC's own pauses, which grow from 1 s to 120 s, so many tries take more than 80 s, ours a
 * few seconds. */
enum { N_REFUSED = 10, TRIES_MS = 60000 };

static void wait_for_echo(const char *name)
{
    struct buffer reply = {0};
    struct error wait_err;
    const struct rpc_request request = {.address = name,
                                        .path = "/test.Test/Echo",
                                        .data = (const uint8_t *)"x",
                                        .len = 1,
                                        .wait_for_ready = true,
                                        .deadline_us = in_ms(TRIES_MS)};
    int rc = rpc_client_call(client, &request, &reply, &wait_err);
    ck_assert_msg(rc == 0, "%s", wait_err.text);
    ck_assert_uint_eq(reply.len, 1);
    buffer_free(&reply);
}

static void *reopen_server(void *arg)
{
    sleep_ms(300);
    CHECK_OK(open_server(arg));
    return NULL;
}

START_TEST(waiting_call_connects_when_the_server_comes)
{
    open_both(_i);
    char name[64];
    pthread_t thread;
    check_echo();
    snprintf(name, sizeof name, "%s", address);
    rpc_server_close(server, 0);
    for (int i = 0; i < 25; i++) { /* a call on the dying connection would fail */
        rpc_client_poll(client);
        sleep_ms(2);
    }
    pthread_create(&thread, NULL, reopen_server, name);
    wait_for_echo(name);
    pthread_join(thread, NULL);
    close_both();
}
END_TEST

/* A port where each connection is closed at once, until a server listens there. */
struct refuser {
    int fd;
    char name[64];
};

static void *refuse_then_open(void *arg)
{
    struct refuser *refuser = arg;
    for (int i = 0; i < N_REFUSED; i++) {
        int connection = accept(refuser->fd, NULL, NULL);
        ck_assert_int_ge(connection, 0);
        close(connection);
    }
    close(refuser->fd);
    CHECK_OK(open_server(refuser->name));
    return NULL;
}

START_TEST(waiting_call_tries_again_after_a_short_pause)
{
    struct refuser refuser = {.fd = socket(AF_INET, SOCK_STREAM, 0)};
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    pthread_t thread;
    int yes = 1; /* what is left of the closed connections keeps nobody off the port */
    ck_assert_int_eq(setsockopt(refuser.fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes), 0);
    ck_assert_int_eq(bind(refuser.fd, (const struct sockaddr *)&at, len), 0);
    ck_assert_int_eq(listen(refuser.fd, N_REFUSED), 0);
    ck_assert_int_eq(getsockname(refuser.fd, (struct sockaddr *)&at, &len), 0);
    snprintf(refuser.name, sizeof refuser.name, "127.0.0.1:%d", ntohs(at.sin_port));
    CHECK_OK(rpc_client_open(&client, NULL, &err));
    pthread_create(&thread, NULL, refuse_then_open, &refuser);
    wait_for_echo(refuser.name);
    pthread_join(thread, NULL);
    close_both();
}
END_TEST

START_TEST(second_server_on_an_address_is_refused)
{
    open_both(_i);
    struct rpc_server *first = server;
    char name[64];
    snprintf(name, sizeof name, "%s", address);
    CHECK_ERR(open_server(name), ERR_IO, name);
    ck_assert_ptr_null(server);
    CHECK_ERR(open_server("nowhere"), ERR_ARGUMENT, "nowhere");
    server = first;
    check_echo();
    close_both();
}
END_TEST

START_TEST(raw_garbage_on_the_port_harms_nobody)
{
    open_both(false);
    struct rpc_stream *stream = open_stream("/test.Test/Ping", 0);
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    for (int i = 0; i < 8; i++) {
        char garbage[4096];
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        ck_assert_int_eq(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
        memset(garbage, i * 37, sizeof garbage);
        if (i % 2) send(fd, preface, sizeof preface - 1, MSG_NOSIGNAL);
        ssize_t sent = send(fd, garbage, sizeof garbage, MSG_NOSIGNAL);
        ck_assert_int_gt(sent, 0);
        check_echo();
        close(fd);
    }
    const uint8_t *data;
    size_t len;
    CHECK_OK(rpc_stream_send(stream, (const uint8_t *)"x", 1, in_ms(5000), &err));
    CHECK_OK(rpc_stream_receive(stream, &data, &len, in_ms(5000), &err));
    rpc_stream_close(stream);
    close_both();
}
END_TEST

/* gRPC makes a channel for it that fails at once and never changes. */
START_TEST(address_that_cannot_be_used_is_refused_and_left)
{
    char longest[200] = "unix:/tmp/";
    const char *const bad[] = {longest, "ipv4:999.1.1.1:5"};
    memset(longest + 10, 'x', sizeof longest - 11);
    for (int i = 0; i < 4; i++) {
        struct rpc_client *other;
        struct buffer reply = {0};
        const struct rpc_request request = {
            .address = bad[i % 2], .path = "/test.Test/Echo", .deadline_us = in_ms(5000)};
        CHECK_OK(rpc_client_open(&other, NULL, &err));
        CHECK_ERR(rpc_client_call(other, &request, &reply, &err), ERR_UNAVAILABLE,
                  "gRPC takes HOST:PORT");
        rpc_client_close(other);
        buffer_free(&reply);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_faults");
    TCase *tcase = tcase_create("tcp, then unix");
    tcase_add_loop_test(tcase, deadline_ends_a_call_that_is_never_answered, 0, 1);
    tcase_add_loop_test(tcase, receive_deadline_leaves_the_stream_alive, 0, 1);
    tcase_add_loop_test(tcase, cancel_wakes_the_receive_and_reaches_the_server, 0, 2);
    tcase_add_loop_test(tcase, server_close_cancels_live_streams_after_grace, 0, 2);
    tcase_add_loop_test(tcase, server_close_lets_a_running_call_end, 0, 1);
    tcase_add_loop_test(tcase, call_that_is_kept_outlives_its_server, 0, 1);
    tcase_add_loop_test(tcase, absent_server_fails_at_once_and_is_named, 0, 2);
    tcase_add_loop_test(tcase, waiting_call_connects_when_the_server_comes, 0, 2);
    tcase_add_test(tcase, waiting_call_tries_again_after_a_short_pause);
    tcase_add_loop_test(tcase, second_server_on_an_address_is_refused, 0, 2);
    tcase_add_loop_test(tcase, raw_garbage_on_the_port_harms_nobody, 0, 1);
    tcase_add_test(tcase, address_that_cannot_be_used_is_refused_and_left);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
