/* ctest: labels=quick,threads,slow libs=signals timeout=60 */
/* The log's lines about work: one for each job that ends, with its ids and figures and nothing of
 * its text, and figures while there is work; and the ids that clients send in headers. */
#include "coordinator/signals/reporter.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text/json.h"
#include "tests/support/check_util.h"
#include "tests/support/sleep_util.h"

enum { LOG_BYTES = 1 << 20, FEW = 20, TOO_MANY = 3000, PATIENCE_MS = 20000 };

/* A reporter whose log goes to a file. */
struct world {
    struct signals *signals;
    struct reporter *reporter;
    char path[64], *text;
    int fd, saved;
};

static void world_open(struct world *w, bool has_jobs, int load_s)
{
    const struct signals_options signals = {.version = "1", .draft_name = ""};
    struct error err;
    snprintf(w->path, sizeof w->path, "/tmp/outrider_log_XXXXXX");
    w->fd = mkstemp(w->path);
    w->saved = dup(STDERR_FILENO);
    w->text = calloc(LOG_BYTES, 1);
    ck_assert_int_ge(w->fd, 0);
    fflush(stderr);
    ck_assert_int_ge(dup2(w->fd, STDERR_FILENO), 0);
    log_open("test", LOG_LEVEL_INFO);
    log_set_format(LOG_FORMAT_JSON);
    CHECK_OK(signals_open(&w->signals, &signals, &err));
    const struct reporter_options options = {
        .signals = w->signals, .has_jobs = has_jobs, .load_s = load_s};
    CHECK_OK(reporter_open(&w->reporter, &options, &err));
}

/* Returns what was logged so far. */
static const char *world_log(struct world *w)
{
    ssize_t n = pread(w->fd, w->text, LOG_BYTES - 1, 0);
    w->text[n > 0 ? n : 0] = '\0';
    return w->text;
}

/* Ends the reporter, which writes what it has; returns the log. */
static const char *world_end(struct world *w)
{
    reporter_close(w->reporter);
    dup2(w->saved, STDERR_FILENO);
    close(w->saved);
    return world_log(w);
}

static void world_close(struct world *w)
{
    signals_close(w->signals);
    close(w->fd);
    unlink(w->path);
    free(w->text);
}

/* The first line of a log; *rest: what follows. The caller calls json_decref. */
static json_t *next_line(const char *log, const char **rest)
{
    struct error err;
    json_t *line;
    const char *end = strchr(log, '\n');
    ck_assert_ptr_nonnull(end);
    CHECK_OK(json_parse_text(&line, log, (size_t)(end - log), "line", &err));
    *rest = end + 1;
    return line;
}

static const char *text_of(const json_t *line, const char *key)
{
    const char *text = json_string_value(json_object_get(line, key));
    return text ? text : "(none)";
}

static double number_of(const json_t *line, const char *key)
{
    const json_t *number = json_object_get(line, key);
    return number ? json_number_value(number) : (double)NAN;
}

static struct job_report sample(enum job_end end)
{
    struct job_report r = {.request_id = "r-1",
                           .client = "ann \"a\" b",
                           .end = end,
                           .n_prompt = 12,
                           .work = {.n_tokens = 30,
                                    .n_reused = 8,
                                    .n_rounds = 10,
                                    .n_drafted = 25,
                                    .n_accepted = 15,
                                    .n_rejections = 5},
                           .queue_us = 1500,
                           .first_token_us = 42000,
                           .total_us = 900100};
    ck_assert(job_origin_set_trace(&r.origin,
                                   "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", 55));
    return r;
}

START_TEST(a_job_that_is_refused_has_a_line_for_debugging_alone)
{
    const enum log_level levels[] = {LOG_LEVEL_INFO, LOG_LEVEL_DEBUG};
    for (int i = 0; i < 2; i++) {
        struct world w;
        world_open(&w, true, 0);
        log_open("test", levels[i]);
        struct job_report report = sample(JOB_END_REFUSED);
        reporter_job(w.reporter, &report);
        const char *log = world_end(&w);
        ck_assert_int_eq(strstr(log, "job_end") != NULL, i);
        world_close(&w);
    }
}
END_TEST

START_TEST(a_job_that_ends_has_one_line)
{
    struct world w;
    const char *rest;
    world_open(&w, true, 0);
    struct job_report report = sample(JOB_END_LENGTH);
    reporter_job(w.reporter, &report);
    json_t *line = next_line(world_end(&w), &rest);
    ck_assert_str_eq(rest, "");
    ck_assert_str_eq(text_of(line, "event"), "job_end");
    ck_assert_str_eq(text_of(line, "level"), "info");
    ck_assert_str_eq(text_of(line, "request_id"), "r-1");
    ck_assert_str_eq(text_of(line, "trace_id"), "0af7651916cd43dd8448eb211c80319c");
    ck_assert_str_eq(text_of(line, "client"), "ann \"a\" b");
    ck_assert_str_eq(text_of(line, "end"), "length");
    ck_assert_str_eq(text_of(line, "stored_id"), "(none)");
    ck_assert_str_eq(text_of(line, "reason"), "(none)");
    ck_assert_double_eq(number_of(line, "prompt_tokens"), 12);
    ck_assert_double_eq(number_of(line, "reused_tokens"), 8);
    ck_assert_double_eq(number_of(line, "tokens"), 30);
    ck_assert_double_eq(number_of(line, "k_mean"), 2.5);
    ck_assert_double_eq(number_of(line, "alpha"), 0.75);
    ck_assert_double_eq(number_of(line, "queue_ms"), 1.5);
    ck_assert_double_eq(number_of(line, "first_token_ms"), 42);
    ck_assert_double_eq(number_of(line, "total_ms"), 900.1);
    json_decref(line);
    world_close(&w);
}
END_TEST

START_TEST(a_job_that_fails_says_why_as_a_warning)
{
    struct world w;
    const char *rest;
    world_open(&w, false, 0);
    struct job_report report = sample(JOB_END_LENGTH);
    reporter_job(w.reporter, &report); /* has no line without has_jobs */
    report = sample(JOB_END_UNAVAILABLE);
    report.first_token_us = -1;
    report.work = (struct job_work){0};
    error_set(&report.failure, ERR_UNAVAILABLE, "the group was lost");
    reporter_job(w.reporter, &report);
    json_t *line = next_line(world_end(&w), &rest);
    ck_assert_str_eq(rest, "");
    ck_assert_str_eq(text_of(line, "level"), "warn");
    ck_assert_str_eq(text_of(line, "end"), "unavailable");
    ck_assert_str_eq(text_of(line, "reason"), "unavailable");
    ck_assert_str_eq(text_of(line, "text"), "the group was lost");
    ck_assert(isnan(number_of(line, "first_token_ms")));
    ck_assert(isnan(number_of(line, "alpha")));
    json_decref(line);
    world_close(&w);
}
END_TEST

static int count_lines(const char *log)
{
    int n = 0;
    while ((log = strchr(log, '\n'))) {
        n++;
        log++;
    }
    return n;
}

START_TEST(jobs_that_were_handed_over_are_written_at_the_end)
{
    struct world w;
    world_open(&w, true, 0);
    struct job_report report = sample(JOB_END_STOP);
    for (int i = 0; i < FEW; i++) {
        reporter_job(w.reporter, &report);
    }
    ck_assert_int_eq(count_lines(world_end(&w)), FEW);
    ck_assert_int_eq(signals_get(w.signals, SIGNAL_LOST_LINES, 0), 0);
    world_close(&w);
}
END_TEST

/* A pipe that nobody reads takes 64 KiB; the thread that ends jobs goes on. */
START_TEST(a_log_that_nobody_reads_delays_no_job)
{
    struct world w;
    int ends[2];
    char bytes[4096];
    ck_assert_int_eq(pipe(ends), 0);
    world_open(&w, true, 0);
    dup2(ends[1], STDERR_FILENO);
    struct job_report report = sample(JOB_END_STOP);
    int64_t start_us = clock_now_us();
    for (int i = 0; i < TOO_MANY; i++) {
        reporter_job(w.reporter, &report);
    }
    int64_t took_us = clock_now_us() - start_us;
    int64_t n_lost = signals_get(w.signals, SIGNAL_LOST_LINES, 0);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    close(ends[1]);
    int n_lines = 0;
    for (int ms = 0; n_lines + n_lost < TOO_MANY && ms < PATIENCE_MS; ms++) {
        ssize_t n = read(ends[0], bytes, sizeof bytes);
        for (ssize_t i = 0; i < n; i++) {
            n_lines += bytes[i] == '\n';
        }
        if (n <= 0) sleep_ms(1);
    }
    world_end(&w);
    ck_assert_int_gt(n_lost, 0);
    ck_assert_int_eq(n_lines + n_lost, TOO_MANY);
    ck_assert_int_le(took_us, 10 * 1000000);
    close(ends[0]);
    world_close(&w);
}
END_TEST

START_TEST(figures_come_while_there_is_work_and_not_before)
{
    struct world w;
    const char *rest;
    world_open(&w, true, 1);
    sleep_ms(1500);
    ck_assert_str_eq(world_log(&w), "");
    signals_commit(w.signals, &(struct signals_commit){
                                  .n_drafted = 4, .n_accepted = 3, .n_tokens = 4, .gap_us = 100});
    signals_prompt(w.signals, 100, 25, 5000);
    for (int ms = 0; world_log(&w)[0] == '\0' && ms < PATIENCE_MS; ms++) {
        sleep_ms(1);
    }
    json_t *line = next_line(world_end(&w), &rest);
    ck_assert_str_eq(rest, "");
    ck_assert_str_eq(text_of(line, "event"), "load");
    double seconds = number_of(line, "seconds");
    ck_assert_double_ge(seconds, 0.9);
    ck_assert_double_eq_tol(number_of(line, "tokens_per_s") * seconds, 4, 0.5);
    ck_assert_double_eq_tol(number_of(line, "prompt_tokens_per_s") * seconds, 100, 8);
    ck_assert_double_eq(number_of(line, "alpha"), 0.75);
    ck_assert_double_eq(number_of(line, "k_mean"), 4);
    ck_assert_double_eq(number_of(line, "reused_ratio"), 0.25);
    json_decref(line);
    world_close(&w);
}
END_TEST

/* ---- ids of headers ---- */

START_TEST(a_request_id_is_cut_and_cleaned)
{
    struct job_origin origin = {0};
    char many[300];
    job_origin_set_request(&origin, "r 1\"\n\xff~", 7);
    ck_assert_str_eq(origin.request_id, "r_1___~");
    memset(many, 'm', sizeof many);
    job_origin_set_request(&origin, many, sizeof many);
    ck_assert_uint_eq(strlen(origin.request_id), JOB_REQUEST_BYTES - 1);
    job_origin_set_request(&origin, " \t mine 1\t ", 11);
    ck_assert_str_eq(origin.request_id, "mine_1");
    job_origin_set_request(&origin, " \t ", 3);
    ck_assert_str_eq(origin.request_id, "");
    job_origin_set_request(&origin, "", 0);
    ck_assert_str_eq(origin.request_id, "");
}
END_TEST

#define TRACE  "0af7651916cd43dd8448eb211c80319c"
#define PARENT "b7ad6b7169203331"

START_TEST(a_traceparent_is_taken_as_the_standard_says)
{
    static const char *const good[] = {
        "00-" TRACE "-" PARENT "-01", "00-" TRACE "-" PARENT "-ff", "cc-" TRACE "-" PARENT "-01",
        "cc-" TRACE "-" PARENT "-01-what-the-future-brings", " \t00-" TRACE "-" PARENT "-01\t "};
    static const char *const bad[] = {
        "",
        " ",
        "00-" TRACE "-" PARENT "-0",
        "00-" TRACE "-" PARENT "-01-more",
        "cc-" TRACE "-" PARENT "-01.more",
        "ff-" TRACE "-" PARENT "-01",
        "0x-" TRACE "-" PARENT "-01",
        "00_" TRACE "-" PARENT "-01",
        "00-" TRACE "_" PARENT "-01",
        "00-" TRACE "-" PARENT "_01",
        "00-" TRACE "-" PARENT "-0G",
        "00-0AF7651916CD43DD8448EB211C80319C-" PARENT "-01",
        "00-00000000000000000000000000000000-" PARENT "-01",
        "00-" TRACE "-0000000000000000-01",
        "00-" TRACE "-b7ad6b716920333-001",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct job_origin origin = {0};
        ck_assert_msg(job_origin_set_trace(&origin, good[i], strlen(good[i])), "%s", good[i]);
        ck_assert_str_eq(origin.trace_id, TRACE);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct job_origin origin = {0};
        ck_assert_msg(!job_origin_set_trace(&origin, bad[i], strlen(bad[i])), "%s", bad[i]);
        ck_assert_str_eq(origin.trace_id, "");
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("reporter");
    TCase *tc = tcase_create("all");
    tcase_add_test(tc, a_job_that_is_refused_has_a_line_for_debugging_alone);
    tcase_add_test(tc, a_job_that_ends_has_one_line);
    tcase_add_test(tc, a_job_that_fails_says_why_as_a_warning);
    tcase_add_test(tc, jobs_that_were_handed_over_are_written_at_the_end);
    tcase_add_test(tc, a_log_that_nobody_reads_delays_no_job);
    tcase_add_test(tc, figures_come_while_there_is_work_and_not_before);
    tcase_add_test(tc, a_request_id_is_cut_and_cleaned);
    tcase_add_test(tc, a_traceparent_is_taken_as_the_standard_says);
    suite_add_tcase(suite, tc);
    return check_main(suite);
}
