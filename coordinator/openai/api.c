/* Routes, and what is answered at once. */
#include "coordinator/openai/api.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "access/authorization.h"
#include "access/keys.h"
#include "base/clock.h"
#include "coordinator/openai/internal.h"
#include "coordinator/openai/site.h"
#include "coordinator/page/page.h"
#include "http/metrics_server.h"
#include "http/server.h"
#include "speculation/accept/rules.h"

enum {
    REQUEST_TIMEOUT_S = 30, /* for a request to come in whole */
    READER_SLACK_S = 10,    /* beyond the reader's timeout, by which an answer ends in good order */
    BODY_SLACK_BYTES = 1 << 20,
    NO_BODY_BYTES = 4096 /* of a body that nobody reads */
};

/* ---- small parts ---- */

/* Printable, without blanks, and short enough for a log. */
static bool is_name(const char *text)
{
    size_t len = strlen(text);
    if (len < 1 || len >= OPENAI_NAME_BYTES) return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] <= ' ' || text[i] > '~' || text[i] == '"' || text[i] == '\\') return false;
    }
    return true;
}

static int read_key(const struct http_exchange *x, char out[OPENAI_NAME_BYTES], struct error *err)
{
    const char *given = http_header(x, "Idempotency-Key");
    if (given && !is_name(given)) {
        return error_set(err, ERR_ARGUMENT,
                         "the header Idempotency-Key must have 1 to %d printable characters "
                         "without blanks, quotation marks and backslashes",
                         OPENAI_NAME_BYTES - 1);
    }
    snprintf(out, OPENAI_NAME_BYTES, "%s", given ? given : "");
    return 0;
}

/* The answer tells the name: the client's own one, or else the id. */
static int make_names(const struct openai_api *api, struct http_exchange *x, const char *prefix,
                      struct openai_names *names, struct error *err)
{
    const struct openai_call *call = http_context(x);
    snprintf(names->id, sizeof names->id, "%s-%016" PRIx64 "%08llx", prefix, api->run,
             call->number);
    snprintf(names->name, sizeof names->name, "%s", *call->name ? call->name : names->id);
    return http_replace_header(x, "X-Request-Id", names->name, err);
}

void openai_answer_json(struct http_exchange *x, json_t *value)
{
    char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;
    json_decref(value);
    if (text)
        http_answer(x, 200, "application/json", text, strlen(text));
    else
        openai_error_answer(x, ERR_NO_MEMORY, "no memory for an answer", NULL);
    free(text);
}

/* For the log; the request's id is part of the request. */
static void read_origin(const struct http_exchange *x, struct job_origin *origin)
{
    const char *trace = http_header(x, "traceparent");
    if (trace) job_origin_set_trace(origin, trace, strlen(trace));
}

static void hand_over(struct openai_api *api, struct http_exchange *x,
                      struct response_stream *stream, void *state, intake_work_fn *work,
                      bool makes_job)
{
    struct buffer body;
    struct intake_task task = {.admission = api->options.admission,
                               .state = state,
                               .stream = stream,
                               .grant = api->caller,
                               .work = work,
                               .makes_job = makes_job,
                               .deadline_us = INT64_MAX};
    if (makes_job) read_origin(x, &task.origin);
    http_take_body(x, &body);
    intake_hand_over(&task, &body);
}

void openai_start(struct openai_api *api, struct http_exchange *x, const char *prefix, void *state,
                  intake_work_fn *work, bool makes_job)
{
    struct error err;
    struct openai_answer *answer;
    struct openai_names names;
    int rc = make_names(api, x, prefix, &names, &err);
    if (!rc) rc = read_key(x, names.key, &err);
    if (!rc) rc = openai_answer_open(&answer, x, &names, api->options.admission->tok, &err);
    if (rc) {
        openai_error_answer(x, rc, err.text, NULL);
        return;
    }
    struct response_stream *whole = openai_answer_whole(answer);
    hand_over(api, x, whole, state, work, makes_job);
    response_stream_unref(whole);
}

/* ---- what is answered at once ---- */

static void health(struct openai_api *api, struct http_exchange *x)
{
    (void)api;
    openai_answer_json(x, json_pack("{s:s}", "status", "alive"));
}

static void live(struct openai_api *api, struct http_exchange *x)
{
    struct error err;
    if (beat_check(api->options.beat, &err))
        openai_error_answer(x, ERR_UNAVAILABLE, err.text, NULL);
    else
        openai_answer_json(x, json_pack("{s:s}", "status", "live"));
}

/* The reason names workers by their addresses: with keys, no stranger learns these. */
static void ready(struct openai_api *api, struct http_exchange *x)
{
    struct served_model_info info;
    served_model_get(api->options.model, &info);
    const char *why = api->options.keys ? "no request is served now; the log says why" : info.why;
    if (info.is_ready)
        openai_answer_json(x, json_pack("{s:s}", "status", "ready"));
    else
        openai_error_answer(x, ERR_UNAVAILABLE, why, NULL);
}

static json_t *list_of(const char *const *names, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        json_array_append_new(list, json_string(names[i]));
    }
    return list;
}

/* Lists what a client can find out otherwise only by being refused. */
static json_t *features(const struct openai_api *api)
{
    return json_pack("{s:b, s:b, s:o, s:o, s:o, s:i}", "chat",
                     served_chat_has(api->options.admission->chat), "keys",
                     api->options.keys != NULL, "rules", list_of(accept_rule_names, RULE_COUNT),
                     "tree_rules", list_of(tree_rule_names, TREE_RULE_COUNT), "strategies",
                     list_of(strategy_names, N_STRATEGIES), "n_draft_max", DRAFT_MAX);
}

static void version(struct openai_api *api, struct http_exchange *x)
{
    struct served_model_info info;
    served_model_get(api->options.model, &info);
    openai_answer_json(x, json_pack("{s:s, s:s, s:o}", "version", OUTRIDER_VERSION,
                                    "system_fingerprint", info.fingerprint, "features",
                                    features(api)));
}

static json_t *model_of(const struct served_model_info *info)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:i}", "id", info->name, "object", "model", "created",
                     (json_int_t)info->since_s, "owned_by", "outrider", "max_model_len",
                     info->context_limit);
}

static void models(struct openai_api *api, struct http_exchange *x)
{
    struct served_model_info info;
    json_t *list = json_array();
    served_model_get(api->options.model, &info);
    if (*info.name) json_array_append_new(list, model_of(&info));
    openai_answer_json(x, json_pack("{s:s, s:o}", "object", "list", "data", list));
}

static void model(struct openai_api *api, struct http_exchange *x)
{
    struct served_model_info info;
    char text[ERROR_TEXT_BYTES];
    const struct openai_error wrong = {.status = 404, .code = "model_not_found"};
    const char *name = http_path(x) + strlen("/v1/models/");
    served_model_get(api->options.model, &info);
    if (strcmp(name, info.name) == 0) {
        openai_answer_json(x, model_of(&info));
        return;
    }
    snprintf(text, sizeof text, "The model \"%.100s\" does not exist; this server has \"%.100s\".",
             name, info.name);
    openai_error_answer(x, ERR_NOT_FOUND, text, &wrong);
}

static void metrics(struct openai_api *api, struct http_exchange *x)
{
    metrics_server_answer(x, api->options.write_metrics, api->options.metrics_arg);
}

static void refuse_path(struct http_exchange *x)
{
    char text[ERROR_TEXT_BYTES];
    snprintf(text, sizeof text, "There is no %.200s here.", http_path(x));
    openai_error_answer(x, ERR_NOT_FOUND, text, NULL);
}

static void page(struct openai_api *api, struct http_exchange *x)
{
    (void)api;
    if (!page_answer(x)) refuse_path(x);
}

/* ---- routes ---- */

struct route {
    const char *method, *path;
    openai_route_fn *handle;
    enum { KEY, ANYBODY } caller; /* who may call, where there are keys; probes have none */
};

static const struct route routes[] = {
    {"GET", "/", page, KEY},
    {"GET", "/health", health, ANYBODY},
    {"GET", "/live", live, ANYBODY},
    {"GET", "/metrics", metrics, KEY},
    {"GET", "/page/*", page, KEY},
    {"GET", "/ready", ready, ANYBODY},
    {"GET", "/v1/jobs", openai_jobs_list, KEY},
    {"GET", "/v1/jobs/*/events", openai_jobs_events, KEY},
    {"GET", "/v1/jobs/*", openai_jobs_get, KEY},
    {"DELETE", "/v1/jobs/*", openai_jobs_cancel, KEY},
    {"GET", "/v1/models", models, KEY},
    {"GET", "/v1/models/**", model, KEY},
    {"GET", "/version", version, KEY},
    {"POST", "/detokenize", openai_detokenize, KEY},
    {"POST", "/tokenize", openai_tokenize, KEY},
    {"POST", "/v1/chat/completions", openai_chat_completions, KEY},
    {"POST", "/v1/completions", openai_completions, KEY},
    {"POST", "/v1/jobs", openai_jobs_submit, KEY},
    {"POST", "/v1/jobs/*/cancel", openai_jobs_cancel, KEY},
};

/* A pattern's * is one part of a path, and ** all that is left of it. */
static bool covers(const char *pattern, const char *path)
{
    while (*pattern) {
        if (strcmp(pattern, "**") == 0) return *path != 0;
        if (*pattern == '*') {
            size_t len = strcspn(path, "/");
            if (!len) return false;
            path += len;
            pattern++;
        } else if (*pattern++ != *path++) {
            return false;
        }
    }
    return *path == 0;
}

/* Also what a HEAD asks for; libmicrohttpd leaves the body out. */
static bool has_method(const struct route *route, const char *method)
{
    return strcmp(route->method, method) == 0 ||
           (strcmp(method, "HEAD") == 0 && strcmp(route->method, "GET") == 0);
}

/* The methods of a path, "GET, POST"; "" = there is no such path. */
static void list_methods(const char *path, char out[64])
{
    out[0] = 0;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        size_t len = strlen(out);
        if (!covers(routes[i].path, path)) continue;
        snprintf(out + len, 64 - len, "%s%s", len ? ", " : "", routes[i].method);
    }
}

static void refuse_route(struct http_exchange *x)
{
    struct error err;
    char methods[64], text[ERROR_TEXT_BYTES];
    const struct openai_error wrong = {.status = 405};
    list_methods(http_path(x), methods);
    if (!*methods) {
        refuse_path(x);
        return;
    }
    http_set_header(x, "Allow", methods, &err);
    snprintf(text, sizeof text, "%.200s takes %s, not %.20s.", http_path(x), methods,
             http_method(x));
    openai_error_answer(x, ERR_NOT_FOUND, text, &wrong);
}

/* NULL: there is none. */
static const struct route *find_route(const struct http_exchange *x)
{
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (covers(routes[i].path, http_path(x)) && has_method(&routes[i], http_method(x))) {
            return &routes[i];
        }
    }
    return NULL;
}

static size_t length_of(const char *header)
{
    return header ? strlen(header) : 0;
}

/* Where there is no key. A browser that wants the page is told that it may ask for one. */
static void refuse_caller(struct http_exchange *x, const struct route *route, int rc,
                          const struct error *why)
{
    const struct openai_error more = {.code = "invalid_api_key"};
    struct error err;
    if (route && route->handle == page) {
        http_set_header(x, "WWW-Authenticate", "Basic realm=\"outrider\", charset=\"UTF-8\"", &err);
    }
    openai_error_answer(x, rc, why->text, &more);
}

/* A browser sends a password that it has been given also with what other sites' pages post, but
 * these cannot post JSON without being allowed to first. */
static bool may_be_of_another_site(const struct http_exchange *x)
{
    const char *authorization = http_header(x, "Authorization");
    const char *type = http_header(x, "Content-Type");
    if (strcmp(http_method(x), "POST")) return false;
    if (!authorization_is_basic(authorization, length_of(authorization))) return false;
    return !type || strncasecmp(type, "application/json", 16) != 0;
}

/* Finds out who calls; false: the request is refused. */
static bool admit(struct openai_api *api, struct http_exchange *x, const struct route *route)
{
    const struct openai_error type = {.status = 415}, foreign = {.status = 403};
    const char *header = http_header(x, "Authorization");
    char why[ERROR_TEXT_BYTES];
    struct error err;
    int rc = keys_authorize(api->options.keys, header, length_of(header), &api->caller, &err);
    if (rc) {
        refuse_caller(x, route, rc, &err);
        return false;
    }
    if (openai_site_is_foreign(&api->options, x, why, sizeof why)) {
        openai_error_answer(x, ERR_ARGUMENT, why, &foreign);
        return false;
    }
    if (!api->caller || !may_be_of_another_site(x)) return true;
    openai_error_answer(x, ERR_UNSUPPORTED,
                        "With a key as a password a body is taken only as Content-Type: "
                        "application/json; or send the key as Authorization: Bearer KEY.",
                        &type);
    return false;
}

static void release_call(void *context)
{
    struct openai_call *call = context;
    grant_release(call->grant);
    if (call->charged_bytes) budget_give(call->budget, call->charged_bytes);
    free(call);
}

/* NULL: there is no memory. */
static struct openai_call *open_call(struct openai_api *api, struct http_exchange *x)
{
    struct error err;
    struct openai_call *call;
    struct openai_names names;
    struct job_origin origin = {0};
    const char *given = http_header(x, "X-Request-Id");
    if (mem_array(&call, 1, sizeof *call, &err)) return NULL;
    http_take_context(x, call, release_call);
    call->number = atomic_fetch_add(&api->n_requests, 1);
    if (given) job_origin_set_request(&origin, given, strlen(given));
    snprintf(call->name, sizeof call->name, "%s", origin.request_id);
    return make_names(api, x, "req", &names, &err) ? NULL : call;
}

/* Strangers learn of no route that they may not use. */
static void begin_call(struct openai_api *api, struct http_exchange *x, struct openai_call *call)
{
    if (openai_site_answer_preflight(&api->options, x)) return;
    const struct route *route = find_route(x);
    bool is_public = route && route->caller == ANYBODY;
    bool is_admitted = is_public || admit(api, x, route);
    call->grant = api->caller;
    api->caller = NULL;
    if (!is_admitted) return;
    if (!route) {
        refuse_route(x);
        return;
    }
    call->handle = route->handle;
    if (strcmp(route->method, "POST") != 0) http_limit_body(x, NO_BODY_BYTES);
}

/* Looks at the headers: a client that may not call, or calls what is not there, sends no body. */
static void begin(struct http_exchange *x, void *state)
{
    struct openai_api *api = state;
    struct openai_call *call = open_call(api, x);
    if (call)
        begin_call(api, x, call);
    else
        openai_error_answer(x, ERR_NO_MEMORY, "no memory for a request", NULL);
}

static void handle(struct http_exchange *x, void *state)
{
    struct openai_api *api = state;
    const struct openai_call *call = http_context(x);
    api->caller = call->grant;
    call->handle(api, x);
    api->caller = NULL;
}

/* ---- open and close ---- */

static struct http_server_options server_options(struct openai_api *api)
{
    /* A character may be escaped with six bytes, but a text is seldom all escapes. */
    size_t body = 2 * (size_t)api->options.admission->max_prompt_bytes + BODY_SLACK_BYTES;
    size_t bodies = api->options.admission->budget->limit_bytes;
    return (struct http_server_options){.address = api->options.address,
                                        .begin = begin,
                                        .handler = handle,
                                        .state = api,
                                        .max_body_bytes = body,
                                        .max_bodies_bytes = bodies > body ? bodies : body,
                                        .max_connections = api->options.max_connections,
                                        .request_timeout_s = REQUEST_TIMEOUT_S,
                                        .answer_timeout_s =
                                            api->options.reader_timeout_s + READER_SLACK_S,
                                        .certificates = api->options.certificates};
}

int openai_open(struct openai_api **out, const struct openai_options *options, struct error *err)
{
    int rc = 0;
    struct openai_api *api = NULL;
    *out = NULL;
    TRY(mem_array(&api, 1, sizeof *api, err));
    api->options = *options;
    for (int kind = OPENAI_COMPLETION; kind <= OPENAI_CHAT; kind++) {
        api->endpoints[kind] = (struct openai_endpoint){api, (enum openai_kind)kind};
    }
    if (getrandom(&api->run, sizeof api->run, 0) < 0) api->run = (uint64_t)clock_now_ns();
    const struct http_server_options server = server_options(api);
    TRY(http_server_open(&api->server, &server, err));
    *out = api;
    api = NULL;
out:
    openai_close(api, 0);
    return rc;
}

void openai_close(struct openai_api *api, int grace_ms)
{
    if (!api) return;
    http_server_close(api->server, grace_ms);
    free(api);
}

const char *openai_address(const struct openai_api *api)
{
    return http_server_address(api->server);
}
