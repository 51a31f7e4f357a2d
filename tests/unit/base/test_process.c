/* ctest: labels=quick,threads libs=base timeout=60 */
/* The ways in which a process ends, each tried in a child process. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/system/process.h"
#include "tests/support/check_util.h"
#include "tests/support/sleep_util.h"

/* A child that opens the process, reports that it is ready, and waits to be stopped. */
enum child_kind {
    CHILD_OBEYS,
    CHILD_HANGS_IN_MAIN,
    CHILD_HANGS_IN_STOP,
    CHILD_ENDS_BY_ITSELF,
    CHILD_READS_NOTHING, /* has no on_reload */
    CHILD_HASTENS,       /* and hangs in main */
    CHILD_FAILS,         /* says so itself, again and again */
    CHILD_STARTS,        /* and never is started */
    CHILD_FAILS_TO_START
};

struct child {
    enum child_kind kind;
    int pipe; /* the child writes a byte when it is open, and one when it is told to stop */
};

static atomic_bool is_told;

static void on_stop(void *arg)
{
    const struct child *child = arg;
    if (child->pipe >= 0 && write(child->pipe, "s", 1) != 1) return;
    if (child->kind == CHILD_HANGS_IN_STOP) sleep_ms(60000);
    if (child->kind == CHILD_HASTENS) process_hasten(100);
    atomic_store(&is_told, true);
}

static void on_reload(void *arg)
{
    const struct child *child = arg;
    if (write(child->pipe, "h", 1) != 1) atomic_store(&is_told, true);
}

static int child_main(struct child *child, int grace_ms)
{
    struct error err;
    const struct process_calls calls = {.on_stop = on_stop,
                                        .on_reload =
                                            child->kind == CHILD_READS_NOTHING ? NULL : on_reload,
                                        .arg = child,
                                        .is_starting = child->kind >= CHILD_STARTS};
    if (process_open(&calls, grace_ms, &err)) return 99;
    if (write(child->pipe, "r", 1) != 1) return 98;
    if (child->kind == CHILD_ENDS_BY_ITSELF) {
        process_close();
        return atomic_load(&is_told) ? 96 : 5;
    }
    bool fails = child->kind == CHILD_FAILS || child->kind == CHILD_FAILS_TO_START;
    if (child->kind == CHILD_HASTENS) process_hasten(0); /* it is not stopping yet */
    bool hangs = child->kind == CHILD_HANGS_IN_MAIN || child->kind == CHILD_HASTENS;
    while (hangs || !atomic_load(&is_told)) {
        if (fails) process_fail();
        sleep_ms(5);
    }
    process_close();
    return process_has_failed() ? 8 : 7;
}

static char read_byte(int fd)
{
    char byte;
    ck_assert_int_eq(read(fd, &byte, 1), 1);
    return byte;
}

/* *fd is the reading end of the child's pipe. */
static pid_t child_start(enum child_kind kind, int grace_ms, int *fd)
{
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) _exit(child_main(&(struct child){kind, ends[1]}, grace_ms));
    close(ends[1]);
    read_byte(ends[0]);
    *fd = ends[0];
    return pid;
}

static int child_status(pid_t child)
{
    int status = 0;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status), "the child ended by signal %d", WTERMSIG(status));
    return WEXITSTATUS(status);
}

START_TEST(process_tells_its_owner_and_ends_in_good_order)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGUSR1};
    int fd;
    for (int i = 0; i < 3; i++) {
        pid_t child = child_start(CHILD_OBEYS, 10000, &fd);
        kill(child, signals[i]);
        ck_assert_int_eq(child_status(child), 7);
        close(fd);
    }
    ck_assert_int_eq(child_status(child_start(CHILD_ENDS_BY_ITSELF, 10000, &fd)), 5);
    close(fd);
}
END_TEST

START_TEST(process_ends_by_the_grace_clock_when_main_or_on_stop_hangs)
{
    for (int kind = CHILD_HANGS_IN_MAIN; kind <= CHILD_HANGS_IN_STOP; kind++) {
        int fd;
        pid_t child = child_start((enum child_kind)kind, 100, &fd);
        int64_t start_ms = clock_now_ms();
        kill(child, SIGTERM);
        ck_assert_int_eq(child_status(child), 128 + SIGTERM);
        ck_assert_int_ge(clock_now_ms() - start_ms, 90);
        close(fd);
    }
}
END_TEST

START_TEST(process_ends_at_once_on_the_second_signal)
{
    for (int kind = CHILD_HANGS_IN_MAIN; kind <= CHILD_HANGS_IN_STOP; kind++) {
        int fd;
        pid_t child = child_start((enum child_kind)kind, 60000, &fd);
        kill(child, SIGTERM);
        read_byte(fd); /* the first was taken, so the order is sure */
        kill(child, SIGINT);
        ck_assert_int_eq(child_status(child), 128 + SIGINT);
        close(fd);
    }
}
END_TEST

START_TEST(process_ends_sooner_when_its_end_is_hastened)
{
    int fd;
    pid_t child = child_start(CHILD_HASTENS, 60000, &fd);
    int64_t start_ms = clock_now_ms();
    sleep_ms(50);
    kill(child, SIGTERM);
    ck_assert_int_eq(child_status(child), 128 + SIGTERM);
    ck_assert_int_ge(clock_now_ms() - start_ms, 140);
    ck_assert_int_lt(clock_now_ms() - start_ms, 30000);
    close(fd);
}
END_TEST

START_TEST(process_reads_again_after_each_hangup_until_it_stops)
{
    int fd;
    pid_t child = child_start(CHILD_HANGS_IN_STOP, 300, &fd);
    for (int i = 0; i < 3; i++) {
        kill(child, SIGHUP);
        ck_assert_int_eq(read_byte(fd), 'h');
    }
    kill(child, SIGTERM);
    ck_assert_int_eq(read_byte(fd), 's');
    kill(child, SIGHUP); /* neither a second stop signal nor another reading */
    ck_assert_int_eq(child_status(child), 128 + SIGTERM);
    char byte;
    ck_assert_int_eq(read(fd, &byte, 1), 0);
    close(fd);
}
END_TEST

START_TEST(process_that_reads_nothing_again_ends_by_a_hangup)
{
    int fd, status = 0;
    pid_t child = child_start(CHILD_READS_NOTHING, 60000, &fd);
    kill(child, SIGHUP);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGHUP);
    close(fd);
}
END_TEST

START_TEST(process_ignores_broken_pipes_and_gives_the_signals_back)
{
    struct error err;
    int ends[2];
    sigset_t mask;
    struct child nobody = {.kind = CHILD_OBEYS, .pipe = -1};
    const struct process_calls calls = {.on_stop = on_stop, .on_reload = on_reload, .arg = &nobody};
    ck_assert_int_eq(pipe(ends), 0);
    close(ends[0]);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(process_open(&calls, 1000, &err));
        ck_assert_int_eq(write(ends[1], "x", 1), -1);
        ck_assert_int_eq(errno, EPIPE);
        pthread_sigmask(SIG_BLOCK, NULL, &mask);
        ck_assert_int_eq(sigismember(&mask, SIGTERM), 1);
        process_close();
        process_close();
        pthread_sigmask(SIG_BLOCK, NULL, &mask);
        ck_assert_int_eq(sigismember(&mask, SIGTERM), 0);
    }
    close(ends[1]);
}
END_TEST

START_TEST(process_may_open_as_many_files_as_its_hard_limit_allows)
{
    struct error err;
    struct rlimit before, after;
    struct child nobody = {.kind = CHILD_OBEYS, .pipe = -1};
    const struct process_calls calls = {.on_stop = on_stop, .on_reload = on_reload, .arg = &nobody};
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    before.rlim_cur = 100;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    CHECK_OK(process_open(&calls, 1000, &err));
    getrlimit(RLIMIT_NOFILE, &after);
    process_close();
    ck_assert_uint_eq(after.rlim_max, before.rlim_max);
    ck_assert_uint_eq(after.rlim_cur, before.rlim_max < 65536 ? before.rlim_max : 65536);
}
END_TEST

START_TEST(process_that_fails_ends_in_good_order_and_says_so)
{
    struct error err;
    const struct process_calls calls = {0};
    int fd;
    ck_assert_int_eq(child_status(child_start(CHILD_FAILS, 10000, &fd)), 8);
    ck_assert_int_eq(read_byte(fd), 's');
    close(fd);
    process_fail(); /* there is no process to end */
    CHECK_OK(process_open(&calls, 1000, &err));
    ck_assert(!process_has_failed());
    process_close();
}
END_TEST

START_TEST(process_that_is_starting_ends_at_once)
{
    int fd;
    pid_t child = child_start(CHILD_STARTS, 60000, &fd);
    kill(child, SIGTERM);
    ck_assert_int_eq(child_status(child), 128 + SIGTERM);
    close(fd);
    ck_assert_int_eq(child_status(child_start(CHILD_FAILS_TO_START, 60000, &fd)), EXIT_FAILURE);
    close(fd);
}
END_TEST

/* It was told to stop, which it does; that it cannot go on is no failure then. */
START_TEST(process_that_is_stopping_does_not_fail)
{
    struct error err;
    struct child nobody = {.kind = CHILD_OBEYS, .pipe = -1};
    const struct process_calls calls = {.on_stop = on_stop, .arg = &nobody};
    CHECK_OK(process_open(&calls, 10000, &err));
    kill(getpid(), SIGTERM);
    while (!atomic_load(&is_told))
        sleep_ms(5);
    process_fail();
    ck_assert(!process_has_failed());
    process_close();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("process");
    TCase *process = tcase_create("process");
    tcase_add_test(process, process_tells_its_owner_and_ends_in_good_order);
    tcase_add_test(process, process_ends_by_the_grace_clock_when_main_or_on_stop_hangs);
    tcase_add_test(process, process_ends_at_once_on_the_second_signal);
    tcase_add_test(process, process_ends_sooner_when_its_end_is_hastened);
    tcase_add_test(process, process_reads_again_after_each_hangup_until_it_stops);
    tcase_add_test(process, process_that_reads_nothing_again_ends_by_a_hangup);
    tcase_add_test(process, process_ignores_broken_pipes_and_gives_the_signals_back);
    tcase_add_test(process, process_may_open_as_many_files_as_its_hard_limit_allows);
    tcase_add_test(process, process_that_fails_ends_in_good_order_and_says_so);
    tcase_add_test(process, process_that_is_starting_ends_at_once);
    tcase_add_test(process, process_that_is_stopping_does_not_fail);
    suite_add_tcase(suite, process);
    return check_main(suite);
}
