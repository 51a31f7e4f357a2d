/* gRPC client over the C core. Owned by one thread, which itself waits inside these calls, so a
 * reply needs no hop between threads. Every call has a deadline (clock_now_us). INT64_MAX means
 * none, for streams that last as long as the group; keepalive detects dead peers then. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/text/buffer.h"

struct certificates; /* access/certificates.h */
struct rpc_client;   /* owned by one thread */
struct rpc_stream;   /* owned by the same */

struct rpc_client_options {
    struct certificates *certificates; /* TLS with them, but for unix sockets; NULL = plain */
    const char *server_name;           /* that certificates must have in place of the address's */
    const char *api_key; /* sent with every call; visible ASCII; NULL = none; copied */
    const char *header_name, *header_value; /* likewise; the name is in lower case and kept */
    bool is_patient; /* another host may be silent for 30 s, and not only for 4 s */
};

/* keeps certificates and server_name; options NULL = all zeros. */
int rpc_client_open(struct rpc_client **client, const struct rpc_client_options *options,
                    struct error *err);
/* True if a key or a certificate tells servers who calls. */
bool rpc_client_is_known(const struct rpc_client *client);
/* All streams must be closed before. Accepts NULL. */
void rpc_client_close(struct rpc_client *client);

struct rpc_request {
    const char *address, *path; /* "127.0.0.1:7071", "/outrider.target.v1.Target/Describe" */
    const uint8_t *data;        /* [len] the message */
    size_t len;
    bool wait_for_ready; /* waits until there is a connection, instead of failing without one */
    int64_t deadline_us; /* for connection and reply */
};

/* One request, one reply; the reply's content is replaced. A call that is sent on a dying
 * connection fails with ERR_UNAVAILABLE even with wait_for_ready: the server may or may not have
 * seen it, so the caller decides whether to try again.
 * Errors: the server's status as an ERR_ code with its message; ERR_UNAVAILABLE no connection (the
 * address is named), ERR_TIMEOUT. */
int rpc_client_call(struct rpc_client *client, const struct rpc_request *request,
                    struct buffer *reply, struct error *err);

/* Opens a stream (bidirectional, or server streaming: send one message, then half close). Returns
 * when it is started, not when it is connected; a failure to connect shows at the first receive.
 * Errors: ERR_UNAVAILABLE gRPC cannot use the address; ERR_NO_MEMORY, ERR_INTERNAL. */
int rpc_stream_open(struct rpc_stream **stream, struct rpc_client *client, const char *address,
                    const char *path, bool wait_for_ready, int64_t deadline_us, struct error *err);
/* Cancels the stream if it is still running. Accepts NULL. */
void rpc_stream_close(struct rpc_stream *stream);

/* Starts sending and returns; the message is copied. A second send waits until the first one has
 * gone out (at most until deadline_us).
 * Errors: ERR_UNAVAILABLE and others: the stream's status. */
int rpc_stream_send(struct rpc_stream *stream, const uint8_t *data, size_t len, int64_t deadline_us,
                    struct error *err);
/* As rpc_stream_send, for a message that the peer answers with exactly one message, which the
 * caller receives next. Sending and receiving are one batch, so the caller is woken once instead of
 * twice, which saves about 5 us. A second send waits for that answer. */
int rpc_stream_ask(struct rpc_stream *stream, const uint8_t *data, size_t len, int64_t deadline_us,
                   struct error *err);
int rpc_stream_half_close(struct rpc_stream *stream, struct error *err);

/* The next message, lent until the next receive on this stream. While it waits, the client's other
 * streams make progress too.
 * Errors: ERR_TIMEOUT, ERR_CLOSED the server ended the stream with OK, otherwise the server's
 * status as an ERR_ code with its message. */
int rpc_stream_receive(struct rpc_stream *stream, const uint8_t **data, size_t *len,
                       int64_t deadline_us, struct error *err);

/* True when the next receive has a message at once, as far as polls and receives have seen. */
bool rpc_stream_has_message(const struct rpc_stream *stream);

/* As rpc_stream_receive, but does not wait: *is_here is false when the message is still to come. To
 * wait for several streams, try all of them, and when none has a message call rpc_client_wait. */
int rpc_stream_try_receive(struct rpc_stream *stream, const uint8_t **data, size_t *len,
                           bool *is_here, struct error *err);
/* Handles the next event of any stream or connection; false when deadline_us passes first. */
bool rpc_client_wait(struct rpc_client *client, int64_t deadline_us);

/* Cancels the stream from any thread, as long as it is not closed; a waiting receive fails with
 * ERR_CANCELLED. */
void rpc_stream_cancel(struct rpc_stream *stream);

/* Handles what has arrived without waiting, so that keepalives are answered and dead connections
 * are noticed. For times when nothing else is called. */
void rpc_client_poll(struct rpc_client *client);

/* An address that could not be connected is tried again with the next call at once, and not after a
 * pause that grows. For those who make pauses of their own. */
void rpc_client_hasten(struct rpc_client *client, const char *address);

/* True when the stream has ended, as far as polls and receives have seen. */
bool rpc_stream_is_over(const struct rpc_stream *stream);

/* Messages and bytes that went over the stream so far, without gRPC's own framing. */
struct rpc_counters {
    uint64_t messages_sent, messages_received;
    uint64_t bytes_sent, bytes_received;
};
struct rpc_counters rpc_stream_counters(const struct rpc_stream *stream);
