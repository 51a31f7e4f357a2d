/* The sending side of struct reply. */
#include "coordinator/job/sent_reply.h"

#include <stdlib.h>

struct sent_reply {
    struct reply base;
    struct response_stream *stream;
    struct sender *sender;
};

static struct sent_reply *sent(struct reply *reply)
{
    return (struct sent_reply *)reply;
}

static int send(struct reply *reply, const struct answer_message *message, struct error *err)
{
    return sender_send(sent(reply)->sender, sent(reply)->stream, message, err);
}

static int send_reply(struct reply *reply, const struct generate_reply *part, struct error *err)
{
    return send(reply, &(struct answer_message){.reply = part}, err);
}

static int send_tokens(struct reply *reply, const struct generate_tokens *tokens, struct error *err)
{
    return send_reply(reply, &(struct generate_reply){.tokens = tokens}, err);
}

static int send_summary(struct reply *reply, const struct generate_summary *summary,
                        struct error *err)
{
    return send_reply(reply, &(struct generate_reply){.summary = summary}, err);
}

static int send_echo(struct reply *reply, const struct score_reply *scores, struct error *err)
{
    return send_reply(reply, &(struct generate_reply){.echo = scores}, err);
}

static int send_scores(struct reply *reply, const struct score_reply *scores, struct error *err)
{
    return send(reply, &(struct answer_message){.scores = scores}, err);
}

static int send_description(struct reply *reply, const struct service_description *description,
                            struct error *err)
{
    return send(reply, &(struct answer_message){.description = description}, err);
}

static void end_well(struct reply *reply)
{
    sender_finish(sent(reply)->sender, sent(reply)->stream, 0, "", false);
}

/* Drops what a slow client has not read, once the engine has given it up. */
static void end_with_error(struct reply *reply, int code, const char *text)
{
    bool is_abort = reply->end == JOB_END_SLOW_READER;
    sender_finish(sent(reply)->sender, sent(reply)->stream, code, text, is_abort);
}

static struct backpressure_progress progress(const struct reply *reply)
{
    const struct response_stream *stream = ((const struct sent_reply *)reply)->stream;
    return stream->ops->progress(stream);
}

static bool is_cancelled(const struct reply *reply)
{
    const struct response_stream *stream = ((const struct sent_reply *)reply)->stream;
    return stream->ops->is_cancelled(stream);
}

static const struct error *failure(const struct reply *reply)
{
    return response_stream_failure(((const struct sent_reply *)reply)->stream);
}

static void close_reply(struct reply *reply)
{
    response_stream_unref(sent(reply)->stream);
    free(reply);
}

static const struct reply_ops ops = {
    .tokens = send_tokens,
    .summary = send_summary,
    .echo = send_echo,
    .scores = send_scores,
    .description = send_description,
    .done = end_well,
    .fail = end_with_error,
    .progress = progress,
    .is_cancelled = is_cancelled,
    .failure = failure,
    .close = close_reply,
};

int sent_reply_open(struct reply **reply, struct response_stream *stream, struct sender *sender,
                    struct error *err)
{
    struct sent_reply *made = NULL;
    *reply = NULL;
    int rc = mem_array(&made, 1, sizeof *made, err);
    if (rc) return rc;
    *made = (struct sent_reply){{.ops = &ops}, stream, sender};
    response_stream_ref(stream);
    *reply = &made->base;
    return 0;
}
