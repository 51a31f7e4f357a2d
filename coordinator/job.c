/* A request on its way through the coordinator. */
#include "coordinator/job.h"

#include <stdlib.h>

#include "base/clock.h"

int job_open(struct job **job, enum job_kind kind, struct error *err)
{
    int rc = mem_array(job, 1, sizeof **job, err);
    if (rc) return rc;
    (*job)->kind = kind;
    (*job)->arrived_us = clock_now_us();
    (*job)->deadline_us = INT64_MAX;
    return 0;
}

int job_charge(struct job *job, struct budget *budget, struct error *err)
{
    size_t bytes =
        sizeof *job + job->arena.size_bytes + job->prompt.capacity * sizeof *job->prompt.data;
    int rc = budget_take(budget, bytes, err);
    if (rc) return rc;
    job->budget = budget;
    job->charged_bytes = bytes;
    return 0;
}

enum job_end job_end_of_error(int code)
{
    return code == ERR_CANCELLED ? JOB_END_CANCELLED : JOB_END_FAILED;
}

enum job_end job_end_of_refusal(int code)
{
    switch (code) {
    case ERR_CANCELLED:
        return JOB_END_CANCELLED;
    case ERR_TIMEOUT:
        return JOB_END_DEADLINE;
    case ERR_ARGUMENT:
    case ERR_FORMAT:
    case ERR_UNSUPPORTED:
    case ERR_EXHAUSTED:
        return JOB_END_REFUSED;
    case ERR_UNAVAILABLE:
    case ERR_CLOSED:
        return JOB_END_UNAVAILABLE;
    default:
        return JOB_END_FAILED;
    }
}

void job_started(struct job *job)
{
    const struct reply *reply = job->reply;
    if (reply && reply->ops->started) reply->ops->started(job->reply);
}

void job_end(struct job *job, enum job_end end, int rc, const struct error *why)
{
    if (job->is_over) return;
    job->is_over = true;
    job->reply->end = end;
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
    if (job->budget) budget_give(job->budget, job->charged_bytes);
    free(job);
}
