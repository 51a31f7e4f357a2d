/* The answer of a stored job as server-sent events: `tokens`, `echo`, `summary`, and at last `end`
 * or `error`. Each has as its id how many messages of the answer the client then has, so that it
 * can go on there (Last-Event-ID). While there is nothing to say, a comment keeps the connection.
 */
#pragma once

#include "coordinator/job/response_stream.h"
#include "http/exchange.h"

/* first: the number of the first message that will come. The caller gets a reference. An answer
 * that is finished before it has begun is a plain error. Errors: ERR_NO_MEMORY. */
int openai_events_open(struct response_stream **stream, struct http_exchange *x, uint64_t first,
                       struct error *err);
/* The job is there: the stream begins. Returns `first`. */
uint64_t openai_events_begin(struct response_stream *stream);
struct http_exchange *openai_events_exchange(struct response_stream *stream);
