/* The numbers are one array of cells. A family has a group of cells for each value of its label. */
#include "base/metrics.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/utf8.h"

enum { NUMBER_BYTES = 24 /* of any number as text */ };

struct number {
    char text[NUMBER_BYTES];
};

/* The cells of a histogram: a count for each bound, one for what is above them, and the sum. Those
 * of another family: the number. */
struct metrics {
    const struct metric_family *families;
    int n_families;
    int *first_cells, *first_bounds; /* [n_families] */
    atomic_llong *cells;             /* relaxed: no number says anything about another one */
    struct number *bounds;           /* as the page shows them, because printf is slow */
};

static int n_series(const struct metric_family *family)
{
    return family->label ? family->n_values : 1;
}

static int n_cells(const struct metric_family *family)
{
    return family->kind == METRIC_HISTOGRAM ? family->n_bounds + 2 : 1;
}

/* A page is mostly whole numbers, and printf takes ten times as long. Returns the end. */
static char *show_count(uint64_t n, char *out)
{
    char digits[NUMBER_BYTES];
    char *at = digits + sizeof digits - 1;
    *at = '\0';
    do {
        *--at = (char)('0' + n % 10);
        n /= 10;
    } while (n);
    return stpcpy(out, at);
}

/* The n-th part of `unit`, a power of ten, as the digits behind a point, without zeros at the end;
 * nothing for 0. */
static void show_fraction(uint64_t n, uint64_t unit, char *out)
{
    if (n) *out++ = '.';
    while (n) {
        unit /= 10;
        *out++ = (char)('0' + n / unit);
        n %= unit;
    }
    *out = '\0';
}

/* What a shown 1 is of what is recorded; 0: not a whole number that we know. */
static uint64_t unit_of(const struct metric_family *f)
{
    if (f->scale == 0) return 1;
    if (f->scale == METRIC_MS) return 1000;
    return f->scale == METRIC_US ? 1000000 : 0;
}

/* Exactly where the scale is one of ours, else with enough digits for microseconds of 30 years. */
static void show_number(const struct metric_family *f, int64_t recorded, struct number *shown)
{
    uint64_t n = (uint64_t)recorded, unit = unit_of(f);
    if (recorded >= 0 && unit) {
        show_fraction(n % unit, unit, show_count(n / unit, shown->text));
    } else {
        double scale = f->scale == 0 ? 1 : f->scale;
        snprintf(shown->text, sizeof shown->text, "%.15g", (double)recorded * scale);
    }
}

/* Where each family's cells and bounds begin; how many there are. */
static void lay_out(struct metrics *m, int *n_all_cells, int *n_all_bounds)
{
    *n_all_cells = *n_all_bounds = 0;
    for (int i = 0; i < m->n_families; i++) {
        const struct metric_family *f = &m->families[i];
        m->first_cells[i] = *n_all_cells;
        m->first_bounds[i] = *n_all_bounds;
        *n_all_cells += n_series(f) * n_cells(f);
        *n_all_bounds += f->n_bounds;
    }
}

int metrics_open(struct metrics **metrics, const struct metric_family *families, int n,
                 struct error *err)
{
    int rc = 0, n_all_cells, n_all_bounds;
    struct metrics *m = NULL;
    *metrics = NULL;
    TRY(mem_array(&m, 1, sizeof *m, err));
    m->families = families;
    m->n_families = n;
    TRY(mem_array(&m->first_cells, (size_t)n, sizeof *m->first_cells, err));
    TRY(mem_array(&m->first_bounds, (size_t)n, sizeof *m->first_bounds, err));
    lay_out(m, &n_all_cells, &n_all_bounds);
    TRY(mem_array(&m->cells, (size_t)n_all_cells, sizeof *m->cells, err));
    TRY(mem_array(&m->bounds, (size_t)n_all_bounds, sizeof *m->bounds, err));
    for (int i = 0; i < n; i++) {
        for (int b = 0; b < families[i].n_bounds; b++) {
            show_number(&families[i], families[i].bounds[b], &m->bounds[m->first_bounds[i] + b]);
        }
    }
    *metrics = m;
    m = NULL;
out:
    metrics_close(m);
    return rc;
}

void metrics_close(struct metrics *m)
{
    if (!m) return;
    free(m->first_cells);
    free(m->first_bounds);
    free(m->cells);
    free(m->bounds);
    free(m);
}

/* ---- recording ---- */

static atomic_llong *cells_at(const struct metrics *m, int family, int value)
{
    return m->cells + m->first_cells[family] + value * n_cells(&m->families[family]);
}

static void add(atomic_llong *cell, int64_t by)
{
    atomic_fetch_add_explicit(cell, by, memory_order_relaxed);
}

static int64_t get(const atomic_llong *cell)
{
    return atomic_load_explicit(cell, memory_order_relaxed);
}

void metrics_add(struct metrics *m, int family, int value, int64_t by)
{
    add(cells_at(m, family, value), by);
}

void metrics_set(struct metrics *m, int family, int value, int64_t to)
{
    atomic_store_explicit(cells_at(m, family, value), to, memory_order_relaxed);
}

void metrics_observe(struct metrics *m, int family, int value, int64_t what, int64_t n)
{
    const struct metric_family *f = &m->families[family];
    atomic_llong *cells = cells_at(m, family, value);
    int low = 0, high = f->n_bounds;
    while (low < high) {
        int middle = (low + high) / 2;
        if (what <= f->bounds[middle]) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    add(cells + low, n);
    add(cells + f->n_bounds + 1, what * n);
}

int64_t metrics_get(const struct metrics *m, int family, int value)
{
    const struct metric_family *f = &m->families[family];
    const atomic_llong *cells = cells_at(m, family, value);
    int64_t sum = get(cells);
    for (int i = 1; f->kind == METRIC_HISTOGRAM && i <= f->n_bounds; i++) {
        sum += get(&cells[i]);
    }
    return sum;
}

/* ---- the text ---- */

/* Appends to a page until the first failure. */
struct writer {
    struct buffer *out;
    const struct metrics_view *view;
    struct error *err;
    int rc;
};

static void put_bytes(struct writer *w, const char *bytes, size_t len)
{
    if (!w->rc) w->rc = buffer_append(w->out, bytes, len, w->err);
}

static void put(struct writer *w, const char *text)
{
    put_bytes(w, text, strlen(text));
}

/* Appends once more what is at [at, at + len) of the page. */
static void put_again(struct writer *w, size_t at, size_t len)
{
    if (!w->rc) w->rc = buffer_reserve(w->out, w->out->len + len, w->err); /* it may move */
    if (!w->rc) put_bytes(w, (const char *)w->out->data + at, len);
}

static void put_count(struct writer *w, uint64_t n)
{
    char text[NUMBER_BYTES];
    put_bytes(w, text, (size_t)(show_count(n, text) - text));
}

static void put_number(struct writer *w, const struct metric_family *f, int64_t recorded)
{
    struct number shown;
    show_number(f, recorded, &shown);
    put(w, shown.text);
}

static void put_own_label(struct writer *w, const struct metric_family *f, int value)
{
    put(w, f->label);
    put(w, "=\"");
    if (f->label_values) {
        put(w, f->label_values[value]);
    } else {
        put_count(w, (uint64_t)value);
    }
    put(w, "\"");
}

/* NAME{LABELS without the brace that ends them. False: it has none, nor the one that begins. */
static bool put_series(struct writer *w, const struct metric_family *f, int value,
                       const char *suffix)
{
    bool has_labels = w->view->labels[0] != '\0';
    put(w, w->view->prefix);
    put(w, f->name);
    put(w, suffix);
    if (has_labels) {
        put(w, "{");
        put(w, w->view->labels);
    }
    if (f->label) {
        put(w, has_labels ? "," : "{");
        put_own_label(w, f, value);
        has_labels = true;
    }
    return has_labels;
}

/* Returns the count of all buckets. */
static uint64_t put_buckets(struct writer *w, const struct metric_family *f, int value,
                            const struct number *bounds, const atomic_llong *cells)
{
    char rest[2 * NUMBER_BYTES + 8]; /* of a line: the bound and the count */
    uint64_t n = 0;
    size_t begin = w->out->len, len = 0;
    for (int i = 0; i <= f->n_bounds; i++) {
        n += (uint64_t)get(&cells[i]);
        if (i == 0) {
            put(w, put_series(w, f, value, "_bucket") ? ",le=\"" : "{le=\"");
            len = w->out->len - begin;
        } else {
            put_again(w, begin, len);
        }
        char *end = stpcpy(rest, i < f->n_bounds ? bounds[i].text : "+Inf");
        end = stpcpy(show_count(n, stpcpy(end, "\"} ")), "\n");
        put_bytes(w, rest, (size_t)(end - rest));
    }
    return n;
}

static void put_single(struct writer *w, const struct metric_family *f, int value,
                       const char *suffix, int64_t recorded)
{
    put(w, put_series(w, f, value, suffix) ? "} " : " ");
    put_number(w, f, recorded);
    put(w, "\n");
}

/* The count is taken from the buckets, so that the two agree at any time. */
static void put_histogram(struct writer *w, const struct metric_family *f, int value,
                          const struct number *bounds, const atomic_llong *cells)
{
    uint64_t n = put_buckets(w, f, value, bounds, cells);
    put_single(w, f, value, "_sum", get(&cells[f->n_bounds + 1]));
    put(w, put_series(w, f, value, "_count") ? "} " : " ");
    put_count(w, n);
    put(w, "\n");
}

static void put_head(struct writer *w, const struct metric_family *f)
{
    static const char *const kinds[] = {" counter\n", " gauge\n", " histogram\n"};
    put(w, "# HELP ");
    put(w, w->view->prefix);
    put(w, f->name);
    put(w, " ");
    put(w, f->help);
    put(w, "\n# TYPE ");
    put(w, w->view->prefix);
    put(w, f->name);
    put(w, kinds[f->kind]);
}

int metrics_write(const struct metrics *m, const struct metrics_view *view, struct buffer *out,
                  struct error *err)
{
    struct writer w = {.out = out, .view = view, .err = err};
    for (int i = view->first; i < view->first + view->n && !w.rc; i++) {
        const struct metric_family *f = &m->families[i];
        put_head(&w, f);
        for (int value = 0; value < n_series(f); value++) {
            const atomic_llong *cells = cells_at(m, i, value);
            if (f->kind == METRIC_HISTOGRAM) {
                put_histogram(&w, f, value, m->bounds + m->first_bounds[i], cells);
            } else {
                put_single(&w, f, value, "", get(cells));
            }
        }
    }
    return w.rc;
}

void metrics_escape(const char *text, char *out, size_t size)
{
    size_t n = 0;
    for (; *text && n + 2 < size; text++) {
        if (*text == '\\' || *text == '"' || *text == '\n') out[n++] = '\\';
        out[n++] = *text == '\n' ? 'n' : *text;
    }
    out[n] = '\0';
    utf8_clean(out, n);
}
