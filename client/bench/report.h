/* Results of `outrider bench`: one row per arm and repetition, and the tables and files that are
 * made of the rows. A row is an array of figures whose names are the columns of the CSV and the
 * members of the JSON rows; docs/benchmarks.md describes each column. */
#pragma once

#include "client/bench/records.h"
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
    BENCH_MEAN_K,
    BENCH_BATCH_SIZE,
    BENCH_ROWS_PER_STEP,
    BENCH_TARGET_REUSED,
    BENCH_DRAFT_REUSED,
    BENCH_PREEMPTIONS,
    BENCH_PREDICTED_RATIO,
    BENCH_SIBLINGS,
    BENCH_SIBLINGS_ACCEPTED,
    BENCH_FOUND,
    BENCH_FOUND_ACCEPTED,
    BENCH_APPENDED,
    BENCH_APPENDED_ACCEPTED,
    BENCH_STAGED,
    /* For each place in a round, from 0: guesses made there, reached by the test, and kept. */
    BENCH_DRAFTED_AT,
    BENCH_TESTED_AT = BENCH_DRAFTED_AT + DRAFT_MAX,
    BENCH_ACCEPTED_AT = BENCH_TESTED_AT + DRAFT_MAX,
    N_BENCH_FIGURES = BENCH_ACCEPTED_AT + DRAFT_MAX
};

/* NAN = not known. */
struct bench_row {
    const struct bench_arm *arm;
    int repetition, place; /* place: its index in the order in which its repetition ran the arms */
    int n_ranks, n_draft;  /* as the cluster said */
    bool is_planned;       /* K was the planner's choice, and nothing was said of it */
    double figures[N_BENCH_FIGURES];
    char error[ERROR_TEXT_BYTES]; /* the most frequent; "" = none */
};

/* All rows of a measurement, its arms, and what is the same for all rows. Everything is lent. */
struct bench_results {
    const struct bench_row *rows;
    int n_rows;
    const struct bench_arm *arms;
    int n_arms;
    const char *target_model, *draft_model, *arithmetic;
    const struct records *records; /* for bench_json_write; NULL = none */
};

const char *bench_figure_name(enum bench_figure figure);

/* Fills the row from the tally of its arm, except for the ratios. */
void bench_row_of(struct bench_row *row, const struct bench_arm *arm, const struct tally *tally);

/* Fills the ratios of rows[n]: each over the row of the same repetition whose arm differs in K = 0
 * alone (sweep_plain). A row without such a partner keeps NAN. */
void bench_row_ratios(struct bench_row *rows, int n, const struct bench_arm *arms, int n_arms);

/* Quartiles of a figure over the rows of an arm, linearly interpolated; NAN when no row has it. n
 * is the number of rows that do. */
struct quartiles {
    double low, median, high;
    int n;
};
struct quartiles bench_figure_quartiles(const struct bench_results *results,
                                        const struct bench_arm *arm, enum bench_figure figure);

/* write.c. path is for messages. bench_csv_rows writes the rows from `first` on. Errors: ERR_IO; of
 * bench_json_write also ERR_NO_MEMORY. */
int bench_csv_header(FILE *file, const char *path, struct error *err);
int bench_csv_rows(FILE *file, const char *path, const struct bench_results *results, int first,
                   struct error *err);
int bench_json_write(FILE *file, const char *path, const struct bench_results *results,
                     struct error *err);

/* print.c: the tables for people, medians with quartiles. */
void bench_print(FILE *out, const struct bench_results *results);
