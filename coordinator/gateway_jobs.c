/* Submit, Watch and Get are decoded on a thread of the pool; the answers of Watch come from
 * coordinator/gateway_watch.h. List and Cancel are answered on the network thread. */
#include "coordinator/gateway_jobs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#include "coordinator/gateway_answer.h"
#include "coordinator/gateway_task.h"
#include "coordinator/gateway_watch.h"
#include "coordinator/stored_reply.h"
#include "proto/jobs_wire.h"

enum { PAGE_DEFAULT = 100 };

struct gateway_jobs {
    struct admission *admission;
    struct jobs *jobs;
    struct buffer *buffer; /* of the engine thread */
    struct gateway_watch *watch;
};

/* ---- answers ---- */

static int send_encoded(struct rpc_call *call, struct buffer *reply, int rc, struct error *err)
{
    if (!rc) rc = rpc_call_send(call, reply->data, reply->len, err);
    if (!rc) rpc_call_finish(call, 0, "");
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

static int answer_info(struct gateway_task *task, const struct job_info *info, bool existed,
                       struct error *err)
{
    struct buffer reply = {0};
    struct job_status status = status_of(info);
    status.existed = existed;
    return send_encoded(task->call, &reply, job_status_encode(&reply, &status, err), err);
}

/* ---- Submit ---- */

static void fill_submission(struct job_submission *submission, const struct submit_request *request,
                            const struct buffer *encoded)
{
    XXH128_hash_t digest = XXH3_128bits(encoded->data, encoded->len);
    *submission = (struct job_submission){.key = request->key,
                                          .digest = {digest.low64, digest.high64},
                                          .request_id = request->request.request_id,
                                          .n_sequences = request->request.n,
                                          .request = encoded->data,
                                          .request_len = encoded->len};
}

/* Makes the job that the store then knows by a number; the record goes if the engine does not take
 * the job. */
static int admit(struct gateway_task *task, const struct generate_request *request,
                 struct job_submission *submission, struct job_info *info, bool *existed,
                 struct error *err)
{
    struct gateway_jobs *gj = task->state;
    struct job *job = NULL;
    int rc = 0;
    TRY(job_open(&job, JOB_GENERATE, err));
    TRY(admission_fill_generate(gj->admission, job, request, err));
    submission->n_prompt = (int)job->prompt.n;
    TRY(jobs_submit(gj->jobs, submission, info, existed, err));
    if (*existed) goto out;
    rc = stored_reply_open(&job->reply, gj->jobs, info->number, gj->buffer, err);
    if (!rc) {
        task->deadline_us = INT64_MAX; /* that of Submit is not the job's */
        rc = gateway_submit_take(task, job, err);
        job = NULL;
    }
    jobs_admit(gj->jobs, info->number, rc == 0);
out:
    job_free(job);
    return rc;
}

/* A request is compared in our own encoding, because another client may write the same one in
 * another order. */
static int submit(struct gateway_task *task, struct error *err)
{
    struct gateway_jobs *gj = task->state;
    struct submit_request request;
    struct job_submission submission;
    struct job_info info;
    struct buffer encoded = {0};
    bool existed;
    int rc = 0;
    TRY(submit_request_decode(task->message.data, task->message.len, &task->arena, &request, err));
    TRY(generate_request_encode(&encoded, &request.request, err));
    fill_submission(&submission, &request, &encoded);
    TRY(jobs_find_key(gj->jobs, &submission, &info, &existed, err));
    if (!existed) TRY(admit(task, &request.request, &submission, &info, &existed, err));
    task->makes_job = false; /* it is there, whatever becomes of the answer */
    TRY(answer_info(task, &info, existed, err));
out:
    buffer_free(&encoded);
    return rc;
}

/* ---- the others ---- */

static int watch(struct gateway_task *task, struct error *err)
{
    struct gateway_jobs *gj = task->state;
    struct watch_request request;
    struct job_info info;
    int rc = 0;
    TRY(watch_request_decode(task->message.data, task->message.len, &task->arena, &request, err));
    TRY(jobs_find(gj->jobs, request.id, &info, err));
    TRY(gateway_watch_add(gj->watch, task->call, request.id, request.from_token, err));
out:
    return rc;
}

static int get(struct gateway_task *task, struct error *err)
{
    struct gateway_jobs *gj = task->state;
    struct gateway_answer answer = {0};
    struct buffer reply = {0};
    struct job_info info;
    const char *id;
    int rc = 0;
    TRY(job_request_decode(task->message.data, task->message.len, &task->arena, &id, err));
    TRY(gateway_answer_read(&answer, gj->jobs, id, &info, err));
    struct job_status status = status_of(&info);
    status.n_texts = answer.n;
    status.texts = answer.texts;
    rc = send_encoded(task->call, &reply, job_status_encode(&reply, &status, err), err);
out:
    gateway_answer_free(&answer);
    return rc;
}

static int cancel(struct gateway_task *task, struct error *err)
{
    struct gateway_jobs *gj = task->state;
    struct job_info info;
    const char *id;
    int rc = 0;
    TRY(job_request_decode(task->message.data, task->message.len, &task->arena, &id, err));
    TRY(jobs_cancel(gj->jobs, id, &info, err));
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

static int send_page(struct gateway_task *task, const struct job_info *infos, int n, bool is_last,
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
    rc = send_encoded(task->call, &reply, job_list_encode(&reply, &list, err), err);
    free(jobs);
    return rc;
}

static int list(struct gateway_task *task, struct error *err)
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
    int n = jobs_list(gj->jobs, before, request.state, infos, size, &is_last);
    TRY(send_page(task, infos, n, is_last, err));
out:
    free(infos);
    return rc;
}

/* ---- the service ---- */

static void hand_over(struct rpc_call *call, void *state, size_t len, gateway_work_fn *work)
{
    struct gateway_jobs *gj = state;
    gateway_hand_over(gj->admission, gj, call, len, work);
}

static void on_submit(struct rpc_call *call, void *state, const uint8_t *data, size_t len)
{
    struct gateway_jobs *gj = state;
    (void)data;
    gateway_hand_over_job(gj->admission, gj, call, len, submit);
}

static void on_watch(struct rpc_call *call, void *state, const uint8_t *data, size_t len)
{
    (void)data;
    hand_over(call, state, len, watch);
}

static void on_get(struct rpc_call *call, void *state, const uint8_t *data, size_t len)
{
    (void)data;
    hand_over(call, state, len, get);
}

static void on_list(struct rpc_call *call, void *state, const uint8_t *data, size_t len)
{
    struct gateway_jobs *gj = state;
    (void)data, (void)len;
    gateway_answer_here(gj->admission, gj, call, list);
}

static void on_cancel(struct rpc_call *call, void *state, const uint8_t *data, size_t len)
{
    struct gateway_jobs *gj = state;
    (void)data, (void)len;
    gateway_answer_here(gj->admission, gj, call, cancel);
}

static void on_closing(void *state)
{
    struct gateway_jobs *gj = state;
    gateway_watch_end(gj->watch);
}

static const struct rpc_method methods[] = {
    {.path = "/outrider.generation.v1.Generation/Submit", .on_message = on_submit},
    {.path = "/outrider.generation.v1.Generation/Watch", .on_message = on_watch},
    {.path = "/outrider.generation.v1.Generation/Get", .on_message = on_get},
    {.path = "/outrider.generation.v1.Generation/List", .on_message = on_list},
    {.path = "/outrider.generation.v1.Generation/Cancel", .on_message = on_cancel},
};

int gateway_jobs_open(struct gateway_jobs **gateway, struct admission *admission, struct jobs *jobs,
                      struct buffer *buffer, int64_t reader_timeout_us, struct error *err)
{
    int rc = 0;
    struct gateway_jobs *made = NULL;
    *gateway = NULL;
    TRY(mem_array(&made, 1, sizeof *made, err));
    *made = (struct gateway_jobs){.admission = admission, .jobs = jobs, .buffer = buffer};
    TRY(gateway_watch_open(&made->watch, jobs, reader_timeout_us, err));
    *gateway = made;
    made = NULL;
out:
    free(made);
    return rc;
}

void gateway_jobs_close(struct gateway_jobs *gateway)
{
    if (!gateway) return;
    gateway_watch_close(gateway->watch);
    free(gateway);
}

struct rpc_service gateway_jobs_service(struct gateway_jobs *gateway)
{
    return (struct rpc_service){.methods = methods,
                                .n_methods = (int)(sizeof methods / sizeof *methods),
                                .state = gateway,
                                .on_closing = on_closing};
}
