/* ctest: labels=quick,threads libs=proto timeout=120 */
/* Server and client of proto/rpc_* in one process, over TCP loopback and over unix sockets. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "check_util.h"
#include "proto/rpc_client.h"
#include "proto/rpc_server.h"

enum { MIB = 1 << 20, STREAM_MESSAGES = 1000, PING_ROUNDS = 1000, PING_BYTES = 600 };
enum { N_PUSHERS = 4, PUSHES = 200 };

/* ---- the server under test ---- */

static void sleep_ms(int ms)
{
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    nanosleep(&time, NULL);
}

struct service {
    atomic_int n_done, n_cancelled, flood_code, keep_code;
    _Atomic int64_t done_us, deadline_us, flood_bytes;
    atomic_int n_pushers;
    pthread_t pushers[N_PUSHERS];
};

static void on_echo(struct rpc_call *call, void *service, const uint8_t *data, size_t len)
{
    (void)service;
    struct error err;
    ck_assert_int_eq(rpc_call_send(call, data, len, &err), 0);
    rpc_call_finish(call, ERR_NONE, "");
}

static void on_count(struct rpc_call *call, void *service, const uint8_t *data, size_t len)
{
    (void)service, (void)data, (void)len;
    struct error err;
    for (int32_t i = 0; i < STREAM_MESSAGES; i++) {
        CHECK_OK(rpc_call_send(call, (const uint8_t *)&i, sizeof i, &err));
    }
    rpc_call_finish(call, ERR_NONE, "");
    ck_assert_int_eq(rpc_call_send(call, data, len, &err), ERR_CANCELLED);
}

static void on_ping(struct rpc_call *call, void *service, const uint8_t *data, size_t len)
{
    (void)service;
    struct error err;
    CHECK_OK(rpc_call_send(call, data, len, &err));
}

static void on_ping_half_close(struct rpc_call *call, void *service)
{
    (void)service;
    rpc_call_finish(call, ERR_NONE, "");
}

static void on_call_done(struct rpc_call *call, void *service)
{
    struct service *s = service;
    s->done_us = clock_now_us();
    if (rpc_call_is_cancelled(call)) s->n_cancelled++;
    s->n_done++;
}

static void on_silent(struct rpc_call *call, void *service, const uint8_t *data, size_t len)
{
    (void)data, (void)len;
    struct service *s = service;
    s->deadline_us = rpc_call_deadline_us(call);
}

/* Sends more than the client reads, until that is refused. */
static void on_flood(struct rpc_call *call, void *service, const uint8_t *data, size_t len)
{
    (void)data, (void)len;
    struct service *s = service;
    struct error err = {0};
    static uint8_t block[MIB];
    for (int i = 0; i < 1000 && !err.code; i++) {
        if (rpc_call_send(call, block, sizeof block, &err) == 0) s->flood_bytes += MIB;
    }
    s->flood_code = err.code;
    rpc_call_finish(call, err.code, err.text);
}

/* Finishes with the code that the request names (as a positive byte). */
static void on_fail(struct rpc_call *call, void *service, const uint8_t *data, size_t len)
{
    (void)service;
    ck_assert_uint_eq(len, 1);
    rpc_call_finish(call, -(int)data[0], "as you wish");
}

static void on_fail_late(struct rpc_call *call, void *service, const uint8_t *data, size_t len)
{
    (void)service, (void)data, (void)len;
    struct error err;
    for (int32_t i = 0; i < 3; i++) {
        CHECK_OK(rpc_call_send(call, (const uint8_t *)&i, sizeof i, &err));
    }
    rpc_call_finish(call, ERR_NOT_FOUND, "lost it");
}

static void on_too_long(struct rpc_call *call, void *service, const uint8_t *data, size_t len)
{
    (void)service, (void)data, (void)len;
    struct error err = {0};
    uint8_t *block = calloc(1, WIRE_MESSAGE_BYTES_MAX + 1);
    rpc_call_send(call, block, WIRE_MESSAGE_BYTES_MAX + 1, &err);
    free(block);
    rpc_call_finish(call, err.code, err.text);
}

static void *push(void *arg)
{
    struct rpc_call *call = arg;
    struct error err;
    for (int32_t i = 0; i < PUSHES; i++) {
        CHECK_OK(rpc_call_send(call, (const uint8_t *)&i, sizeof i, &err));
    }
    rpc_call_finish(call, ERR_NONE, "");
    rpc_call_unref(call);
    return NULL;
}

static void on_push(struct rpc_call *call, void *service, const uint8_t *data, size_t len)
{
    (void)data, (void)len;
    struct service *s = service;
    rpc_call_ref(call);
    pthread_create(&s->pushers[s->n_pushers++], NULL, push, call);
}

/* Sends until that fails, and once more when the server is long gone. */
static void *keep_sending(void *arg)
{
    struct rpc_call *call = arg;
    struct error err = {0};
    struct service *s = rpc_call_data(call);
    while (rpc_call_send(call, (const uint8_t *)"x", 1, &err) == 0)
        sleep_ms(1);
    s->keep_code = err.code;
    sleep_ms(200);
    ck_assert_int_eq(rpc_call_send(call, (const uint8_t *)"x", 1, &err), ERR_CANCELLED);
    rpc_call_finish(call, ERR_NONE, "");
    ck_assert(rpc_call_is_cancelled(call));
    rpc_call_unref(call);
    return NULL;
}

static void on_keep(struct rpc_call *call, void *service, const uint8_t *data, size_t len)
{
    (void)data, (void)len;
    struct service *s = service;
    rpc_call_ref(call);
    rpc_call_set_data(call, s);
    pthread_create(&s->pushers[s->n_pushers++], NULL, keep_sending, call);
}

/* Keeps the call and answers it later, from another thread, while the server closes. */
static void *answer_late(void *arg)
{
    struct rpc_call *call = arg;
    struct error err;
    sleep_ms(100);
    CHECK_OK(rpc_call_send(call, (const uint8_t *)"late", 4, &err));
    rpc_call_finish(call, ERR_NONE, "");
    rpc_call_unref(call);
    return NULL;
}

static void on_late(struct rpc_call *call, void *service, const uint8_t *data, size_t len)
{
    (void)data, (void)len;
    struct service *s = service;
    rpc_call_ref(call);
    pthread_create(&s->pushers[s->n_pushers++], NULL, answer_late, call);
}

static const struct rpc_method methods[] = {
    {.path = "/test.Test/Echo", .on_message = on_echo},
    {.path = "/test.Test/Count", .on_message = on_count},
    {.path = "/test.Test/Ping",
     .is_stream_in = true,
     .on_message = on_ping,
     .on_half_close = on_ping_half_close,
     .on_done = on_call_done},
    {.path = "/test.Test/Silent",
     .is_stream_in = true,
     .on_message = on_silent,
     .on_done = on_call_done},
    {.path = "/test.Test/Flood", .on_message = on_flood, .on_done = on_call_done},
    {.path = "/test.Test/Fail", .on_message = on_fail},
    {.path = "/test.Test/FailLate", .on_message = on_fail_late},
    {.path = "/test.Test/TooLong", .on_message = on_too_long},
    {.path = "/test.Test/Push", .on_message = on_push},
    {.path = "/test.Test/Keep", .on_message = on_keep},
    {.path = "/test.Test/Late", .on_message = on_late},
};

/* ---- fixture; each test is a process of its own ---- */

static struct error err;
static struct service service;
static struct rpc_server *server;
static struct rpc_client *client;
static const char *address;

static char unix_address[64];

static int open_server(const char *where)
{
    struct rpc_server_options options = {.address = where,
                                         .methods = methods,
                                         .n_methods = sizeof methods / sizeof *methods,
                                         .service = &service};
    return rpc_server_open(&server, &options, &err);
}

static void open_both(bool is_unix)
{
    snprintf(unix_address, sizeof unix_address, "unix:/tmp/test_rpc_%d.sock", (int)getpid());
    CHECK_OK(open_server(is_unix ? unix_address : "127.0.0.1:0"));
    address = rpc_server_address(server);
    CHECK_OK(rpc_client_open(&client, &err));
}

static void close_both(void)
{
    rpc_client_close(client);
    rpc_server_close(server, 100);
    for (int i = 0; i < service.n_pushers; i++)
        pthread_join(service.pushers[i], NULL);
}

static int64_t in_ms(int ms)
{
    return clock_now_us() + (int64_t)ms * 1000;
}

static void wait_until(const atomic_int *value, int wanted)
{
    for (int i = 0; i < 500 && *value < wanted; i++)
        sleep_ms(2);
    ck_assert_int_ge(*value, wanted);
}

static int call_method(const char *path, const void *data, size_t len, int ms,
                       struct wire_buffer *reply)
{
    return rpc_client_call(client, address, path, data, len, false, in_ms(ms), reply, &err);
}

static void check_echo(void)
{
    struct wire_buffer reply = {0};
    CHECK_OK(call_method("/test.Test/Echo", "hello", 5, 5000, &reply));
    ck_assert_uint_eq(reply.len, 5);
    ck_assert_mem_eq(reply.data, "hello", 5);
    wire_buffer_free(&reply);
}

static struct rpc_stream *open_stream(const char *path, int ms)
{
    struct rpc_stream *stream;
    CHECK_OK(
        rpc_stream_open(&stream, client, address, path, false, ms ? in_ms(ms) : INT64_MAX, &err));
    return stream;
}

static struct rpc_stream *open_request(const char *path, const void *data, size_t len)
{
    struct rpc_stream *stream = open_stream(path, 20000);
    CHECK_OK(rpc_stream_send(stream, data, len, in_ms(5000), &err));
    CHECK_OK(rpc_stream_half_close(stream, &err));
    return stream;
}

/* ---- calls and streams ---- */

START_TEST(unary_call_echoes)
{
    open_both(_i);
    for (int i = 0; i < 20; i++)
        check_echo();
    struct wire_buffer reply = {0};
    CHECK_OK(call_method("/test.Test/Echo", "", 0, 5000, &reply));
    ck_assert_uint_eq(reply.len, 0);
    wire_buffer_free(&reply);
    close_both();
}
END_TEST

START_TEST(server_stream_delivers_all_in_order)
{
    open_both(_i);
    const uint8_t *data;
    size_t len;
    struct rpc_stream *stream = open_request("/test.Test/Count", "", 0);
    for (int32_t i = 0; i < STREAM_MESSAGES; i++) {
        CHECK_OK(rpc_stream_receive(stream, &data, &len, in_ms(5000), &err));
        ck_assert_uint_eq(len, sizeof i);
        ck_assert_mem_eq(data, &i, sizeof i);
    }
    CHECK_ERR(rpc_stream_receive(stream, &data, &len, in_ms(5000), &err), ERR_CLOSED, address);
    ck_assert(rpc_stream_is_over(stream));
    struct rpc_counters counters = rpc_stream_counters(stream);
    ck_assert_uint_eq(counters.messages_sent, 1);
    ck_assert_uint_eq(counters.messages_received, STREAM_MESSAGES);
    ck_assert_uint_eq(counters.bytes_received, 4 * STREAM_MESSAGES);
    rpc_stream_close(stream);
    close_both();
}
END_TEST

static int compare_times(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

typedef int send_fn(struct rpc_stream *stream, const uint8_t *data, size_t len, int64_t deadline_us,
                    struct error *err);

static void ping_pong(const char *name, send_fn *send)
{
    static int64_t times[PING_ROUNDS];
    uint8_t message[PING_BYTES] = {0};
    const uint8_t *data;
    size_t len;
    struct rpc_stream *stream = open_stream("/test.Test/Ping", 0);
    for (int i = 0; i < PING_ROUNDS; i++) {
        int64_t begin_ns = clock_now_ns();
        memcpy(message, &i, sizeof i);
        CHECK_OK(send(stream, message, sizeof message, in_ms(5000), &err));
        CHECK_OK(rpc_stream_receive(stream, &data, &len, in_ms(5000), &err));
        times[i] = clock_now_ns() - begin_ns;
        ck_assert_uint_eq(len, sizeof message);
        ck_assert_mem_eq(data, message, sizeof message);
    }
    CHECK_OK(rpc_stream_half_close(stream, &err));
    CHECK_ERR(rpc_stream_receive(stream, &data, &len, in_ms(5000), &err), ERR_CLOSED, "ended");
    rpc_stream_close(stream);
    qsort(times, PING_ROUNDS, sizeof *times, compare_times);
    log_line(LOG_LEVEL_DEBUG, "round_trip", "way=%s/%s bytes=%d p50_us=%.1f p99_us=%.1f", address,
             name, PING_BYTES, (double)times[PING_ROUNDS / 2] / 1e3,
             (double)times[PING_ROUNDS * 99 / 100] / 1e3);
}

START_TEST(ping_pong_keeps_every_round)
{
    open_both(_i);
    ping_pong("send", rpc_stream_send);
    ping_pong("ask", rpc_stream_ask);
    close_both();
}
END_TEST

START_TEST(second_ask_waits_for_the_first_answer)
{
    open_both(_i);
    const uint8_t *data;
    size_t len;
    struct rpc_stream *stream = open_stream("/test.Test/Ping", 0);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(rpc_stream_ask(stream, (const uint8_t *)&i, sizeof i, in_ms(5000), &err));
    }
    CHECK_OK(rpc_stream_half_close(stream, &err));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(rpc_stream_receive(stream, &data, &len, in_ms(5000), &err));
        ck_assert_mem_eq(data, &i, sizeof i);
    }
    CHECK_ERR(rpc_stream_receive(stream, &data, &len, in_ms(5000), &err), ERR_CLOSED, "ended");
    rpc_stream_close(stream);
    stream = open_stream("/test.Test/Silent", 0);
    CHECK_OK(rpc_stream_ask(stream, (const uint8_t *)"x", 1, in_ms(5000), &err));
    CHECK_ERR(rpc_stream_ask(stream, (const uint8_t *)"x", 1, in_ms(50), &err), ERR_TIMEOUT,
              address);
    rpc_stream_close(stream);
    close_both();
}
END_TEST

/* The client never half closes and first looks when all is over. */
START_TEST(messages_before_a_failure_are_delivered)
{
    open_both(_i);
    const uint8_t *data;
    size_t len;
    struct rpc_stream *stream = open_stream("/test.Test/FailLate", 0);
    CHECK_OK(rpc_stream_send(stream, (const uint8_t *)"x", 1, in_ms(5000), &err));
    for (int i = 0; i < 50; i++) {
        rpc_client_poll(client);
        sleep_ms(2);
    }
    for (int32_t i = 0; i < 3; i++) {
        CHECK_OK(rpc_stream_receive(stream, &data, &len, in_ms(5000), &err));
        ck_assert_mem_eq(data, &i, sizeof i);
    }
    CHECK_ERR(rpc_stream_receive(stream, &data, &len, in_ms(5000), &err), ERR_NOT_FOUND, "lost it");
    ck_assert(rpc_stream_is_over(stream));
    rpc_stream_close(stream);
    close_both();
}
END_TEST

START_TEST(second_send_does_not_need_an_answer)
{
    open_both(_i);
    const uint8_t *data;
    size_t len;
    struct rpc_stream *stream = open_stream("/test.Test/Ping", 0);
    for (int i = 0; i < 50; i++) {
        CHECK_OK(rpc_stream_send(stream, (const uint8_t *)&i, sizeof i, in_ms(5000), &err));
    }
    for (int i = 0; i < 50; i++) {
        CHECK_OK(rpc_stream_receive(stream, &data, &len, in_ms(5000), &err));
        ck_assert_mem_eq(data, &i, sizeof i);
    }
    rpc_stream_close(stream);
    close_both();
}
END_TEST

START_TEST(garbage_and_long_messages_arrive_unharmed)
{
    open_both(_i);
    struct wire_buffer reply = {0};
    size_t lens[] = {1, 64, 65536, 5 * MIB + 7};
    for (int i = 0; i < 4; i++) {
        uint8_t *data = malloc(lens[i]);
        uint32_t state = 12345;
        for (size_t k = 0; k < lens[i]; k++) {
            state = state * 1664525 + 1013904223;
            data[k] = (uint8_t)(state >> 24);
        }
        CHECK_OK(call_method("/test.Test/Echo", data, lens[i], 20000, &reply));
        ck_assert_uint_eq(reply.len, lens[i]);
        ck_assert_mem_eq(reply.data, data, lens[i]);
        free(data);
    }
    wire_buffer_free(&reply);
    close_both();
}
END_TEST

START_TEST(streams_progress_while_another_is_awaited)
{
    open_both(_i);
    struct rpc_stream *stream[3];
    const uint8_t *data;
    size_t len;
    for (int i = 0; i < 3; i++)
        stream[i] = open_stream("/test.Test/Ping", 0);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 3; i++) {
            int value = round * 3 + i;
            CHECK_OK(rpc_stream_send(stream[i], (const uint8_t *)&value, sizeof value, in_ms(5000),
                                     &err));
        }
        for (int i = 2; i >= 0; i--) {
            int value = round * 3 + i;
            CHECK_OK(rpc_stream_receive(stream[i], &data, &len, in_ms(5000), &err));
            ck_assert_mem_eq(data, &value, sizeof value);
        }
    }
    for (int i = 0; i < 3; i++)
        rpc_stream_close(stream[i]);
    close_both();
}
END_TEST

START_TEST(sends_from_many_threads_reach_their_calls)
{
    open_both(_i);
    struct rpc_stream *stream[N_PUSHERS];
    const uint8_t *data;
    size_t len;
    for (int i = 0; i < N_PUSHERS; i++)
        stream[i] = open_request("/test.Test/Push", "", 0);
    for (int32_t k = 0; k < PUSHES; k++) {
        for (int i = 0; i < N_PUSHERS; i++) {
            CHECK_OK(rpc_stream_receive(stream[i], &data, &len, in_ms(5000), &err));
            ck_assert_mem_eq(data, &k, sizeof k);
        }
    }
    for (int i = 0; i < N_PUSHERS; i++) {
        CHECK_ERR(rpc_stream_receive(stream[i], &data, &len, in_ms(5000), &err), ERR_CLOSED, "");
        rpc_stream_close(stream[i]);
    }
    close_both();
}
END_TEST

/* ---- refusals ---- */

START_TEST(unknown_method_is_refused_at_once)
{
    open_both(_i);
    struct wire_buffer reply = {0};
    int64_t begin_us = clock_now_us();
    CHECK_ERR(call_method("/test.Test/Nothing", "x", 1, 5000, &reply), ERR_UNSUPPORTED,
              "/test.Test/Nothing");
    ck_assert_int_lt(clock_now_us() - begin_us, 1000000);
    check_echo();
    wire_buffer_free(&reply);
    close_both();
}
END_TEST

START_TEST(every_error_code_survives_the_wire)
{
    static const int codes[][2] = {
        {ERR_ARGUMENT, ERR_ARGUMENT},       {ERR_FORMAT, ERR_ARGUMENT},
        {ERR_UNSUPPORTED, ERR_UNSUPPORTED}, {ERR_IO, ERR_INTERNAL},
        {ERR_NO_MEMORY, ERR_EXHAUSTED},     {ERR_NOT_FOUND, ERR_NOT_FOUND},
        {ERR_EXHAUSTED, ERR_EXHAUSTED},     {ERR_UNAVAILABLE, ERR_UNAVAILABLE},
        {ERR_TIMEOUT, ERR_TIMEOUT},         {ERR_CANCELLED, ERR_CANCELLED},
        {ERR_CLOSED, ERR_UNAVAILABLE},      {ERR_INTERNAL, ERR_INTERNAL},
    };
    open_both(_i);
    struct wire_buffer reply = {0};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        uint8_t request = (uint8_t)-codes[i][0];
        CHECK_ERR(call_method("/test.Test/Fail", &request, 1, 5000, &reply), codes[i][1],
                  "as you wish");
    }
    wire_buffer_free(&reply);
    close_both();
}
END_TEST

START_TEST(messages_over_the_limit_are_refused_on_both_sides)
{
    open_both(_i);
    struct wire_buffer reply = {0};
    uint8_t *data = calloc(1, WIRE_MESSAGE_BYTES_MAX + 1);
    CHECK_ERR(call_method("/test.Test/Echo", data, WIRE_MESSAGE_BYTES_MAX + 1, 5000, &reply),
              ERR_ARGUMENT, "67108865 bytes");
    CHECK_ERR(call_method("/test.Test/TooLong", "", 0, 5000, &reply), ERR_ARGUMENT,
              "67108865 bytes");
    free(data);
    check_echo();
    wire_buffer_free(&reply);
    close_both();
}
END_TEST

START_TEST(client_that_does_not_read_is_bounded)
{
    open_both(_i);
    struct rpc_stream *stream = open_request("/test.Test/Flood", "", 0);
    for (int i = 0; i < 1000 && !service.flood_code; i++) {
        rpc_client_poll(client);
        sleep_ms(2);
    }
    ck_assert_int_eq(service.flood_code, ERR_EXHAUSTED);
    ck_assert_int_ge(service.flood_bytes, RPC_CALL_QUEUE_BYTES - MIB);
    wait_until(&service.n_done, 1); /* what was queued is gone although nobody reads */
    check_echo();
    const uint8_t *data;
    size_t len;
    int rc = 0;
    while (!rc)
        rc = rpc_stream_receive(stream, &data, &len, in_ms(5000), &err);
    ck_assert_int_eq(rc, ERR_EXHAUSTED);
    ck_assert_msg(strstr(err.text, "does not read"), "%s", err.text);
    rpc_stream_close(stream);
    close_both();
}
END_TEST

/* ---- time, cancellation, absence ---- */

START_TEST(deadline_ends_a_call_that_is_never_answered)
{
    open_both(_i);
    struct wire_buffer reply = {0};
    int64_t begin_us = clock_now_us();
    CHECK_ERR(call_method("/test.Test/Silent", "x", 1, 300, &reply), ERR_TIMEOUT, address);
    int64_t took_us = clock_now_us() - begin_us;
    ck_assert_int_ge(took_us, 250000);
    ck_assert_int_lt(took_us, 2000000);
    wait_until(&service.n_done, 1);
    ck_assert_int_eq(service.n_cancelled, 1);
    ck_assert_int_gt(service.deadline_us, begin_us + 200000);
    ck_assert_int_lt(service.deadline_us, begin_us + 400000);
    wire_buffer_free(&reply);
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

static void *close_server(void *arg)
{
    int grace_ms = *(int *)arg;
    rpc_server_close(server, grace_ms);
    return NULL;
}

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
    int grace_ms = 5000;
    struct rpc_stream *stream = open_request("/test.Test/Late", "", 0);
    CHECK_ERR(rpc_stream_receive(stream, &data, &len, in_ms(30), &err), ERR_TIMEOUT, "");
    int64_t begin_us = clock_now_us();
    pthread_create(&thread, NULL, close_server, &grace_ms);
    CHECK_OK(rpc_stream_receive(stream, &data, &len, in_ms(5000), &err));
    ck_assert_mem_eq(data, "late", 4);
    CHECK_ERR(rpc_stream_receive(stream, &data, &len, in_ms(5000), &err), ERR_CLOSED, "ended");
    rpc_stream_close(stream);
    rpc_client_close(client);
    pthread_join(thread, NULL);
    ck_assert_int_lt(clock_now_us() - begin_us, 3000000);
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
    struct wire_buffer reply = {0};
    snprintf(name, sizeof name, "%s", address);
    rpc_server_close(server, 0);
    int64_t begin_us = clock_now_us();
    CHECK_ERR(
        rpc_client_call(client, name, "/test.Test/Echo", NULL, 0, false, in_ms(5000), &reply, &err),
        ERR_UNAVAILABLE, name);
    ck_assert_int_lt(clock_now_us() - begin_us, 1000000);
    CHECK_ERR(
        rpc_client_call(client, name, "/test.Test/Echo", NULL, 0, true, in_ms(200), &reply, &err),
        ERR_TIMEOUT, name);
    wire_buffer_free(&reply);
    rpc_client_close(client);
}
END_TEST

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
    struct wire_buffer reply = {0};
    check_echo();
    snprintf(name, sizeof name, "%s", address);
    rpc_server_close(server, 0);
    pthread_create(&thread, NULL, reopen_server, name);
    int64_t begin_us = clock_now_us();
    struct error wait_err;
    int rc = rpc_client_call(client, name, "/test.Test/Echo", (const uint8_t *)"x", 1, true,
                             in_ms(10000), &reply, &wait_err);
    ck_assert_msg(rc == 0, "%s", wait_err.text);
    ck_assert_int_lt(clock_now_us() - begin_us, 3000000);
    pthread_join(thread, NULL);
    ck_assert_uint_eq(reply.len, 1);
    wire_buffer_free(&reply);
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

/* ---- health ---- */

enum { SERVING = 1, NOT_SERVING = 2, SERVICE_UNKNOWN = 3 };

/* HealthCheckRequest{service}, written by hand. */
static size_t health_request(uint8_t out[64], const char *name)
{
    size_t len = strlen(name);
    if (!len) return 0;
    out[0] = 0x0a;
    out[1] = (uint8_t)len;
    memcpy(out + 2, name, len);
    return len + 2;
}

static int health_check(const char *name, int *status)
{
    uint8_t request[64];
    struct wire_buffer reply = {0};
    int rc = call_method("/grpc.health.v1.Health/Check", request, health_request(request, name),
                         5000, &reply);
    if (!rc) {
        ck_assert_uint_eq(reply.len, 2);
        ck_assert_uint_eq(reply.data[0], 0x08);
        *status = reply.data[1];
    }
    wire_buffer_free(&reply);
    return rc;
}

START_TEST(health_check_answers_known_and_unknown_names)
{
    open_both(_i);
    int status = 0;
    CHECK_OK(health_check("", &status));
    ck_assert_int_eq(status, NOT_SERVING);
    rpc_server_set_health(server, "", true);
    rpc_server_set_health(server, "a.B", false);
    CHECK_OK(health_check("", &status));
    ck_assert_int_eq(status, SERVING);
    CHECK_OK(health_check("a.B", &status));
    ck_assert_int_eq(status, NOT_SERVING);
    CHECK_ERR(health_check("c.D", &status), ERR_NOT_FOUND, "c.D");
    struct wire_buffer reply = {0};
    CHECK_ERR(call_method("/grpc.health.v1.Health/Check", "\xff\xff\xff", 3, 5000, &reply),
              ERR_ARGUMENT, "HealthCheckRequest");
    wire_buffer_free(&reply);
    close_both();
}
END_TEST

static void expect_status(struct rpc_stream *stream, uint8_t status)
{
    const uint8_t *data;
    size_t len;
    CHECK_OK(rpc_stream_receive(stream, &data, &len, in_ms(5000), &err));
    ck_assert_uint_eq(len, 2);
    ck_assert_uint_eq(data[0], 0x08);
    ck_assert_uint_eq(data[1], status);
}

START_TEST(health_watch_tells_of_every_change)
{
    open_both(_i);
    uint8_t request[64];
    const uint8_t *data;
    size_t len;
    struct rpc_stream *process =
        open_request("/grpc.health.v1.Health/Watch", request, health_request(request, ""));
    struct rpc_stream *later =
        open_request("/grpc.health.v1.Health/Watch", request, health_request(request, "a.B"));
    expect_status(process, NOT_SERVING);
    expect_status(later, SERVICE_UNKNOWN);
    rpc_server_set_health(server, "", true);
    rpc_server_set_health(server, "", true); /* no news */
    rpc_server_set_health(server, "a.B", true);
    rpc_server_set_health(server, "", false);
    expect_status(process, SERVING);
    expect_status(process, NOT_SERVING);
    expect_status(later, SERVING);
    rpc_stream_close(process); /* a watch that goes is forgotten */
    rpc_server_set_health(server, "", true);
    pthread_t thread;
    int grace_ms = 5000;
    int64_t begin_us = clock_now_us();
    pthread_create(&thread, NULL, close_server, &grace_ms);
    CHECK_ERR(rpc_stream_receive(later, &data, &len, in_ms(5000), &err), ERR_UNAVAILABLE,
              "closing");
    rpc_stream_close(later);
    rpc_client_close(client);
    pthread_join(thread, NULL);
    ck_assert_int_lt(clock_now_us() - begin_us, 2000000); /* watches do not use up the grace */
}
END_TEST

int main(void)
{
    if (getenv("OUTRIDER_TEST_DEBUG")) log_open("test_rpc", LOG_LEVEL_DEBUG);
    Suite *suite = suite_create("rpc");
    TCase *both = tcase_create("tcp and unix");
    tcase_add_loop_test(both, unary_call_echoes, 0, 2);
    tcase_add_loop_test(both, server_stream_delivers_all_in_order, 0, 2);
    tcase_add_loop_test(both, ping_pong_keeps_every_round, 0, 2);
    tcase_add_loop_test(both, garbage_and_long_messages_arrive_unharmed, 0, 2);
    tcase_add_loop_test(both, sends_from_many_threads_reach_their_calls, 0, 2);
    tcase_add_loop_test(both, cancel_wakes_the_receive_and_reaches_the_server, 0, 2);
    tcase_add_loop_test(both, server_close_cancels_live_streams_after_grace, 0, 2);
    tcase_add_loop_test(both, absent_server_fails_at_once_and_is_named, 0, 2);
    tcase_add_loop_test(both, waiting_call_connects_when_the_server_comes, 0, 2);
    tcase_add_loop_test(both, second_server_on_an_address_is_refused, 0, 2);
    suite_add_tcase(suite, both);
    TCase *tcp = tcase_create("tcp");
    tcase_add_loop_test(tcp, second_send_does_not_need_an_answer, 0, 1);
    tcase_add_loop_test(tcp, second_ask_waits_for_the_first_answer, 0, 1);
    tcase_add_loop_test(tcp, messages_before_a_failure_are_delivered, 0, 1);
    tcase_add_loop_test(tcp, streams_progress_while_another_is_awaited, 0, 1);
    tcase_add_loop_test(tcp, unknown_method_is_refused_at_once, 0, 1);
    tcase_add_loop_test(tcp, every_error_code_survives_the_wire, 0, 1);
    tcase_add_loop_test(tcp, messages_over_the_limit_are_refused_on_both_sides, 0, 1);
    tcase_add_loop_test(tcp, client_that_does_not_read_is_bounded, 0, 1);
    tcase_add_loop_test(tcp, deadline_ends_a_call_that_is_never_answered, 0, 1);
    tcase_add_loop_test(tcp, receive_deadline_leaves_the_stream_alive, 0, 1);
    tcase_add_loop_test(tcp, server_close_lets_a_running_call_end, 0, 1);
    tcase_add_loop_test(tcp, call_that_is_kept_outlives_its_server, 0, 1);
    tcase_add_loop_test(tcp, raw_garbage_on_the_port_harms_nobody, 0, 1);
    tcase_add_loop_test(tcp, health_check_answers_known_and_unknown_names, 0, 1);
    tcase_add_loop_test(tcp, health_watch_tells_of_every_change, 0, 1);
    suite_add_tcase(suite, tcp);
    return check_main(suite);
}
