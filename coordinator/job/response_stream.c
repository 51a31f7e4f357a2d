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
