/* Submit, Watch and Get are decoded on a thread of the pool; the answers of Watch come from
 * coordinator/store/job_watch.h. List and Cancel are answered on the network thread. */
#include "coordinator/grpc/gateway_jobs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "access/keys.h"
#include "coordinator/grpc/gateway_call.h"
#include "coordinator/store/job_answer.h"
#include "coordinator/store/submission.h"
#include "proto/jobs_wire.h"

enum { PAGE_DEFAULT = 100 };

struct gateway_jobs {
    struct admission *admission;
    struct jobs *jobs;
    struct job_watch *watch;
};

/* ---- answers ---- */

static int send_encoded(struct response_stream *stream, struct buffer *reply, int rc,
                        struct error *err)
{
    if (!rc) rc = stream->ops->send_encoded(stream, reply->data, reply->len, err);
    if (!rc) stream->ops->finish(stream, 0, "", false);
    buffer_free(reply);
    return rc;
}

static struct job_status status_of(const struct job_info *info)
{
    return (struct job_status){.id = info->id,
                               .key = info->key,
                               .error = info->error,
                               .request_id = info->request_id,
                               .state = info->state,
                               .end = info->end,
                               .n = info->n_sequences,
                               .prompt_tokens = info->n_prompt,
                               .completion_tokens = info->n_tokens,
                               .submitted_ms = (uint64_t)info->submitted_ms,
                               .ended_ms = (uint64_t)info->ended_ms};
}

static int answer_info(struct intake_task *task, const struct job_info *info, bool existed,
                       struct error *err)
{
    struct buffer reply = {0};
    struct job_status status = status_of(info);
    status.existed = existed;
    return send_encoded(task->stream, &reply, job_status_encode(&reply, &status, err), err);
}

/* ---- Submit ---- */

static int submit(struct intake_task *task, struct error *err)
{
    struct gateway_jobs *gj = task->state;
    struct submit_request request;
    struct job_info info;
    bool existed;
    int rc = 0;
    TRY(submit_request_decode(task->message.data, task->message.len, &task->arena, &request, err));
    TRY(submission_make(task, gj->jobs, &request.request, request.key, &info, &existed, err));
    TRY(answer_info(task, &info, existed, err));
out:
    return rc;
}

/* ---- the others ---- */

static int watch(struct intake_task *task, struct error *err)
{
    struct gateway_jobs *gj = task->state;
    struct watch_request request;
    struct job_info info;
    int rc = 0;
    TRY(watch_request_decode(task->message.data, task->message.len, &task->arena, &request, err));
    TRY(jobs_find(gj->jobs, grant_name(task->grant), request.id, &info, err));
    TRY(job_watch_add(gj->watch, task->stream, request.id, request.from_token, 0, err));
out:
    return rc;
}

static int get(struct intake_task *task, struct error *err)
{
    struct gateway_jobs *gj = task->state;
    struct job_answer answer = {0};
    struct buffer reply = {0};
    struct job_info info;
    const char *id;
    int rc = 0;
    TRY(job_request_decode(task->message.data, task->message.len, &task->arena, &id, err));
    TRY(job_answer_read(&answer, gj->jobs, grant_name(task->grant), id, &info, err));
    struct job_status status = status_of(&info);
    status.n_texts = answer.n;
    status.texts = answer.texts;
    rc = send_encoded(task->stream, &reply, job_status_encode(&reply, &status, err), err);
out:
    job_answer_free(&answer);
    return rc;
}

static int cancel(struct intake_task *task, struct error *err)
{
    struct gateway_jobs *gj = task->state;
    struct job_info info;
    const char *id;
    int rc = 0;
    TRY(job_request_decode(task->message.data, task->message.len, &task->arena, &id, err));
    TRY(jobs_cancel(gj->jobs, grant_name(task->grant), id, &info, err));
    TRY(answer_info(task, &info, false, err));
out:
    return rc;
}

/* A page token is the number of the last job of the page before. */
static int page_begin(const char *token, uint64_t *before, struct error *err)
{
    char rest;
    *before = UINT64_MAX;
    if (!token[0] || sscanf(token, "%" SCNu64 "%c", before, &rest) == 1) return 0;
    return error_set(err, ERR_ARGUMENT, "page_token is '%s', which no page of ours ended with",
                     token);
}

static int send_page(struct intake_task *task, const struct job_info *infos, int n, bool is_last,
                     struct error *err)
{
    char token[JOBS_ID_BYTES] = "";
    struct buffer reply = {0};
    struct job_status *jobs;
    int rc = mem_array(&jobs, (size_t)n, sizeof *jobs, err);
    if (rc) return rc;
    for (int i = 0; i < n; i++) {
        jobs[i] = status_of(&infos[i]);
    }
    if (n && !is_last) snprintf(token, sizeof token, "%" PRIu64, infos[n - 1].number);
    const struct job_list list = {.n = n, .jobs = jobs, .next_page_token = token};
    rc = send_encoded(task->stream, &reply, job_list_encode(&reply, &list, err), err);
    free(jobs);
    return rc;
}

static int list(struct intake_task *task, struct error *err)
{
    struct gateway_jobs *gj = task->state;
    struct list_request request;
    struct job_info *infos = NULL;
    uint64_t before;
    bool is_last;
    int rc = 0;
    TRY(list_request_decode(task->message.data, task->message.len, &task->arena, &request, err));
    TRY(page_begin(request.page_token, &before, err));
    int size = request.page_size ? request.page_size : PAGE_DEFAULT;
    TRY(mem_array(&infos, (size_t)size, sizeof *infos, err));
    int n =
        jobs_list(gj->jobs, grant_name(task->grant), before, request.state, infos, size, &is_last);
    TRY(send_page(task, infos, n, is_last, err));
out:
    free(infos);
    return rc;
}

/* ---- the service ---- */

static void take(struct gateway_jobs *gj, struct rpc_call *call, intake_work_fn *work,
                 enum gateway_way way)
{
    gateway_call(gj->admission, gj, call, work, way);
}

static void on_submit(struct rpc_call *call, void *state, const uint8_t *data, size_t len)
{
    (void)data, (void)len;
    take(state, call, submit, GATEWAY_JOB);
}

static void on_watch(struct rpc_call *call, void *state, const uint8_t *data, size_t len)
{
    (void)data, (void)len;
    take(state, call, watch, GATEWAY_ANSWER);
}

static void on_get(struct rpc_call *call, void *state, const uint8_t *data, size_t len)
{
    (void)data, (void)len;
    take(state, call, get, GATEWAY_ANSWER);
}

static void on_list(struct rpc_call *call, void *state, const uint8_t *data, size_t len)
{
    (void)data, (void)len;
    take(state, call, list, GATEWAY_HERE);
}

static void on_cancel(struct rpc_call *call, void *state, const uint8_t *data, size_t len)
{
    (void)data, (void)len;
    take(state, call, cancel, GATEWAY_HERE);
}

static const struct rpc_method methods[] = {
    {.path = "/outrider.generation.v1.Generation/Submit", .on_message = on_submit},
    {.path = "/outrider.generation.v1.Generation/Watch", .on_message = on_watch},
    {.path = "/outrider.generation.v1.Generation/Get", .on_message = on_get},
    {.path = "/outrider.generation.v1.Generation/List", .on_message = on_list},
    {.path = "/outrider.generation.v1.Generation/Cancel", .on_message = on_cancel},
};

int gateway_jobs_open(struct gateway_jobs **gateway, struct admission *admission, struct jobs *jobs,
                      struct job_watch *watch, struct error *err)
{
    int rc = mem_array(gateway, 1, sizeof **gateway, err);
    if (rc) return rc;
    **gateway = (struct gateway_jobs){admission, jobs, watch};
    return 0;
}

void gateway_jobs_close(struct gateway_jobs *gateway)
{
    free(gateway);
}

struct rpc_service gateway_jobs_service(struct gateway_jobs *gateway)
{
    return (struct rpc_service){
        .methods = methods, .n_methods = (int)(sizeof methods / sizeof *methods), .state = gateway};
}
