/* A request on its way through the coordinator. */
#include "coordinator/job.h"

#include <stdlib.h>

#include "base/clock.h"

enum { ARENA_SLACK_BYTES = 65536 };

int job_open(struct job **job, enum job_kind kind, size_t request_bytes, struct error *err)
{
    int rc = 0;
    struct job *made = NULL;
    *job = NULL;
    TRY(mem_array(&made, 1, sizeof *made, err));
    made->kind = kind;
    made->arrived_us = clock_now_us();
    TRY(arena_open(&made->arena, 8 * request_bytes + ARENA_SLACK_BYTES, err));
    *job = made;
    made = NULL;
out:
    job_free(made);
    return rc;
}

void job_end(struct job *job, int rc, const struct error *why)
{
    if (rc) {
        job->reply->ops->fail(job->reply, rc, why->text);
    } else {
        job->reply->ops->done(job->reply);
    }
}

bool job_is_cancelled(const struct job *job)
{
    return job->reply->ops->is_cancelled(job->reply);
}

void job_free(struct job *job)
{
    if (!job) return;
    if (job->reply) job->reply->ops->close(job->reply);
    token_ids_free(&job->prompt);
    arena_close(&job->arena);
    free(job);
}
