/* A request on its way through the coordinator. */
#include "coordinator/job/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "access/keys.h"
#include "base/clock.h"
#include "lookup/predicted.h"

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
    size_t bytes = sizeof *job + job->arena.size_bytes +
                   job->prompt.capacity * sizeof *job->prompt.data +
                   predicted_bytes(job->predicted);
    int rc = budget_take(budget, bytes, err);
    if (rc) return rc;
    job->budget = budget;
    job->charged_bytes = bytes;
    return 0;
}

int job_hold_grant(struct job *job, struct grant *grant, struct error *err)
{
    int rc = grant ? grant_enter(grant, err) : 0;
    if (rc || !grant) return rc;
    grant_ref(grant);
    job->grant = grant;
    return 0;
}

const char *job_client(const struct job *job)
{
    if (job->grant) return job->grant->name;
    return job->generate.client ? job->generate.client : "";
}

int job_weight(const struct job *job)
{
    return job->grant ? atomic_load(&job->grant->weight) : 0;
}

enum job_class job_class_of(const struct job *job)
{
    static const enum key_priority priorities[JOB_CLASSES] = {[JOB_CLASS_LOW] = KEY_PRIORITY_LOW,
                                                              [JOB_CLASS_NORMAL] =
                                                                  KEY_PRIORITY_NORMAL,
                                                              [JOB_CLASS_HIGH] = KEY_PRIORITY_HIGH};
    static const enum job_class classes[N_KEY_PRIORITIES] = {[KEY_PRIORITY_LOW] = JOB_CLASS_LOW,
                                                             [KEY_PRIORITY_NORMAL] =
                                                                 JOB_CLASS_NORMAL,
                                                             [KEY_PRIORITY_HIGH] = JOB_CLASS_HIGH};
    enum job_class wanted = job->generate.job_class;
    int most = job->grant ? atomic_load(&job->grant->max_priority) : KEY_PRIORITY_HIGH;
    return (int)priorities[wanted] > most ? classes[most] : wanted;
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
    case ERR_TOO_LONG:
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

void job_name(struct job *job)
{
    const char *own = job->generate.request_id;
    const char *name = own && own[0] ? own : job->origin.request_id;
    if (name[0]) {
        snprintf(job->request_id, sizeof job->request_id, "%s", name);
    } else {
        snprintf(job->request_id, sizeof job->request_id, "%s-%016" PRIx64,
                 job->kind == JOB_SCORE ? "score" : "gen",
                 (uint64_t)job->arrived_us * 0x9E3779B97F4A7C15u);
    }
}

void job_started(struct job *job)
{
    job->started_us = clock_now_us();
    const struct reply *reply = job->reply;
    if (reply && reply->ops->started) reply->ops->started(job->reply);
}

/* It is one of its holder's no more: a step that hangs may keep the job itself for long. */
static void leave_grant(struct job *job)
{
    if (job->grant && !job->has_left) grant_leave(job->grant);
    job->has_left = true;
}

void job_end(struct job *job, enum job_end end, int rc, const struct error *why)
{
    if (job->is_over) return;
    job->is_over = true;
    leave_grant(job);
    job->reply->end = end;
    job->failure.code = 0;
    if (rc) {
        job->failure = *why;
        job->reply->ops->fail(job->reply, rc, why->text);
    } else {
        job->reply->ops->done(job->reply);
    }
}

/* -1: it did not get there. */
static int64_t since_arrival(const struct job *job, int64_t at_us)
{
    return at_us ? at_us - job->arrived_us : -1;
}

void job_make_report(const struct job *job, struct job_report *r)
{
    const char *client = job_client(job);
    *r = (struct job_report){
        .origin = job->origin,
        .is_score = job->kind == JOB_SCORE,
        .end = job->reply->end,
        .failure = job->failure,
        .n_prompt = (int)job->prompt.n,
        .work = job->work,
        .queue_us = since_arrival(job, job->started_us),
        .first_token_us = since_arrival(job, job->first_token_us),
        .total_us = since_arrival(job, clock_now_us()),
    };
    snprintf(r->request_id, sizeof r->request_id, "%s", job->request_id);
    snprintf(r->client, sizeof r->client, "%s", client ? client : "");
}

int job_n_texts(const struct job *job)
{
    return job->kind == JOB_GENERATE && job->generate.n > 1 ? job->generate.n : 1;
}

bool job_is_cancelled(const struct job *job)
{
    return job->reply->ops->is_cancelled(job->reply);
}

const struct error *job_failure(const struct job *job)
{
    const struct reply *reply = job->reply;
    return reply->ops->failure ? reply->ops->failure(reply) : NULL;
}

void job_free(struct job *job)
{
    if (!job) return;
    if (job->reply) job->reply->ops->close(job->reply);
    token_ids_free(&job->prompt);
    predicted_close(job->predicted);
    arena_close(&job->arena);
    if (job->budget) budget_give(job->budget, job->charged_bytes);
    leave_grant(job);
    grant_release(job->grant);
    free(job);
}
