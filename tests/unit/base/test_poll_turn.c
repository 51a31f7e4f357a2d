/* ctest: labels=quick,threads libs=base timeout=60 */
/* Two threads take turns to poll one source of events: never both at a time, and the network thread
 * takes over when the other one works for long, even if it was asleep. */
#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/poll_turn.h"
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

START_TEST(long_work_lets_it_stand_in)
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
START_TEST(the_end_is_for_good)
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

int main(void)
{
    Suite *suite = suite_create("turn");
    TCase *tcase = tcase_create("turn");
    tcase_set_timeout(tcase, 280);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, short_work_leaves_the_network_thread_alone);
    tcase_add_loop_test(tcase, long_work_lets_it_stand_in, 0, 3);
    tcase_add_test(tcase, a_turn_that_is_not_given_up_is_waited_for);
    tcase_add_test(tcase, the_end_is_for_good);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
