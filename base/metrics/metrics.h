/* Counters, gauges and histograms, shown in Prometheus' text format (version 0.0.4). What there is
 * is a table, one row for each family. Recording is one or two relaxed atomic additions, from any
 * thread; reading takes no lock, so a scrape delays nobody who records. The numbers of one page may
 * therefore be some microseconds apart, but a histogram's count is always the sum of its buckets.
 * The table of families is immutable; the numbers may be used by any thread. */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "base/text/buffer.h"

struct metrics;

enum metric_kind { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

struct metric_family {
    const char *name; /* without the prefix; a counter's ends with _total */
    const char *help; /* a line without backslashes */
    enum metric_kind kind;
    double scale;                    /* from what is recorded to what is shown; 0 = 1 */
    const char *label;               /* NULL = one series */
    const char *const *label_values; /* NULL = "0", "1", ... */
    int n_values;                    /* of the label */
    const int64_t *bounds;           /* of a histogram, ascending, in units of what is recorded */
    int n_bounds;
};

/* Scales: milliseconds and microseconds as seconds, millionths as a ratio. */
#define METRIC_MS        1e-3
#define METRIC_US        1e-6
#define METRIC_MILLIONTH 1e-6

/* All numbers are 0 at first. keeps families[n]. Errors: ERR_NO_MEMORY. */
int metrics_open(struct metrics **metrics, const struct metric_family *families, int n,
                 struct error *err);
void metrics_close(struct metrics *metrics);

/* family: its index in the table; value: the index of the label's value, 0 without a label. */
void metrics_add(struct metrics *metrics, int family, int value, int64_t by);
void metrics_set(struct metrics *metrics, int family, int value, int64_t to);
/* Adds `what` to a histogram, n times. */
void metrics_observe(struct metrics *metrics, int family, int value, int64_t what, int64_t n);

/* Returns the recorded value of a counter or a gauge, or how often a histogram was observed. */
int64_t metrics_get(const struct metrics *metrics, int family, int value);

/* Which part of the table is shown, and how. */
struct metrics_view {
    const char *prefix; /* of every name */
    const char *labels; /* of every series, such as model="tales"; "" = none */
    int first, n;       /* families */
};

/* The text of a view without its numbers, so that a page that is asked for again and again takes
 * little time. Immutable; keeps metrics, nothing of the view. Errors: ERR_NO_MEMORY. */
struct metrics_page;
int metrics_page_open(struct metrics_page **page, const struct metrics *metrics,
                      const struct metrics_view *view, struct error *err);
void metrics_page_close(struct metrics_page *page);

/* Appends the page with the numbers of now. Errors: ERR_NO_MEMORY. */
int metrics_page_write(const struct metrics_page *page, struct buffer *out, struct error *err);

/* A label's value as the format wants it, cut to size: \, " and line breaks are escaped, and '?'
 * is in place of bytes that are not UTF-8. */
void metrics_escape(const char *text, char *out, size_t size);
