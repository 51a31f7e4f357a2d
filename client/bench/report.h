/* Results of `outrider bench`: rows, one per arm and repetition, and what becomes of them. A row is an
 * array of figures whose names are the columns of the CSV and the members of the JSON rows; README of the
 * columns: docs/benchmarks.md. */
#pragma once

#include "client/bench/sweep.h"
#include "client/bench/tally.h"

enum bench_figure {
    BENCH_REQUESTS,
    BENCH_FAILURES,
    BENCH_DURATION_S,
    BENCH_PROMPT_TOKENS,
    BENCH_GENERATION_TOKENS,
    BENCH_REQUESTS_PER_S,
    BENCH_TOKENS_PER_S,
    BENCH_DECODE_TOKENS_PER_S,
    BENCH_SPEEDUP,
    BENCH_THROUGHPUT_RATIO,
    BENCH_FIRST_P50,
    BENCH_FIRST_P90,
    BENCH_FIRST_P99,
    BENCH_TOKEN_P50,
    BENCH_TOKEN_P90,
    BENCH_TOKEN_P99,
    BENCH_MESSAGE_P50,
    BENCH_MESSAGE_P90,
    BENCH_MESSAGE_P99,
    BENCH_REQUEST_P50,
    BENCH_REQUEST_P90,
    BENCH_REQUEST_P99,
    BENCH_QUEUE_P50,
    BENCH_QUEUE_P90,
    BENCH_QUEUE_P99,
    BENCH_DRAFTS,
    BENCH_DRAFT_TOKENS,
    BENCH_ACCEPTED_TOKENS,
    BENCH_REJECTIONS,
    BENCH_ROUNDS,
    BENCH_TOKENS_PER_ROUND,
    BENCH_ALPHA,
    BENCH_EFFICIENCY,
    BENCH_ROUND_US,
    BENCH_PART_US, /* N_PARTS of them, in the order of enum figure_part */
    BENCH_PART_US_END = BENCH_PART_US + N_PARTS - 1,
    BENCH_GUESS_US,
    BENCH_OVERHEAD_P50_US,
    BENCH_OVERHEAD_P99_US,
    BENCH_BYTES_PER_POSITION,
    N_BENCH_FIGURES
};

/* NAN = not known. */
struct bench_row {
    const struct bench_arm *arm;
    int repetition, place; /* place: when it ran, among the arms of its repetition */
    int n_ranks, n_draft;  /* as the cluster said */
    double figures[N_BENCH_FIGURES];
    char error[ERROR_TEXT_BYTES]; /* the most frequent; "" = none */
};

/* What is the same for all rows; texts are kept, not copied. */
struct bench_subject {
    const char *target_model, *draft_model, *arithmetic;
};

const char *bench_figure_name(enum bench_figure figure);

/* Fills all but the ratios. */
void bench_row_of(struct bench_row *row, const struct bench_arm *arm, const struct tally *tally);

/* Fills the ratios of rows[n]: over the row of the same repetition whose arm is plain[i], the arm with
 * K = 0 and everything else equal (NULL: none). */
void bench_row_ratios(struct bench_row *rows, int n, const struct bench_arm *arms, int n_arms);

/* Quartiles of a figure over the rows of an arm, linearly interpolated; NAN when no row knows it. */
struct quartiles {
    double low, median, high;
    int n;
};
struct quartiles bench_quartiles(const struct bench_row *rows, int n, const struct bench_arm *arm,
                                 enum bench_figure figure);

/* bench_write.c. Errors: ERR_IO. */
int bench_csv_header(FILE *file, const char *path, struct error *err);
int bench_csv_rows(FILE *file, const char *path, const struct bench_row *rows, int n,
                   const struct bench_subject *subject, struct error *err);
int bench_json_write(FILE *file, const char *path, const struct bench_row *rows, int n,
                     const struct bench_arm *arms, int n_arms, const struct bench_subject *subject,
                     struct error *err);

/* bench_print.c: medians and quartiles, for people. */
void bench_print(FILE *out, const struct bench_row *rows, int n, const struct bench_arm *arms,
                 int n_arms);
