/* Watching stored jobs over gRPC: a client that does not read fills its own buffer and is ended
 * with a sentence, and comes back; another one is not delayed by it. */
/* ctest: labels=quick libs=coordinator timeout=60 */
#include <string.h>

#include "base/clock.h"
#include "coordinator/gateway_watch.h"
#include "proto/jobs_wire.h"
#include "rpc/client.h"
#include "rpc/server.h"
#include "tests/support/check_util.h"

enum { N_MESSAGES = 400, TEXT_BYTES = 64 << 10, STALL_US = 300000, PATIENCE_US = 20 * 1000000 };

static struct jobs *jobs;
static struct gateway_watch *watch;
static struct rpc_server *server;
static struct rpc_client *client;
static struct error err;
static struct job_info job;
static struct buffer buf;

static void on_watch(struct rpc_call *call, void *state, const uint8_t *data, size_t len)
{
    struct error failure;
    uint32_t from;
    (void)state;
    ck_assert_uint_eq(len, sizeof from);
    memcpy(&from, data, sizeof from);
    ck_assert_int_eq(gateway_watch_add(watch, call, job.id, from, &failure), 0);
}

static const struct rpc_method method = {.path = "/test/Watch", .on_message = on_watch};

/* Token i of the answer has the id i and a long text. */
static void append_token(int i)
{
    static char text[TEXT_BYTES];
    const int32_t id = i;
    const enum token_origin origin = TOKEN_PLAIN;
    const uint32_t end = TEXT_BYTES;
    memset(text, 'a' + i % 26, sizeof text);
    const struct generate_tokens tokens = {.n = 1,
                                           .ids = &id,
                                           .origins = &origin,
                                           .text_ends = &end,
                                           .text = text,
                                           .text_len = TEXT_BYTES,
                                           .rejected_id = -1,
                                           .rejected_text = ""};
    const struct generate_reply reply = {.tokens = &tokens};
    CHECK_OK(generate_reply_encode(&buf, &reply, &err));
    const struct job_message message = {
        .kind = JOB_MESSAGE_TOKENS, .n_tokens = 1, .data = buf.data, .len = buf.len};
    CHECK_OK(jobs_append(jobs, job.number, &message, &err));
}

static void setup(void)
{
    const struct jobs_options options = {.n_kept = 4, .bytes_max = 256 << 20, .run = 1};
    const struct job_submission submission = {.key = "", .request_id = "", .n_sequences = 1};
    const struct rpc_service service = {.methods = &method, .n_methods = 1};
    const struct rpc_server_options at = {
        .address = "127.0.0.1:0", .services = &service, .n_services = 1};
    bool existed;
    CHECK_OK(jobs_open(&jobs, &options, &err));
    CHECK_OK(jobs_submit(jobs, &submission, &job, &existed, &err));
    CHECK_OK(gateway_watch_open(&watch, jobs, STALL_US, &err));
    CHECK_OK(rpc_server_open(&server, &at, &err));
    CHECK_OK(rpc_client_open(&client, &err));
}

static void teardown(void)
{
    rpc_client_close(client);
    gateway_watch_end(watch);
    rpc_server_close(server, 0);
    gateway_watch_close(watch);
    jobs_close(jobs);
    buffer_free(&buf);
}

static struct rpc_stream *start(uint32_t from)
{
    struct rpc_stream *stream;
    int64_t deadline_us = clock_now_us() + PATIENCE_US;
    CHECK_OK(rpc_stream_open(&stream, client, rpc_server_address(server), "/test/Watch", true,
                             deadline_us, &err));
    CHECK_OK(rpc_stream_send(stream, (const uint8_t *)&from, sizeof from, deadline_us, &err));
    CHECK_OK(rpc_stream_half_close(stream, &err));
    return stream;
}

/* Reads to the end of the stream; returns the id behind the last token, and the end in err. */
static int read_all(struct rpc_stream *stream, int next)
{
    static struct arena arena;
    const uint8_t *data;
    size_t len;
    if (!arena.base) CHECK_OK(arena_open(&arena, 4 << 20, &err));
    while (!rpc_stream_receive(stream, &data, &len, clock_now_us() + PATIENCE_US, &err)) {
        struct generate_reply reply;
        arena_reset(&arena);
        CHECK_OK(generate_reply_decode(data, len, &arena, &reply, &err));
        ck_assert_int_eq(reply.tokens->ids[0], next);
        ck_assert_uint_eq(reply.tokens->text_len, TEXT_BYTES);
        next++;
    }
    rpc_stream_close(stream);
    return next;
}

START_TEST(a_client_that_does_not_read_is_ended_and_comes_back)
{
    struct rpc_stream *slow = start(0);
    for (int i = 0; i < N_MESSAGES; i++) {
        append_token(i);
    }
    jobs_end(jobs, job.number, JOB_END_LENGTH, 0, "");
    ck_assert_int_eq(read_all(start(0), 0), N_MESSAGES); /* meanwhile another one reads */
    ck_assert_int_eq(err.code, ERR_CLOSED);
    int64_t until_us = clock_now_us() + 3 * STALL_US;
    while (clock_now_us() < until_us) {
        rpc_client_wait(client, until_us);
    }
    int reached = read_all(slow, 0);
    ck_assert_int_lt(reached, N_MESSAGES);
    CHECK_ERR(err.code, ERR_EXHAUSTED, "the client has not read for 300 ms");
    ck_assert_int_eq(read_all(start((uint32_t)reached), reached), N_MESSAGES);
    ck_assert_int_eq(err.code, ERR_CLOSED);
}
END_TEST

START_TEST(an_answer_that_ends_with_an_error_ends_its_watchers_so)
{
    struct rpc_stream *stream = start(0);
    append_token(0);
    jobs_end(jobs, job.number, JOB_END_UNAVAILABLE, ERR_UNAVAILABLE, "the group is lost");
    ck_assert_int_eq(read_all(stream, 0), 1);
    CHECK_ERR(err.code, ERR_UNAVAILABLE, "the group is lost");
}
END_TEST

START_TEST(closing_ends_who_waits)
{
    struct rpc_stream *stream = start(0);
    append_token(0);
    const uint8_t *data;
    size_t len;
    CHECK_OK(rpc_stream_receive(stream, &data, &len, clock_now_us() + PATIENCE_US, &err));
    gateway_watch_end(watch);
    ck_assert_int_eq(read_all(stream, 1), 1);
    CHECK_ERR(err.code, ERR_UNAVAILABLE, "shutting down");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("watch");
    TCase *tcase = tcase_create("watch");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_client_that_does_not_read_is_ended_and_comes_back);
    tcase_add_test(tcase, an_answer_that_ends_with_an_error_ends_its_watchers_so);
    tcase_add_test(tcase, closing_ends_who_waits);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
