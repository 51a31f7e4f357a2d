/* The gRPC door. */
#include "coordinator/gateway.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "coordinator/grpc_reply.h"
#include "rpc/health.h"

struct gateway {
    struct gateway_options options;
    struct rpc_health *health;
    struct rpc_server *server;
    struct buffer buffer; /* of all replies: used by the engine thread alone */
};

enum { ARENA_SLACK_BYTES = 65536 };

static int open_job(struct gateway *gw, enum job_kind kind, struct rpc_call *call, size_t len,
                    struct job **job, struct error *err)
{
    int rc = 0;
    struct job *made = NULL;
    *job = NULL;
    TRY(mem_array(&made, 1, sizeof *made, err));
    made->kind = kind;
    made->arrived_us = clock_now_us();
    TRY(arena_open(&made->arena, 8 * len + ARENA_SLACK_BYTES, err));
    TRY(grpc_reply_open(&made->reply, call, &gw->buffer, err));
    *job = made;
    made = NULL;
out:
    job_free(made);
    return rc;
}

/* ids given, or the ids of text. */
static int fill_prompt(struct gateway *gw, struct job *job, const char *text, size_t len,
                       const int32_t *ids, int n_ids, struct error *err)
{
    int rc = 0, n_vocab = tokenizer_vocab_size(gw->options.tok);
    if (!text) {
        for (int i = 0; i < n_ids; i++) {
            if (ids[i] < 0 || ids[i] >= n_vocab) {
                return error_set(err, ERR_ARGUMENT,
                                 "token id %d is outside of the vocabulary of %d", ids[i], n_vocab);
            }
        }
        return token_ids_append(&job->prompt, ids, (size_t)n_ids, err);
    }
    if (len > (size_t)gw->options.max_prompt_bytes) {
        return error_set(err, ERR_ARGUMENT, "the text has %zu bytes, more than the %d allowed", len,
                         gw->options.max_prompt_bytes);
    }
    TRY(tokenizer_encode(gw->options.tok, text, len, TOKENIZER_ADD_SPECIAL, &job->prompt, err));
out:
    return rc;
}

/* Hands the job over, or answers why not. */
static void submit(struct queue *queue, struct job *job, struct rpc_call *call, int rc,
                   struct error *err)
{
    if (!rc) rc = queue_push(queue, job, err);
    if (!rc) return;
    if (rc == ERR_EXHAUSTED) error_wrap(err, "too many requests are waiting; try again later");
    if (rc == ERR_CLOSED) rc = error_set(err, ERR_UNAVAILABLE, "the coordinator is shutting down");
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
    struct generate_request *req = &job->generate;
    TRY(generate_request_decode(data, len, &job->arena, req, &err));
    TRY(fill_prompt(gw, job, req->prompt, req->prompt_len, req->prompt_ids, req->n_prompt_ids,
                    &err));
out:
    submit(gw->options.jobs, job, call, rc, &err);
}

static void on_score(struct rpc_call *call, void *service, const uint8_t *data, size_t len)
{
    struct gateway *gw = service;
    struct error err;
    struct job *job = NULL;
    int rc = 0;
    TRY(open_job(gw, JOB_SCORE, call, len, &job, &err));
    struct score_request *req = &job->score;
    TRY(score_request_decode(data, len, &job->arena, req, &err));
    TRY(fill_prompt(gw, job, req->text, req->text_len, req->ids, req->n_ids, &err));
out:
    submit(gw->options.jobs, job, call, rc, &err);
}

static void on_describe(struct rpc_call *call, void *service, const uint8_t *data, size_t len)
{
    struct gateway *gw = service;
    struct error err;
    struct job *job = NULL;
    (void)data;
    int rc = open_job(gw, JOB_DESCRIBE, call, len, &job, &err);
    submit(gw->options.control, job, call, rc, &err);
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
