/* ctest: labels=quick libs=serve timeout=60 */
/* Programs that are kept running: the pauses before restarts, lines and ends. */
#include "client/serve/part.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/check_util.h"

static struct error err;

START_TEST(pauses_grow_until_the_part_has_run_for_a_minute)
{
    static const int wanted_s[] = {1, 2, 4, 8, 16, 30, 30};
    struct part part = {.started_ms = 1000};
    for (size_t i = 0; i < sizeof wanted_s / sizeof *wanted_s; i++) {
        part_plan_restart(&part, 1500);
        ck_assert_int_eq(part.pause_s, wanted_s[i]);
        ck_assert_int_eq(part.restart_ms, 1500 + 1000 * wanted_s[i]);
    }
    part_plan_restart(&part, 1000 + 59999);
    ck_assert_int_eq(part.pause_s, 30);
    part_plan_restart(&part, 1000 + 60000);
    ck_assert_int_eq(part.pause_s, 1);
}
END_TEST

static void take(void *arg, struct part *part, const char *line)
{
    char *lines = arg;
    size_t len = strlen(lines);
    (void)part;
    snprintf(lines + len, 256 - len, "%zu:%.8s;", strlen(line), line);
}

/* Takes lines until the part has closed its output. */
static void read_to_the_end(struct part *part, char lines[256])
{
    while (part->output >= 0) {
        struct pollfd wait = {.fd = part->output, .events = POLLIN};
        ck_assert_int_gt(poll(&wait, 1, 30000), 0);
        part_read(part, take, lines);
    }
}

static int end_of(struct part *part)
{
    int status = -1;
    while (!part_has_ended(part, &status))
        poll(NULL, 0, 10);
    ck_assert_int_eq(part->pid, 0);
    return status;
}

START_TEST(lines_of_both_outputs_are_taken_and_long_ones_cut)
{
    static char shell[] = "/bin/sh", c[] = "-c",
                script[] = "echo one; echo two >&2; head -c 9000 /dev/zero | tr '\\0' x; echo; "
                           "echo last; exit 7";
    char *const words[] = {shell, c, script, NULL};
    char lines[256] = "";
    struct part part = {.words = words, .output = -1};
    CHECK_OK(part_start(&part, &err));
    read_to_the_end(&part, lines);
    ck_assert_str_eq(lines, "3:one;3:two;4095:xxxxxxxx;4:last;");
    ck_assert_int_eq(end_of(&part), 7);
}
END_TEST

START_TEST(a_signal_is_a_status_of_its_own_and_a_part_can_start_again)
{
    static char sleep[] = "sleep", time[] = "300";
    char *const words[] = {sleep, time, NULL};
    struct part part = {.words = words, .output = -1};
    for (int i = 0; i < 2; i++) {
        CHECK_OK(part_start(&part, &err));
        part_signal(&part, SIGKILL);
        ck_assert_int_eq(end_of(&part), 128 + SIGKILL);
        part_close(&part);
    }
    part_signal(&part, SIGKILL); /* to nobody */
}
END_TEST

START_TEST(a_program_that_is_missing_is_an_error_and_a_start_can_be_planned_again)
{
    static char missing[] = "/nowhere/program";
    char *const words[] = {missing, NULL};
    struct part part = {.words = words, .output = -1};
    CHECK_ERR(part_start(&part, &err), ERR_IO, "cannot start /nowhere/program: No such file");
    ck_assert_int_eq(part.pid, 0);
    ck_assert_int_eq(part.output, -1);
    part_plan_restart(&part, 5000);
    ck_assert_int_eq(part.restart_ms, 6000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("serve_part");
    TCase *cases = tcase_create("parts");
    tcase_add_test(cases, pauses_grow_until_the_part_has_run_for_a_minute);
    tcase_add_test(cases, lines_of_both_outputs_are_taken_and_long_ones_cut);
    tcase_add_test(cases, a_signal_is_a_status_of_its_own_and_a_part_can_start_again);
    tcase_add_test(cases, a_program_that_is_missing_is_an_error_and_a_start_can_be_planned_again);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
