/* Helpers that the tests of rpc/ share: a server with a method for each behaviour, and a client.
 * Every test runs in a process of its own, so the fixture is a few static variables. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "rpc/client.h"
#include "rpc/health.h"
#include "rpc/server.h"
#include "tests/support/check_util.h"
#include "tests/support/sleep_util.h"

enum { MIB = 1 << 20, STREAM_MESSAGES = 1000, N_PUSHERS = 4, PUSHES = 200 };

/* ---- the server under test ---- */

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

/* Sends more than the client reads, until a send is refused. */
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
    uint8_t *block = calloc(1, MESSAGE_BYTES_MAX + 1);
    rpc_call_send(call, block, MESSAGE_BYTES_MAX + 1, &err);
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

/* Sends until a send fails, and once more when the server is long closed. */
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
    {.path = "/test.Test/Exchange",
     .is_stream_in = true,
     .is_exchange = true,
     .on_message = on_ping,
     .on_half_close = on_ping_half_close,
     .on_done = on_call_done},
    {.path = "/test.Test/Silent",
     .is_stream_in = true,
     .on_message = on_silent,
     .on_done = on_call_done},
    {.path = "/test.Test/Deaf", .is_stream_in = true, .on_half_close = on_ping_half_close},
    {.path = "/test.Test/Flood", .on_message = on_flood, .on_done = on_call_done},
    {.path = "/test.Test/Fail", .on_message = on_fail},
    {.path = "/test.Test/FailLate", .on_message = on_fail_late},
    {.path = "/test.Test/TooLong", .on_message = on_too_long},
    {.path = "/test.Test/Push", .on_message = on_push},
    {.path = "/test.Test/Keep", .on_message = on_keep},
    {.path = "/test.Test/Late", .on_message = on_late},
};

/* ---- fixture; each test runs in a process of its own ---- */

static struct error err;
static struct service service;
static struct rpc_health *health;
static struct rpc_server *server;
static struct rpc_client *client;
static const char *address;

static struct certificates *server_certificates;      /* NULL: the server is plain */
static struct rpc_authenticator server_authenticator; /* zeroed: it serves everybody */
static char unix_address[64];

static inline int open_server(const char *where)
{
    if (!health) CHECK_OK(rpc_health_open(&health, &err));
    const struct rpc_service services[] = {
        {.methods = methods, .n_methods = sizeof methods / sizeof *methods, .state = &service},
        rpc_health_service(health),
    };
    const struct rpc_server_options options = {.address = where,
                                               .services = services,
                                               .n_services = 2,
                                               .certificates = server_certificates,
                                               .authenticator = server_authenticator};
    return rpc_server_open(&server, &options, &err);
}

static inline void open_both(bool is_unix)
{
    snprintf(unix_address, sizeof unix_address, "unix:/tmp/test_rpc_%d.sock", (int)getpid());
    CHECK_OK(open_server(is_unix ? unix_address : "127.0.0.1:0"));
    address = rpc_server_address(server);
    CHECK_OK(rpc_client_open(&client, NULL, &err));
}

static inline void close_both(void)
{
    rpc_client_close(client);
    rpc_server_close(server, 100);
    rpc_health_close(health);
    for (int i = 0; i < service.n_pushers; i++)
        pthread_join(service.pushers[i], NULL);
}

static inline int64_t in_ms(int ms)
{
    return clock_now_us() + (int64_t)ms * 1000;
}

static inline void wait_until(const atomic_int *value, int wanted)
{
    for (int i = 0; i < 500 && *value < wanted; i++)
        sleep_ms(2);
    ck_assert_int_ge(*value, wanted);
}

static inline int call_method(const char *path, const void *data, size_t len, int ms,
                              struct buffer *reply)
{
    const struct rpc_request request = {
        .address = address, .path = path, .data = data, .len = len, .deadline_us = in_ms(ms)};
    return rpc_client_call(client, &request, reply, &err);
}

static inline void check_echo(void)
{
    struct buffer reply = {0};
    CHECK_OK(call_method("/test.Test/Echo", "hello", 5, 5000, &reply));
    ck_assert_uint_eq(reply.len, 5);
    ck_assert_mem_eq(reply.data, "hello", 5);
    buffer_free(&reply);
}

static inline struct rpc_stream *open_stream(const char *path, int ms)
{
    struct rpc_stream *stream;
    CHECK_OK(
        rpc_stream_open(&stream, client, address, path, false, ms ? in_ms(ms) : INT64_MAX, &err));
    return stream;
}

static inline struct rpc_stream *open_request(const char *path, const void *data, size_t len)
{
    struct rpc_stream *stream = open_stream(path, 20000);
    CHECK_OK(rpc_stream_send(stream, data, len, in_ms(5000), &err));
    CHECK_OK(rpc_stream_half_close(stream, &err));
    return stream;
}

static inline void *close_server(void *arg)
{
    int grace_ms = *(int *)arg;
    rpc_server_close(server, grace_ms);
    return NULL;
}
