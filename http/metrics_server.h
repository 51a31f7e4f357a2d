/* /metrics for Prometheus: a page that is written anew for every request, and a server that has
 * this page and what probes ask for, on connections that no client of the service can take. */
#pragma once

#include "base/text/buffer.h"
#include "http/exchange.h"

/* Appends the page's text (version 0.0.4). Called on the server's network thread, so it must not
 * wait. Errors: become the answer. */
typedef int metrics_page_fn(void *arg, struct buffer *out, struct error *err);

/* The answer to a probe. Called on the server's network thread, so it must not wait. Errors: why it
 * is no. */
typedef int metrics_probe_fn(void *arg, struct error *err);

/* Answers a request for the page; for any server's handler. */
void metrics_server_answer(struct http_exchange *x, metrics_page_fn *write, void *arg);

struct metrics_server_options {
    const char *address;     /* HOST:PORT */
    metrics_page_fn *write;  /* /metrics */
    metrics_probe_fn *ready; /* /ready: would a request sent now be served? NULL = not there */
    metrics_probe_fn *live;  /* /live: does the process make progress? NULL = not there */
    void *arg;               /* kept; of all */
};

struct metrics_server;

/* Errors: those of http_server_open. */
int metrics_server_open(struct metrics_server **server,
                        const struct metrics_server_options *options, struct error *err);
void metrics_server_close(struct metrics_server *server);

/* With the port that was taken. */
const char *metrics_server_address(const struct metrics_server *server);
