/* A stored job and the messages of its answer: the plain structs of the store of jobs
 * (coordinator/store/jobs.h). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "proto/job_end.h"

enum {
    JOBS_ID_BYTES = 64,
    JOBS_KEY_BYTES = 129,
    JOBS_REQUEST_ID_BYTES = 129,
    JOBS_OWNER_BYTES = 129
};

struct jobs_options {
    int n_kept;       /* jobs at most, ended or not */
    size_t bytes_max; /* of all records and answers together */
    /* The numbers of another run must not be taken for ours: part of every id. */
    uint64_t run;
};

/* A job without its answer. */
struct job_info {
    uint64_t number; /* a newer job has a greater one */
    char id[JOBS_ID_BYTES], key[JOBS_KEY_BYTES], request_id[JOBS_REQUEST_ID_BYTES];
    char owner[JOBS_OWNER_BYTES];
    enum job_state state;
    enum job_end end; /* once it has ended */
    int error_code;   /* 0 = it ended well, or has not ended */
    char error[ERROR_TEXT_BYTES];
    int n_sequences, n_prompt, n_tokens; /* n_tokens: of all sequences */
    int64_t submitted_ms, ended_ms;      /* since 1970 */
};

struct job_submission {
    const char *owner;  /* who alone sees the job, and whose keys are apart from those of others */
    const char *key;    /* "" = none */
    uint64_t digest[2]; /* of the request: the same key must come with the same one */
    const char *request_id;
    int n_sequences, n_prompt;
    const uint8_t *request; /* [request_len] encoded; lent for the journal, not kept */
    size_t request_len;
};

enum job_message_kind { JOB_MESSAGE_ECHO, JOB_MESSAGE_TOKENS, JOB_MESSAGE_SUMMARY };

/* One message of an answer. */
struct job_message {
    enum job_message_kind kind;
    int sequence;
    int first_token, n_tokens; /* of the sequence */
    const uint8_t *data;
    size_t len;
};
