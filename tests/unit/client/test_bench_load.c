/* ctest: labels=quick libs=client timeout=60 */
/* The load of `outrider bench` on servers that misbehave: each failure is one request's, and
 * counted; none is waited for beyond its time. */
#include <unistd.h>

#include "base/clock.h"
#include "client/bench/load.h"
#include "rpc/server.h"
#include "tests/support/check_util.h"
#include "tests/support/generation_replies.h"

enum { HELD_MAX = 64 };

/* The answers that requests get, one after the other, over and over. */
enum answer { GOOD, TWO_SUMMARIES, NO_SUMMARY, GARBAGE, FULL, SILENT, NOT_SERVING };

struct service {
    const enum answer *answers;
    int n_answers, n_calls;
    int n_held, n_held_most; /* calls that wait for each other */
    int n_together;          /* this many are answered at once; 0 = each at once */
    struct rpc_call *held[HELD_MAX];
};

static struct error err;
static struct records records; /* of the last run */

static void send_summary(struct rpc_call *call)
{
    static const struct generate_summary summary = {
        .finish_reason = "length",
        .stop_match = "",
        .rule = "rejection",
        .speculation_off = "",
        .request_id = "r",
        .arithmetic = "a",
        .prompt_tokens = 3,
        .completion_tokens = 4,
        .n_draft = 5,
        .counters = {.rounds = 2, .drafted = 10, .accepted = 2, .rejections = 2, .rounds_us = 100}};
    send_reply(call, &(struct generate_reply){.summary = &summary});
}

static void answer(struct rpc_call *call, enum answer how)
{
    struct error failure;
    if (how == FULL) rpc_call_finish(call, ERR_EXHAUSTED, "the queue is full");
    if (how == NOT_SERVING) rpc_call_finish(call, ERR_UNAVAILABLE, "rank 1 is gone");
    if (how >= FULL) return; /* and SILENT, until the client has had enough */
    send_tokens(call);
    send_tokens(call);
    if (how == GARBAGE) rpc_call_send(call, (const uint8_t *)"\xff\xff", 2, &failure);
    if (how == GOOD || how == TWO_SUMMARIES) send_summary(call);
    if (how == TWO_SUMMARIES) send_summary(call);
    rpc_call_finish(call, 0, "");
}

/* On the network thread, one at a time. */
static void on_generate(struct rpc_call *call, void *data, const uint8_t *request, size_t len)
{
    struct service *service = data;
    enum answer how = service->answers[service->n_calls++ % service->n_answers];
    (void)request, (void)len;
    if (!service->n_together) {
        answer(call, how);
        return;
    }
    rpc_call_ref(call);
    service->held[service->n_held++] = call;
    if (service->n_held > service->n_held_most) service->n_held_most = service->n_held;
    if (service->n_held < service->n_together) return;
    for (; service->n_held > 0; service->n_held--) {
        answer(service->held[service->n_held - 1], how);
        rpc_call_unref(service->held[service->n_held - 1]);
    }
}

/* Runs the arm with a timeout of 1 s per request; returns load_run's code. */
static int run(struct service *service, const struct bench_arm *arm, int n_requests,
               struct tally *tally)
{
    static const int32_t ids[] = {1, 2, 3};
    struct bench_prompt prompt = {.ids = ids, .n_ids = 3};
    const struct bench_prompts prompts = {.items = &prompt, .n = 1};
    const struct rpc_method methods[] = {
        {.path = "/outrider.generation.v1.Generation/Generate", .on_message = on_generate}};
    const struct rpc_service offered = {.methods = methods, .n_methods = 1, .state = service};
    const struct rpc_server_options options = {
        .address = "127.0.0.1:0", .services = &offered, .n_services = 1};
    struct rpc_server *server;
    struct server client;
    struct load load;
    CHECK_OK(rpc_server_open(&server, &options, &err));
    const struct connection connection = {.address = rpc_server_address(server)};
    CHECK_OK(server_open(&client, &connection, 0, &err));
    CHECK_OK(load_open(&load, &client, &prompts, 1, 1, &err));
    records_free(&records);
    load.records = &records;
    load.repetition = 3;
    int rc = load_run(&load, arm, 0, n_requests, tally, &err);
    load_close(&load);
    server_close(&client);
    rpc_server_close(server, 100);
    return rc;
}

static struct bench_arm arm_of(int concurrency, float rate_hz)
{
    struct bench_arm arm = {.concurrency = concurrency, .rate_hz = rate_hz};
    generate_options_init(&arm.generate);
    return arm;
}

START_TEST(good_requests_add_up)
{
    static const enum answer answers[] = {GOOD, TWO_SUMMARIES};
    struct service service = {.answers = answers, .n_answers = 2};
    const struct bench_arm arm = arm_of(2, 0);
    static struct tally tally;
    CHECK_OK(run(&service, &arm, 10, &tally));
    ck_assert_int_eq(tally.n_done, 10);
    ck_assert_int_eq(tally.n_failed, 0);
    ck_assert_int_eq(tally.n_draft, 5);
    ck_assert_int_eq(tally.sum.prompt_tokens, 30);
    ck_assert_int_eq(tally.sum.completion_tokens, 40);
    ck_assert_uint_eq(tally.sum.counters.accepted, 20);
    ck_assert_uint_eq(tally.first_token.n, 10);
    ck_assert_uint_eq(tally.message_gap.n, 10);
    ck_assert_uint_eq(tally.token_gap.n, 20);
    ck_assert_uint_eq(tally.request.n, 10);
}
END_TEST

/* Also those that fail, with their sentences and what had come until then. */
START_TEST(each_request_is_recorded)
{
    static const enum answer answers[] = {GOOD, GARBAGE, FULL};
    struct service service = {.answers = answers, .n_answers = 3};
    const struct bench_arm arm = arm_of(1, 0);
    static struct tally tally;
    CHECK_OK(run(&service, &arm, 6, &tally));
    ck_assert_uint_eq(records.n, 6);
    for (int i = 0; i < 6; i++) {
        const struct record *record = &records.items[i];
        const struct record_text *text = &record->texts[0];
        ck_assert(record->arm == &arm && record->repetition == 3 && record->number == i);
        ck_assert(record->n_texts == 1 && record->total_us > 0 && record->begin_us >= 0);
        ck_assert_int_eq((int)text->n, i % 3 == 2 ? 0 : 2);
        ck_assert_int_eq(record->prompt_tokens, i % 3 == 0 ? 3 : -1);
        ck_assert_str_eq(text->finish_reason, i % 3 == 0 ? "length" : "");
        ck_assert((record->error == NULL) == (i % 3 == 0));
        if (text->n == 0) {
            ck_assert_ptr_nonnull(strstr(record->error, "the queue is full"));
            continue;
        }
        ck_assert(text->messages[0].at_us <= text->messages[1].at_us);
        ck_assert_int_eq(text->messages[1].n_tokens, 2);
    }
    json_t *shown = records_json(&records), *first = json_array_get(shown, 0);
    ck_assert_uint_eq(json_array_size(shown), 6);
    json_t *text = json_array_get(json_object_get(first, "texts"), 0);
    ck_assert_uint_eq(json_array_size(json_object_get(text, "itls")), 1);
    ck_assert_int_eq(json_integer_value(json_object_get(text, "completion_tokens")), 4);
    ck_assert(json_is_null(json_object_get(first, "error")));
    ck_assert(json_is_string(json_object_get(json_array_get(shown, 2), "error")));
    json_decref(shown);
    records_free(&records);
}
END_TEST

START_TEST(requests_for_two_texts_end_with_the_second_summary)
{
    static const enum answer answers[] = {TWO_SUMMARIES, GOOD};
    struct service service = {.answers = answers, .n_answers = 2};
    struct bench_arm arm = arm_of(1, 0);
    static struct tally tally;
    arm.generate.request.n = 2;
    CHECK_OK(run(&service, &arm, 10, &tally));
    ck_assert_int_eq(tally.n_done, 5);
    ck_assert_int_eq(tally.n_failed, 5); /* half of the answer is missing */
    ck_assert_int_eq(tally.n_summaries, 15);
    ck_assert_uint_eq(tally.request.n, 5);
    ck_assert_uint_eq(tally.queue.n, 15);
}
END_TEST

START_TEST(every_failure_is_one_request_s)
{
    static const enum answer answers[] = {GOOD, NO_SUMMARY, GARBAGE, FULL};
    struct service service = {.answers = answers, .n_answers = 4};
    const struct bench_arm arm = arm_of(3, 0);
    static struct tally tally;
    CHECK_OK(run(&service, &arm, 12, &tally));
    ck_assert_int_eq(tally.n_done, 3);
    ck_assert_int_eq(tally.n_failed, 9);
    ck_assert_int_eq(tally.n_errors, 3);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(tally.errors[i].n, 3);
}
END_TEST

START_TEST(silence_ends_with_the_request_s_time)
{
    static const enum answer answers[] = {SILENT};
    struct service service = {.answers = answers, .n_answers = 1};
    const struct bench_arm arm = arm_of(2, 0);
    static struct tally tally;
    int64_t begin_ms = clock_now_ms();
    CHECK_OK(run(&service, &arm, 2, &tally));
    ck_assert_int_lt(clock_now_ms() - begin_ms, 30000);
    ck_assert_int_eq(tally.n_failed, 2);
    ck_assert_ptr_nonnull(strstr(tally.errors[0].text, "in time"));
}
END_TEST

START_TEST(server_that_does_not_serve_ends_the_run)
{
    static const enum answer answers[] = {GOOD, NOT_SERVING};
    struct service service = {.answers = answers, .n_answers = 2};
    const struct bench_arm arm = arm_of(1, 0);
    static struct tally tally;
    CHECK_ERR(run(&service, &arm, 10, &tally), ERR_UNAVAILABLE, "rank 1 is gone");
    ck_assert_int_eq(tally.n_done, 1);
    ck_assert_int_eq(tally.n_failed, 1);
}
END_TEST

/* The server answers when it has five: a closed loop of five gets through, and never has more. */
START_TEST(closed_loop_has_so_many_at_once)
{
    static const enum answer answers[] = {GOOD};
    struct service service = {.answers = answers, .n_answers = 1, .n_together = 5};
    const struct bench_arm arm = arm_of(5, 0);
    static struct tally tally;
    CHECK_OK(run(&service, &arm, 20, &tally));
    ck_assert_int_eq(tally.n_done, 20);
    ck_assert_int_eq(service.n_held_most, 5);
}
END_TEST

/* An open loop does not wait for answers: all thirty are there before the first is answered. */
START_TEST(open_loop_does_not_wait_for_answers)
{
    static const enum answer answers[] = {GOOD};
    struct service service = {.answers = answers, .n_answers = 1, .n_together = 30};
    const struct bench_arm arm = arm_of(1, 100);
    static struct tally tally;
    CHECK_OK(run(&service, &arm, 30, &tally));
    ck_assert_int_eq(tally.n_done, 30);
    /* Thirty arrivals at 100 a second take 0.3 s in the mean, deviation 0.055 s. */
    ck_assert_int_gt(tally.wall_us, 100000);
    /* The first waited for the last. */
    ck_assert_uint_gt(histogram_quantile_us(&tally.first_token, 0.99), 80000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bench_load");
    TCase *tcase = tcase_create("servers");
    tcase_add_test(tcase, good_requests_add_up);
    tcase_add_test(tcase, each_request_is_recorded);
    tcase_add_test(tcase, requests_for_two_texts_end_with_the_second_summary);
    tcase_add_test(tcase, every_failure_is_one_request_s);
    tcase_add_test(tcase, silence_ends_with_the_request_s_time);
    tcase_add_test(tcase, server_that_does_not_serve_ends_the_run);
    tcase_add_test(tcase, closed_loop_has_so_many_at_once);
    tcase_add_test(tcase, open_loop_does_not_wait_for_answers);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
