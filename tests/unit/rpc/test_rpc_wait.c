/* ctest: labels=quick,threads,slow libs=rpc timeout=60 */
/* A thread that waits for work from the calls of a server reads them itself, the network thread
 * takes over while it works, and no call is lost between the two. */
#include <stdatomic.h>

#include "tests/support/rpc_fixture.h"

enum { WORKS_MAX = 64 };

/* A message says how long the work takes, in units of 10 ms; HELD: until the test lets it end, so
 * that no test depends on when its threads get a core. */
enum { HELD = 255, HELD_MS = 20000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rpc_call *waiting[WORKS_MAX]; /* [n_waiting], each with a reference */
static int work_ms[WORKS_MAX], n_waiting;
static atomic_int is_ending, n_read_by_waiter, n_read;
static atomic_int n_begun, n_done; /* works */
static atomic_int n_let_go;        /* held works that may end, by the number of their beginning */
static pthread_t waiter;           /* set before a message is sent */

static void on_work(struct rpc_call *call, void *ignored, const uint8_t *data, size_t len)
{
    (void)ignored;
    ck_assert_uint_eq(len, 1);
    pthread_mutex_lock(&lock);
    ck_assert_int_lt(n_waiting, WORKS_MAX);
    rpc_call_ref(call);
    waiting[n_waiting] = call;
    work_ms[n_waiting++] = 10 * data[0];
    pthread_mutex_unlock(&lock);
    n_read++;
    n_read_by_waiter += pthread_equal(pthread_self(), waiter) != 0;
}

static bool has_work(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&lock);
    bool has = n_waiting > 0 || is_ending;
    pthread_mutex_unlock(&lock);
    return has;
}

static struct rpc_call *take_work(int *ms)
{
    struct rpc_call *call = NULL;
    pthread_mutex_lock(&lock);
    if (n_waiting > 0) {
        call = waiting[0];
        *ms = work_ms[0];
        n_waiting--;
        memmove(waiting, waiting + 1, (size_t)n_waiting * sizeof *waiting);
        memmove(work_ms, work_ms + 1, (size_t)n_waiting * sizeof *work_ms);
    }
    pthread_mutex_unlock(&lock);
    return call;
}

static void *run_waiter(void *arg)
{
    struct error error;
    (void)arg;
    for (;;) {
        int ms;
        rpc_server_wait(server, has_work, NULL);
        struct rpc_call *call = take_work(&ms);
        if (!call) return NULL;
        int number = ++n_begun;
        if (ms == 10 * HELD) {
            for (int i = 0; i < HELD_MS && n_let_go < number; i++)
                sleep_ms(1);
        } else if (ms) {
            sleep_ms(ms);
        }
        n_done++;
        rpc_server_expect(server);
        rpc_call_send(call, (const uint8_t *)"done", 4, &error); /* the client may have left */
        rpc_call_unref(call);
    }
}

static const struct rpc_method work_methods[] = {
    {.path = "/test.Test/Echo", .on_message = on_echo},
    {.path = "/test.Test/Work",
     .is_stream_in = true,
     .on_message = on_work,
     .on_half_close = on_ping_half_close},
};

static void expect_echo(void)
{
    struct buffer reply = {0};
    CHECK_OK(call_method("/test.Test/Echo", "hello", 5, 5000, &reply));
    ck_assert_uint_eq(reply.len, 5);
    buffer_free(&reply);
}

/* The connection is there at the end, so that questions leave while nobody waits in the client. */
static void setup(void)
{
    const struct rpc_service works = {.methods = work_methods, .n_methods = 2, .state = &service};
    const struct rpc_server_options options = {
        .address = "127.0.0.1:0", .services = &works, .n_services = 1};
    CHECK_OK(rpc_server_open(&server, &options, &err));
    address = rpc_server_address(server);
    CHECK_OK(rpc_client_open(&client, NULL, &err));
    pthread_create(&waiter, NULL, run_waiter, NULL);
    expect_echo();
}

static void teardown(void)
{
    int64_t begin_us = clock_now_us();
    is_ending = 1; /* it is noticed although no event arrives */
    pthread_join(waiter, NULL);
    ck_assert_int_lt(clock_now_us() - begin_us, 30000000);
    close_both();
}

static struct rpc_stream *open_work(void)
{
    struct rpc_stream *stream = NULL;
    CHECK_OK(
        rpc_stream_open(&stream, client, address, "/test.Test/Work", false, in_ms(30000), &err));
    return stream;
}

static void ask(struct rpc_stream *stream, int ms)
{
    uint8_t message = (uint8_t)(ms / 10);
    CHECK_OK(rpc_stream_ask(stream, &message, 1, in_ms(5000), &err));
}

/* A work that lasts until let_go; it has begun when this returns. */
static void begin_held(struct rpc_stream *stream)
{
    uint8_t message = HELD;
    int before = n_begun;
    CHECK_OK(rpc_stream_ask(stream, &message, 1, in_ms(5000), &err));
    for (int i = 0; i < HELD_MS && n_begun == before; i++)
        sleep_ms(1);
    ck_assert_int_gt(n_begun, before);
}

static void let_go(void)
{
    n_let_go = n_begun;
}

static void expect_done(struct rpc_stream *stream)
{
    const uint8_t *data;
    size_t len;
    CHECK_OK(rpc_stream_receive(stream, &data, &len, in_ms(10000), &err));
    ck_assert_uint_eq(len, 4);
}

START_TEST(short_works_are_read_by_the_thread_that_does_them)
{
    enum { ROUNDS = 500 };
    struct rpc_stream *stream = open_work();
    for (int i = 0; i < ROUNDS; i++) {
        ask(stream, 0);
        expect_done(stream);
    }
    ck_assert_int_eq(n_read, ROUNDS);
    /* The others arrived while work took longer than usual. */
    ck_assert_int_gt(n_read_by_waiter, ROUNDS / 2);
    rpc_stream_close(stream);
}
END_TEST

/* The network thread was polling, in a short sleep, or in a long one. */
START_TEST(other_calls_are_answered_during_a_long_work)
{
    static const int idle_ms[] = {0, 30, 1300};
    struct rpc_stream *stream = open_work();
    sleep_ms(idle_ms[_i]);
    for (int i = 0; i < 3; i++) {
        begin_held(stream);
        expect_echo(); /* comes while the work is held */
        let_go();
        expect_done(stream);
        ask(stream, 0);
        expect_done(stream);
    }
    rpc_stream_close(stream);
}
END_TEST

/* Calls of many streams pass between the threads in both directions. */
START_TEST(no_call_is_lost_between_the_threads)
{
    enum { STREAMS = 8, ROUNDS = 40 };
    struct rpc_stream *streams[STREAMS];
    for (int s = 0; s < STREAMS; s++) {
        streams[s] = open_work();
    }
    for (int i = 0; i < ROUNDS; i++) {
        for (int s = 0; s < STREAMS; s++) {
            ask(streams[s], (i * STREAMS + s) % 17 == 0 ? 20 : 0);
        }
        expect_echo();
        for (int s = 0; s < STREAMS; s++) {
            expect_done(streams[s]);
        }
    }
    ck_assert_int_eq(n_read, STREAMS * ROUNDS);
    for (int s = 0; s < STREAMS; s++) {
        rpc_stream_close(streams[s]);
    }
}
END_TEST

START_TEST(a_waiter_without_work_answers_other_calls)
{
    for (int i = 0; i < 3; i++) {
        expect_echo();
        sleep_ms(i * 700);
    }
}
END_TEST

/* A client that leaves while its work is done disturbs no other. */
START_TEST(a_client_that_leaves_is_forgotten)
{
    for (int i = 0; i < 20; i++) {
        struct rpc_stream *stream = open_work();
        ask(stream, i % 2 ? 20 : 0);
        rpc_stream_close(stream);
    }
    struct rpc_stream *stream = open_work();
    ask(stream, 0);
    expect_done(stream);
    rpc_stream_close(stream);
}
END_TEST

/* The event that ends the network thread's turn brings work. No other event follows, so the work is
 * noticed either at once or only at the next look. */
START_TEST(work_that_ends_the_network_threads_turn_is_noticed_at_once)
{
    int64_t least_us = INT64_MAX;
    for (int i = 0; i < 10; i++) {
        struct rpc_stream *leaves = open_work(), *stays = open_work();
        begin_held(leaves);
        sleep_ms(20);             /* the network thread polls */
        rpc_stream_close(leaves); /* no reply can be sent, so there is no event from it */
        int before = n_done;
        let_go();
        while (n_done == before)
            sleep_ms(1);
        sleep_ms(2);
        int64_t begin_us = clock_now_us();
        ask(stays, 0);
        expect_done(stays);
        int64_t us = clock_now_us() - begin_us;
        if (us < least_us) least_us = us;
        rpc_stream_close(stays);
    }
    /* A look comes every 50 ms. */
    ck_assert_msg(least_us < 25000, "at least %lld us", (long long)least_us);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_wait");
    TCase *tcase = tcase_create("wait");
    tcase_set_timeout(tcase, 280);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, short_works_are_read_by_the_thread_that_does_them);
    tcase_add_loop_test(tcase, other_calls_are_answered_during_a_long_work, 0, 3);
    tcase_add_test(tcase, no_call_is_lost_between_the_threads);
    tcase_add_test(tcase, a_waiter_without_work_answers_other_calls);
    tcase_add_test(tcase, a_client_that_leaves_is_forgotten);
    tcase_add_test(tcase, work_that_ends_the_network_threads_turn_is_noticed_at_once);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
