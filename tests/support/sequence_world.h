/* Jobs and sequences as the gateway and the engine make them, without either. */
#pragma once

#include "coordinator/sequence/sequence.h"
#include "tests/support/check_util.h"

/* A greedy request with a prompt of n tokens; a test may change it before it opens sequences. */
static inline struct job *new_job(enum job_kind kind, const int32_t *prompt, int n)
{
    struct error err;
    struct job *job;
    CHECK_OK(job_open(&job, kind, &err));
    job->generate = (struct generate_request){.sampling = {.temperature = 0, .top_p = 1},
                                              .n_draft = -1,
                                              .rule = "",
                                              .tree_rule = "",
                                              .request_id = "noted",
                                              .n = 1,
                                              .logprobs = -1,
                                              .repetition_penalty = 1,
                                              .client = ""};
    CHECK_OK(token_ids_append(&job->prompt, prompt, (size_t)n, &err));
    return job;
}

/* The job's first sequence. */
static inline struct sequence *first_sequence(struct job *job, const struct tokenizer *tok,
                                              const struct sequence_defaults *defaults)
{
    struct error err;
    struct sequence *seq;
    CHECK_OK(sequence_open(&seq, job, 0, tok, defaults, &err));
    return seq;
}
