/* The numbers are one array of cells. A family has a group of cells for each value of its label. */
#include "base/metrics/metrics.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text/utf8.h"

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
    int at = NUMBER_BYTES;
    do {
        digits[--at] = (char)('0' + n % 10);
        n /= 10;
    } while (n);
    while (at < NUMBER_BYTES)
        *out++ = digits[at++];
    *out = '\0';
    return out;
}

/* Writes n / unit, where unit is a power of ten above n: a point and the digits after it, without
 * zeros at the end; nothing for 0. Returns the end. */
static char *show_fraction(uint64_t n, uint64_t unit, char *out)
{
    if (n) *out++ = '.';
    while (n) {
        unit /= 10;
        *out++ = (char)('0' + n / unit);
        n %= unit;
    }
    *out = '\0';
    return out;
}

/* Returns how many recorded units a shown 1 has; 0: not a whole number that we know. */
static uint64_t unit_of(const struct metric_family *f)
{
    if (f->scale == 0) return 1;
    if (f->scale == METRIC_MS) return 1000;
    return f->scale == METRIC_US ? 1000000 : 0;
}

/* Exactly where the scale is one of ours, else with enough digits for microseconds of 30 years.
 * Returns the end. */
static char *show_number(const struct metric_family *f, int64_t recorded, char out[NUMBER_BYTES])
{
    uint64_t n = (uint64_t)recorded, unit = unit_of(f);
    if (recorded >= 0 && unit) return show_fraction(n % unit, unit, show_count(n / unit, out));
    double scale = f->scale == 0 ? 1 : f->scale;
    return out + snprintf(out, NUMBER_BYTES, "%.15g", (double)recorded * scale);
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
            show_number(&families[i], families[i].bounds[b],
                        m->bounds[m->first_bounds[i] + b].text);
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

enum place_kind { PLACE_VALUE, PLACE_FIRST_BUCKET, PLACE_BUCKET, PLACE_COUNT };

/* Where a number goes. A bucket's is what its histogram has counted up to there; the count of all
 * is taken from the buckets, so that the two agree at any time. */
struct place {
    size_t at;  /* in the text */
    int family; /* whose scale a value has */
    int cell;   /* of a value or a bucket */
    enum place_kind kind;
};

struct metrics_page {
    const struct metrics *metrics;
    struct buffer text; /* without numbers */
    struct place *places;
    size_t n, capacity;
};

/* Appends to a page until the first failure. */
struct writer {
    struct metrics_page *page;
    const struct metrics_view *view;
    struct error *err;
    int rc;
};

static void put(struct writer *w, const char *text)
{
    if (!w->rc) w->rc = buffer_append(&w->page->text, text, strlen(text), w->err);
}

/* Leaves room for a number and ends the line. */
static void put_place(struct writer *w, enum place_kind kind, int family, int cell)
{
    struct metrics_page *page = w->page;
    if (!w->rc) w->rc = mem_grow(&page->places, &page->capacity, page->n + 1, w->err);
    if (w->rc) return;
    page->places[page->n++] =
        (struct place){.at = page->text.len, .family = family, .cell = cell, .kind = kind};
    put(w, "\n");
}

static void put_own_label(struct writer *w, const struct metric_family *f, int value)
{
    char number[NUMBER_BYTES];
    show_count((uint64_t)value, number);
    put(w, f->label);
    put(w, "=\"");
    put(w, f->label_values ? f->label_values[value] : number);
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

static void put_single(struct writer *w, int family, int value, const char *suffix, int cell)
{
    const struct metric_family *f = &w->page->metrics->families[family];
    put(w, put_series(w, f, value, suffix) ? "} " : " ");
    put_place(w, PLACE_VALUE, family, cell);
}

static void put_histogram(struct writer *w, int family, int value, int first_cell)
{
    const struct metrics *m = w->page->metrics;
    const struct metric_family *f = &m->families[family];
    const struct number *bounds = m->bounds + m->first_bounds[family];
    for (int i = 0; i <= f->n_bounds; i++) {
        put(w, put_series(w, f, value, "_bucket") ? ",le=\"" : "{le=\"");
        put(w, i < f->n_bounds ? bounds[i].text : "+Inf");
        put(w, "\"} ");
        put_place(w, i ? PLACE_BUCKET : PLACE_FIRST_BUCKET, family, first_cell + i);
    }
    put_single(w, family, value, "_sum", first_cell + f->n_bounds + 1);
    put(w, put_series(w, f, value, "_count") ? "} " : " ");
    put_place(w, PLACE_COUNT, family, 0);
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

static void put_family(struct writer *w, int family)
{
    const struct metrics *m = w->page->metrics;
    const struct metric_family *f = &m->families[family];
    put_head(w, f);
    for (int value = 0; value < n_series(f); value++) {
        int first_cell = m->first_cells[family] + value * n_cells(f);
        if (f->kind == METRIC_HISTOGRAM)
            put_histogram(w, family, value, first_cell);
        else
            put_single(w, family, value, "", first_cell);
    }
}

int metrics_page_open(struct metrics_page **page, const struct metrics *m,
                      const struct metrics_view *view, struct error *err)
{
    struct metrics_page *made;
    *page = NULL;
    int rc = mem_array(&made, 1, sizeof *made, err);
    if (rc) return rc;
    made->metrics = m;
    struct writer w = {.page = made, .view = view, .err = err};
    for (int i = view->first; i < view->first + view->n && !w.rc; i++) {
        put_family(&w, i);
    }
    if (w.rc)
        metrics_page_close(made);
    else
        *page = made;
    return w.rc;
}

void metrics_page_close(struct metrics_page *page)
{
    if (!page) return;
    buffer_free(&page->text);
    free(page->places);
    free(page);
}

/* *n: what the histogram has counted so far. Returns the end. */
static char *show_place(const struct metrics *m, const struct place *place, uint64_t *n, char *out)
{
    const atomic_llong *cell = &m->cells[place->cell];
    if (place->kind == PLACE_VALUE) {
        return show_number(&m->families[place->family], get(cell), out);
    }
    if (place->kind == PLACE_FIRST_BUCKET) *n = 0;
    if (place->kind != PLACE_COUNT) *n += (uint64_t)get(cell);
    return show_count(*n, out);
}

int metrics_page_write(const struct metrics_page *page, struct buffer *out, struct error *err)
{
    size_t most = page->text.len + page->n * NUMBER_BYTES, from = 0;
    uint64_t n = 0;
    int rc = buffer_reserve(out, out->len + most, err);
    if (rc) return rc;
    char *to = (char *)out->data + out->len;
    for (size_t i = 0; i < page->n; i++) {
        size_t len = page->places[i].at - from;
        memcpy(to, page->text.data + from, len);
        from += len;
        to = show_place(page->metrics, &page->places[i], &n, to + len);
    }
    memcpy(to, page->text.data + from, page->text.len - from);
    to += page->text.len - from;
    out->len = (size_t)(to - (char *)out->data);
    return 0;
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
