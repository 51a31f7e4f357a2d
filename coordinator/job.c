/* A request on its way through the coordinator. */
#include "coordinator/job.h"

#include <stdlib.h>

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
