/* Watching stored jobs over gRPC: a client that does not read fills its own buffer and is ended
 * with a sentence, and comes back; another one is not delayed by it. */
/* ctest: labels=quick,slow libs=coordinator timeout=60 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/threads/monitor.h"
#include "coordinator/grpc/grpc_stream.h"
#include "coordinator/store/job_watch.h"
#include "proto/jobs_wire.h"
#include "rpc/client.h"
#include "rpc/server.h"
#include "tests/support/check_util.h"

enum {
    N_MESSAGES = 400,
    TEXT_BYTES = 64 << 10,
    STALL_US = 300000,
    IDLE_US = 50000,
    PATIENCE_US = 20 * 1000000
};

static struct jobs *jobs;
static struct job_watch *watch;
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
    struct response_stream *stream;
    ck_assert_int_eq(grpc_stream_open(&stream, call, &failure), 0);
    ck_assert_int_eq(job_watch_add(watch, stream, job.id, from, 0, &failure), 0);
    response_stream_unref(stream);
}

static const struct rpc_method method = {.path = "/test/Watch", .on_message = on_watch};

/* A message with n tokens of the answer: token i has the id i and a long text. */
static void append_tokens(int first, int n)
{
    enum { MOST = 4 };
    static char text[MOST * TEXT_BYTES];
    int32_t ids[MOST];
    enum token_origin origins[MOST] = {TOKEN_PLAIN};
    uint32_t ends[MOST];
    for (int i = 0; i < n; i++) {
        ids[i] = first + i;
        ends[i] = (uint32_t)(i + 1) * TEXT_BYTES;
        memset(text + i * TEXT_BYTES, 'a' + (first + i) % 26, TEXT_BYTES);
    }
    const struct generate_tokens tokens = {.n = n,
                                           .ids = ids,
                                           .origins = origins,
                                           .text_ends = ends,
                                           .text = text,
                                           .text_len = (size_t)n * TEXT_BYTES,
                                           .rejected_id = -1,
                                           .rejected_text = ""};
    const struct generate_reply reply = {.tokens = &tokens};
    CHECK_OK(generate_reply_encode(&buf, &reply, &err));
    const struct job_message message = {
        .kind = JOB_MESSAGE_TOKENS, .n_tokens = n, .data = buf.data, .len = buf.len};
    CHECK_OK(jobs_append(jobs, job.number, &message, &err));
}

static void append_token(int i)
{
    append_tokens(i, 1);
}

static void setup(void)
{
    const struct jobs_options options = {.n_kept = 4, .bytes_max = 256 << 20, .run = 1};
    const struct job_submission submission = {
        .owner = "", .key = "", .request_id = "", .n_sequences = 1};
    const struct rpc_service service = {.methods = &method, .n_methods = 1};
    const struct rpc_server_options at = {
        .address = "127.0.0.1:0", .services = &service, .n_services = 1};
    bool existed;
    CHECK_OK(jobs_open(&jobs, &options, &err));
    CHECK_OK(jobs_submit(jobs, &submission, &job, &existed, &err));
    const struct job_watch_options watching = {.reader_timeout_us = STALL_US, .idle_us = IDLE_US};
    CHECK_OK(job_watch_open(&watch, jobs, &watching, &err));
    CHECK_OK(rpc_server_open(&server, &at, &err));
    CHECK_OK(rpc_client_open(&client, NULL, &err));
}

static void teardown(void)
{
    rpc_client_close(client);
    job_watch_end(watch);
    rpc_server_close(server, 0);
    job_watch_close(watch);
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

/* Reads to the end of the stream; returns the id after the last token, and the end in err. */
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

START_TEST(closing_ends_every_watcher)
{
    struct rpc_stream *stream = start(0);
    append_token(0);
    const uint8_t *data;
    size_t len;
    CHECK_OK(rpc_stream_receive(stream, &data, &len, clock_now_us() + PATIENCE_US, &err));
    job_watch_end(watch);
    ck_assert_int_eq(read_all(stream, 1), 1);
    CHECK_ERR(err.code, ERR_UNAVAILABLE, "shutting down");
}
END_TEST

/* ---- a response stream of our own ---- */

/* Notes what comes to it; `delay_us` is how long a message takes. */
struct told {
    struct response_stream base;
    struct monitor monitor;
    int64_t delay_us;
    int n_came, n_idle, n_ends, code;
    int n_tokens, next_id; /* that came; the id after the last one */
    size_t text_len;       /* of the last message */
    uint32_t first_end;    /* of its first token */
    char text[ERROR_TEXT_BYTES];
};

/* The stream that the last message went to, and how many in a row. */
static const struct response_stream *last_stream;
static int n_in_a_row, most_in_a_row;

static int take(struct response_stream *stream, const struct answer_message *message,
                struct buffer *scratch, struct error *why)
{
    struct told *t = (struct told *)stream;
    const struct generate_tokens *tokens = message->reply->tokens;
    (void)scratch, (void)why;
    t->n_tokens += tokens->n;
    t->next_id = tokens->ids[tokens->n - 1] + 1;
    t->text_len = tokens->text_len;
    t->first_end = tokens->text_ends[0];
    if (t->delay_us) clock_sleep_us(t->delay_us);
    n_in_a_row = stream == last_stream ? n_in_a_row + 1 : 1;
    if (n_in_a_row > most_in_a_row) most_in_a_row = n_in_a_row;
    last_stream = stream;
    monitor_enter(&t->monitor);
    t->n_came++;
    monitor_leave(&t->monitor);
    return 0;
}

static void take_end(struct response_stream *stream, int code, const char *text, bool is_abort)
{
    struct told *t = (struct told *)stream;
    (void)is_abort;
    monitor_enter(&t->monitor);
    t->n_ends++;
    t->code = code;
    snprintf(t->text, sizeof t->text, "%s", text);
    monitor_leave(&t->monitor);
}

static struct backpressure_progress read_all_of_it(const struct response_stream *stream)
{
    (void)stream;
    return (struct backpressure_progress){0};
}

static bool is_never_cancelled(const struct response_stream *stream)
{
    (void)stream;
    return false;
}

static void take_idle(struct response_stream *stream)
{
    struct told *t = (struct told *)stream;
    monitor_enter(&t->monitor);
    t->n_idle++;
    monitor_leave(&t->monitor);
}

static const struct response_stream_ops told_ops = {.send = take,
                                                    .finish = take_end,
                                                    .progress = read_all_of_it,
                                                    .is_cancelled = is_never_cancelled,
                                                    .idle = take_idle};

static struct told told[2];

static struct told *watch_told_from(int i, uint32_t from_token, int64_t delay_us)
{
    told[i] = (struct told){.base = {.ops = &told_ops, .n_references = 1}, .delay_us = delay_us};
    monitor_open(&told[i].monitor);
    CHECK_OK(job_watch_add(watch, &told[i].base, job.id, from_token, 0, &err));
    return &told[i];
}

static struct told *watch_told(int i, int64_t delay_us)
{
    return watch_told_from(i, 0, delay_us);
}

/* A network thread begins to watch, and must not wait for what the thread does for others. */
START_TEST(new_watcher_does_not_wait_for_messages_of_others)
{
    append_token(0);
    struct told *slow = watch_told(0, 3000000);
    clock_sleep_us(50000); /* it is in the middle of the message */
    int64_t began_us = clock_now_us();
    watch_told(1, 0);
    ck_assert_int_lt(clock_now_us() - began_us, 2500000);
    job_watch_end(watch);
    ck_assert_int_eq(slow->n_came, 1);
}
END_TEST

/* Over gRPC they come encoded, and over HTTP as structs. */
START_TEST(tokens_before_the_first_wanted_one_are_left_out_of_a_message)
{
    append_tokens(0, 3);
    append_tokens(3, 4);
    jobs_end(jobs, job.number, JOB_END_LENGTH, 0, "");
    struct rpc_stream *stream = start(5);
    const uint8_t *data;
    size_t len;
    struct arena arena;
    struct generate_reply reply;
    CHECK_OK(rpc_stream_receive(stream, &data, &len, clock_now_us() + PATIENCE_US, &err));
    CHECK_OK(arena_open(&arena, 4 << 20, &err));
    CHECK_OK(generate_reply_decode(data, len, &arena, &reply, &err));
    ck_assert_int_eq(reply.tokens->n, 2);
    ck_assert_int_eq(reply.tokens->ids[0], 5);
    ck_assert_int_eq(reply.tokens->text[0], 'a' + 5);
    arena_close(&arena);
    rpc_stream_close(stream);
    struct told *t = watch_told_from(0, 5, 0), *all = watch_told(1, 0);
    job_watch_drain(watch, clock_now_us() + PATIENCE_US);
    ck_assert_int_eq(t->n_came, 1);
    ck_assert_int_eq(t->n_tokens, 2);
    ck_assert_int_eq(t->next_id, 7);
    ck_assert_uint_eq(t->text_len, 2 * TEXT_BYTES);
    ck_assert_uint_eq(t->first_end, TEXT_BYTES);
    ck_assert_int_eq(all->n_came, 2);
    ck_assert_int_eq(all->n_tokens, 7);
}
END_TEST

START_TEST(watchers_take_turns)
{
    for (int i = 0; i < 50; i++) {
        append_token(i);
    }
    jobs_end(jobs, job.number, JOB_END_LENGTH, 0, "");
    most_in_a_row = n_in_a_row = 0;
    struct told *a = watch_told(0, 100), *b = watch_told(1, 100);
    job_watch_drain(watch, clock_now_us() + PATIENCE_US);
    ck_assert_int_eq(a->n_came + b->n_came, 100);
    ck_assert_int_eq(a->n_ends + b->n_ends, 2);
    ck_assert_int_le(most_in_a_row, 4);
}
END_TEST

START_TEST(watcher_without_messages_is_called_every_200_ms)
{
    struct told *t = watch_told(0, 0);
    clock_sleep_us(1000000);
    job_watch_end(watch);
    ck_assert_int_ge(t->n_idle, 2); /* every 200 ms at least */
    ck_assert_int_le(t->n_idle, 1000000 / IDLE_US);
}
END_TEST

/* The answer has ended in time, but its watcher is slow. */
START_TEST(slow_watcher_of_an_ended_job_gets_all_of_it_while_draining)
{
    for (int i = 0; i < 20; i++) {
        append_token(i);
    }
    struct told *t = watch_told(0, 10000);
    jobs_end(jobs, job.number, JOB_END_LENGTH, 0, "");
    job_watch_drain(watch, clock_now_us() + PATIENCE_US);
    ck_assert_int_eq(t->n_came, 20);
    ck_assert_int_eq(t->n_ends, 1);
    ck_assert_int_eq(t->code, 0);
    CHECK_ERR(job_watch_add(watch, &t->base, job.id, 0, 0, &err), ERR_UNAVAILABLE, "shutting down");
}
END_TEST

START_TEST(draining_ends_watchers_that_wait_for_more)
{
    append_token(0);
    struct told *t = watch_told(0, 0);
    int64_t began_us = clock_now_us();
    job_watch_drain(watch, clock_now_us() + PATIENCE_US);
    ck_assert_int_lt(clock_now_us() - began_us, PATIENCE_US / 2);
    ck_assert_int_eq(t->n_came, 1);
    ck_assert_int_eq(t->code, ERR_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(t->text, "shutting down"));
}
END_TEST

/* Bytes of this process that are in memory. */
static size_t resident_bytes(void)
{
    unsigned long all, resident;
    FILE *file = fopen("/proc/self/statm", "r");
    ck_assert(file && fscanf(file, "%lu %lu", &all, &resident) == 2);
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* It is kept in the store alone, not as bytes and as a struct beside that. */
START_TEST(a_large_message_takes_no_memory_once_it_is_sent)
{
    enum { LARGE_BYTES = 32 << 20 };
    static char text[LARGE_BYTES];
    const int32_t id = 0;
    const enum token_origin origin = TOKEN_PLAIN;
    const uint32_t text_end = LARGE_BYTES;
    const struct generate_tokens tokens = {.n = 1,
                                           .ids = &id,
                                           .origins = &origin,
                                           .text_ends = &text_end,
                                           .text = text,
                                           .text_len = LARGE_BYTES,
                                           .rejected_id = -1,
                                           .rejected_text = ""};
    memset(text, 'a', sizeof text);
    CHECK_OK(generate_reply_encode(&buf, &(struct generate_reply){.tokens = &tokens}, &err));
    const struct job_message message = {
        .kind = JOB_MESSAGE_TOKENS, .n_tokens = 1, .data = buf.data, .len = buf.len};
    CHECK_OK(jobs_append(jobs, job.number, &message, &err));
    size_t before = resident_bytes();
    struct told *t = watch_told(0, 0);
    jobs_end(jobs, job.number, JOB_END_LENGTH, 0, "");
    job_watch_drain(watch, clock_now_us() + PATIENCE_US);
    ck_assert_uint_eq(t->text_len, LARGE_BYTES);
    CHECK_ERR(job_watch_add(watch, &t->base, job.id, 0, 0, &err), ERR_UNAVAILABLE, "shutting down");
#ifndef __SANITIZE_ADDRESS__ /* which keeps what is freed */
    ck_assert_uint_lt(resident_bytes(), before + LARGE_BYTES / 2);
#endif
    (void)before;
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("job_watch");
    TCase *tcase = tcase_create("watch");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_client_that_does_not_read_is_ended_and_comes_back);
    tcase_add_test(tcase, an_answer_that_ends_with_an_error_ends_its_watchers_so);
    tcase_add_test(tcase, closing_ends_every_watcher);
    tcase_add_test(tcase, new_watcher_does_not_wait_for_messages_of_others);
    tcase_add_test(tcase, tokens_before_the_first_wanted_one_are_left_out_of_a_message);
    tcase_add_test(tcase, watchers_take_turns);
    tcase_add_test(tcase, a_large_message_takes_no_memory_once_it_is_sent);
    tcase_add_test(tcase, watcher_without_messages_is_called_every_200_ms);
    tcase_add_test(tcase, slow_watcher_of_an_ended_job_gets_all_of_it_while_draining);
    tcase_add_test(tcase, draining_ends_watchers_that_wait_for_more);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
