/* ctest: labels=quick,threads,slow libs=base timeout=60 */
/* A thread that makes no mark for the limit hangs, and no longer once it makes one. Nothing is
 * expected before the first mark and after an excuse, and time in which the process could not run
 * does not count. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/threads/beat.h"
#include "tests/support/check_util.h"
#include "tests/support/sleep_util.h"

enum { LIMIT_US = 1500000, LATE_MS = 20000, PAUSE_MS = 3000 };

static const char *const names[] = {"the first thread", "the second thread"};
static atomic_int n_changes;
static atomic_bool last_change;

static void on_change(void *arg, bool is_alive)
{
    ck_assert_ptr_eq(arg, &n_changes);
    last_change = is_alive;
    n_changes++;
}

static struct beat *open_beat(int n_threads)
{
    struct error err;
    struct beat *beat;
    n_changes = 0;
    CHECK_OK(beat_open(&beat,
                       &(struct beat_options){.names = names,
                                              .n_threads = n_threads,
                                              .limit_us = LIMIT_US,
                                              .on_change = on_change,
                                              .arg = &n_changes},
                       &err));
    return beat;
}

static void wait_changes(int n)
{
    for (int ms = 0; n_changes < n && ms < LATE_MS; ms++)
        sleep_ms(1);
    ck_assert_int_eq(n_changes, n);
}

START_TEST(nothing_is_expected_before_the_first_mark_and_after_an_excuse)
{
    struct error err;
    struct beat *beat = open_beat(2);
    sleep_us(LIMIT_US + 1000000);
    CHECK_OK(beat_check(beat, &err));
    for (int i = 0; i < 2; i++) {
        beat_mark(beat, 1);
        beat_excuse(beat, 1);
        beat_excuse(beat, 1);
    }
    sleep_us(LIMIT_US + 1000000);
    CHECK_OK(beat_check(beat, &err));
    ck_assert_int_eq(beat_age_us(beat, 0), 0);
    ck_assert_int_eq(beat_age_us(beat, 1), 0);
    ck_assert_int_eq(n_changes, 0);
    beat_close(beat);
}
END_TEST

START_TEST(thread_that_makes_no_mark_hangs_until_the_next_one)
{
    struct error err;
    struct beat *beat = open_beat(2);
    beat_mark(beat, 0);
    beat_mark(beat, 1);
    int64_t start_us = clock_now_us();
    while (n_changes == 0 && clock_now_us() - start_us < LATE_MS * 1000) {
        beat_mark(beat, 0);
        sleep_ms(1);
    }
    ck_assert_int_ge(clock_now_us() - start_us, LIMIT_US);
    ck_assert(n_changes == 1 && !last_change);
    CHECK_ERR(beat_check(beat, &err), ERR_TIMEOUT,
              "the second thread has made no progress for 1 s");
    ck_assert_int_ge(beat_age_us(beat, 1), LIMIT_US);
    ck_assert_int_lt(beat_age_us(beat, 0), LIMIT_US);
    beat_mark(beat, 1);
    CHECK_OK(beat_check(beat, &err)); /* at once */
    while (n_changes == 1 && clock_now_us() - start_us < 2 * LATE_MS * 1000) {
        beat_mark(beat, 0);
        beat_mark(beat, 1);
        sleep_ms(1);
    }
    ck_assert(n_changes == 2 && last_change);
    beat_excuse(beat, 0);
    wait_changes(3);
    ck_assert(!last_change);
    beat_excuse(beat, 1);
    wait_changes(4);
    ck_assert(last_change);
    beat_close(beat);
}
END_TEST

/* The child marks once and then never again; what it finds right after a pause is its status. */
static int find_after_pause(int ready, int over)
{
    struct error err;
    char byte = 0;
    struct beat *beat = open_beat(1);
    beat_mark(beat, 0);
    sleep_ms(600); /* the mark was seen */
    if (write(ready, "r", 1) != 1 || read(over, &byte, 1) != 1) return 98;
    int status = beat_check(beat, &err) ? 1 : 0;
    sleep_us(2 * LIMIT_US);
    if (!beat_check(beat, &err)) status = 97; /* what is not paused counts */
    beat_close(beat);
    return status;
}

START_TEST(time_in_which_the_process_is_stopped_does_not_count)
{
    int ready[2], over[2], status = 0;
    char byte;
    ck_assert(pipe(ready) == 0 && pipe(over) == 0);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) _exit(find_after_pause(ready[1], over[0]));
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    kill(child, SIGSTOP);
    sleep_ms(PAUSE_MS);
    ck_assert_int_eq(write(over[1], "c", 1), 1);
    kill(child, SIGCONT);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("beat");
    TCase *beat = tcase_create("beat");
    tcase_add_test(beat, nothing_is_expected_before_the_first_mark_and_after_an_excuse);
    tcase_add_test(beat, thread_that_makes_no_mark_hangs_until_the_next_one);
    tcase_add_test(beat, time_in_which_the_process_is_stopped_does_not_count);
    suite_add_tcase(suite, beat);
    return check_main(suite);
}
