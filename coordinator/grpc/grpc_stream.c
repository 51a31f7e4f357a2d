/* Messages of the engine become protobuf here; ends go to the call as they are. */
#include "coordinator/grpc/grpc_stream.h"

#include <stdlib.h>

#include "base/memory.h"

enum { RETRY_AFTER_S = 1 }; /* as over HTTP */

struct grpc_stream {
    struct response_stream base;
    struct rpc_call *call;
};

static struct rpc_call *call_of(const struct response_stream *stream)
{
    return ((const struct grpc_stream *)stream)->call;
}

static int encode(struct buffer *buf, const struct answer_message *message, struct error *err)
{
    if (message->scores) return score_reply_encode(buf, message->scores, err);
    if (message->description) return service_description_encode(buf, message->description, err);
    return generate_reply_encode(buf, message->reply, err);
}

static int send_encoded(struct response_stream *stream, const uint8_t *data, size_t len,
                        struct error *err)
{
    return rpc_call_send(call_of(stream), data, len, err);
}

static int send(struct response_stream *stream, const struct answer_message *message,
                struct buffer *scratch, struct error *err)
{
    int rc = encode(scratch, message, err);
    return rc ? rc : send_encoded(stream, scratch->data, scratch->len, err);
}

/* The queue is full, or the coordinator drains or has no group: others may take the request. */
static bool is_worth_a_retry(int code)
{
    return code == ERR_UNAVAILABLE || code == ERR_EXHAUSTED;
}

static void finish(struct response_stream *stream, int code, const char *text, bool is_abort)
{
    if (is_worth_a_retry(code)) rpc_call_set_retry(call_of(stream), RETRY_AFTER_S);
    if (is_abort) {
        rpc_call_abort(call_of(stream), code, text);
    } else {
        rpc_call_finish(call_of(stream), code, text);
    }
}

static struct backpressure_progress progress(const struct response_stream *stream)
{
    struct rpc_call *call = call_of(stream);
    return (struct backpressure_progress){rpc_call_queued_bytes(call), rpc_call_read_bytes(call)};
}

static bool is_cancelled(const struct response_stream *stream)
{
    return rpc_call_is_cancelled(call_of(stream));
}

static void close_stream(struct response_stream *stream)
{
    rpc_call_unref(call_of(stream));
    free(stream);
}

static const struct response_stream_ops ops = {
    .send = send,
    .send_encoded = send_encoded,
    .finish = finish,
    .progress = progress,
    .is_cancelled = is_cancelled,
    .close = close_stream,
};

int grpc_stream_open(struct response_stream **stream, struct rpc_call *call, struct error *err)
{
    struct grpc_stream *made = NULL;
    *stream = NULL;
    int rc = mem_array(&made, 1, sizeof *made, err);
    if (rc) return rc;
    *made = (struct grpc_stream){.base = {.ops = &ops, .n_references = 1}, .call = call};
    rpc_call_ref(call);
    *stream = &made->base;
    return 0;
}
