/* Handlers of the gRPC service Generation. */
#include "coordinator/gateway.h"

#include <stdlib.h>
#include <string.h>

#include "coordinator/grpc_reply.h"
#include "rpc/health.h"

struct gateway {
    struct gateway_options options;
    struct rpc_health *health;
    struct rpc_server *server;
    struct buffer buffer; /* of all replies: used by the engine thread alone */
};

static int open_job(struct gateway *gw, enum job_kind kind, struct rpc_call *call, size_t len,
                    struct job **job, struct error *err)
{
    int rc = 0;
    struct job *made = NULL;
    *job = NULL;
    TRY(job_open(&made, kind, len, err));
    TRY(grpc_reply_open(&made->reply, call, &gw->buffer, err));
    *job = made;
    made = NULL;
out:
    job_free(made);
    return rc;
}

/* Hands over a job that was made with rc = 0; otherwise, and when it is not admitted, the call ends
 * with the reason. */
static void submit(struct gateway *gw, struct job *job, struct rpc_call *call, int rc,
                   struct error *err)
{
    if (!rc) rc = admission_submit_take(gw->options.admission, job, err);
    if (!rc) return;
    rpc_call_finish(call, rc, err->text);
    job_free(job);
}

static void on_generate(struct rpc_call *call, void *service, const uint8_t *data, size_t len)
{
    struct gateway *gw = service;
    struct error err;
    struct job *job = NULL;
    int rc = 0;
    TRY(open_job(gw, JOB_GENERATE, call, len, &job, &err));
    TRY(generate_request_decode(data, len, &job->arena, &job->generate, &err));
    TRY(admission_check_served(&job->generate, &err));
    TRY(admission_fill_prompt(gw->options.admission, job, &err));
out:
    submit(gw, job, call, rc, &err);
}

static void on_score(struct rpc_call *call, void *service, const uint8_t *data, size_t len)
{
    struct gateway *gw = service;
    struct error err;
    struct job *job = NULL;
    int rc = 0;
    TRY(open_job(gw, JOB_SCORE, call, len, &job, &err));
    TRY(score_request_decode(data, len, &job->arena, &job->score, &err));
    TRY(admission_fill_prompt(gw->options.admission, job, &err));
out:
    submit(gw, job, call, rc, &err);
}

static void on_describe(struct rpc_call *call, void *service, const uint8_t *data, size_t len)
{
    struct gateway *gw = service;
    struct error err;
    struct job *job = NULL;
    (void)data;
    int rc = open_job(gw, JOB_DESCRIBE, call, len, &job, &err);
    submit(gw, job, call, rc, &err);
}

static const struct rpc_method methods[] = {
    {.path = "/outrider.generation.v1.Generation/Generate", .on_message = on_generate},
    {.path = "/outrider.generation.v1.Generation/Score", .on_message = on_score},
    {.path = "/outrider.generation.v1.Generation/Describe", .on_message = on_describe},
};

int gateway_open(struct gateway **gateway, const struct gateway_options *options, struct error *err)
{
    int rc = 0;
    struct gateway *gw = NULL;
    *gateway = NULL;
    TRY(mem_array(&gw, 1, sizeof *gw, err));
    gw->options = *options;
    TRY(rpc_health_open(&gw->health, err));
    const struct rpc_service services[] = {
        {.methods = methods, .n_methods = (int)(sizeof methods / sizeof *methods), .state = gw},
        rpc_health_service(gw->health),
    };
    const struct rpc_server_options server = {
        .address = options->address,
        .services = services,
        .n_services = 2,
    };
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
    rpc_health_close(gw->health);
    buffer_free(&gw->buffer);
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
