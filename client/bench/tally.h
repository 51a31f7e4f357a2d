/* The results of a slice: one arm, one repetition. Plain data, owned by the main thread. */
#pragma once

#include "base/metrics/histogram.h"
#include "client/figures/figures.h"

enum { TALLY_ERRORS_MAX = 8 };

/* A sentence and how many requests ended with it. */
struct tally_error {
    int n;
    char text[ERROR_TEXT_BYTES];
};

struct tally {
    int n_done, n_failed;
    int n_summaries;             /* a request has one for each of its texts */
    int64_t wall_us;             /* first start to last end */
    struct generate_summary sum; /* of the requests that were done: figures_add */
    int n_draft;                 /* K as the coordinator used it, -1 before the first summary */
    enum strategy strategy;      /* that it used */
    struct histogram first_token, request, queue;
    /* message_gap: the time between two messages of a request, each with the tokens of a round.
     * token_gap: that time divided by the tokens of the second message, so the time of a token. */
    struct histogram message_gap, token_gap;
    struct histogram overhead_p50, overhead_p99; /* of each request's rounds */
    int n_errors;
    struct tally_error errors[TALLY_ERRORS_MAX]; /* further sentences count as the last */
};

void tally_begin(struct tally *tally);
void tally_add_summary(struct tally *tally, const struct generate_summary *summary);
/* All summaries of a request have come. */
void tally_add_done(struct tally *tally, int64_t request_us);
void tally_add_gap(struct tally *tally, int64_t gap_us, int n_tokens);
void tally_add_failure(struct tally *tally, const struct error *err);
/* Adds the errors of `from`, for a list over all slices. */
void tally_merge_errors(struct tally *into, const struct tally *from);
