/* Calls wait here between the network thread and the pool. */
#include "coordinator/gateway_task.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/pool.h"

enum {
    /* Decoded, a message may take 8 times its bytes: an empty string takes 2 on the wire and a
     * pointer and its block here. */
    ARENA_RATIO = 8,
    HERE_BYTES_MAX = 4096, /* of a message that the network thread decodes itself */
    ARENA_SLACK_BYTES = 65536
};

static void give_back(struct gateway_task *task)
{
    buffer_free(&task->message);
    budget_give(task->admission->budget, task->charged_bytes);
    task->charged_bytes = 0;
}

static void task_free(struct gateway_task *task)
{
    give_back(task);
    arena_close(&task->arena);
    rpc_call_unref(task->call);
    free(task);
}

/* A client that has left, or will have left, is not worth the work. */
static int check_wanted(const struct gateway_task *task, struct error *err)
{
    if (queue_is_shut(task->admission->jobs)) {
        return error_set(err, ERR_UNAVAILABLE, "the coordinator is shutting down");
    }
    if (rpc_call_is_cancelled(task->call)) {
        return error_set(err, ERR_CANCELLED, "the client is gone");
    }
    int64_t now_us = clock_now_us();
    if (now_us < task->deadline_us) return 0;
    return error_set(err, ERR_TIMEOUT,
                     "the deadline passed before the request was read, %lld ms "
                     "after it came",
                     (long long)(now_us - task->arrived_us) / 1000);
}

static int do_work(struct gateway_task *task, struct error *err)
{
    int rc = 0;
    TRY(check_wanted(task, err));
    TRY(arena_open(&task->arena, ARENA_RATIO * task->message.len + ARENA_SLACK_BYTES, err));
    TRY(task->work(task, err));
out:
    return rc;
}

static void refuse(const struct gateway_task *task, const struct error *why)
{
    if (task->makes_job) admission_count_refusal(task->admission, why->code);
    rpc_call_finish(task->call, why->code, why->text);
}

static void run_task(void *arg)
{
    struct gateway_task *task = arg;
    struct error err;
    int rc = do_work(task, &err);
    if (rc) refuse(task, &err);
    task_free(task);
}

static int start_task(struct admission *admission, struct gateway_task *task, size_t len,
                      struct error *err)
{
    int rc = budget_take(admission->budget, len, err);
    if (rc) return rc;
    task->charged_bytes = len;
    rpc_call_take_message(task->call, &task->message);
    rc = pool_push(admission->pool, run_task, task, err);
    if (rc == ERR_CLOSED) rc = error_set(err, ERR_UNAVAILABLE, "the coordinator is shutting down");
    return rc;
}

static void hand_over(const struct gateway_task *like, size_t len)
{
    struct gateway_task *task;
    struct error err;
    int rc = mem_array(&task, 1, sizeof *task, &err);
    if (!rc) {
        *task = *like;
        task->arrived_us = clock_now_us();
        task->deadline_us = rpc_call_deadline_us(task->call);
        rpc_call_ref(task->call);
        rc = start_task(task->admission, task, len, &err);
        if (!rc) return;
        task_free(task);
    }
    refuse(like, &err);
}

void gateway_hand_over(struct admission *admission, void *state, struct rpc_call *call, size_t len,
                       gateway_work_fn *work)
{
    const struct gateway_task like = {
        .admission = admission, .state = state, .call = call, .work = work};
    hand_over(&like, len);
}

void gateway_hand_over_job(struct admission *admission, void *state, struct rpc_call *call,
                           size_t len, gateway_work_fn *work)
{
    const struct gateway_task like = {
        .admission = admission, .state = state, .call = call, .work = work, .makes_job = true};
    hand_over(&like, len);
}

void gateway_answer_here(struct admission *admission, void *state, struct rpc_call *call,
                         gateway_work_fn *work)
{
    struct gateway_task task = {.admission = admission,
                                .state = state,
                                .call = call,
                                .work = work,
                                .arrived_us = clock_now_us(),
                                .deadline_us = rpc_call_deadline_us(call)};
    struct error err;
    rpc_call_take_message(call, &task.message);
    int rc = task.message.len > HERE_BYTES_MAX
                 ? error_set(&err, ERR_ARGUMENT, "the message has %zu bytes; %d are the most here",
                             task.message.len, HERE_BYTES_MAX)
                 : do_work(&task, &err);
    if (rc) rpc_call_finish(call, rc, err.text);
    buffer_free(&task.message);
    arena_close(&task.arena);
}

/* The message gives way to the job, which is what waits from now on. */
int gateway_submit_take(struct gateway_task *task, struct job *job, struct error *err)
{
    int64_t timeout_us = (int64_t)job->generate.timeout_ms * 1000;
    job->arrived_us = task->arrived_us;
    job->deadline_us = task->deadline_us;
    if (timeout_us && task->arrived_us + timeout_us < job->deadline_us) {
        job->deadline_us = task->arrived_us + timeout_us;
    }
    give_back(task);
    int rc = admission_submit_take(task->admission, job, err);
    if (rc) job_free(job);
    return rc;
}
