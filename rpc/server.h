/* gRPC server over the C core, wrapped once: methods are a table, a call is an object that any thread
 * may send on. One network thread per server runs the handlers; they must not block. Another thread
 * may run them in its place while it waits for what they bring (rpc_server_wait); never both at a time.
 * grpc.health.v1.Health (Check and Watch) is built in. Unknown methods get UNIMPLEMENTED. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/limits.h"

struct rpc_server;
struct rpc_call; /* locked inside */

enum { RPC_CALL_QUEUE_BYTES = 64 << 20 };

/* Handlers run on the network thread, or on that which waits. data is lent for the call. */
struct rpc_method {
    const char *path;  /* "/outrider.target.v1.Target/Run" */
    bool is_stream_in; /* more than one message may come */
    /* The call has begun; may be NULL. */
    void (*on_open)(struct rpc_call *call, void *service);
    /* A message came. For !is_stream_in exactly one. */
    void (*on_message)(struct rpc_call *call, void *service, const uint8_t *data, size_t len);
    /* The client has sent its last message (streams in only); may be NULL. */
    void (*on_half_close)(struct rpc_call *call, void *service);
    /* The call is over, finished or cancelled: let go of what hangs on it. Comes once, and after it
     * no other handler does. May be NULL. */
    void (*on_done)(struct rpc_call *call, void *service);
};

struct rpc_server_options {
    const char *address; /* "127.0.0.1:7070" (port 0: any), "unix:/path" */
    const struct rpc_method *methods;
    int n_methods;
    void *service; /* passed to the handlers */
};

/* keeps methods and service. The server answers at once; health is NOT_SERVING until set.
 * Errors: ERR_IO the address cannot be bound (it is named), ERR_ARGUMENT. */
int rpc_server_open(struct rpc_server **server, const struct rpc_server_options *options,
                    struct error *err);

/* Stops accepting, waits up to grace_ms for running calls, cancels the rest, ends the thread. */
void rpc_server_close(struct rpc_server *server, int grace_ms);

/* The calling thread runs the handlers until has_work, which is asked after every event and 20 times a
 * second, says that they have brought something; then it may act on it with no wake-up in between. While it
 * does, the network thread takes over after some milliseconds. One thread only; not while the server
 * closes. rpc_server_expect: it will wait again soon, with the reply that it is about to send the network thread's
 * turn ends. */
void rpc_server_wait(struct rpc_server *server, bool (*has_work)(void *arg), void *arg);
void rpc_server_expect(struct rpc_server *server);

/* The bound address with the true port; lives as long as the server. */
const char *rpc_server_address(const struct rpc_server *server);

/* The health of a service name ("" = the process); Watch streams are told. Any thread. Up to 8 names. */
void rpc_server_set_health(struct rpc_server *server, const char *service, bool is_serving);

/* Any thread. A message is copied. Sends are queued behind each other, at most RPC_CALL_QUEUE_BYTES of them. When nothing is under way the message leaves from the calling thread. Errors: ERR_CANCELLED
 * the client is gone or the call is finished, ERR_EXHAUSTED the client does not read, ERR_ARGUMENT
 * longer than MESSAGE_BYTES_MAX. */
int rpc_call_send(struct rpc_call *call, const uint8_t *data, size_t len, struct error *err);

/* Ends the call after what is queued: code 0 = OK, otherwise an ERR_ code, mapped to its gRPC status
 * with text as message. After a send was refused with ERR_EXHAUSTED what is queued is dropped and the
 * call ends at once. Later sends and finishes are ignored. Any thread. */
void rpc_call_finish(struct rpc_call *call, int code, const char *text);

/* True once the client is gone. Any thread. */
bool rpc_call_is_cancelled(const struct rpc_call *call);

/* The health of the call's server under that name, as set last; false if never. Any thread. */
bool rpc_call_is_server_healthy(const struct rpc_call *call, const char *service);

/* Microseconds (clock_now_us) at which the client's patience ends; INT64_MAX = none. */
int64_t rpc_call_deadline_us(const struct rpc_call *call);

/* A handler that keeps the call beyond its return takes a reference. */
void rpc_call_ref(struct rpc_call *call);
void rpc_call_unref(struct rpc_call *call);

/* One pointer of the service's own per call, set and read in handlers. */
void rpc_call_set_data(struct rpc_call *call, void *data);
void *rpc_call_data(const struct rpc_call *call);
