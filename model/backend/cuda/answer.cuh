/* Answers to row wishes (row.h) on the device: what goes over, what comes back. One block answers one
 * slice; all slices of a step are one launch. The order of every sum, draw and tie is row.c's, so that
 * the answers are its answers bit for bit; row.c stays the reference.
 *
 *   over   [answer_job n_jobs][int32 columns: the listed ids that lie in each slice]
 *   back   [answer_result n_jobs][words: best columns, best logits, listed logits of each slice]
 *
 * A slice that must come back whole, since all of it is wished or more than the kernel selects, is
 * answered on the host by row_slice_answer itself. */
#pragma once

#include "model/backend/cuda/internal.cuh"

enum {
    ANSWER_BEST_MAX = 1024,         /* n_best that the kernel selects */
    ANSWER_NOISY_MAX = 8,           /* the same with noise: a pass over the slice for each */
    ANSWER_COLUMNS_MAX = 256 * 1024 /* of a slice: the mask of `outside` is in shared memory */
};

enum answer_sum { ANSWER_EXP, ANSWER_EXP_SECOND, ANSWER_EXP_LOG, ANSWER_OUTSIDE, ANSWER_SUMS };

/* One slice and its wish, as the kernel needs them. n_cols >= 1. */
struct answer_job {
    const float *logits;
    int32_t first_id, n_cols;
    int32_t n_best, n_columns;
    int32_t first_column; /* in the columns that go over */
    int32_t first_word;   /* in the words that come back: 2 n_best + n_columns */
    int32_t n_temperatures;
    float temperature, inverse[ROW_TEMPERATURES_MAX]; /* temperature: the first one */
    bool is_noisy, entropy, outside;
    uint64_t seed;
    uint32_t position;
    double coin; /* of `outside`, in [0, 1) */
};

struct answer_result {
    double sums[ANSWER_SUMS];
    float max;
    int32_t n_bad;          /* logits that are NaN or +inf; if any, nothing else is valid */
    int32_t outside_column; /* -1: no mass */
    int32_t pad;
};

/* Where the parts lie on the device. */
struct answer_places {
    const struct answer_job *jobs;
    const int32_t *columns;
    struct answer_result *results;
    uint32_t *words;
};

/* Launches the kernel on the backend's stream. max_columns: of the widest slice, 1 ..
 * ANSWER_COLUMNS_MAX. */
void answer_launch(struct backend_cuda *be, struct answer_places places, int n_jobs,
                   int max_columns);
