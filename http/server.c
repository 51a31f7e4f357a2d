/* The daemon, its socket, and requests as they come in. */
#include "http/server.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/system/network.h"
#include "http/internal.h"

enum {
    FORGOTTEN_RATIO = 8, /* of a body over the largest that is taken */
    SMALL_BODY_BYTES = 64 << 10,
    N_TLS_OPTIONS = 2,
    FREE_RATIO = 8, /* of all connections over those that no idle ones take */
    FREE_MOST = 64
};

/* ---- connections ---- */

/* How far the connection's request is. */
enum stage { AWAITED, HEADERS, COMPLETE };

/* While the door is nearly full, the connection that has been idle for the longest time is ended.
 * `but` has just come and is spared; NULL = none. With the server's lock held. */
static void cut_idle(struct http_server *server, const struct http_connection *but)
{
    struct http_connection *head = &server->connections;
    while (server->n_connections > server->n_roomy) {
        struct http_connection *oldest = NULL;
        for (struct http_connection *c = head->next; c != head; c = c->next) {
            if (c == but || c->is_cut || c->idle_since_us == INT64_MAX) continue;
            if (!oldest || c->idle_since_us < oldest->idle_since_us) oldest = c;
        }
        if (!oldest) return;
        http_cut(server, oldest);
    }
}

/* The time of a connection's first request is counted from the beginning; on one that was kept
 * open, a request may begin late, so its body has a time of its own. */
static void set_stage(struct http_server *server, struct http_connection *c, enum stage stage)
{
    monitor_enter(&server->monitor);
    c->has_headers = stage == HEADERS;
    c->idle_since_us = stage == AWAITED ? clock_now_us() : INT64_MAX;
    if (stage == COMPLETE) c->deadline_us = INT64_MAX;
    if (stage == AWAITED || (stage == HEADERS && c->has_served)) {
        c->deadline_us = clock_now_us() + (int64_t)server->options.request_timeout_s * 1000000;
    }
    monitor_leave(&server->monitor);
}

/* A connection has become idle, and a new one may be waiting for its place. */
static void make_room(struct http_server *server)
{
    monitor_enter(&server->monitor);
    cut_idle(server, NULL);
    monitor_leave(&server->monitor);
}

static void add_connection(struct http_server *server, struct MHD_Connection *connection,
                           void **context)
{
    struct error err;
    struct http_connection *c;
    if (mem_array(&c, 1, sizeof *c, &err)) return; /* its requests are refused then */
    c->connection = connection;
    c->fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    const struct sockaddr *addr =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr;
    socklen_t len =
        addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    http_show_address(addr, len, c->peer);
    http_probe_peer(c->fd);
    set_stage(server, c, AWAITED);
    monitor_enter(&server->monitor);
    c->next = &server->connections;
    c->previous = server->connections.previous;
    c->previous->next = c->next->previous = c;
    server->n_connections++;
    cut_idle(server, c);
    monitor_leave(&server->monitor);
    *context = c;
}

static void remove_connection(struct http_server *server, void **context)
{
    struct http_connection *c = *context;
    if (!c) return;
    monitor_enter(&server->monitor);
    c->previous->next = c->next;
    c->next->previous = c->previous;
    if (!c->is_cut) server->n_connections--;
    monitor_leave(&server->monitor);
    free(c);
    *context = NULL;
}

static void on_connection(void *arg, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    if (code == MHD_CONNECTION_NOTIFY_STARTED) add_connection(arg, connection, context);
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) remove_connection(arg, context);
}

/* ---- requests ---- */

/* Returns the length of the body that the request announces; 0 = none. */
static uint64_t announced_bytes(struct MHD_Connection *connection)
{
    const char *text =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    return text ? strtoull(text, NULL, 10) : 0;
}

/* libmicrohttpd 0.9.75 takes an LF alone for the end of a line between chunks, where a proxy may
 * see more of an extension or of a trailer. So nothing after such a body is read as a request. */
static bool is_chunked(struct MHD_Connection *connection)
{
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND,
                                       MHD_HTTP_HEADER_TRANSFER_ENCODING) != NULL;
}

/* Answers in OpenAI's form. Where the body has not come yet, none of it is read. */
static enum MHD_Result refuse(struct http_exchange *x, int status, const char *type,
                              const char *text)
{
    char json[512];
    int len = http_error_json(json, sizeof json, type, text);
    x->is_dispatched = true;
    http_answer(x, status, "application/json", json, (size_t)len);
    return http_exchange_proceed(x);
}

static enum MHD_Result refuse_body(struct http_exchange *x)
{
    char text[128];
    struct error err;
    if (x->refusal == HTTP_TOO_MANY) {
        http_set_header(x, MHD_HTTP_HEADER_RETRY_AFTER, "1", &err);
        return refuse(x, MHD_HTTP_TOO_MANY_REQUESTS, "rate_limit_error",
                      "Too many bodies of requests are being read; try again.");
    }
    snprintf(text, sizeof text, "The body has more than %zu bytes.", x->max_body_bytes);
    return refuse(x, MHD_HTTP_CONTENT_TOO_LARGE, "invalid_request_error", text);
}

/* The request has its answer. A client that writes while the connection is closed may not see it,
 * so the body is read and forgotten if it is announced to be small; nothing of another is read. */
static enum MHD_Result end_early(struct http_exchange *x)
{
    x->is_dispatched = true;
    bool is_small = announced_bytes(x->connection) <= SMALL_BODY_BYTES && !x->has_chunks;
    return is_small ? MHD_YES : http_exchange_proceed(x);
}

/* True if the body is too large to be read and forgotten: a body that is a little too large is, so
 * that the client sees the answer, and of a huge one nothing is read. */
static bool says_huge(const struct http_exchange *x)
{
    return announced_bytes(x->connection) / FORGOTTEN_RATIO > x->max_body_bytes;
}

static enum MHD_Result begin_request(struct http_server *server, struct http_exchange *x,
                                     const char *fault)
{
    if (fault) return refuse(x, MHD_HTTP_BAD_REQUEST, "invalid_request_error", fault);
    bool has_tls = server->options.certificates != NULL;
    if (has_tls && !http_tls_trusts(x->connection, &x->on->trust)) {
        return refuse(x, MHD_HTTP_FORBIDDEN, "permission_error",
                      "This server serves only clients that show a certificate of its "
                      "authorities.");
    }
    if (server->options.begin) server->options.begin(x, server->options.state);
    if (http_exchange_is_answered(x)) return end_early(x);
    if (!says_huge(x)) return MHD_YES;
    x->refusal = HTTP_TOO_LARGE;
    return refuse_body(x);
}

/* The context of a request until it is opened, if a blank is in its target: two programs may then
 * read different targets. libmicrohttpd's own check of that needs MHD_OPTION_STRICT_FOR_CLIENT,
 * with which it also answers requests without a Host, in its own way (early.c). */
static char blank_in_target;

static void *on_target(void *arg, const char *target, struct MHD_Connection *connection)
{
    (void)arg, (void)connection;
    return strchr(target, ' ') ? &blank_in_target : NULL;
}

static enum MHD_Result open_request(struct http_server *server, struct MHD_Connection *connection,
                                    const char *path, const char *method, const char *version,
                                    void **context)
{
    bool has_blank = *context == &blank_in_target;
    *context = NULL;
    struct error err;
    struct http_exchange *x;
    if (http_exchange_open(&x, server, connection, method, path, &err)) return MHD_NO;
    *context = x;
    if (!x->on) return MHD_NO;
    x->has_chunks = is_chunked(connection);
    set_stage(server, x->on, HEADERS);
    const char *fault = http_framing_fault(connection, method, version);
    if (!fault && has_blank) fault = "The target of the request has a blank.";
    return begin_request(server, x, fault);
}

/* The body is not being read any more. */
static void discount_body(struct http_server *server, struct http_exchange *x)
{
    server->n_body_bytes -= x->n_counted_bytes;
    x->n_counted_bytes = 0;
}

/* A part of the body. What is too much is read and forgotten, so that the client can be told. */
static enum MHD_Result add_body(struct http_server *server, struct http_exchange *x,
                                const char *data, size_t len)
{
    struct error err;
    if (x->is_dispatched || x->refusal) return MHD_YES;
    if (len > x->max_body_bytes - x->body.len) {
        x->refusal = HTTP_TOO_LARGE;
    } else if (len > server->options.max_bodies_bytes - server->n_body_bytes) {
        x->refusal = HTTP_TOO_MANY;
    } else {
        server->n_body_bytes += len;
        x->n_counted_bytes += len;
        return buffer_append(&x->body, data, len, &err) ? MHD_NO : MHD_YES;
    }
    discount_body(server, x);
    buffer_free(&x->body);
    return MHD_YES;
}

/* The request is complete. */
static enum MHD_Result dispatch(struct http_server *server, struct http_exchange *x)
{
    struct error err;
    if (x->refusal) return refuse_body(x);
    x->is_dispatched = true;
    if (x->body.len && buffer_append(&x->body, "", 1, &err)) return MHD_NO;
    server->options.handler(x, server->options.state);
    discount_body(server, x);
    return http_exchange_proceed(x);
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *data,
                                  size_t *len, void **context)
{
    struct http_server *server = arg;
    struct http_exchange *x = *context;
    if (!x || *context == &blank_in_target)
        return open_request(server, connection, path, method, version, context);
    if (*len) {
        enum MHD_Result result = add_body(server, x, data, *len);
        *len = 0;
        return result;
    }
    set_stage(server, x->on, COMPLETE);
    return x->is_dispatched ? http_exchange_proceed(x) : dispatch(server, x);
}

static void on_completed(void *arg, struct MHD_Connection *connection, void **context,
                         enum MHD_RequestTerminationCode code)
{
    struct http_exchange *x = *context;
    (void)connection, (void)code;
    if (!x || *context == &blank_in_target) return;
    if (x->on) {
        x->on->has_served = true;
        set_stage(arg, x->on, AWAITED);
        make_room(arg);
    }
    discount_body(arg, x);
    http_exchange_over(x);
    *context = NULL;
}

/* ---- the whole ---- */

static void on_log(void *arg, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));

static void on_log(void *arg, const char *format, va_list args)
{
    char text[256];
    vsnprintf(text, sizeof text, format, args);
    text[strcspn(text, "\n")] = 0;
    http_tls_note(text);
    http_early_note(arg, text);
    log_line(LOG_LEVEL_DEBUG, "http", "text=\"%s\"", text);
}

/* libmicrohttpd's time limit is for clients that read nothing of their answer; that of a request
 * is kept by watch.c, which also cuts those that trickle in. */
static int start_daemon(struct http_server *server, int fd, struct error *err)
{
    const bool has_tls = server->options.certificates != NULL;
    const unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME |
                           MHD_USE_ERROR_LOG | (has_tls ? MHD_USE_TLS : 0);
    /* Nothing weaker than gRPC's. GnuTLS by itself also speaks TLS 1.0 and 1.1. */
    static char tls_priorities[] =
        "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-KX-ALL:+ECDHE-ECDSA:+ECDHE-RSA:-CIPHER-ALL:"
        "+AES-128-GCM:+AES-256-GCM:+CHACHA20-POLY1305";
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_CERT_CALLBACK, 0, http_tls_callback()},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, tls_priorities},
        {MHD_OPTION_END, 0, NULL},
    };
    server->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, server, MHD_OPTION_EXTERNAL_LOGGER, on_log, server,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)server->options.max_connections, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)server->options.answer_timeout_s, MHD_OPTION_STRICT_FOR_CLIENT, 0,
        MHD_OPTION_URI_LOG_CALLBACK, on_target, NULL, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)HTTP_HEADERS_BYTES, MHD_OPTION_NOTIFY_COMPLETED, on_completed, server,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, server, MHD_OPTION_ARRAY,
        has_tls ? tls : tls + N_TLS_OPTIONS, MHD_OPTION_END);
    if (server->daemon) return 0;
    close(fd);
    return error_set(err, ERR_IO, "cannot start the HTTP server at %s", server->address);
}

/* libmicrohttpd accepts nothing while there are max_connections, so some are always kept free of
 * idle ones. */
static void set_limits(struct http_server *server)
{
    int *most = &server->options.max_connections;
    if (*most > network_connections_most()) *most = network_connections_most();
    int n_free = *most / FREE_RATIO < FREE_MOST ? *most / FREE_RATIO : FREE_MOST;
    server->n_roomy = *most - (n_free ? n_free : 1);
}

int http_server_open(struct http_server **out, const struct http_server_options *options,
                     struct error *err)
{
    int rc = 0, fd;
    struct http_server *server = NULL;
    *out = NULL;
    TRY(mem_array(&server, 1, sizeof *server, err));
    server->options = *options;
    set_limits(server);
    if (!options->max_bodies_bytes) server->options.max_bodies_bytes = SIZE_MAX;
    if (options->answer_timeout_s < options->request_timeout_s) {
        server->options.answer_timeout_s = options->request_timeout_s;
    }
    server->epoll_fd = server->wake_fd = -1;
    server->connections.next = server->connections.previous = &server->connections;
    monitor_open(&server->monitor);
    if (options->certificates) TRY(http_tls_open(options->certificates, err));
    TRY(http_watch_open(server, err));
    TRY(http_listen(options->address, &fd, server->address, err));
    TRY(start_daemon(server, fd, err));
    *out = server;
    server = NULL;
out:
    http_server_close(server, 0);
    return rc;
}

static void wait_idle(struct http_server *server, int grace_ms)
{
    int64_t deadline_us = clock_now_us() + (int64_t)grace_ms * 1000;
    monitor_enter(&server->monitor);
    while (server->n_exchanges && monitor_wait(&server->monitor, deadline_us)) {
    }
    monitor_leave(&server->monitor);
}

/* libmicrohttpd must not be stopped while a connection is suspended. Watched clients had the grace
 * time to be answered in. */
static void cut_watched(struct http_server *server)
{
    monitor_enter(&server->monitor);
    server->is_cutting = true;
    monitor_leave(&server->monitor);
    for (size_t fd = 0;; fd++) {
        struct http_exchange *x = NULL;
        monitor_enter(&server->monitor);
        bool is_end = fd >= server->n_watched;
        if (!is_end) x = server->watched[fd].x;
        if (x) http_exchange_ref(x);
        monitor_leave(&server->monitor);
        if (is_end) break;
        if (!x) continue;
        http_abort(x);
        http_exchange_unref(x);
    }
}

void http_server_close(struct http_server *server, int grace_ms)
{
    if (!server) return;
    if (server->daemon) {
        server->is_ending = true;
        MHD_socket fd = MHD_quiesce_daemon(server->daemon);
        wait_idle(server, grace_ms);
        cut_watched(server);
        MHD_stop_daemon(server->daemon);
        if (fd != MHD_INVALID_SOCKET) close(fd);
    }
    http_watch_close(server);
    if (server->options.certificates) http_tls_close();
    monitor_close(&server->monitor);
    free(server);
}

const char *http_server_address(const struct http_server *server)
{
    return server->address;
}
