/* A request and its answer. */
#include "http/exchange.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/memory.h"
#include "http/internal.h"

enum { BLOCK_BYTES = 32768 };

int http_exchange_open(struct http_exchange **out, struct http_server *server,
                       struct MHD_Connection *connection, const char *method, const char *path,
                       struct error *err)
{
    int rc = 0;
    struct http_exchange *x = NULL;
    *out = NULL;
    TRY(mem_array(&x, 1, sizeof *x, err));
    x->server = server;
    x->connection = connection;
    x->on = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    x->n_references = 1;
    x->max_body_bytes = server->options.max_body_bytes;
    monitor_open(&x->monitor);
    x->method = strdup(method);
    x->path = strdup(path);
    if (!x->method || !x->path) {
        rc = error_set(err, ERR_NO_MEMORY, "no memory for a request");
        goto out;
    }
    monitor_enter(&server->monitor);
    server->n_exchanges++;
    monitor_leave(&server->monitor);
    *out = x;
    x = NULL;
out:
    if (x) {
        free(x->method);
        free(x->path);
        monitor_close(&x->monitor);
        free(x);
    }
    return rc;
}

void http_exchange_ref(struct http_exchange *x)
{
    x->n_references++;
}

static void free_headers(struct http_header_line *line)
{
    while (line) {
        struct http_header_line *next = line->next;
        free(line->name);
        free(line->value);
        free(line);
        line = next;
    }
}

void http_exchange_unref(struct http_exchange *x)
{
    if (--x->n_references > 0) return;
    if (x->release) x->release(x->context);
    free_headers(x->headers);
    free(x->method);
    free(x->path);
    free(x->content_type);
    buffer_free(&x->body);
    buffer_free(&x->out);
    monitor_close(&x->monitor);
    free(x);
}

/* ---- the request ---- */

const char *http_method(const struct http_exchange *x)
{
    return x->method;
}

const char *http_path(const struct http_exchange *x)
{
    return x->path;
}

const char *http_header(const struct http_exchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, name);
}

const char *http_query(const struct http_exchange *x, const char *key)
{
    return MHD_lookup_connection_value(x->connection, MHD_GET_ARGUMENT_KIND, key);
}

const char *http_body(const struct http_exchange *x, size_t *len)
{
    *len = x->body.len ? x->body.len - 1 : 0; /* without the end mark */
    return x->body.len ? (const char *)x->body.data : "";
}

void http_take_body(struct http_exchange *x, struct buffer *body)
{
    *body = x->body;
    if (body->len) body->len--;
    x->body = (struct buffer){0};
}

const char *http_peer(const struct http_exchange *x)
{
    return x->on->peer;
}

void http_take_context(struct http_exchange *x, void *context, http_release_fn *release)
{
    x->context = context;
    x->release = release;
}

void *http_context(const struct http_exchange *x)
{
    return x->context;
}

void http_limit_body(struct http_exchange *x, size_t max_bytes)
{
    x->max_body_bytes = max_bytes;
}

/* ---- the way to libmicrohttpd; with the lock held ---- */

static int fd_of(struct http_exchange *x)
{
    return MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
}

/* The client is watched from the first time on until the exchange is over: a stream is suspended
 * once a chunk, which should not cost two more calls of the kernel and the server's lock. Closing
 * makes those that are watched gone, so they never come here again.
 * false: the server is closing, or has no memory to watch the client; the answer is lost. */
static bool suspend(struct http_exchange *x)
{
    if (!x->is_watched) {
        x->is_watched = http_watch(x->server, x, fd_of(x));
        if (x->is_watched) http_exchange_ref(x); /* the server has one */
    }
    x->is_gone = !x->is_watched;
    if (x->is_gone) return false;
    x->is_suspended = true;
    MHD_suspend_connection(x->connection);
    return true;
}

/* Lets a suspended connection go on, as there is something to do for it. */
static void resume(struct http_exchange *x)
{
    if (!x->is_suspended) return;
    x->is_suspended = false;
    MHD_resume_connection(x->connection);
}

static size_t waiting(const struct http_exchange *x)
{
    return x->out.len - x->out_begin;
}

static size_t take(struct http_exchange *x, char *to, size_t most)
{
    size_t n = waiting(x) < most ? waiting(x) : most;
    memcpy(to, x->out.data + x->out_begin, n);
    x->out_begin += n;
    x->n_taken += n;
    if (x->out_begin == x->out.len) x->out_begin = x->out.len = 0;
    return n;
}

/* libmicrohttpd asks for more of a stream. */
static ssize_t read_stream(void *arg, uint64_t pos, char *to, size_t most)
{
    struct http_exchange *x = arg;
    ssize_t n = 0;
    (void)pos;
    monitor_enter(&x->monitor);
    if (x->is_gone) {
        n = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (waiting(x)) {
        n = (ssize_t)take(x, to, most);
    } else if (x->state == HTTP_STREAM_ENDED) {
        n = MHD_CONTENT_READER_END_OF_STREAM;
    } else if (!suspend(x)) {
        n = MHD_CONTENT_READER_END_WITH_ERROR;
    }
    monitor_leave(&x->monitor);
    return n;
}

static void stream_is_over(void *arg)
{
    http_exchange_unref(arg);
}

/* The bytes become libmicrohttpd's. */
static struct MHD_Response *make_whole(struct http_exchange *x)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer_with_free_callback(x->out.len, x->out.data, free);
    if (response) x->out = (struct buffer){0};
    return response;
}

static struct MHD_Response *make_response(struct http_exchange *x)
{
    struct MHD_Response *response;
    if (x->state == HTTP_WHOLE) {
        response = make_whole(x);
    } else {
        response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, read_stream, x,
                                                     stream_is_over);
        if (response) http_exchange_ref(x);
    }
    if (!response) return NULL;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, x->content_type);
    for (const struct http_header_line *line = x->headers; line; line = line->next) {
        MHD_add_response_header(response, line->name, line->value);
    }
    if (x->server->is_ending || x->has_chunks) {
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    }
    return response;
}

bool http_exchange_is_answered(struct http_exchange *x)
{
    monitor_enter(&x->monitor);
    bool is_answered = x->state != HTTP_UNANSWERED;
    monitor_leave(&x->monitor);
    return is_answered;
}

enum MHD_Result http_exchange_proceed(struct http_exchange *x)
{
    enum MHD_Result result = MHD_YES;
    struct MHD_Response *response = NULL;
    monitor_enter(&x->monitor);
    if (x->is_gone) {
        result = MHD_NO;
    } else if (x->state == HTTP_UNANSWERED) {
        result = suspend(x) ? MHD_YES : MHD_NO;
    } else if (!x->is_queued) {
        x->is_queued = true;
        response = make_response(x);
        result = response ? MHD_YES : MHD_NO;
    }
    int status = x->status;
    monitor_leave(&x->monitor);
    if (!response) return result;
    /* Without the lock: it may read the beginning of a stream. */
    result = MHD_queue_response(x->connection, (unsigned)status, response);
    MHD_destroy_response(response);
    return result;
}

void http_exchange_leave(struct http_exchange *x)
{
    monitor_enter(&x->monitor);
    x->is_gone = true;
    if (x->connection) resume(x);
    monitor_leave(&x->monitor);
}

void http_exchange_over(struct http_exchange *x)
{
    struct http_server *server = x->server;
    monitor_enter(&x->monitor);
    x->is_gone = true;
    if (x->is_watched) {
        http_unwatch(server, fd_of(x));
        http_exchange_unref(x); /* never the last one */
    }
    x->connection = NULL;
    monitor_leave(&x->monitor);
    http_exchange_unref(x);
    monitor_enter(&server->monitor);
    if (--server->n_exchanges == 0) monitor_wake(&server->monitor);
    monitor_leave(&server->monitor);
}

/* ---- the answer ---- */

static int make_header(struct http_header_line **out, const char *name, const char *value,
                       struct error *err)
{
    struct http_header_line *line = NULL;
    *out = NULL;
    if (strpbrk(name, "\r\n: ") || strpbrk(value, "\r\n")) {
        return error_set(err, ERR_ARGUMENT, "a header with a line break");
    }
    int rc = mem_array(&line, 1, sizeof *line, err);
    if (rc) return rc;
    line->name = strdup(name);
    line->value = strdup(value);
    if (!line->name || !line->value) {
        free_headers(line);
        return error_set(err, ERR_NO_MEMORY, "no memory for a header");
    }
    *out = line;
    return 0;
}

/* Takes those of this name out of the list; with the lock held. */
static void drop_headers(struct http_exchange *x, const char *name)
{
    for (struct http_header_line **link = &x->headers; *link;) {
        struct http_header_line *line = *link;
        if (strcasecmp(line->name, name) != 0) {
            link = &line->next;
            continue;
        }
        *link = line->next;
        line->next = NULL;
        free_headers(line);
    }
}

static int add_header(struct http_exchange *x, const char *name, const char *value, bool replaces,
                      struct error *err)
{
    struct http_header_line *line;
    int rc = make_header(&line, name, value, err);
    if (rc) return rc;
    monitor_enter(&x->monitor);
    if (replaces) drop_headers(x, name);
    line->next = x->headers;
    x->headers = line;
    monitor_leave(&x->monitor);
    return 0;
}

int http_set_header(struct http_exchange *x, const char *name, const char *value, struct error *err)
{
    return add_header(x, name, value, false, err);
}

int http_replace_header(struct http_exchange *x, const char *name, const char *value,
                        struct error *err)
{
    return add_header(x, name, value, true, err);
}

/* Begins an answer; false if there is one already, or no memory, and then the connection is cut. */
static bool begin(struct http_exchange *x, enum http_answer_state state, int status,
                  const char *content_type)
{
    if (x->state != HTTP_UNANSWERED || x->is_gone) return false;
    x->content_type = strdup(content_type);
    x->status = status;
    x->state = state;
    x->is_gone = !x->content_type;
    return true;
}

void http_answer_take(struct http_exchange *x, int status, const char *content_type,
                      struct buffer *data)
{
    monitor_enter(&x->monitor);
    if (begin(x, HTTP_WHOLE, status, content_type)) {
        x->out = *data;
        *data = (struct buffer){0};
        if (x->connection) resume(x);
    }
    monitor_leave(&x->monitor);
    buffer_free(data);
}

void http_answer(struct http_exchange *x, int status, const char *content_type, const void *data,
                 size_t len)
{
    struct error err;
    struct buffer copy = {0};
    if (buffer_append(&copy, data, len, &err)) {
        http_abort(x);
        return;
    }
    http_answer_take(x, status, content_type, &copy);
}

void http_begin(struct http_exchange *x, int status, const char *content_type)
{
    monitor_enter(&x->monitor);
    if (begin(x, HTTP_STREAM, status, content_type) && x->connection) resume(x);
    monitor_leave(&x->monitor);
}

/* Removes the bytes that were taken from the buffer when they are more than those that wait. */
static void compact(struct http_exchange *x)
{
    if (x->out_begin <= waiting(x)) return;
    memmove(x->out.data, x->out.data + x->out_begin, waiting(x));
    x->out.len -= x->out_begin;
    x->out_begin = 0;
}

int http_write(struct http_exchange *x, const void *data, size_t len, struct error *err)
{
    int rc = 0;
    monitor_enter(&x->monitor);
    if (x->is_gone) {
        rc = error_set(err, ERR_CANCELLED, "the client is gone");
    } else {
        compact(x);
        rc = buffer_append(&x->out, data, len, err);
        if (!rc) resume(x);
    }
    monitor_leave(&x->monitor);
    return rc;
}

void http_end(struct http_exchange *x)
{
    monitor_enter(&x->monitor);
    if (x->state == HTTP_STREAM) x->state = HTTP_STREAM_ENDED;
    if (x->connection) resume(x);
    monitor_leave(&x->monitor);
}

void http_abort(struct http_exchange *x)
{
    monitor_enter(&x->monitor);
    x->is_gone = true;
    if (x->connection) {
        shutdown(fd_of(x), SHUT_RDWR); /* also where the client does not read */
        resume(x);
    }
    monitor_leave(&x->monitor);
}

bool http_is_gone(const struct http_exchange *x)
{
    struct http_exchange *own = (struct http_exchange *)(uintptr_t)x;
    monitor_enter(&own->monitor);
    bool is_gone = x->is_gone;
    monitor_leave(&own->monitor);
    return is_gone;
}

size_t http_waiting_bytes(const struct http_exchange *x)
{
    struct http_exchange *own = (struct http_exchange *)(uintptr_t)x;
    monitor_enter(&own->monitor);
    size_t n = waiting(x);
    monitor_leave(&own->monitor);
    return n;
}

uint64_t http_taken_bytes(const struct http_exchange *x)
{
    struct http_exchange *own = (struct http_exchange *)(uintptr_t)x;
    monitor_enter(&own->monitor);
    uint64_t n = x->n_taken;
    monitor_leave(&own->monitor);
    return n;
}
