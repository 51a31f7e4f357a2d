/* Where an answer leaves the coordinator: a gRPC call (coordinator/grpc/grpc_stream.h) or an HTTP
 * exchange (coordinator/openai/). It takes the messages of the engine, in order, and does not wait
 * for its client. References are counted; any thread. The engine thread calls progress,
 * is_cancelled and takes_long, which therefore wait for no thread that formats. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "coordinator/job/answer_message.h"
#include "coordinator/job/backpressure.h"

struct response_stream;

struct response_stream_ops {
    /* Keeps nothing of the message. scratch: the caller's, for a stream that has to encode.
     * Errors: ERR_CANCELLED the client is gone or the answer is finished, ERR_EXHAUSTED the client
     * does not read, ERR_ARGUMENT the message is too large, ERR_NO_MEMORY. */
    int (*send)(struct response_stream *stream, const struct answer_message *message,
                struct buffer *scratch, struct error *err);
    /* Sends a message of Generate that is encoded already, as the store of jobs has it. Errors as
     * of send. NULL: the stream takes structs only. */
    int (*send_encoded)(struct response_stream *stream, const uint8_t *data, size_t len,
                        struct error *err);
    /* Ends the answer after everything that was sent: well with code 0, otherwise with an ERR_ code
     * and a text for the client. is_abort: at once, what waits is dropped. Only the first end
     * counts. */
    void (*finish)(struct response_stream *stream, int code, const char *text, bool is_abort);
    struct backpressure_progress (*progress)(const struct response_stream *stream);
    bool (*is_cancelled)(const struct response_stream *stream); /* the client is gone */
    /* Frees the stream, after the last reference. */
    void (*close)(struct response_stream *stream);
    /* Returns true if a message of n_bytes (answer_message_copy), or the end, is so much to format
     * that others should not wait for it. NULL: never. */
    bool (*takes_long)(const struct response_stream *stream, size_t n_bytes, bool is_end);
    /* Nothing was sent for a while: something that clients ignore may leave, so that what lies
     * between us does not take the connection for dead. NULL: there is no such thing. */
    void (*idle)(struct response_stream *stream);
};

/* A new one has n_references = 1, which is its maker's. */
struct response_stream {
    const struct response_stream_ops *ops;
    struct response_stream *holder; /* where its references are counted; NULL = here */
    atomic_int n_references;
    /* A message could not be sent, so the answer has ended: noted by the sender's threads, and read
     * by the engine's, which ends the job then. */
    atomic_bool is_failing, has_failed;
    struct error failure; /* once has_failed */
    bool has_large;       /* the sender's: what follows leaves after something that takes long */
};

void response_stream_ref(struct response_stream *stream);
void response_stream_unref(struct response_stream *stream);

/* Keeps why a message could not be sent; only the first reason counts. */
void response_stream_fail(struct response_stream *stream, const struct error *why);
/* Returns that reason, or NULL. */
const struct error *response_stream_failure(const struct response_stream *stream);
