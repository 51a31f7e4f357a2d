/* Questions about a row of logits and the answers of a vocabulary slice: the compact, exact forms
 * of docs/design.md section 5. A row is cut into S slices, whatever the number of ranks; a rank
 * answers for its own slices and merges nothing; speculation/rows/target_row.h makes one row of the
 * slices of all ranks, which is what acceptance sees. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/least.h"
#include "base/memory.h"
#include "base/rng.h"

enum {
    ROW_TEMPERATURES_MAX = 2,
    ROW_BUCKETS = 128,    /* the most that a slice answers */
    ROW_BUCKET_SHARE = 4, /* a bucket is 1 / ROW_BUCKET_SHARE of the temperature wide */
    ROW_MASS_BITS = 30    /* exp((logit - max) / t) is rounded down to a multiple of 2^-30 */
};

/* The contents of a slice's buckets. Bucket i has the logits with row_bucket(logit, t) = that of
 * the slice's max, less i; those past the last bucket are left out. */
enum row_buckets {
    ROW_BUCKETS_OFF,
    ROW_BUCKETS_MASS, /* the sum of exp((logit - max) / t) */
    ROW_BUCKETS_COUNT,
    ROW_BUCKETS_KINDS
};

/* A set of wishes that may be combined. ids are lent. */
struct row_wish {
    int n_best;     /* the n best logits of each slice; ties go to the lowest id */
    bool has_least; /* of these, only logits >= least; n_best is then the most there may be */
    float least;    /* a number or -inf */
    /* The best by row_noisy_score, at temperatures[0] and the coins of `at`, outside ids. */
    bool noisy_best;
    int n_ids; /* logits of these ids, any order, distinct */
    const int32_t *ids;
    int n_temperatures; /* normaliser: sum of exp((logit - max) / t) for each, all > 0 */
    float temperatures[ROW_TEMPERATURES_MAX];
    bool entropy; /* sum of e * ln e as well (for `typical`), at temperatures[0] */
    bool outside; /* at temperatures[0]: the mass outside ids, and one token drawn outside */
    enum row_buckets buckets; /* at temperatures[0], to find out how much to ask for */
    bool full;                /* every logit of the slice */
    struct rng_address at;    /* coins of `outside` (RNG_OUTSIDE, index = slice) and of the noise;
                              at.position is the position of the token being decided */
};

/* A wish about one slice of one row of logits. */
struct answer_item {
    const float *logits; /* [n_cols] of the slice */
    int32_t first_id;    /* of the slice's columns */
    int n_cols, slice;
    const struct row_wish *wish;
};

/* The most columns that the answer lists as its best. */
static inline int answer_item_n_best(const struct answer_item *item)
{
    return least(item->wish->n_best, item->n_cols);
}

/* The answer of one slice. Its arrays are in the arena of the call. */
struct slice_row {
    int code;         /* not 0: there is no answer, and row_slice_failure says why; of what follows
                         only slice, first_id, n_cols and n_bad are valid then */
    int n_bad;        /* logits that are NaN or +inf */
    int slice;        /* 0..S-1 */
    int32_t first_id; /* columns first_id .. first_id + n_cols - 1; n_cols may be 0 */
    int n_cols;
    int n_best;               /* min(wished, n_cols), fewer where has_least leaves fewer */
    const int32_t *best_ids;  /* [n_best] best first */
    const float *best_logits; /* [n_best] raw logits */
    int32_t noisy_id;         /* -1: no column outside ids has mass, or it is not wished */
    float noisy_logit;        /* raw, the noise is not included */
    int n_ids;
    const float *id_logits; /* [n_ids] for those wished ids that lie in this slice, in wish order */
    float max;              /* largest logit; -inf for an empty slice */
    double sum_exp[ROW_TEMPERATURES_MAX]; /* sum of exp((logit - max) / t) */
    double sum_exp_log;   /* sum of e * ln e with e = exp((logit - max) / temperatures[0]) */
    double outside_sum;   /* sum of e over the columns not in ids */
    int32_t outside_id;   /* drawn there; -1 when there is no mass */
    float outside_logit;  /* its raw logit */
    int n_buckets;        /* up to the last that is not 0 */
    const float *buckets; /* [n_buckets] */
    const float *full;    /* [n_cols] or NULL */
};

/* Columns of slice s of a vocabulary cut into S: ceil(V / S) rounded up to 64; the tail is short or
 * empty. */
void row_slice_range(int n_vocab, int n_slices, int slice, int32_t *first_id, int *n_cols);

/* The score that `noisy_best` and the coordinator rank by: logit / temperature + Gumbel noise. Its
 * argmax over a set of tokens is a draw from softmax(logit / temperature) over that set. */
double row_noisy_score(float logit, float temperature, uint32_t noise_bits);

/* The bucket of a logit at temperature t: a step of t / ROW_BUCKET_SHARE on a grid that is the same
 * for all slices and rows. Never decreases with the logit. */
double row_bucket(float logit, float temperature);

/* Checks a wish; every backend does so before it answers. Errors: ERR_ARGUMENT it makes no sense:
 * negative counts, a temperature that is not above 0 or has no finite inverse, draws or entropy
 * or buckets without a temperature, a bound that is not a number. */
int row_wish_check(const struct row_wish *wish, struct error *err);
/* The error of a slice that has no answer to `wish`; returns its code, which is not 0. */
int row_slice_failure(const struct slice_row *row, const struct row_wish *wish, struct error *err);

/* Answers item->wish for the logits of one slice: a pure function, which is what the CPU backend
 * computes on many threads (model/logits/answer.h), and the reference of any other. e =
 * num_exp((logit - max) * (1 / t)) in float; sums take 16 float lanes over a chunk of 1024 columns,
 * the lanes by a binary tree, the chunks in double, ascending. Arrays come from arena, which gets
 * back what was scratch. -inf is a masked column. Errors: ERR_NO_MEMORY the arena is full;
 * ERR_FORMAT a logit is NaN or +inf; ERR_ARGUMENT the wish makes no sense. On failure *out is an
 * empty slice with the error's code. */
int row_slice_answer(const struct answer_item *item, struct arena *arena, struct slice_row *out,
                     struct error *err);
