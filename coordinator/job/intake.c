/* Requests wait here between a network thread and the pool. */
#include "coordinator/job/intake.h"

#include <stdlib.h>

#include "access/keys.h"
#include "base/clock.h"
#include "base/threads/pool.h"
#include "coordinator/job/groups.h"

enum {
    /* Decoded, a message may take 8 times its bytes: an empty string takes 2 on the wire and a
     * pointer and its block here. */
    ARENA_RATIO = 8,
    HERE_BYTES_MAX = 4096, /* of a message that the network thread decodes itself */
    ARENA_SLACK_BYTES = 65536
};

static void give_back(struct intake_task *task)
{
    buffer_free(&task->message);
    budget_give(task->admission->budget, task->charged_bytes);
    task->charged_bytes = 0;
}

static void task_free(struct intake_task *task)
{
    give_back(task);
    arena_close(&task->arena);
    response_stream_unref(task->stream);
    grant_release(task->grant);
    free(task);
}

/* A client that has left, or will have left, is not worth the work. */
static int check_wanted(const struct intake_task *task, struct error *err)
{
    if (task->makes_job && groups_are_shut(task->admission->groups)) {
        return error_set(err, ERR_UNAVAILABLE, "the coordinator is shutting down");
    }
    if (task->stream->ops->is_cancelled(task->stream)) {
        return error_set(err, ERR_CANCELLED, "the client is gone");
    }
    int64_t now_us = clock_now_us();
    if (now_us < task->deadline_us) return 0;
    return error_set(err, ERR_TIMEOUT,
                     "the deadline passed before the request was read, %lld ms "
                     "after it came",
                     (long long)(now_us - task->arrived_us) / 1000);
}

static int do_work(struct intake_task *task, struct error *err)
{
    int rc = 0;
    TRY(check_wanted(task, err));
    TRY(arena_open(&task->arena, ARENA_RATIO * task->message.len + ARENA_SLACK_BYTES, err));
    TRY(task->work(task, err));
out:
    return rc;
}

static void refuse(const struct intake_task *task, const struct error *why)
{
    if (task->makes_job) admission_count_refusal(task->admission, why->code);
    task->stream->ops->finish(task->stream, why->code, why->text, false);
}

static void run_task(void *arg)
{
    struct intake_task *task = arg;
    struct error err;
    int rc = do_work(task, &err);
    if (rc) refuse(task, &err);
    task_free(task);
}

/* Takes the message over when that goes well. */
static int start_task(struct intake_task *task, struct buffer *message, struct error *err)
{
    int rc = budget_take(task->admission->budget, message->len, err);
    if (rc) return rc;
    task->charged_bytes = message->len;
    task->message = *message;
    *message = (struct buffer){0};
    rc = pool_push(task->admission->pool, run_task, task, err);
    if (rc == ERR_CLOSED) rc = error_set(err, ERR_UNAVAILABLE, "the coordinator is shutting down");
    return rc;
}

void intake_hand_over(const struct intake_task *like, struct buffer *message)
{
    struct intake_task *task;
    struct error err;
    int rc = mem_array(&task, 1, sizeof *task, &err);
    if (!rc) {
        *task = *like;
        task->arrived_us = clock_now_us();
        response_stream_ref(task->stream);
        if (task->grant) grant_ref(task->grant);
        rc = start_task(task, message, &err);
        if (!rc) return;
        task_free(task);
    }
    buffer_free(message);
    refuse(like, &err);
}

void intake_answer_here(const struct intake_task *like, struct buffer *message)
{
    struct intake_task task = *like;
    struct error err;
    task.arrived_us = clock_now_us();
    task.message = *message;
    *message = (struct buffer){0};
    int rc = task.message.len > HERE_BYTES_MAX
                 ? error_set(&err, ERR_ARGUMENT, "the message has %zu bytes; %d are the most here",
                             task.message.len, HERE_BYTES_MAX)
                 : do_work(&task, &err);
    if (rc) refuse(&task, &err);
    buffer_free(&task.message);
    arena_close(&task.arena);
}

/* The message gives way to the job, which is what waits from now on. */
int intake_submit_take(struct intake_task *task, struct job *job, struct error *err)
{
    int64_t timeout_us = (int64_t)job->generate.timeout_ms * 1000;
    job->arrived_us = task->arrived_us;
    job->deadline_us = task->deadline_us;
    job->origin = task->origin;
    if (timeout_us && task->arrived_us + timeout_us < job->deadline_us) {
        job->deadline_us = task->arrived_us + timeout_us;
    }
    give_back(task);
    int rc = admission_submit_take(task->admission, job, err);
    if (rc) job_free(job);
    return rc;
}
