/* The whole answer of a stored job, put together from its messages. */
#pragma once

#include "coordinator/store/jobs.h"
#include "proto/jobs_wire.h"

struct job_answer {
    int n;
    struct job_text *texts;     /* [n] */
    struct answer_parts *parts; /* [n] */
    struct buffer message;
    struct arena arena; /* of a message with tokens */
};

/* The answer so far, and the state of the owner's job after it. Errors: ERR_NOT_FOUND,
 * ERR_NO_MEMORY. */
int job_answer_read(struct job_answer *answer, struct jobs *jobs, const char *owner, const char *id,
                    struct job_info *info, struct error *err);
/* Accepts a zeroed one. */
void job_answer_free(struct job_answer *answer);
