/* Declarations that the files of coordinator/openai/ share. */
#pragma once

#include <stdatomic.h>

#include "coordinator/job/intake.h"
#include "coordinator/openai/answer.h"
#include "coordinator/openai/options.h"

/* An endpoint that makes texts, as the state of its tasks. */
struct openai_endpoint {
    struct openai_api *api;
    enum openai_kind kind;
};

struct openai_api {
    struct openai_options options;
    struct openai_endpoint endpoints[2]; /* by kind */
    struct http_server *server;
    uint64_t run; /* part of every id */
    atomic_ullong n_requests;
    struct grant *caller; /* of the request that is handled; the network thread's; NULL = none */
};

typedef void openai_route_fn(struct openai_api *api, struct http_exchange *x);

/* A request as far as its headers describe it: the context of its exchange. Used by the network
 * thread alone, but for what its answer holds. */
struct openai_call {
    openai_route_fn *handle;      /* NULL: the request has been answered */
    struct grant *grant;          /* of its key, a reference; NULL = none */
    unsigned long long number;    /* part of its id */
    char name[OPENAI_NAME_BYTES]; /* X-Request-Id, as far as it is fit for a log; "" = none */
    /* Memory of requests that a whole answer takes until it has been read or lost. Written once, by
     * the thread that answers. */
    struct budget *budget;
    size_t charged_bytes;
};

/* Takes a request with a JSON body to the intake: work gets the body as task->message, `state`, and
 * the new answer's stream. prefix: of its id. */
void openai_start(struct openai_api *api, struct http_exchange *x, const char *prefix, void *state,
                  intake_work_fn *work, bool makes_job);

/* Answers 200 with JSON; takes the value over. */
void openai_answer_json(struct http_exchange *x, json_t *value);

/* ---- handlers of routes ---- */
void openai_completions(struct openai_api *api, struct http_exchange *x);
void openai_chat_completions(struct openai_api *api, struct http_exchange *x);
void openai_tokenize(struct openai_api *api, struct http_exchange *x);
void openai_detokenize(struct openai_api *api, struct http_exchange *x);
void openai_jobs_submit(struct openai_api *api, struct http_exchange *x);
void openai_jobs_list(struct openai_api *api, struct http_exchange *x);
void openai_jobs_get(struct openai_api *api, struct http_exchange *x);
void openai_jobs_cancel(struct openai_api *api, struct http_exchange *x);
void openai_jobs_events(struct openai_api *api, struct http_exchange *x);

/* ---- prompts ---- */
/* Appends the text of ids. Errors: ERR_NO_MEMORY. */
int openai_decode_ids(struct openai_api *api, const int32_t *ids, int n, bool skip_special,
                      struct buffer *out, struct error *err);
/* Appends the ids of a conversation. Errors: ERR_ARGUMENT, with *r->wrong;
 * ERR_UNSUPPORTED the model has no template; those of chat_template_render. */
int openai_chat_prompt(struct openai_api *api, const struct openai_request *request,
                       struct openai_reading *r, struct token_ids *ids);
