/* ctest: labels=quick libs=launch timeout=120 */
/* Programs that are started apart: how they begin, and that they end with their starter. */
#include "launch/apart.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/check_util.h"

enum { KILLS = 300, STEP_NS = 10000, WAIT_MS = 30000 };

static struct error err;
static char shell[] = "/bin/sh", c[] = "-c";

/* Reads until all that hold the other end have closed it. */
static void read_to_the_end(int fd, char *text, size_t size)
{
    size_t len = 0;
    for (ssize_t n = 1; n > 0;) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        ck_assert_int_eq(poll(&wait, 1, WAIT_MS), 1);
        n = read(fd, text + len, size - 1 - len);
        if (n > 0) len += (size_t)n;
    }
    text[len] = '\0';
}

static int end_of(pid_t pid)
{
    int status = -1;
    while (!apart_has_ended(pid, &status))
        poll(NULL, 0, 10);
    return status;
}

START_TEST(program_that_cannot_be_run_is_an_error_with_its_name_and_the_cause)
{
    char nowhere[] = "/nowhere/program", *const words[] = {nowhere, NULL};
    pid_t pid = -1;
    int output = 0;
    CHECK_ERR(apart_start_piped(&pid, words, &output, &err), ERR_IO,
              "cannot start /nowhere/program: No such file");
    ck_assert_int_eq(pid, 0);
    ck_assert_int_eq(output, -1);
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
}
END_TEST

START_TEST(program_leads_a_group_and_has_no_input_nor_our_signals)
{
    char script[] = "cat; [ $(ps -o pgid= -p $$) = $$ ] && echo leads; "
                    "grep -c '^Sig\\(Blk\\|Ign\\):.0*$' /proc/self/status",
         *const words[] = {shell, c, script, NULL}, text[100];
    sigset_t set;
    pid_t pid;
    int output;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    CHECK_OK(apart_start_piped(&pid, words, &output, &err));
    read_to_the_end(output, text, sizeof text);
    ck_assert_str_eq(text, "leads\n2\n");
    ck_assert_int_eq(end_of(pid), 0);
    close(output);
}
END_TEST

/* Does not return. */
static void start_and_wait(char *const words[])
{
    pid_t pid;
    signal(SIGTERM, SIG_IGN); /* the program must not inherit this */
    if (apart_start(&pid, words, APART_NOWHERE, APART_NOWHERE, &err)) _exit(1);
    for (;;)
        pause();
}

/* All that the starter has forked hold one end of a pipe. */
START_TEST(program_ends_with_its_starter_whenever_that_is_killed)
{
    char sleep[] = "sleep", seconds[] = "60", *const words[] = {sleep, seconds, NULL}, text[8];
    for (int i = 0; i < KILLS; i++) {
        const struct timespec pause = {.tv_nsec = i * STEP_NS};
        int ends[2];
        ck_assert_int_eq(pipe(ends), 0);
        pid_t starter = fork();
        if (starter == 0) start_and_wait(words);
        ck_assert_int_gt(starter, 0);
        close(ends[1]);
        nanosleep(&pause, NULL);
        kill(starter, SIGKILL);
        ck_assert_int_eq(waitpid(starter, NULL, 0), starter);
        read_to_the_end(ends[0], text, sizeof text);
        close(ends[0]);
    }
}
END_TEST

START_TEST(stop_ends_the_whole_group)
{
    char script[] = "sleep 60 & echo begun; exec sleep 60",
         *const words[] = {shell, c, script, NULL}, text[8] = "";
    pid_t pid;
    int output;
    CHECK_OK(apart_start_piped(&pid, words, &output, &err));
    ck_assert_int_eq(read(output, text, 6), 6);
    apart_stop(pid);
    read_to_the_end(output, text, sizeof text);
    ck_assert_int_eq(kill(-pid, 0), -1);
    close(output);
    apart_stop(0); /* nobody */
}
END_TEST

START_TEST(end_by_a_signal_is_said)
{
    char script[] = "kill -9 $$", *const words[] = {shell, c, script, NULL};
    char text[APART_STATUS_BYTES];
    pid_t pid;
    CHECK_OK(apart_start(&pid, words, APART_NOWHERE, APART_NOWHERE, &err));
    int status = end_of(pid);
    ck_assert_int_eq(status, 128 + SIGKILL);
    ck_assert_str_eq(apart_say_status(status, text), "signal 9");
    ck_assert_str_eq(apart_say_status(3, text), "status 3");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("apart");
    TCase *tests = tcase_create("programs");
    tcase_set_timeout(tests, 100);
    tcase_add_test(tests, program_that_cannot_be_run_is_an_error_with_its_name_and_the_cause);
    tcase_add_test(tests, program_leads_a_group_and_has_no_input_nor_our_signals);
    tcase_add_test(tests, program_ends_with_its_starter_whenever_that_is_killed);
    tcase_add_test(tests, stop_ends_the_whole_group);
    tcase_add_test(tests, end_by_a_signal_is_said);
    suite_add_tcase(suite, tests);
    return check_main(suite);
}
