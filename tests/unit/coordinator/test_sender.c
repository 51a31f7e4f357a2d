/* Where answers leave from: what takes long to format holds up neither the engine thread nor
 * another answer, and what belongs to one stream stays in order. */
/* ctest: labels=quick,threads libs=sender fail_alloc=yes timeout=60 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/threads/monitor.h"
#include "coordinator/job/sender.h"
#include "tests/support/check_util.h"
#include "tests/support/fail_alloc.h"

enum {
    LARGE_BYTES = 40000,
    LONG_US = 300000,
    PATIENCE_US = 10 * 1000000,
    N_MESSAGES = 50,
    N_ENGINES = 3,
    N_TRIALS = 100,
    MEDIUM_BYTES = 10000 /* more than leaves from an engine thread that has no time */
};

/* Notes what comes, and takes long for large messages. */
struct told {
    struct response_stream base;
    struct monitor monitor;
    int n_came, code;
    int refused; /* the number of a message that cannot be sent; -1 = none */
    char text[ERROR_TEXT_BYTES];
    bool is_in_order, is_ended, is_on_this_thread;
    int64_t last_us;
    pthread_t engine;
};

static struct sender *sender;
static struct error err;

static struct told *told_of(const struct response_stream *stream)
{
    return (struct told *)(uintptr_t)stream;
}

/* Messages are numbered by their sequence's index. */
static int note(struct response_stream *stream, const struct answer_message *message,
                struct buffer *scratch, struct error *why)
{
    struct told *t = told_of(stream);
    const struct generate_tokens *tokens = message->reply->tokens;
    (void)scratch;
    if (tokens->text_len >= LARGE_BYTES) clock_sleep_us(LONG_US);
    if (tokens->index == t->refused) return error_set(why, ERR_IO, "the client is too far away");
    bool is_whole = true;
    for (size_t i = 0; i < tokens->text_len; i++) {
        is_whole = is_whole && tokens->text[i] == 'a' + tokens->index % 26;
    }
    monitor_enter(&t->monitor);
    t->is_in_order = t->is_in_order && !t->is_ended && tokens->index == t->n_came && is_whole;
    t->is_on_this_thread = pthread_equal(pthread_self(), t->engine);
    t->n_came++;
    t->last_us = clock_now_us();
    monitor_wake(&t->monitor);
    monitor_leave(&t->monitor);
    return 0;
}

static void note_end(struct response_stream *stream, int code, const char *text, bool is_abort)
{
    struct told *t = told_of(stream);
    (void)is_abort;
    monitor_enter(&t->monitor);
    if (!t->is_ended) t->code = code; /* only the first end counts */
    if (!t->is_ended) snprintf(t->text, sizeof t->text, "%s", text);
    t->is_ended = true;
    monitor_wake(&t->monitor);
    monitor_leave(&t->monitor);
}

static bool takes_long(const struct response_stream *stream, size_t n_bytes, bool is_end)
{
    (void)stream, (void)is_end;
    return n_bytes >= LARGE_BYTES;
}

static const struct response_stream_ops ops = {
    .send = note, .finish = note_end, .takes_long = takes_long};

/* Each is used once: the sender still gives its reference back when await_end has returned. */
static struct told *open_told(void)
{
    static struct told all[N_TRIALS * N_ENGINES + 8];
    static int n;
    ck_assert_int_lt(n, (int)(sizeof all / sizeof *all));
    struct told *t = &all[n++];
    *t = (struct told){.base = {.ops = &ops, .n_references = 1},
                       .is_in_order = true,
                       .refused = -1,
                       .engine = pthread_self()};
    monitor_open(&t->monitor);
    return t;
}

/* The text is another one as soon as this returns. */
static void send_one(struct told *t, int number, size_t len)
{
    static _Thread_local char text[LARGE_BYTES];
    memset(text, 'a' + number % 26, len);
    const struct generate_tokens tokens = {
        .index = number, .text = text, .text_len = len, .rejected_id = -1};
    const struct answer_message message = {.reply = &(struct generate_reply){.tokens = &tokens}};
    CHECK_OK(sender_send(sender, &t->base, &message, &err));
    memset(text, '?', len);
}

static void await_end(struct told *t)
{
    int64_t until_us = clock_now_us() + PATIENCE_US;
    monitor_enter(&t->monitor);
    while (!t->is_ended && monitor_wait(&t->monitor, until_us)) {
    }
    monitor_leave(&t->monitor);
    ck_assert(t->is_ended);
}

static void setup(void)
{
    CHECK_OK(sender_open(&sender, &err));
}

static void teardown(void)
{
    sender_close(sender);
}

START_TEST(slow_message_delays_no_other_stream)
{
    struct told *large = open_told(), *small = open_told();
    int64_t began_us = clock_now_us();
    send_one(large, 0, LARGE_BYTES);
    sender_flush(sender, false);
    for (int i = 0; i < N_MESSAGES; i++) {
        send_one(small, i, 10);
        sender_flush(sender, false);
    }
    sender_finish(sender, &small->base, 0, "", false);
    sender_flush(sender, false);
    await_end(small);
    ck_assert_int_lt(small->last_us - began_us, LONG_US / 2);
    ck_assert_int_eq(small->n_came, N_MESSAGES);
    ck_assert_int_eq(large->n_came, 0);
    sender_finish(sender, &large->base, 0, "", false);
    sender_flush(sender, false);
    await_end(large);
    ck_assert_int_eq(large->n_came, 1);
    ck_assert(small->is_in_order && large->is_in_order);
}
END_TEST

START_TEST(stream_stays_in_order_after_a_slow_message)
{
    struct told *t = open_told();
    for (int i = 0; i < 6; i++) {
        send_one(t, i, i == 2 ? LARGE_BYTES : 10);
        if (i % 2) sender_flush(sender, false);
    }
    sender_finish(sender, &t->base, ERR_EXHAUSTED, "too slow", false);
    sender_flush(sender, false);
    await_end(t);
    ck_assert_int_eq(t->n_came, 6);
    ck_assert(t->is_in_order);
    ck_assert_int_eq(t->code, ERR_EXHAUSTED);
}
END_TEST

START_TEST(engine_thread_sends_only_what_is_small)
{
    struct told *t = open_told();
    send_one(t, 0, 10);
    sender_flush(sender, false);
    ck_assert_int_eq(t->n_came, 1);
    ck_assert(t->is_on_this_thread);
    send_one(t, 1, MEDIUM_BYTES);
    sender_finish(sender, &t->base, 0, "", false);
    sender_flush(sender, false);
    await_end(t);
    ck_assert_int_eq(t->n_came, 2);
    ck_assert(!t->is_on_this_thread);
}
END_TEST

START_TEST(engine_thread_that_has_time_sends_more)
{
    struct told *t = open_told();
    for (int i = 0; i < N_MESSAGES; i++) {
        send_one(t, i, 10);
    }
    sender_flush(sender, true);
    ck_assert_int_eq(t->n_came, N_MESSAGES);
    ck_assert(t->is_on_this_thread && t->is_in_order);
    sender_finish(sender, &t->base, 0, "", false);
    sender_flush(sender, true);
    await_end(t);
}
END_TEST

START_TEST(very_many_messages_leave_from_another_thread)
{
    enum { VERY_MANY = 65 };
    struct told *t = open_told();
    for (int i = 0; i < VERY_MANY; i++) {
        send_one(t, i, 10);
    }
    sender_finish(sender, &t->base, 0, "", false);
    sender_flush(sender, true);
    await_end(t);
    ck_assert_int_eq(t->n_came, VERY_MANY);
    ck_assert(!t->is_on_this_thread && t->is_in_order);
}
END_TEST

START_TEST(a_message_that_cannot_be_sent_ends_its_answer)
{
    struct told *t = open_told();
    t->refused = 1;
    for (int i = 0; i < 3; i++) {
        send_one(t, i, 10);
    }
    sender_finish(sender, &t->base, 0, "", false);
    sender_flush(sender, true);
    ck_assert(atomic_load(&t->base.has_failed));
    ck_assert_int_eq(t->code, ERR_IO);
    ck_assert_str_eq(t->text, "the client is too far away");
    ck_assert_int_eq(t->base.n_references, 1);
}
END_TEST

/* The list grows now and then. */
START_TEST(a_text_whose_end_finds_no_memory_does_not_seem_whole)
{
    int n_without = 0;
    for (int n = 1; n <= N_MESSAGES; n++) {
        struct told *t = open_told();
        for (int i = 0; i < n; i++) {
            send_one(t, i, 10);
        }
        fail_alloc_arm(FAIL_THIS_THREAD, FAIL_OURS, 1);
        sender_finish(sender, &t->base, 0, "", false);
        bool has_failed = fail_alloc_disarm();
        sender_flush(sender, true);
        ck_assert_int_eq(t->code, has_failed ? ERR_NO_MEMORY : 0);
        ck_assert(t->is_ended);
        n_without += has_failed;
    }
    ck_assert_int_gt(n_without, 0);
}
END_TEST

START_TEST(closing_sends_every_listed_message)
{
    struct told *t = open_told();
    send_one(t, 0, LARGE_BYTES);
    sender_flush(sender, false);
    send_one(t, 1, 10);
    sender_finish(sender, &t->base, 0, "", false);
    sender_close(sender);
    sender = NULL;
    ck_assert(t->is_ended && t->is_in_order);
    ck_assert_int_eq(t->n_came, 2);
    ck_assert_int_eq(t->base.n_references, 1);
}
END_TEST

/* An engine's thread: its own streams get messages in rounds, as another engine's do meanwhile. */
static void *make_rounds(void *stream)
{
    struct told *t = stream;
    for (int i = 0; i < N_MESSAGES; i++) {
        send_one(t, i, i % 7 == 3 ? MEDIUM_BYTES : 10);
        if (i % 3 == 0) sender_flush(sender, i % 2 == 0);
    }
    sender_finish(sender, &t->base, 0, "", false);
    sender_flush(sender, false);
    return NULL;
}

START_TEST(engines_do_not_disturb_each_other)
{
    for (int trial = 0; trial < N_TRIALS; trial++) {
        struct told *told[N_ENGINES];
        pthread_t threads[N_ENGINES];
        for (int i = 0; i < N_ENGINES; i++) {
            told[i] = open_told();
        }
        for (int i = 0; i < N_ENGINES; i++) {
            ck_assert_int_eq(pthread_create(&threads[i], NULL, make_rounds, told[i]), 0);
        }
        for (int i = 0; i < N_ENGINES; i++) {
            ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        }
        for (int i = 0; i < N_ENGINES; i++) {
            await_end(told[i]);
            ck_assert_int_eq(told[i]->n_came, N_MESSAGES);
            ck_assert(told[i]->is_in_order);
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sender");
    TCase *tcase = tcase_create("sender");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, slow_message_delays_no_other_stream);
    tcase_add_test(tcase, stream_stays_in_order_after_a_slow_message);
    tcase_add_test(tcase, engine_thread_sends_only_what_is_small);
    tcase_add_test(tcase, engine_thread_that_has_time_sends_more);
    tcase_add_test(tcase, very_many_messages_leave_from_another_thread);
    tcase_add_test(tcase, a_message_that_cannot_be_sent_ends_its_answer);
    tcase_add_test(tcase, a_text_whose_end_finds_no_memory_does_not_seem_whole);
    tcase_add_test(tcase, closing_sends_every_listed_message);
    tcase_add_test(tcase, engines_do_not_disturb_each_other);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
