/* The whole answer of a stored job, put together from its messages; for coordinator/gateway*.c. */
#pragma once

#include "coordinator/jobs.h"
#include "proto/jobs_wire.h"

struct gateway_answer {
    int n;
    struct job_text *texts;     /* [n] */
    struct answer_parts *parts; /* [n] */
    struct buffer message;
};

/* The answer so far, and the state of the job after it. Errors: ERR_NOT_FOUND, ERR_NO_MEMORY. */
int gateway_answer_read(struct gateway_answer *answer, struct jobs *jobs, const char *id,
                        struct job_info *info, struct error *err);
/* Accepts a zeroed one. */
void gateway_answer_free(struct gateway_answer *answer);
