/* ctest: labels=quick,threads libs=base timeout=60 */
/* The page has what was recorded, in the text format of Prometheus, also while others record. That
 * promtool accepts whole pages is shown by tests/cluster/test_metrics_cluster.py. */
#include "base/metrics/metrics.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/metrics/metrics_process.h"
#include "base/metrics/metrics_rows.h"
#include "base/text/utf8.h"
#include "tests/support/check_util.h"

static const int64_t bounds_us[] = {1000, 2500, 1000000}, one_bound[] = {1000};
static const char *const colours[] = {"red", "blue"};

enum { JOBS, HEAT, WAITS, PARTS, FAMILIES };

static const struct metric_family families[FAMILIES] = {
    COUNTER(JOBS, "jobs_total", "Jobs by colour.", BY("colour", colours)),
    GAUGE(HEAT, "heat_ratio", "Of the most.", .scale = METRIC_MILLIONTH),
    HISTOGRAM(WAITS, "wait_seconds", "Time of waiting.", TIMES(bounds_us)),
    HISTOGRAM(PARTS, "part_sizes", "Sizes by place.", SIZES(one_bound), .label = "place",
              .n_values = 2),
};

static struct metrics *open_metrics(void)
{
    struct error err;
    struct metrics *m;
    CHECK_OK(metrics_open(&m, families, FAMILIES, &err));
    return m;
}

/* The page as text; the caller frees the buffer. */
static const char *show(const struct metrics *m, struct metrics_view view, struct buffer *out)
{
    struct error err;
    struct metrics_page *page;
    out->len = 0;
    CHECK_OK(metrics_page_open(&page, m, &view, &err));
    CHECK_OK(metrics_page_write(page, out, &err));
    metrics_page_close(page);
    CHECK_OK(buffer_append(out, "", 1, &err));
    return (const char *)out->data;
}

START_TEST(counters_and_gauges_have_a_line_for_each_value)
{
    struct metrics *m = open_metrics();
    struct buffer out = {0};
    metrics_add(m, JOBS, 0, 3);
    metrics_add(m, JOBS, 1, (int64_t)1 << 60);
    metrics_add(m, JOBS, 0, 4);
    metrics_set(m, HEAT, 0, 250000);
    metrics_set(m, HEAT, 0, 125000);
    ck_assert_int_eq(metrics_get(m, JOBS, 0), 7);
    ck_assert_int_eq(metrics_get(m, HEAT, 0), 125000);
    const struct metrics_view view = {.prefix = "o_", .labels = "", .first = JOBS, .n = 2};
    ck_assert_str_eq(show(m, view, &out), "# HELP o_jobs_total Jobs by colour.\n"
                                          "# TYPE o_jobs_total counter\n"
                                          "o_jobs_total{colour=\"red\"} 7\n"
                                          "o_jobs_total{colour=\"blue\"} 1152921504606846976\n"
                                          "# HELP o_heat_ratio Of the most.\n"
                                          "# TYPE o_heat_ratio gauge\n"
                                          "o_heat_ratio 0.125\n");
    buffer_free(&out);
    metrics_close(m);
}
END_TEST

START_TEST(scaled_numbers_are_exact_decimals)
{
    static const struct {
        int64_t recorded;
        const char *line;
    } cases[] = {
        {0, "\nheat_ratio 0\n"},
        {1, "\nheat_ratio 0.000001\n"},
        {10, "\nheat_ratio 0.00001\n"},
        {999999, "\nheat_ratio 0.999999\n"},
        {1000000, "\nheat_ratio 1\n"},
        {1000001, "\nheat_ratio 1.000001\n"},
        {12345600, "\nheat_ratio 12.3456\n"},
        {1234567890123456, "\nheat_ratio 1234567890.123456\n"},
        {INT64_MAX, "\nheat_ratio 9223372036854.775807\n"},
        {-1500000, "\nheat_ratio -1.5\n"},
    };
    struct metrics *m = open_metrics();
    struct buffer out = {0};
    const struct metrics_view view = {.prefix = "", .labels = "", .first = HEAT, .n = 1};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        metrics_set(m, HEAT, 0, cases[i].recorded);
        const char *page = show(m, view, &out);
        ck_assert_msg(strstr(page, cases[i].line) != NULL, "%s has no %s", page, cases[i].line);
    }
    buffer_free(&out);
    metrics_close(m);
}
END_TEST

START_TEST(a_value_on_a_bound_belongs_to_its_bucket)
{
    struct metrics *m = open_metrics();
    struct buffer out = {0};
    metrics_observe(m, WAITS, 0, 0, 1);
    metrics_observe(m, WAITS, 0, 1000, 1);
    metrics_observe(m, WAITS, 0, 1001, 2);
    metrics_observe(m, WAITS, 0, 2500, 1);
    metrics_observe(m, WAITS, 0, 1000000, 1);
    metrics_observe(m, WAITS, 0, 1000001, 1);
    const struct metrics_view view = {
        .prefix = "o:", .labels = "model=\"tales\"", .first = WAITS, .n = 1};
    ck_assert_str_eq(show(m, view, &out), "# HELP o:wait_seconds Time of waiting.\n"
                                          "# TYPE o:wait_seconds histogram\n"
                                          "o:wait_seconds_bucket{model=\"tales\",le=\"0.001\"} 2\n"
                                          "o:wait_seconds_bucket{model=\"tales\",le=\"0.0025\"} 5\n"
                                          "o:wait_seconds_bucket{model=\"tales\",le=\"1\"} 6\n"
                                          "o:wait_seconds_bucket{model=\"tales\",le=\"+Inf\"} 7\n"
                                          "o:wait_seconds_sum{model=\"tales\"} 2.005503\n"
                                          "o:wait_seconds_count{model=\"tales\"} 7\n");
    ck_assert_int_eq(metrics_get(m, WAITS, 0), 7);
    buffer_free(&out);
    metrics_close(m);
}
END_TEST

START_TEST(a_page_has_the_numbers_of_now_each_time_it_is_written)
{
    struct error err;
    struct metrics *m = open_metrics();
    struct metrics_page *page;
    struct buffer out = {0};
    const struct metrics_view view = {.prefix = "", .labels = "", .first = PARTS, .n = 1};
    CHECK_OK(metrics_page_open(&page, m, &view, &err));
    metrics_observe(m, PARTS, 0, 7, 1);
    CHECK_OK(metrics_page_write(page, &out, &err));
    size_t len = out.len;
    metrics_observe(m, PARTS, 0, 8, 2);
    CHECK_OK(metrics_page_write(page, &out, &err)); /* after the first one */
    CHECK_OK(buffer_append(&out, "", 1, &err));
    const char *first = (const char *)out.data, *second = first + len;
    ck_assert_ptr_nonnull(strstr(first, "part_sizes_count{place=\"0\"} 1\n"));
    ck_assert_ptr_nonnull(strstr(second, "part_sizes_sum{place=\"0\"} 23\n"));
    ck_assert_ptr_nonnull(strstr(second, "part_sizes_bucket{place=\"0\",le=\"+Inf\"} 3\n"));
    ck_assert_ptr_nonnull(strstr(second, "part_sizes_count{place=\"0\"} 3\n"));
    ck_assert_ptr_nonnull(strstr(second, "part_sizes_count{place=\"1\"} 0\n"));
    metrics_page_close(page);
    buffer_free(&out);
    metrics_close(m);
}
END_TEST

START_TEST(series_of_a_histogram_with_a_label_are_apart)
{
    struct metrics *m = open_metrics();
    struct buffer out = {0};
    metrics_observe(m, PARTS, 1, 7, 1);
    const struct metrics_view view = {.prefix = "", .labels = "", .first = PARTS, .n = 1};
    ck_assert_str_eq(show(m, view, &out), "# HELP part_sizes Sizes by place.\n"
                                          "# TYPE part_sizes histogram\n"
                                          "part_sizes_bucket{place=\"0\",le=\"1000\"} 0\n"
                                          "part_sizes_bucket{place=\"0\",le=\"+Inf\"} 0\n"
                                          "part_sizes_sum{place=\"0\"} 0\n"
                                          "part_sizes_count{place=\"0\"} 0\n"
                                          "part_sizes_bucket{place=\"1\",le=\"1000\"} 1\n"
                                          "part_sizes_bucket{place=\"1\",le=\"+Inf\"} 1\n"
                                          "part_sizes_sum{place=\"1\"} 7\n"
                                          "part_sizes_count{place=\"1\"} 1\n");
    buffer_free(&out);
    metrics_close(m);
}
END_TEST

START_TEST(labels_are_escaped_cut_and_made_utf8)
{
    char out[16];
    metrics_escape("a\\b\"c\nd", out, sizeof out);
    ck_assert_str_eq(out, "a\\\\b\\\"c\\nd");
    metrics_escape("caf\xc3\xa9 \xff!", out, sizeof out);
    ck_assert_str_eq(out, "caf\xc3\xa9 ?!");
    metrics_escape("0123456789abcdefghij", out, sizeof out);
    ck_assert_str_eq(out, "0123456789abcd");
    metrics_escape("0123456789abc\"", out, sizeof out); /* an escape is never cut in two */
    ck_assert_str_eq(out, "0123456789abc\\\"");
    metrics_escape("0123456789abcd\"", out, sizeof out);
    ck_assert_str_eq(out, "0123456789abcd");
}
END_TEST

START_TEST(utf8_is_told_from_other_bytes)
{
    static const char *const wrong[] = {
        "\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\xf5"};
    ck_assert_uint_eq(utf8_prefix("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82", 10), 10);
    ck_assert_uint_eq(utf8_prefix("a\0b", 3), 1);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ck_assert_uint_eq(utf8_prefix(wrong[i], strlen(wrong[i])), 0);
    }
    char text[] = "\xffok\xe2\x82";
    utf8_clean(text, strlen(text));
    ck_assert_str_eq(text, "?ok??");
}
END_TEST

/* ---- while others record ---- */

enum { WRITERS = 3, ROUNDS = 20000, SCRAPES_LEAST = 20 };

static atomic_int n_writing; /* threads that still record */

static void *record(void *metrics)
{
    struct metrics *m = metrics;
    for (int i = 0; i < ROUNDS; i++) {
        metrics_add(m, JOBS, i % 2, 1);
        metrics_set(m, HEAT, 0, i);
        metrics_observe(m, WAITS, 0, (i % 3) * 1500, 2);
    }
    n_writing--;
    return NULL;
}

/* Returns the number after the first line that begins so. */
static long long number_of(const char *page, const char *line)
{
    const char *at = strstr(page, line);
    ck_assert_ptr_nonnull(at);
    return atoll(at + strlen(line));
}

/* Checks one page: buckets ascend, and the count is the last of them. */
static long long check_page(const char *page)
{
    long long first = number_of(page, "wait_seconds_bucket{le=\"0.001\"} ");
    long long second = number_of(page, "wait_seconds_bucket{le=\"0.0025\"} ");
    long long all = number_of(page, "wait_seconds_bucket{le=\"+Inf\"} ");
    ck_assert_int_le(first, second);
    ck_assert_int_le(second, all);
    ck_assert_int_eq(number_of(page, "wait_seconds_count "), all);
    return all;
}

START_TEST(scrapes_beside_writers_see_histograms_that_agree)
{
    pthread_t threads[WRITERS];
    struct metrics *m = open_metrics();
    struct buffer out = {0};
    const struct metrics_view view = {.prefix = "", .labels = "", .n = FAMILIES};
    n_writing = WRITERS;
    for (int i = 0; i < WRITERS; i++) {
        ck_assert_int_eq(pthread_create(&threads[i], NULL, record, m), 0);
    }
    long long last = 0;
    for (int n = 0; n < SCRAPES_LEAST || n_writing > 0; n++) {
        long long now = check_page(show(m, view, &out));
        ck_assert_int_ge(now, last);
        last = now;
    }
    for (int i = 0; i < WRITERS; i++) {
        pthread_join(threads[i], NULL);
    }
    ck_assert_int_eq(check_page(show(m, view, &out)), 2LL * WRITERS * ROUNDS);
    ck_assert_int_eq(metrics_get(m, JOBS, 0) + metrics_get(m, JOBS, 1), WRITERS * ROUNDS);
    buffer_free(&out);
    metrics_close(m);
}
END_TEST

/* ---- the process ---- */

/* The number of the line "\nNAME ". */
static double figure(const char *page, const char *line)
{
    const char *at = strstr(page, line);
    ck_assert_ptr_nonnull(at);
    return atof(at + strlen(line));
}

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

static const char *show_process(struct metrics_process *process, struct buffer *out)
{
    struct error err;
    out->len = 0;
    CHECK_OK(metrics_process_write(process, out, &err));
    CHECK_OK(buffer_append(out, "", 1, &err));
    return (const char *)out->data;
}

START_TEST(figures_of_the_process_are_those_of_the_system)
{
    struct error err;
    struct metrics_process *process;
    struct buffer out = {0};
    CHECK_OK(metrics_process_open(&process, &err));
    const char *page = show_process(process, &out);
    double before = cpu_seconds(), n_fds = figure(page, "\nprocess_open_fds ");
    ck_assert_double_le(figure(page, "\nprocess_cpu_seconds_total "), before + 0.02);
    double start = figure(page, "\nprocess_start_time_seconds ");
    ck_assert_double_le(start, (double)time(NULL) + 1);
    ck_assert_double_ge(start, (double)time(NULL) - 600);
    ck_assert_double_ge(figure(page, "\nprocess_threads "), 1);
    ck_assert_double_ge(figure(page, "\nprocess_resident_memory_bytes "), 1 << 20);
    ck_assert_double_ge(figure(page, "\nprocess_virtual_memory_bytes "),
                        figure(page, "\nprocess_resident_memory_bytes "));
    ck_assert_double_eq(figure(page, "\nprocess_max_fds "), (double)sysconf(_SC_OPEN_MAX));
    int fd = dup(STDERR_FILENO);
    page = show_process(process, &out);
    ck_assert_double_eq(figure(page, "\nprocess_open_fds "), n_fds + 1);
    ck_assert_double_eq(figure(page, "\nprocess_start_time_seconds "), start);
    close(fd);
    buffer_free(&out);
    metrics_process_close(process);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("metrics");
    TCase *tc = tcase_create("all");
    tcase_add_test(tc, counters_and_gauges_have_a_line_for_each_value);
    tcase_add_test(tc, scaled_numbers_are_exact_decimals);
    tcase_add_test(tc, a_value_on_a_bound_belongs_to_its_bucket);
    tcase_add_test(tc, a_page_has_the_numbers_of_now_each_time_it_is_written);
    tcase_add_test(tc, series_of_a_histogram_with_a_label_are_apart);
    tcase_add_test(tc, labels_are_escaped_cut_and_made_utf8);
    tcase_add_test(tc, utf8_is_told_from_other_bytes);
    tcase_add_test(tc, scrapes_beside_writers_see_histograms_that_agree);
    tcase_add_test(tc, figures_of_the_process_are_those_of_the_system);
    suite_add_tcase(suite, tc);
    return check_main(suite);
}
