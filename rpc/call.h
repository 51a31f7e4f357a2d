/* One call of a client, as the service that answers it sees it: an object that any thread may send
 * on. A reply leaves from the thread that calls rpc_call_send as long as the client keeps up; only
 * what the client has not read yet is queued. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text/buffer.h"

struct rpc_call; /* locked inside */

enum { RPC_CALL_QUEUE_BYTES = 64 << 20 };

/* Any thread. Copies the message. Sends are queued in order, up to RPC_CALL_QUEUE_BYTES. If no send
 * is under way, the message leaves from the calling thread. Errors: ERR_CANCELLED the client is
 * gone or the call is finished, ERR_EXHAUSTED the client does not read, ERR_ARGUMENT the message is
 * longer than MESSAGE_BYTES_MAX. */
int rpc_call_send(struct rpc_call *call, const uint8_t *data, size_t len, struct error *err);

/* Ends the call after everything that is queued. Code 0 means OK; otherwise it is an ERR_ code,
 * which is mapped to a gRPC status with text as its message. After a send was refused with
 * ERR_EXHAUSTED, the queue is dropped and the call ends at once. Later sends and finishes are
 * ignored. Any thread. */
void rpc_call_finish(struct rpc_call *call, int code, const char *text);

/* Before the end: the client is told when to try again, with trailing metadata of an end that is an
 * error: `retry-after` in seconds, as HTTP has it, and `grpc-retry-pushback-ms`, which gRPC's own
 * retries go by. Not with rpc_call_abort. Any thread. */
void rpc_call_set_retry(struct rpc_call *call, int seconds);

/* Ends the call at once; what is queued is dropped, because the client does not read it. Any
 * thread. */
void rpc_call_abort(struct rpc_call *call, int code, const char *text);

/* True once the client is gone. Any thread. */
bool rpc_call_is_cancelled(const struct rpc_call *call);

/* The client's deadline in microseconds of clock_now_us; INT64_MAX if it has none. */
int64_t rpc_call_deadline_us(const struct rpc_call *call);

/* Within a handler: a header (metadata) of the call, by its name in lower case; false: the client
 * has not sent it. *value is not terminated and is valid until the handler returns. */
bool rpc_call_header(const struct rpc_call *call, const char *name, const char **value,
                     size_t *len);

/* True if the client's certificate is for one of the names, which are separated by commas; "*" is
 * any. True where the server asks for no certificates. Within a handler. */
bool rpc_call_client_is(const struct rpc_call *call, const char *names);

/* The caller, as the server's authenticator has found; NULL: it was not asked, or there is none.
 * Lent as long as the call exists. */
void *rpc_call_caller(const struct rpc_call *call);

/* A handler that keeps the call after it returns takes a reference. */
void rpc_call_ref(struct rpc_call *call);
void rpc_call_unref(struct rpc_call *call);

/* Within on_message: the handler takes over the bytes that it was given, which it frees with
 * buffer_free; otherwise they are gone when it returns. */
void rpc_call_take_message(struct rpc_call *call, struct buffer *message);

/* The bytes that the client has not read yet, and those that it has. They move by whole messages: a
 * message counts as read when the transport has taken all of it, which happens as fast as the
 * client reads. Any thread. */
size_t rpc_call_queued_bytes(const struct rpc_call *call);
uint64_t rpc_call_read_bytes(const struct rpc_call *call);

/* One pointer per call that belongs to the service, set and read in handlers. */
void rpc_call_set_data(struct rpc_call *call, void *data);
void *rpc_call_data(const struct rpc_call *call);
