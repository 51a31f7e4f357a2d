/* A request and its answer. References are counted: the server holds one until the answer has been
 * written or the client has left, and a handler that answers later holds one of its own. All
 * functions but those that read the request may be called from any thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text/buffer.h"

struct http_exchange;

void http_exchange_ref(struct http_exchange *x);
void http_exchange_unref(struct http_exchange *x);

/* ---- the request; valid as long as the exchange ---- */

const char *http_method(const struct http_exchange *x); /* "GET", ... */
const char *http_path(const struct http_exchange *x);   /* "/v1/models", decoded, without a query */
/* NULL = there is none. Of the network thread alone, within the handler. */
const char *http_header(const struct http_exchange *x, const char *name);
const char *http_query(const struct http_exchange *x, const char *key);
/* The body; NUL-terminated. */
const char *http_body(const struct http_exchange *x, size_t *len);
/* The body becomes the caller's, who frees it with buffer_free; once. */
void http_take_body(struct http_exchange *x, struct buffer *body);
/* The client's address, as text. */
const char *http_peer(const struct http_exchange *x);

/* ---- the request as the handler reads it; of the network thread alone, before an answer ---- */

typedef void http_release_fn(void *context);
/* The exchange takes the context over: release is called once, with the last reference, on any
 * thread. Once per exchange. */
void http_take_context(struct http_exchange *x, void *context, http_release_fn *release);
/* NULL = there is none. */
void *http_context(const struct http_exchange *x);
/* From the options' `begin`: a body of more than this is refused. */
void http_limit_body(struct http_exchange *x, size_t max_bytes);

/* ---- the answer ---- */

/* A header of the answer, before it begins. Errors: ERR_ARGUMENT it cannot be one,
 * ERR_NO_MEMORY. */
int http_set_header(struct http_exchange *x, const char *name, const char *value,
                    struct error *err);
/* As http_set_header, in place of the headers that have this name. */
int http_replace_header(struct http_exchange *x, const char *name, const char *value,
                        struct error *err);

/* The whole answer; copies data[len]. Only the first one counts. */
void http_answer(struct http_exchange *x, int status, const char *content_type, const void *data,
                 size_t len);
/* As http_answer, without a copy: the bytes become the exchange's, and the buffer is empty then. */
void http_answer_take(struct http_exchange *x, int status, const char *content_type,
                      struct buffer *data);

/* An answer whose length is not known: begin, write as often as needed, end.
 * Errors of write: ERR_CANCELLED the client has left, ERR_NO_MEMORY. */
void http_begin(struct http_exchange *x, int status, const char *content_type);
int http_write(struct http_exchange *x, const void *data, size_t len, struct error *err);
void http_end(struct http_exchange *x);
/* The answer cannot be completed: the connection is cut, so that the client sees it. */
void http_abort(struct http_exchange *x);

/* The client has left, or the connection was cut. */
bool http_is_gone(const struct http_exchange *x);
/* Bytes that were written and the connection has not taken yet, and all that it has taken. */
size_t http_waiting_bytes(const struct http_exchange *x);
uint64_t http_taken_bytes(const struct http_exchange *x);
