#include "coordinator/job/response_stream.h"

static struct response_stream *holder_of(struct response_stream *stream)
{
    return stream->holder ? stream->holder : stream;
}

void response_stream_ref(struct response_stream *stream)
{
    holder_of(stream)->n_references++;
}

void response_stream_unref(struct response_stream *stream)
{
    struct response_stream *holder = holder_of(stream);
    if (--holder->n_references == 0) holder->ops->close(holder);
}

void response_stream_fail(struct response_stream *stream, const struct error *why)
{
    if (atomic_exchange(&stream->is_failing, true)) return;
    stream->failure = *why;
    atomic_store(&stream->has_failed, true);
}

const struct error *response_stream_failure(const struct response_stream *stream)
{
    return atomic_load(&stream->has_failed) ? &stream->failure : NULL;
}
