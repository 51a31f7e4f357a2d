/* ctest: labels=quick,threads libs=base timeout=60 */
/* The watchdog speaks after its deadline and not before, not at all when it was disarmed, and does
 * not count the time in which the whole process was stopped. */
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/watchdog.h"
#include "tests/support/check_util.h"

enum {
    LIMIT_US = 1000000,
    STOPPED_US = 2000000,
    LEAST_US = LIMIT_US + STOPPED_US - 600000, /* less a nap that was under way, and a stall */
    PATIENCE_MS = 20000
};

static atomic_llong late_us; /* when it spoke; 0 = not yet */

static void on_late(void *arg)
{
    (void)arg;
    late_us = clock_now_us();
}

static void sleep_us(long us)
{
    const struct timespec time = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&time, NULL);
}

static void wait_late(void)
{
    for (int ms = 0; late_us == 0 && ms < PATIENCE_MS; ms++)
        sleep_us(1000);
    ck_assert(late_us != 0);
}

static struct watchdog *open_dog(void)
{
    struct error err;
    struct watchdog *dog;
    late_us = 0;
    CHECK_OK(watchdog_open(&dog, on_late, NULL, &err));
    return dog;
}

START_TEST(it_speaks_after_the_deadline)
{
    const int limits_us[] = {2000, 300000, 700000}; /* less and more than a nap */
    struct watchdog *dog = open_dog();
    int64_t deadline_us = clock_now_us() + limits_us[_i];
    watchdog_arm(dog, deadline_us);
    ck_assert(watchdog_is_armed(dog));
    wait_late();
    ck_assert_int_ge(late_us, deadline_us);
    ck_assert(!watchdog_is_armed(dog));
    watchdog_close(dog);
}
END_TEST

START_TEST(it_says_nothing_when_disarmed)
{
    struct watchdog *dog = open_dog();
    for (int i = 0; i < 100; i++) {
        watchdog_arm(dog, clock_now_us() + 60000000);
        watchdog_disarm(dog);
    }
    watchdog_hasten(dog, clock_now_us());
    sleep_us(50000);
    ck_assert_int_eq(late_us, 0);
    watchdog_close(dog);
}
END_TEST

START_TEST(a_hastened_deadline_counts)
{
    struct watchdog *dog = open_dog();
    watchdog_arm(dog, clock_now_us() + 60000000);
    sleep_us(10000); /* it naps now, or will; either way it must wake up for the new deadline */
    watchdog_hasten(dog, clock_now_us() + 1000);
    wait_late();
    watchdog_close(dog);
}
END_TEST

/* The child: how long after arming the watchdog speaks. */
static void run_child(int to)
{
    struct watchdog *dog = open_dog();
    int64_t start_us = clock_now_us();
    watchdog_arm(dog, start_us + LIMIT_US);
    char ready = 1;
    if (write(to, &ready, 1) != 1) _exit(1);
    wait_late();
    int64_t took_us = late_us - start_us;
    if (write(to, &took_us, sizeof took_us) != sizeof took_us) _exit(1);
    watchdog_close(dog);
    _exit(0);
}

START_TEST(a_stopped_process_is_not_late)
{
    int ends[2];
    char ready;
    int64_t took_us = 0;
    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) run_child(ends[1]);
    ck_assert_int_eq(read(ends[0], &ready, 1), 1);
    kill(child, SIGSTOP);
    sleep_us(STOPPED_US);
    kill(child, SIGCONT);
    struct pollfd event = {.fd = ends[0], .events = POLLIN};
    ck_assert_int_eq(poll(&event, 1, PATIENCE_MS), 1);
    ck_assert_int_eq(read(ends[0], &took_us, sizeof took_us), sizeof took_us);
    ck_assert_int_ge(took_us, LEAST_US);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    close(ends[0]);
    close(ends[1]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("watchdog");
    TCase *tcase = tcase_create("watchdog");
    tcase_set_timeout(tcase, 50);
    tcase_add_loop_test(tcase, it_speaks_after_the_deadline, 0, 3);
    tcase_add_test(tcase, it_says_nothing_when_disarmed);
    tcase_add_test(tcase, a_hastened_deadline_counts);
    tcase_add_test(tcase, a_stopped_process_is_not_late);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
