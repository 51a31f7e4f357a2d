/* The work on one slice, which the files of this room share. A slice is cut into chunks of 1024
 * columns and its work into parts, which are runs of chunks; parts can be computed by different
 * threads. The steps, in this order:
 *
 *   scan     each part: the largest logit of every 64 columns
 *   settle   one thread: the slice's max, or that its logits are not numbers; the list's mask
 *   sum      each part: sums of its chunks, its buckets, its best under noise
 *   finish   one thread: adds and merges what the parts have found, selects, draws
 *
 * The results of a part are exact or belong to one chunk, so the answer shows neither the number of
 * parts nor the threads. */
#pragma once

#include "model/logits/row.h"
#include "model/logits/select.h"

enum { SUM_CHUNK = 1024, MASK_BITS = 64 };

/* The sums of every chunk; SUM_EXP + k is at temperatures[k]. */
enum sum_kind {
    SUM_EXP,
    SUM_EXP_LAST = SUM_EXP + ROW_TEMPERATURES_MAX - 1,
    SUM_EXP_LOG,
    SUM_OUTSIDE,
    SUM_KINDS
};

/* Where the arrays of an answer go. */
struct slice_arrays {
    int32_t *best_ids;
    float *best_logits, *id_logits, *buckets, *full;
};

/* Smallest and largest of a part's logits as order keys (select.h). */
struct key_range {
    int32_t low, high;
};

/* The best column under noise so far; -1: none. */
struct noisy_best {
    double score;
    int column;
};

struct slice_work {
    const struct answer_item *item;
    struct slice_arrays to;
    struct slice_row row; /* becomes the answer */
    int n_chunks, n_parts;
    /* Scratch. */
    int32_t *tops;            /* [n_cols / SELECT_BLOCK] */
    struct key_range *ranges; /* [n_parts] */
    double *sums[SUM_KINDS];  /* [n_chunks] each, of those that are wished */
    uint64_t *mask;           /* a bit per column that is in wish->ids */
    uint64_t *buckets;        /* [n_parts][ROW_BUCKETS] */
    struct noisy_best *noisy; /* [n_parts] */
    void *selection;          /* items of a heap, or keys to sort */
};

/* The columns of a part. */
static inline void slice_part_columns(const struct slice_work *work, int part, int *begin, int *end)
{
    int64_t first = (int64_t)work->n_chunks * part / work->n_parts;
    int64_t last = (int64_t)work->n_chunks * (part + 1) / work->n_parts;
    *begin = (int)first * SUM_CHUNK;
    *end = last < work->n_chunks ? (int)last * SUM_CHUNK : work->item->n_cols;
}

/* sums.c: the sums of the chunks in columns begin .. end and the part's buckets; begin is where a
 * chunk begins. The slice's max is above -inf. */
void slice_sum(struct slice_work *work, int part, int begin, int end);
/* Adds up the chunks and draws. */
void slice_add(struct slice_work *work);

/* noise.c: the best of columns begin .. end of a slice under the noise of its wish. */
struct noisy_best noise_best(const struct slice_work *work, int begin, int end);
/* The better one; ties go to the lower column. */
struct noisy_best noise_better(struct noisy_best a, struct noisy_best b);
