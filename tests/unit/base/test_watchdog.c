/* ctest: labels=quick,threads,slow libs=base timeout=60 */
/* A late watchdog calls once, after the limit and not before; one that was disarmed never does.
 * Time in which the process or the watchdog's thread could not run does not count. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/threads/watchdog.h"
#include "tests/support/check_util.h"
#include "tests/support/sleep_util.h"

enum {
    MINUTE_US = 60000000,
    LIMIT_US = 1000000,
    STALL_US = 2000000,
    UNCOUNTED_US = 600000, /* of a stall, at most: a nap that was under way, and a short stall */
    NOISE_US = 1500000,
    TRIES = 4,
    PATIENCE_MS = 20000
};

static atomic_llong late_us; /* when it called; 0 = not yet */
static atomic_int n_calls;
static pthread_t caller; /* the watchdog's thread, once it has called */

static void on_late(void *arg)
{
    (void)arg;
    caller = pthread_self();
    n_calls++;
    late_us = clock_now_us();
}

static int64_t wait_late(void)
{
    for (int ms = 0; late_us == 0 && ms < PATIENCE_MS; ms++)
        sleep_ms(1);
    ck_assert(late_us != 0);
    return late_us;
}

static struct watchdog *open_watchdog(void)
{
    struct error err;
    struct watchdog *watchdog;
    late_us = 0;
    n_calls = 0;
    CHECK_OK(watchdog_open(&watchdog, on_late, NULL, &err));
    return watchdog;
}

/* Every try takes at least so long, and one of them less than most_us: a machine that stalls by
 * itself may lengthen the others. */
static void check_time(int64_t (*try_once)(int64_t limit_us), int64_t limit_us, int64_t least_us,
                       int64_t most_us)
{
    int64_t took_us = INT64_MAX;
    for (int i = 0; i < TRIES && took_us >= most_us; i++) {
        took_us = try_once(limit_us);
        ck_assert_int_ge(took_us, least_us);
    }
    ck_assert_int_lt(took_us, most_us);
}

static int64_t time_of_call(int64_t limit_us)
{
    struct watchdog *watchdog = open_watchdog();
    int64_t start_us = clock_now_us();
    watchdog_arm(watchdog, limit_us);
    int64_t took_us = wait_late() - start_us;
    ck_assert(!watchdog_is_armed(watchdog));
    sleep_ms(50);
    ck_assert_int_eq(n_calls, 1);
    watchdog_close(watchdog);
    return took_us;
}

START_TEST(watchdog_calls_after_the_limit)
{
    const int limits_us[] = {2000, 300000, 700000}; /* less and more than a nap */
    check_time(time_of_call, limits_us[_i], limits_us[_i], limits_us[_i] + NOISE_US);
}
END_TEST

START_TEST(watchdog_that_is_disarmed_does_not_call)
{
    struct watchdog *watchdog = open_watchdog();
    for (int i = 0; i < 100; i++) {
        watchdog_arm(watchdog, MINUTE_US);
        ck_assert(watchdog_is_armed(watchdog));
        watchdog_disarm(watchdog);
        ck_assert(!watchdog_is_armed(watchdog));
    }
    watchdog_hasten(watchdog, 0);
    sleep_ms(50);
    ck_assert_int_eq(n_calls, 0);
    watchdog_close(watchdog);
}
END_TEST

static int64_t time_of_hastened_call(int64_t limit_us)
{
    struct watchdog *watchdog = open_watchdog();
    watchdog_arm(watchdog, MINUTE_US);
    sleep_ms(20);
    int64_t start_us = clock_now_us();
    watchdog_hasten(watchdog, limit_us);
    int64_t took_us = wait_late() - start_us;
    watchdog_close(watchdog);
    return took_us;
}

/* In less than a nap, so it was woken from one. */
START_TEST(hastening_wakes_the_watchdog)
{
    check_time(time_of_hastened_call, 1000, 1000, 100000);
}
END_TEST

static int64_t time_of_call_not_hastened(int64_t limit_us)
{
    struct watchdog *watchdog = open_watchdog();
    int64_t start_us = clock_now_us();
    watchdog_arm(watchdog, limit_us);
    watchdog_hasten(watchdog, MINUTE_US);
    int64_t took_us = wait_late() - start_us;
    watchdog_close(watchdog);
    return took_us;
}

START_TEST(hastening_gives_no_more_time)
{
    check_time(time_of_call_not_hastened, LIMIT_US / 2, LIMIT_US / 2, LIMIT_US / 2 + NOISE_US);
}
END_TEST

/* ---- stalls ---- */

static void stall(int signal_number)
{
    (void)signal_number;
    sleep_us(STALL_US);
}

/* Lets the watchdog's thread tell who it is. A signal then keeps it from running. */
static struct watchdog *open_known(void)
{
    struct watchdog *watchdog = open_watchdog();
    watchdog_arm(watchdog, 0);
    wait_late();
    late_us = 0;
    signal(SIGUSR1, stall);
    sleep_ms(10);
    return watchdog;
}

static void sleep_until(int64_t time_us)
{
    int64_t left_us = time_us - clock_now_us();
    if (left_us > 0) sleep_us((long)left_us);
}

/* The time from hastening, near the end of a stall, to the call. */
static int64_t time_after_stall(int64_t limit_us)
{
    struct watchdog *watchdog = open_known();
    int64_t start_us = clock_now_us();
    watchdog_arm(watchdog, limit_us);
    sleep_ms(10);
    pthread_kill(caller, SIGUSR1);
    sleep_until(start_us + STALL_US - 50000);
    int64_t hastened_us = clock_now_us();
    watchdog_hasten(watchdog, LIMIT_US / 2);
    int64_t took_us = wait_late() - hastened_us;
    watchdog_close(watchdog);
    return took_us;
}

START_TEST(a_stall_before_hastening_is_over)
{
    const int limits_us[] = {MINUTE_US, STALL_US - 100000}; /* the second would have passed */
    check_time(time_after_stall, limits_us[_i], LIMIT_US / 2, LIMIT_US / 2 + NOISE_US);
}
END_TEST

/* The time from the beginning of a stall, in which the watchdog is armed, to the call. */
static int64_t time_from_stall(int64_t limit_us)
{
    struct watchdog *watchdog = open_known();
    int64_t start_us = clock_now_us();
    pthread_kill(caller, SIGUSR1);
    sleep_ms(10);
    watchdog_arm(watchdog, limit_us);
    int64_t took_us = wait_late() - start_us;
    watchdog_close(watchdog);
    return took_us;
}

START_TEST(a_stall_at_arming_does_not_count)
{
    check_time(time_from_stall, LIMIT_US, LIMIT_US + STALL_US - UNCOUNTED_US,
               LIMIT_US + STALL_US + NOISE_US);
}
END_TEST

/* A child: tells that it has armed its watchdog, and later how long that took to call. */
static void run_child(int to, int64_t limit_us)
{
    struct watchdog *watchdog = open_watchdog();
    int64_t start_us = clock_now_us();
    char ready = 1;
    watchdog_arm(watchdog, limit_us);
    if (write(to, &ready, 1) != 1) _exit(1);
    int64_t took_us = wait_late() - start_us;
    if (write(to, &took_us, sizeof took_us) != sizeof took_us) _exit(1);
    _exit(0);
}

static int64_t time_of_stopped_child(int64_t limit_us)
{
    int ends[2];
    char ready;
    int64_t took_us = 0;
    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) run_child(ends[1], limit_us);
    close(ends[1]);
    ck_assert_int_eq(read(ends[0], &ready, 1), 1);
    kill(child, SIGSTOP);
    sleep_us(STALL_US);
    kill(child, SIGCONT);
    struct pollfd event = {.fd = ends[0], .events = POLLIN};
    ck_assert_int_eq(poll(&event, 1, PATIENCE_MS), 1);
    ck_assert_int_eq(read(ends[0], &took_us, sizeof took_us), sizeof took_us);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    close(ends[0]);
    return took_us;
}

START_TEST(a_stopped_process_is_not_late)
{
    check_time(time_of_stopped_child, LIMIT_US, LIMIT_US + STALL_US - UNCOUNTED_US,
               LIMIT_US + STALL_US + NOISE_US);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("watchdog");
    TCase *tcase = tcase_create("watchdog");
    tcase_set_timeout(tcase, 50);
    tcase_add_loop_test(tcase, watchdog_calls_after_the_limit, 0, 3);
    tcase_add_test(tcase, watchdog_that_is_disarmed_does_not_call);
    tcase_add_test(tcase, hastening_wakes_the_watchdog);
    tcase_add_test(tcase, hastening_gives_no_more_time);
    tcase_add_loop_test(tcase, a_stall_before_hastening_is_over, 0, 2);
    tcase_add_test(tcase, a_stall_at_arming_does_not_count);
    tcase_add_test(tcase, a_stopped_process_is_not_late);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
