/* ctest: labels=quick libs=rpc timeout=60 */
/* grpc.health.v1.Health, as every server of ours offers it. */
#include "tests/support/rpc_fixture.h"

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
    struct buffer reply = {0};
    int rc = call_method("/grpc.health.v1.Health/Check", request, health_request(request, name),
                         5000, &reply);
    if (!rc) {
        ck_assert_uint_eq(reply.len, 2);
        ck_assert_uint_eq(reply.data[0], 0x08);
        *status = reply.data[1];
    }
    buffer_free(&reply);
    return rc;
}

START_TEST(health_check_answers_known_and_unknown_names)
{
    open_both(_i);
    int status = 0;
    CHECK_OK(health_check("", &status));
    ck_assert_int_eq(status, NOT_SERVING);
    rpc_health_set(health, "", true);
    rpc_health_set(health, "a.B", false);
    CHECK_OK(health_check("", &status));
    ck_assert_int_eq(status, SERVING);
    CHECK_OK(health_check("a.B", &status));
    ck_assert_int_eq(status, NOT_SERVING);
    CHECK_ERR(health_check("c.D", &status), ERR_NOT_FOUND, "c.D");
    struct buffer reply = {0};
    CHECK_ERR(call_method("/grpc.health.v1.Health/Check", "\xff\xff\xff", 3, 5000, &reply),
              ERR_ARGUMENT, "HealthCheckRequest");
    buffer_free(&reply);
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
    rpc_health_set(health, "", true);
    rpc_health_set(health, "", true); /* no change */
    rpc_health_set(health, "a.B", true);
    rpc_health_set(health, "", false);
    expect_status(process, SERVING);
    expect_status(process, NOT_SERVING);
    expect_status(later, SERVING);
    rpc_stream_close(process); /* a watch that ends is forgotten */
    rpc_health_set(health, "", true);
    pthread_t thread;
    int grace_ms = 60000;
    int64_t begin_us = clock_now_us();
    pthread_create(&thread, NULL, close_server, &grace_ms);
    CHECK_ERR(rpc_stream_receive(later, &data, &len, in_ms(30000), &err), ERR_UNAVAILABLE,
              "closing");
    rpc_stream_close(later);
    rpc_client_close(client);
    pthread_join(thread, NULL);
    rpc_health_close(health);
    ck_assert_int_lt(clock_now_us() - begin_us, 30000000); /* watches do not use up the grace */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_health");
    TCase *tcase = tcase_create("tcp, then unix");
    tcase_add_loop_test(tcase, health_check_answers_known_and_unknown_names, 0, 1);
    tcase_add_loop_test(tcase, health_watch_tells_of_every_change, 0, 1);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
