/* An answer over gRPC that cannot go on: the caller gets a status that says why, and the engine
 * learns that the job has to end. */
/* ctest: labels=quick libs=coordinator timeout=60 */
#include <string.h>

#include "base/clock.h"
#include "coordinator/engine/internal.h"
#include "coordinator/grpc/grpc_stream.h"
#include "coordinator/job/job.h"
#include "coordinator/job/sent_reply.h"
#include "rpc/client.h"
#include "rpc/server.h"
#include "tests/support/check_util.h"

enum { PATIENCE_US = 20 * 1000000 };

static struct sender *sender;
static struct rpc_server *server;
static struct rpc_client *client;
static struct job *job;
static struct error err;

/* Makes the job whose reply is the call. */
static void on_ask(struct rpc_call *call, void *state, const uint8_t *data, size_t len)
{
    struct error failure;
    struct response_stream *stream;
    (void)state, (void)data, (void)len;
    ck_assert_int_eq(grpc_stream_open(&stream, call, &failure), 0);
    ck_assert_int_eq(sent_reply_open(&job->reply, stream, sender, &failure), 0);
    response_stream_unref(stream);
    rpc_call_send(call, (const uint8_t *)"asked", 5, &failure);
}

static const struct rpc_method method = {.path = "/test/Ask", .on_message = on_ask};

static struct rpc_stream *ask(void)
{
    struct rpc_stream *stream;
    const uint8_t *data;
    size_t len;
    int64_t deadline_us = clock_now_us() + PATIENCE_US;
    CHECK_OK(rpc_stream_open(&stream, client, rpc_server_address(server), "/test/Ask", true,
                             deadline_us, &err));
    CHECK_OK(rpc_stream_send(stream, (const uint8_t *)"?", 1, deadline_us, &err));
    CHECK_OK(rpc_stream_half_close(stream, &err));
    CHECK_OK(rpc_stream_receive(stream, &data, &len, deadline_us, &err));
    return stream;
}

static void setup(void)
{
    const struct rpc_service service = {.methods = &method, .n_methods = 1};
    const struct rpc_server_options at = {
        .address = "127.0.0.1:0", .services = &service, .n_services = 1};
    CHECK_OK(sender_open(&sender, &err));
    CHECK_OK(job_open(&job, JOB_GENERATE, &err));
    CHECK_OK(rpc_server_open(&server, &at, &err));
    CHECK_OK(rpc_client_open(&client, NULL, &err));
}

static void teardown(void)
{
    rpc_client_close(client);
    rpc_server_close(server, 0);
    job_free(job);
    sender_close(sender);
}

static void send_text(size_t len)
{
    char *text = calloc(len, 1);
    const struct generate_tokens tokens = {
        .text = text, .text_len = len, .rejected_id = -1, .rejected_text = ""};
    ck_assert(text != NULL);
    CHECK_OK(job->reply->ops->tokens(job->reply, &tokens, &err));
    free(text);
    sender_flush(sender, false);
}

static bool must_end(enum job_end *end, struct error *why)
{
    return engine_must_end(job, clock_now_us(), end, why);
}

/* Ends the job as the engine does when it sees that it must; what is counted and logged then. */
static struct job_report await_end(void)
{
    enum job_end end;
    struct error why;
    struct job_report report;
    int64_t until_us = clock_now_us() + PATIENCE_US;
    while (!must_end(&end, &why) && clock_now_us() < until_us) {
        clock_sleep_us(1000);
    }
    ck_assert(must_end(&end, &why));
    job_end(job, end, why.code, &why);
    job_make_report(job, &report);
    return report;
}

START_TEST(a_message_that_is_too_large_fails_its_job_and_the_caller_is_told)
{
    struct rpc_stream *stream = ask();
    const uint8_t *data;
    size_t len;
    int64_t deadline_us = clock_now_us() + PATIENCE_US;
    send_text(5);
    enum job_end end;
    CHECK_OK(rpc_stream_receive(stream, &data, &len, deadline_us, &err));
    ck_assert(!must_end(&end, &err));
    send_text(MESSAGE_BYTES_MAX);
    send_text(MESSAGE_BYTES_MAX); /* what follows changes nothing */
    struct job_report report = await_end();
    ck_assert_int_eq(report.end, JOB_END_FAILED);
    ck_assert_int_eq(report.failure.code, ERR_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(report.failure.text, "can be sent"));
    CHECK_ERR(rpc_stream_receive(stream, &data, &len, deadline_us, &err), ERR_ARGUMENT,
              "can be sent");
    rpc_stream_close(stream);
}
END_TEST

START_TEST(a_job_whose_caller_leaves_is_cancelled)
{
    enum job_end end;
    struct rpc_stream *stream = ask();
    ck_assert(!must_end(&end, &err));
    rpc_stream_close(stream);
    struct job_report report = await_end();
    ck_assert_int_eq(report.end, JOB_END_CANCELLED);
    ck_assert_int_eq(report.failure.code, ERR_CANCELLED);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sent_reply");
    TCase *tcase = tcase_create("grpc");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_message_that_is_too_large_fails_its_job_and_the_caller_is_told);
    tcase_add_test(tcase, a_job_whose_caller_leaves_is_cancelled);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
