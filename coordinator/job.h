/* A request on its way from the gateway's network thread to the engine thread. */
#pragma once

#include "base/memory.h"
#include "model/tokenizer/tokenizer.h"
#include "proto/generation_wire.h"
#include "rpc/server.h"

enum job_kind { JOB_GENERATE, JOB_SCORE, JOB_DESCRIBE };

struct job {
    enum job_kind kind;
    struct rpc_call *call; /* referenced */
    struct arena arena;    /* what the request points into */
    struct generate_request generate;
    struct score_request score;
    struct token_ids prompt; /* the text as ids, or the ids given */
    int64_t arrived_us;
};

/* Lets go of everything. Accepts NULL. */
void job_free(struct job *job);
