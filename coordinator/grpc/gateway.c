/* Handlers of the gRPC service Generation. */
#include "coordinator/grpc/gateway.h"

#include <stdlib.h>
#include <string.h>

#include "access/keys.h"
#include "coordinator/grpc/gateway_call.h"
#include "coordinator/grpc/gateway_jobs.h"
#include "coordinator/job/sent_reply.h"
#include "rpc/health.h"
#include "rpc/server.h"

struct gateway {
    struct gateway_options options;
    struct rpc_health *health;
    struct gateway_jobs *jobs;
    struct rpc_server *server;
};

static int open_job(struct gateway *gw, enum job_kind kind, struct response_stream *stream,
                    struct job **job, struct error *err)
{
    int rc = 0;
    struct job *made = NULL;
    *job = NULL;
    TRY(job_open(&made, kind, err));
    TRY(sent_reply_open(&made->reply, stream, gw->options.sender, err));
    *job = made;
    made = NULL;
out:
    job_free(made);
    return rc;
}

static int generate(struct intake_task *task, struct error *err)
{
    struct generate_request request;
    struct job *job = NULL;
    int rc = 0;
    TRY(generate_request_decode(task->message.data, task->message.len, &task->arena, &request,
                                err));
    TRY(open_job(task->state, JOB_GENERATE, task->stream, &job, err));
    TRY(job_hold_grant(job, task->grant, err));
    TRY(admission_fill_generate(task->admission, job, &request, err));
    rc = intake_submit_take(task, job, err);
    job = NULL;
out:
    job_free(job);
    return rc;
}

static int score(struct intake_task *task, struct error *err)
{
    struct score_request request;
    struct job *job = NULL;
    int rc = 0;
    TRY(score_request_decode(task->message.data, task->message.len, &task->arena, &request, err));
    TRY(open_job(task->state, JOB_SCORE, task->stream, &job, err));
    TRY(job_hold_grant(job, task->grant, err));
    TRY(admission_fill_score(task->admission, job, &request, err));
    rc = intake_submit_take(task, job, err);
    job = NULL;
out:
    job_free(job);
    return rc;
}

/* Nothing grows with this request. */
static int describe(struct intake_task *task, struct error *err)
{
    struct job *job = NULL;
    int rc = open_job(task->state, JOB_DESCRIBE, task->stream, &job, err);
    if (!rc) rc = admission_submit_take(task->admission, job, err);
    if (rc) job_free(job);
    return rc;
}

static void take(struct gateway *gw, struct rpc_call *call, intake_work_fn *work,
                 enum gateway_way way)
{
    gateway_call(gw->options.admission, gw, call, work, way);
}

static void on_generate(struct rpc_call *call, void *service, const uint8_t *data, size_t len)
{
    (void)data, (void)len;
    take(service, call, generate, GATEWAY_JOB);
}

static void on_score(struct rpc_call *call, void *service, const uint8_t *data, size_t len)
{
    (void)data, (void)len;
    take(service, call, score, GATEWAY_JOB);
}

static void on_describe(struct rpc_call *call, void *service, const uint8_t *data, size_t len)
{
    (void)data, (void)len;
    take(service, call, describe, GATEWAY_HERE);
}

static const struct rpc_method methods[] = {
    {.path = "/outrider.generation.v1.Generation/Generate", .on_message = on_generate},
    {.path = "/outrider.generation.v1.Generation/Score", .on_message = on_score},
    {.path = "/outrider.generation.v1.Generation/Describe", .on_message = on_describe},
};

static int admit(void *state, const char *authorization, size_t len, void **caller,
                 struct error *err)
{
    struct gateway *gw = state;
    struct grant *grant;
    int rc = keys_authorize(gw->options.keys, authorization, len, &grant, err);
    *caller = grant;
    return rc;
}

static void release(void *caller)
{
    grant_release(caller);
}

int gateway_open(struct gateway **gateway, const struct gateway_options *options, struct error *err)
{
    int rc = 0;
    struct gateway *gw = NULL;
    *gateway = NULL;
    TRY(mem_array(&gw, 1, sizeof *gw, err));
    gw->options = *options;
    TRY(rpc_health_open(&gw->health, err));
    TRY(gateway_jobs_open(&gw->jobs, options->admission, options->jobs, options->watch, err));
    const struct rpc_service services[] = {
        {.methods = methods, .n_methods = (int)(sizeof methods / sizeof *methods), .state = gw},
        gateway_jobs_service(gw->jobs),
        rpc_health_service(gw->health),
    };
    const struct rpc_server_options server = {
        .address = options->address,
        .services = services,
        .n_services = (int)(sizeof services / sizeof *services),
        .max_message_bytes = admission_message_bytes(options->admission),
        .certificates = options->certificates,
        .authenticator = {.admit = admit, .release = release, .state = gw},
    };
    gateway_set_live(gw, true);
    TRY(rpc_server_open(&gw->server, &server, err));
    *gateway = gw;
    gw = NULL;
out:
    gateway_close(gw, 0);
    return rc;
}

void gateway_close(struct gateway *gw, int grace_ms)
{
    if (!gw) return;
    if (gw->server) rpc_server_close(gw->server, grace_ms);
    gateway_jobs_close(gw->jobs);
    rpc_health_close(gw->health);
    free(gw);
}

const char *gateway_address(const struct gateway *gw)
{
    return rpc_server_address(gw->server);
}

void gateway_set_serving(struct gateway *gw, bool is_serving)
{
    rpc_health_set(gw->health, "", is_serving);
    rpc_health_set(gw->health, "outrider.generation.v1.Generation", is_serving);
}

void gateway_set_live(struct gateway *gw, bool is_live)
{
    rpc_health_set(gw->health, "live", is_live);
}
