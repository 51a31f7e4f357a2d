/* The tables for people: for each arm the medians over repetitions, some with quartiles. */
#include <math.h>
#include <string.h>

#include "client/bench/report.h"

struct column {
    const char *head;
    int width, decimals;
    enum bench_figure figure;
    double factor;
    bool has_quartiles;
};

static const struct column speed[] = {
    {"tokens/s", 9, 1, BENCH_TOKENS_PER_S, 1, true},
    {"decode/s", 9, 1, BENCH_DECODE_TOKENS_PER_S, 1, false},
    {"over K=0", 9, 3, BENCH_SPEEDUP, 1, true},
    {"TTFT ms", 8, 1, BENCH_FIRST_P50, 1e3, false},
    {"ITL p50", 8, 2, BENCH_TOKEN_P50, 1e3, false},
    {"p90", 7, 2, BENCH_TOKEN_P90, 1e3, false},
    {"p99 ms", 7, 2, BENCH_TOKEN_P99, 1e3, false},
    {"alpha", 6, 3, BENCH_ALPHA, 1, false},
    {"effic.", 6, 3, BENCH_EFFICIENCY, 1, false},
    {"tok/rd", 6, 2, BENCH_TOKENS_PER_ROUND, 1, false},
};
static const struct column split[] = {
    {"round us", 9, 0, BENCH_ROUND_US, 1, true},
    {"draft", 8, 0, BENCH_PART_US + PART_DRAFT, 1, false},
    {"wire", 8, 0, BENCH_PART_US + PART_WIRE, 1, false},
    {"verify", 8, 0, BENCH_PART_US + PART_VERIFY, 1, false},
    {"collective", 10, 0, BENCH_PART_US + PART_COLLECTIVE, 1, false},
    {"accept", 8, 0, BENCH_PART_US + PART_ACCEPT, 1, false},
    {"a guess", 8, 0, BENCH_GUESS_US, 1, false},
    {"overhead", 9, 0, BENCH_OVERHEAD_P50_US, 1, false},
    {"p99", 8, 0, BENCH_OVERHEAD_P99_US, 1, false},
};
static const struct column load[] = {
    {"batch", 7, 2, BENCH_BATCH_SIZE, 1, true},
    {"rows/step", 9, 2, BENCH_ROWS_PER_STEP, 1, false},
    {"mean K", 7, 2, BENCH_MEAN_K, 1, true},
    {"reused", 8, 0, BENCH_TARGET_REUSED, 1, false},
    {"by draft", 8, 0, BENCH_DRAFT_REUSED, 1, false},
    {"preempt.", 8, 0, BENCH_PREEMPTIONS, 1, false},
    {"queue p50", 9, 1, BENCH_QUEUE_P50, 1e3, false},
    {"p90 ms", 8, 1, BENCH_QUEUE_P90, 1e3, false},
    {"predicted", 9, 3, BENCH_PREDICTED_RATIO, 1, false},
};
enum { N_LOAD = sizeof load / sizeof *load };
enum { N_SPEED = sizeof speed / sizeof *speed, N_SPLIT = sizeof split / sizeof *split };
enum { RANGE_BYTES = 48, RANGE_COLUMNS = 20, LABEL_COLUMNS = 14 };

struct report {
    FILE *out;
    const struct bench_results *results;
    int label_columns;
};

static void put_number(FILE *out, int width, int decimals, double number)
{
    if (isfinite(number)) {
        fprintf(out, " %*.*f", width, decimals, number);
    } else {
        fprintf(out, " %*s", width, "-");
    }
}

static void put_cell(const struct report *r, const struct column *c, const struct bench_arm *arm)
{
    struct quartiles q = bench_figure_quartiles(r->results, arm, c->figure);
    put_number(r->out, c->width, c->decimals, q.median * c->factor);
    if (!c->has_quartiles) return;
    char range[RANGE_BYTES] = "";
    if (q.n > 1) {
        snprintf(range, sizeof range, " (%.*f to %.*f)", c->decimals, q.low * c->factor,
                 c->decimals, q.high * c->factor);
    }
    fprintf(r->out, "%-*s", RANGE_COLUMNS, range);
}

static void print_table(const struct report *r, const struct column *columns, int n_columns)
{
    fprintf(r->out, "%-*s", r->label_columns, "");
    for (int c = 0; c < n_columns; c++) {
        fprintf(r->out, " %*s%*s", columns[c].width, columns[c].head,
                columns[c].has_quartiles ? RANGE_COLUMNS : 0, "");
    }
    fputc('\n', r->out);
    for (int i = 0; i < r->results->n_arms; i++) {
        const struct bench_arm *arm = &r->results->arms[i];
        if (bench_figure_quartiles(r->results, arm, BENCH_REQUESTS).n == 0) continue;
        fprintf(r->out, "%-*s", r->label_columns, arm->label);
        for (int c = 0; c < n_columns; c++)
            put_cell(r, &columns[c], arm);
        fputc('\n', r->out);
    }
}

static double total(const struct bench_results *results, enum bench_figure figure)
{
    double sum = 0;
    for (int i = 0; i < results->n_rows; i++) {
        double value = results->rows[i].figures[figure];
        if (isfinite(value)) sum += value;
    }
    return sum;
}

void bench_print(FILE *out, const struct bench_results *results)
{
    struct report report = {out, results, LABEL_COLUMNS};
    int n_repetitions = 0;
    for (int i = 0; i < results->n_rows; i++) {
        int repetition = results->rows[i].repetition;
        if (repetition >= n_repetitions) n_repetitions = repetition + 1;
    }
    for (int i = 0; i < results->n_arms; i++) {
        int len = (int)strlen(results->arms[i].label);
        if (len > report.label_columns) report.label_columns = len;
    }
    fprintf(out, "%.0f requests in %d repetitions, %.0f failed; medians over repetitions%s\n",
            total(results, BENCH_REQUESTS) + total(results, BENCH_FAILURES), n_repetitions,
            total(results, BENCH_FAILURES), n_repetitions > 1 ? " (quartiles)" : "");
    print_table(&report, speed, N_SPEED);
    fputc('\n', out);
    print_table(&report, split, N_SPLIT);
    fputc('\n', out);
    print_table(&report, load, N_LOAD);
}
