/* Answers to row wishes (model/logits/row.h) on the device: what is copied to it and what comes
 * back. One block of threads answers one slice, and one launch answers all slices of a step. The
 * order of every sum, draw and tie is that of model/logits/answer.c, which remains the reference:
 * the answers are equal to its answers bit for bit.
 *
 *   over   [answer_job n_jobs][int32 columns: the listed ids that lie in each slice]
 *   back   [answer_result n_jobs][words: buckets, best columns, best logits, listed logits of
 *          each slice]
 *
 * A slice has to come back whole if the wish asks for all of it, for more than the kernel selects,
 * or for all logits from a bound on. The host then answers it with row_slice_answer itself. */
#pragma once

#include "model/backend/cuda/internal.cuh"

enum {
    ANSWER_BEST_MAX = 1024,         /* n_best that the kernel selects */
    ANSWER_COLUMNS_MAX = 256 * 1024 /* of a slice: the mask of `outside` is in shared memory */
};

enum answer_sum { ANSWER_EXP, ANSWER_EXP_SECOND, ANSWER_EXP_LOG, ANSWER_OUTSIDE, ANSWER_SUMS };

/* One slice and its wish in the form that the kernel needs. n_cols >= 1. */
struct answer_job {
    const float *logits;
    int32_t first_id, n_cols;
    int32_t n_best, n_columns;
    int32_t first_column; /* in the columns that are copied to the device */
    int32_t first_word;   /* in the words that come back */
    int32_t n_temperatures;
    float temperature, inverse[ROW_TEMPERATURES_MAX]; /* temperature: the first one */
    float steps_per_unit;                             /* of the buckets */
    int32_t buckets;                                  /* enum row_buckets */
    bool noisy_best, entropy, outside;
    uint64_t seed;
    uint32_t position, round; /* of the wish's coins; round is for `outside` alone */
    uint32_t slice;           /* the index of the coin of `outside` */
};

struct answer_result {
    double sums[ANSWER_SUMS];
    float max;
    int32_t n_bad;          /* logits that are NaN or +inf; if any, nothing else is valid */
    int32_t outside_column; /* -1: none has mass */
    int32_t noisy_column;   /* -1: not wished */
    float outside_logit, noisy_logit;
};

/* Words of a slice's answer: its buckets as uint64_t, then what follows them. */
static inline __host__ __device__ int32_t answer_bucket_words(const struct answer_job *job)
{
    return job->buckets ? 2 * ROW_BUCKETS : 0;
}

static inline __host__ __device__ int32_t answer_words(const struct answer_job *job)
{
    return answer_bucket_words(job) + 2 * job->n_best + job->n_columns;
}

/* Where the parts of both blocks lie on the device. */
struct answer_places {
    const struct answer_job *jobs;
    const int32_t *columns;
    struct answer_result *results;
    uint32_t *words;
};

/* Launches the kernel on the backend's stream. max_columns is the width of the widest slice, 1 ..
 * ANSWER_COLUMNS_MAX. */
void answer_launch(struct backend_cuda *be, struct answer_places places, int n_jobs,
                   int max_columns);
