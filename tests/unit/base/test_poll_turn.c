/* ctest: labels=quick,threads,slow libs=base timeout=60 */
/* Two threads take turns to poll one source of events: never both at a time, and the network thread
 * takes over when the other one works for long, even if it was asleep. */
#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/threads/poll_turn.h"
#include "tests/support/check_util.h"
#include "tests/support/sleep_util.h"

enum { PATIENCE_MS = 20000 };

static struct poll_turn turn;
static atomic_int n_events; /* events that wait to be polled */
static atomic_int n_done, n_by_network;
static atomic_bool is_ending;
static int n_polled; /* only the thread whose turn it is writes it, without a lock */

/* Polls one event; gives up if none comes in that time, or at the end of the test. */
static bool poll_one(int ms)
{
    for (int64_t end_us = clock_now_us() + ms * INT64_C(1000);
         n_events == 0 && !is_ending && clock_now_us() < end_us;) {
        sleep_us(100);
    }
    if (n_events == 0) return false;
    n_events--;
    n_polled++;
    n_done++;
    return true;
}

static void *run_network(void *arg)
{
    (void)arg;
    while (!is_ending) {
        poll_turn_await(&turn);
        n_by_network += poll_one(PATIENCE_MS);
    }
    return NULL;
}

static pthread_t network;

static void setup(void)
{
    poll_turn_open(&turn);
    pthread_create(&network, NULL, run_network, NULL);
}

static void teardown(void)
{
    is_ending = true;
    poll_turn_end(&turn);
    pthread_join(network, NULL);
    poll_turn_close(&turn);
}

/* Adds an event and waits until one of the threads has polled it. */
static void wait_for_one(void)
{
    int target = n_done + 1;
    n_events++;
    while (n_done < target) {
        if (poll_turn_take(&turn, clock_now_us() + 100000)) poll_one(2);
    }
}

static void work(long us)
{
    poll_turn_leave(&turn);
    if (us) sleep_us(us);
    poll_turn_expect(&turn);
}

START_TEST(short_work_leaves_the_network_thread_alone)
{
    wait_for_one();
    wait_for_one(); /* the network thread's turn has ended with the first event at the latest */
    int before = n_by_network;
    for (int i = 0; i < 200; i++) {
        work(i % 3 * 100L);
        wait_for_one();
    }
    ck_assert_int_le(n_by_network - before, 100); /* if a thread got no core for 10 ms */
    ck_assert_int_eq(n_polled, 202);
}
END_TEST

/* _i milliseconds after the last work. */
static const int idle_ms[] = {0, 20, 1200};

START_TEST(during_long_work_the_network_thread_polls)
{
    wait_for_one();
    sleep_us(idle_ms[_i] * 1000L);
    for (int i = 0; i < 3; i++) {
        int before = n_done, by_network = n_by_network;
        poll_turn_leave(&turn);
        n_events++;
        for (int ms = 0; n_by_network == by_network && ms < 5000; ms++) {
            sleep_us(1000);
        }
        ck_assert_int_eq(n_done, before + 1);
        poll_turn_expect(&turn);
        wait_for_one();
        ck_assert_int_eq(n_done, before + 2);
    }
    ck_assert_int_eq(n_events, 0);
}
END_TEST

/* A thread that polls and gets no event keeps its turn; the other thread learns that when it
 * asks. */
START_TEST(a_turn_that_is_not_given_up_is_waited_for)
{
    wait_for_one();
    poll_turn_leave(&turn);
    sleep_us(50000); /* the network thread polls now, and nothing comes */
    ck_assert(!poll_turn_take(&turn, clock_now_us() + 20000));
    n_events++;
    ck_assert(poll_turn_take(&turn, clock_now_us() + 5000000));
    ck_assert_int_eq(n_done, 2);
    ck_assert_int_eq(n_polled, 2);
    poll_turn_leave(&turn);
}
END_TEST

/* After the end the other thread never gets the turn again. */
START_TEST(after_the_end_the_other_thread_never_gets_the_turn)
{
    wait_for_one();
    poll_turn_end(&turn);
    poll_turn_expect(&turn);
    ck_assert(!poll_turn_take(&turn, clock_now_us() + 1000));
    poll_turn_leave(&turn);
    int before = n_by_network;
    n_events++;
    for (int ms = 0; n_by_network == before && ms < 5000; ms++) {
        sleep_us(1000);
    }
    ck_assert_int_eq(n_by_network, before + 1);
}
END_TEST

/* ---- no wake-up is lost ---- */

/* As rpc/server.c has it: a poll that blocks until an event comes, and by the network thread
 * without a deadline. */
struct source {
    pthread_mutex_t lock;
    pthread_cond_t more;
    int n_waiting, n_taken, n_pollers;
    bool is_over;
};

static struct source source = {.lock = PTHREAD_MUTEX_INITIALIZER};

enum { ROUNDS = 3000, WAIT_US = 50000, LOST_US = 20000000 };

static void source_open(void)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&source.more, &attr);
    pthread_condattr_destroy(&attr);
}

static void source_add(bool is_last)
{
    pthread_mutex_lock(&source.lock);
    if (is_last) {
        source.is_over = true;
    } else {
        source.n_waiting++;
    }
    pthread_cond_broadcast(&source.more);
    pthread_mutex_unlock(&source.lock);
}

/* True: an event was taken. until_us INT64_MAX: waits as long as it takes. */
static bool source_poll(int64_t until_us)
{
    struct timespec until = {.tv_sec = until_us / 1000000, .tv_nsec = until_us % 1000000 * 1000};
    pthread_mutex_lock(&source.lock);
    ck_assert_int_eq(source.n_pollers++, 0);
    int rc = 0;
    while (source.n_waiting == 0 && !source.is_over && rc == 0) {
        rc = until_us == INT64_MAX ? pthread_cond_wait(&source.more, &source.lock)
                                   : pthread_cond_timedwait(&source.more, &source.lock, &until);
    }
    bool is_taken = source.n_waiting > 0;
    if (is_taken) {
        source.n_waiting--;
        source.n_taken++;
        n_done++;
    }
    source.n_pollers--;
    pthread_mutex_unlock(&source.lock);
    return is_taken;
}

static void *run_blocking_network(void *arg)
{
    (void)arg;
    while (!is_ending) {
        poll_turn_await(&turn);
        n_by_network += source_poll(INT64_MAX);
    }
    return NULL;
}

/* The events of one work come from here, at any moment of the turns. */
static void *run_sender(void *arg)
{
    unsigned state = 12345;
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        state = state * 1103515245 + 12345;
        unsigned pause = state >> 16;
        while (n_done < i)
            sleep_us(20);
        if (pause % 4 == 1) sleep_us(pause % 400);
        if (pause % 32 == 2) sleep_us(9000 + pause % 2500); /* about when the turn passes over */
        source_add(false);
    }
    return NULL;
}

/* A step waits for its event, works, and waits again, as a rank does. An event that nobody polls
 * for would stay for ever, because the next one comes only after it. */
START_TEST(every_event_is_polled_whenever_it_comes)
{
    pthread_t sender, blocking;
    unsigned state = 777;
    source_open();
    pthread_create(&blocking, NULL, run_blocking_network, NULL);
    pthread_create(&sender, NULL, run_sender, NULL);
    for (int i = 0; i < ROUNDS; i++) {
        int64_t begin_us = clock_now_us();
        while (n_done <= i) {
            int64_t until_us = clock_now_us() + WAIT_US;
            ck_assert_msg(clock_now_us() - begin_us < LOST_US, "event %d is not polled", i);
            if (!poll_turn_take(&turn, until_us)) continue;
            if (n_done > i) break;
            source_poll(until_us);
        }
        poll_turn_leave(&turn);
        state = state * 1103515245 + 12345;
        unsigned pause = state >> 16;
        if (pause % 4 == 1) sleep_us(pause % 300);
        if (pause % 32 == 2) sleep_us(9000 + pause % 2500);
        if (pause % 2) poll_turn_expect(&turn);
    }
    pthread_join(sender, NULL);
    ck_assert_int_eq(source.n_taken, ROUNDS);
    is_ending = true;
    poll_turn_end(&turn);
    source_add(true);
    pthread_join(blocking, NULL);
}
END_TEST

static void setup_alone(void)
{
    poll_turn_open(&turn);
}

static void teardown_alone(void)
{
    poll_turn_close(&turn);
}

int main(void)
{
    Suite *suite = suite_create("turn");
    TCase *tcase = tcase_create("turn");
    tcase_set_timeout(tcase, 280);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, short_work_leaves_the_network_thread_alone);
    tcase_add_loop_test(tcase, during_long_work_the_network_thread_polls, 0, 3);
    tcase_add_test(tcase, a_turn_that_is_not_given_up_is_waited_for);
    tcase_add_test(tcase, after_the_end_the_other_thread_never_gets_the_turn);
    suite_add_tcase(suite, tcase);
    TCase *stress = tcase_create("stress");
    tcase_set_timeout(stress, 280);
    tcase_add_checked_fixture(stress, setup_alone, teardown_alone);
    tcase_add_test(stress, every_event_is_polled_whenever_it_comes);
    suite_add_tcase(suite, stress);
    return check_main(suite);
}
