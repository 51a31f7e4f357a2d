/* ctest: labels=quick,threads libs=rpc timeout=120 */
/* Calls and streams between server and client of rpc/, over TCP loopback and unix sockets. With
 * OUTRIDER_TEST_DEBUG in the environment it logs the round trip times. */
#include "base/limits.h"
#include "base/log.h"
#include "tests/support/rpc_fixture.h"

enum { PING_ROUNDS = 1000, PING_BYTES = 600 };

/* ---- calls and streams ---- */

START_TEST(unary_call_echoes)
{
    open_both(_i);
    for (int i = 0; i < 20; i++)
        check_echo();
    struct buffer reply = {0};
    CHECK_OK(call_method("/test.Test/Echo", "", 0, 5000, &reply));
    ck_assert_uint_eq(reply.len, 0);
    buffer_free(&reply);
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

/* The server awaits each message only after its answer to the one before; whatever the client does,
 * all are answered, in order. */
START_TEST(exchange_answers_every_message)
{
    open_both(_i);
    const uint8_t *data;
    size_t len;
    int32_t sent = 0;
    struct rpc_stream *stream = open_stream("/test.Test/Exchange", 0);
    for (int32_t i = 0; i < PING_ROUNDS; i++) {
        for (; sent < i + 1 + i % 3; sent++) { /* up to two that are too early */
            CHECK_OK(
                rpc_stream_send(stream, (const uint8_t *)&sent, sizeof sent, in_ms(5000), &err));
        }
        CHECK_OK(rpc_stream_receive(stream, &data, &len, in_ms(5000), &err));
        ck_assert_uint_eq(len, sizeof i);
        ck_assert_mem_eq(data, &i, sizeof i);
    }
    for (; sent > PING_ROUNDS; sent--) {
        CHECK_OK(rpc_stream_receive(stream, &data, &len, in_ms(5000), &err));
    }
    CHECK_OK(rpc_stream_half_close(stream, &err));
    CHECK_ERR(rpc_stream_receive(stream, &data, &len, in_ms(5000), &err), ERR_CLOSED, "ended");
    rpc_stream_close(stream);
    close_both();
}
END_TEST

/* The client never half closes, and reads only when all is over. */
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
    struct buffer reply = {0};
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
    buffer_free(&reply);
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

/* One wait for many streams finds the message that comes first, however late the others are. */
START_TEST(many_streams_are_watched_at_once)
{
    enum { N_STREAMS = 3 };
    open_both(_i);
    struct rpc_stream *stream[N_STREAMS];
    const uint8_t *data;
    size_t len;
    bool is_here;
    for (int i = 0; i < N_STREAMS; i++)
        stream[i] = open_stream("/test.Test/Ping", 0);
    for (int round = 0; round < 20; round++) {
        int value = round, late = round % N_STREAMS, n_answers = 0;
        for (int i = 0; i < N_STREAMS; i++) {
            if (i == late) continue;
            CHECK_OK(rpc_stream_send(stream[i], (const uint8_t *)&value, sizeof value, in_ms(5000),
                                     &err));
        }
        while (n_answers < N_STREAMS - 1) {
            int n_before = n_answers;
            for (int i = 0; i < N_STREAMS; i++) {
                CHECK_OK(rpc_stream_try_receive(stream[i], &data, &len, &is_here, &err));
                ck_assert(!is_here || (i != late && memcmp(data, &value, sizeof value) == 0));
                n_answers += is_here;
            }
            if (n_answers == n_before) ck_assert(rpc_client_wait(client, in_ms(5000)));
        }
    }
    for (int i = 0; i < N_STREAMS; i++)
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

/* As on the Stay streams of ranks, which carry no messages. */
START_TEST(messages_of_a_method_that_handles_none_are_dropped)
{
    open_both(_i);
    struct rpc_stream *stream = open_stream("/test.Test/Deaf", 0);
    const uint8_t *data;
    size_t len;
    for (int i = 0; i < 3; i++) {
        CHECK_OK(rpc_stream_send(stream, (const uint8_t *)"x", 1, in_ms(5000), &err));
    }
    CHECK_OK(rpc_stream_half_close(stream, &err));
    CHECK_ERR(rpc_stream_receive(stream, &data, &len, in_ms(5000), &err), ERR_CLOSED, "");
    rpc_stream_close(stream);
    check_echo();
    close_both();
}
END_TEST

/* ---- refusals ---- */

START_TEST(unknown_method_is_refused_at_once)
{
    open_both(_i);
    struct buffer reply = {0};
    int64_t begin_us = clock_now_us();
    CHECK_ERR(call_method("/test.Test/Nothing", "x", 1, 60000, &reply), ERR_UNSUPPORTED,
              "/test.Test/Nothing");
    ck_assert_int_lt(clock_now_us() - begin_us, 30000000); /* half of the call's time */
    check_echo();
    buffer_free(&reply);
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
    struct buffer reply = {0};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        uint8_t request = (uint8_t)-codes[i][0];
        CHECK_ERR(call_method("/test.Test/Fail", &request, 1, 5000, &reply), codes[i][1],
                  "as you wish");
    }
    buffer_free(&reply);
    close_both();
}
END_TEST

START_TEST(messages_over_the_limit_are_refused_on_both_sides)
{
    open_both(_i);
    struct buffer reply = {0};
    uint8_t *data = calloc(1, MESSAGE_BYTES_MAX + 1);
    CHECK_ERR(call_method("/test.Test/Echo", data, MESSAGE_BYTES_MAX + 1, 5000, &reply),
              ERR_ARGUMENT, "67108865 bytes");
    CHECK_ERR(call_method("/test.Test/TooLong", "", 0, 5000, &reply), ERR_ARGUMENT,
              "67108865 bytes");
    free(data);
    check_echo();
    buffer_free(&reply);
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
    wait_until(&service.n_done, 1); /* the queue is dropped although the client does not read */
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

/* Not a test: serves for test_rpc_python.py until its standard input ends. */
START_TEST(serve)
{
    CHECK_OK(open_server("127.0.0.1:0"));
    rpc_health_set(health, "", true);
    printf("%s\n", rpc_server_address(server));
    fflush(stdout);
    while (getchar() != EOF) {
    }
    rpc_server_close(server, 1000);
}
END_TEST

int main(void)
{
    if (getenv("OUTRIDER_TEST_DEBUG")) log_open("test_rpc", LOG_LEVEL_DEBUG);
    Suite *suite = suite_create("rpc");
    TCase *tcase = tcase_create("tcp, then unix");
    suite_add_tcase(suite, tcase);
    if (getenv("OUTRIDER_TEST_SERVE")) {
        tcase_set_timeout(tcase, 280);
        tcase_add_test(tcase, serve);
        return check_main(suite);
    }
    tcase_add_loop_test(tcase, unary_call_echoes, 0, 2);
    tcase_add_loop_test(tcase, server_stream_delivers_all_in_order, 0, 2);
    tcase_add_loop_test(tcase, ping_pong_keeps_every_round, 0, 2);
    tcase_add_loop_test(tcase, second_ask_waits_for_the_first_answer, 0, 1);
    tcase_add_loop_test(tcase, exchange_answers_every_message, 0, 1);
    tcase_add_loop_test(tcase, messages_before_a_failure_are_delivered, 0, 1);
    tcase_add_loop_test(tcase, second_send_does_not_need_an_answer, 0, 1);
    tcase_add_loop_test(tcase, garbage_and_long_messages_arrive_unharmed, 0, 2);
    tcase_add_loop_test(tcase, streams_progress_while_another_is_awaited, 0, 1);
    tcase_add_loop_test(tcase, many_streams_are_watched_at_once, 0, 2);
    tcase_add_loop_test(tcase, sends_from_many_threads_reach_their_calls, 0, 2);
    tcase_add_loop_test(tcase, messages_of_a_method_that_handles_none_are_dropped, 0, 1);
    tcase_add_loop_test(tcase, unknown_method_is_refused_at_once, 0, 1);
    tcase_add_loop_test(tcase, every_error_code_survives_the_wire, 0, 1);
    tcase_add_loop_test(tcase, messages_over_the_limit_are_refused_on_both_sides, 0, 1);
    tcase_add_loop_test(tcase, client_that_does_not_read_is_bounded, 0, 1);
    return check_main(suite);
}
