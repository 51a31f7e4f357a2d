/* The record of each single request of a measurement, for --json: when its messages came, and how
 * many guesses of each round stayed. Owned by the main thread. */
#pragma once

#include <jansson.h>

#include "client/bench/sweep.h"
#include "proto/generation_wire.h"

/* A message brings what one round committed. */
struct record_message {
    int64_t at_us; /* since the request began */
    int n_tokens, n_accepted;
};

/* One text of a request. */
struct record_text {
    struct record_message *messages; /* [n] */
    size_t n, capacity;
    char finish_reason[32]; /* "" = its summary has not come */
};

struct record {
    const struct bench_arm *arm; /* lent */
    int repetition, number;      /* number: of the request in its repetition */
    int64_t begin_us;            /* when it was due, since the beginning of its slice */
    int64_t total_us;            /* until it ended, with or without success */
    int64_t queue_us;            /* as the coordinator says; -1: it does not */
    int prompt_tokens;           /* -1: not known */
    struct record_text *texts;   /* [n_texts] */
    int n_texts;
    char *error; /* NULL = none */
};

/* A zeroed one is empty. */
struct records {
    struct record *items; /* [n] */
    size_t n, capacity;
};

void records_free(struct records *records);

/* Adds a request of the arm that asks for n_texts; returns its index in *at. keeps arm.
 * Errors: ERR_NO_MEMORY. */
int records_begin(struct records *records, const struct bench_arm *arm, int repetition, int number,
                  int n_texts, int64_t begin_us, size_t *at, struct error *err);
/* Adds a message that came at_us after the request began. Errors: ERR_NO_MEMORY. */
int records_tokens(struct records *records, size_t at, const struct generate_tokens *tokens,
                   int64_t at_us, struct error *err);
void records_summary(struct records *records, size_t at, const struct generate_summary *summary);
/* It has ended; why: NULL = well. */
void records_end(struct records *records, size_t at, int64_t at_us, const struct error *why);

/* All of them as a new array; NULL = no memory. */
json_t *records_json(const struct records *records);
