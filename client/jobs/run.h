/* Runs the requests of a file as stored jobs, a bounded number at a time: submits each under its
 * key, watches it, and hands its answer over. Whatever breaks in between is tried again: the key
 * finds the job that was submitted before. Owned by the main thread. */
#pragma once

#include "client/jobs/file.h"
#include "client/server.h"
#include "model/tokenizer/ids.h"

/* The answer of one job; lent for the call. */
struct jobs_result {
    const struct jobs_line *line;
    const struct jobs_entry *entry;
    const char *id;
    const char *error; /* "" = it ended well */
    enum job_end end;
    bool existed; /* it had been submitted before */
    int n;
    const struct jobs_answer *answers; /* [n] */
    json_t *echoed;                    /* the prompt's tokens, for "echo"; NULL = not asked for */
};

/* One of n texts. */
struct jobs_answer {
    struct token_ids ids;
    struct buffer text;
    struct generate_counters counters;
    char finish_reason[64]; /* "" = it was not finished */
    int prompt_tokens;
    json_t *logprobs; /* NULL = not asked for */
};

struct jobs_run {
    struct server *server;
    const struct jobs_line *lines;
    int n_lines;
    const char *run; /* of keys, see jobs_entry_read */
    int concurrency;
    int retry_s; /* how long nothing may come before it gives up */
    /* Takes an answer; an error ends the run. */
    int (*on_result)(void *arg, const struct jobs_result *result, struct error *err);
    /* A line that makes no request; the run goes on when this returns 0. */
    int (*on_bad_line)(void *arg, const struct jobs_line *line, const struct error *why);
    /* Called a few times a second. */
    void (*on_turn)(void *arg);
    void *arg;

    /* For on_turn. */
    int n_started, n_running;
    int64_t n_tokens;

    struct jobs_slot *slots; /* [concurrency], the run's own as the rest */
    int64_t progress_us;
    struct error trouble; /* what is being tried again */
};

/* Errors: ERR_CANCELLED interrupted, ERR_UNAVAILABLE nothing came for retry_s, those of on_result
 * and on_bad_line. Jobs that run go on at the coordinator. */
int jobs_run(struct jobs_run *run, struct error *err);
