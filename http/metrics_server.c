/* A server with one page, and with what probes ask for. */
#include "http/metrics_server.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "http/server.h"

enum {
    CONNECTIONS = 16,
    BODY_BYTES = 1024, /* that a request may have, although nobody reads it */
    REQUEST_S = 10,
    CLOSE_GRACE_MS = 100,
    PAGE_BYTES = 64 << 10 /* it may be longer; then it grows */
};

struct metrics_server {
    struct metrics_server_options options;
    struct http_server *http;
};

static void answer_text(struct http_exchange *x, int status, const char *text)
{
    http_answer(x, status, "text/plain; charset=utf-8", text, strlen(text));
}

void metrics_server_answer(struct http_exchange *x, metrics_page_fn *write, void *arg)
{
    struct buffer page = {0};
    struct error err;
    if (buffer_reserve(&page, PAGE_BYTES, &err) || write(arg, &page, &err)) {
        answer_text(x, 500, err.text);
    } else {
        http_answer_take(x, 200, "text/plain; version=0.0.4; charset=utf-8", &page);
    }
    buffer_free(&page);
}

static void answer_probe(struct http_exchange *x, metrics_probe_fn *probe, void *arg,
                         const char *yes)
{
    struct error err;
    if (probe(arg, &err))
        answer_text(x, 503, err.text);
    else
        answer_text(x, 200, yes);
}

static void answer_path(struct http_exchange *x, const struct metrics_server_options *options)
{
    const char *path = http_path(x);
    if (strcmp(path, "/metrics") == 0)
        metrics_server_answer(x, options->write, options->arg);
    else if (strcmp(path, "/health") == 0)
        answer_text(x, 200, "alive\n");
    else if (strcmp(path, "/ready") == 0 && options->ready)
        answer_probe(x, options->ready, options->arg, "ready\n");
    else if (strcmp(path, "/live") == 0 && options->live)
        answer_probe(x, options->live, options->arg, "live\n");
    else
        answer_text(x, 404,
                    "there is nothing here but /metrics and what probes ask for, such as /health "
                    "and /ready\n");
}

static void handle(struct http_exchange *x, void *state)
{
    const struct metrics_server *server = state;
    bool is_read = strcmp(http_method(x), "GET") == 0 || strcmp(http_method(x), "HEAD") == 0;
    if (is_read)
        answer_path(x, &server->options);
    else
        answer_text(x, 405, "/metrics and what probes ask for can only be read: use GET\n");
}

int metrics_server_open(struct metrics_server **server,
                        const struct metrics_server_options *options, struct error *err)
{
    int rc = 0;
    struct metrics_server *made = NULL;
    *server = NULL;
    TRY(mem_array(&made, 1, sizeof *made, err));
    made->options = *options;
    const struct http_server_options http = {.address = options->address,
                                             .handler = handle,
                                             .state = made,
                                             .max_body_bytes = BODY_BYTES,
                                             .max_connections = CONNECTIONS,
                                             .request_timeout_s = REQUEST_S};
    TRY(http_server_open(&made->http, &http, err));
    *server = made;
    made = NULL;
out:
    free(made);
    return rc;
}

void metrics_server_close(struct metrics_server *server)
{
    if (!server) return;
    http_server_close(server->http, CLOSE_GRACE_MS);
    free(server);
}

const char *metrics_server_address(const struct metrics_server *server)
{
    return http_server_address(server->http);
}
