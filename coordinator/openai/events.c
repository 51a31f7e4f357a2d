/* One message is one event. */
#include "coordinator/openai/events.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/text/json_text.h"
#include "coordinator/openai/request/error.h"
#include "coordinator/openai/shape.h"

/* Used by the thread that begins it and then by that of those who watch alone, but for references
 * and what progress asks. */
struct events {
    struct response_stream base;
    struct http_exchange *x;
    uint64_t n_sent; /* messages that the client has */
    bool has_begun;
};

static struct events *events_of(const struct response_stream *stream)
{
    return (struct events *)(uintptr_t)stream; /* to count */
}

/* Takes the value over. */
static int send_event(struct events *e, const char *name, json_t *value, struct error *err)
{
    struct buffer out = {0};
    int rc = 0;
    TRY(json_text_format(&out, err, "id: %" PRIu64 "\nevent: %s\ndata: ", e->n_sent, name));
    TRY(json_text_value(&out, value, err));
    TRY(json_text_format(&out, err, "\n\n"));
    TRY(http_write(e->x, out.data, out.len, err));
out:
    buffer_free(&out);
    json_decref(value);
    return rc;
}

static json_t *tokens_of(const struct generate_tokens *tokens)
{
    json_t *made = openai_shape_round(tokens);
    json_object_set_new(made, "text", json_stringn(tokens->text, tokens->text_len));
    return made;
}

static json_t *echo_of(const struct score_reply *scores)
{
    json_t *list = json_array();
    for (int i = 0; i < scores->n; i++) {
        const struct score_token *one = &scores->tokens[i];
        json_t *logprob = one->has_logprob ? json_real((double)one->logprob) : json_null();
        json_array_append_new(list, json_pack("{s:i, s:s, s:o}", "id", (int)one->id, "text",
                                              one->text, "logprob", logprob));
    }
    return json_pack("{s:o}", "tokens", list);
}

static json_t *summary_of(const struct generate_summary *s)
{
    json_t *made = openai_shape_summary(s);
    json_object_set_new(made, "finish_reason", json_string(s->finish_reason));
    json_object_set_new(made, "prompt_tokens", json_integer(s->prompt_tokens));
    json_object_set_new(made, "completion_tokens", json_integer(s->completion_tokens));
    return made;
}

static int send_reply(struct events *e, const struct generate_reply *reply, struct error *err)
{
    if (reply->tokens) return send_event(e, "tokens", tokens_of(reply->tokens), err);
    if (reply->echo) return send_event(e, "echo", echo_of(reply->echo), err);
    return send_event(e, "summary", summary_of(reply->summary), err);
}

static int send(struct response_stream *stream, const struct answer_message *message,
                struct buffer *scratch, struct error *err)
{
    struct events *e = events_of(stream);
    (void)scratch;
    e->n_sent++;
    return send_reply(e, message->reply, err);
}

static void finish(struct response_stream *stream, int code, const char *text, bool is_abort)
{
    struct events *e = events_of(stream);
    struct error err;
    if (!e->has_begun) {
        openai_error_answer(e->x, code, text, NULL);
        return;
    }
    int rc = code ? send_event(e, "error", openai_error_body(code, text, NULL), &err)
                  : send_event(e, "end", json_object(), &err);
    if (rc || is_abort) http_abort(e->x);
    http_end(e->x);
}

static void send_comment(struct response_stream *stream)
{
    static const char comment[] = ": ping\n\n";
    struct error err;
    http_write(events_of(stream)->x, comment, sizeof comment - 1, &err);
}

static struct backpressure_progress progress(const struct response_stream *stream)
{
    const struct http_exchange *x = events_of(stream)->x;
    return (struct backpressure_progress){http_waiting_bytes(x), http_taken_bytes(x)};
}

static bool is_cancelled(const struct response_stream *stream)
{
    return http_is_gone(events_of(stream)->x);
}

static void close_events(struct response_stream *stream)
{
    http_exchange_unref(events_of(stream)->x);
    free(stream);
}

static const struct response_stream_ops ops = {
    .send = send,
    .finish = finish,
    .progress = progress,
    .is_cancelled = is_cancelled,
    .close = close_events,
    .idle = send_comment,
};

int openai_events_open(struct response_stream **stream, struct http_exchange *x, uint64_t first,
                       struct error *err)
{
    struct events *e;
    *stream = NULL;
    int rc = mem_array(&e, 1, sizeof *e, err);
    if (rc) return rc;
    *e = (struct events){.base = {.ops = &ops, .n_references = 1}, .x = x, .n_sent = first};
    http_exchange_ref(x);
    *stream = &e->base;
    return 0;
}

uint64_t openai_events_begin(struct response_stream *stream)
{
    struct events *e = events_of(stream);
    struct error err;
    e->has_begun = true;
    http_set_header(e->x, "Cache-Control", "no-cache", &err);
    http_set_header(e->x, "X-Accel-Buffering", "no", &err);
    http_begin(e->x, 200, "text/event-stream; charset=utf-8");
    return e->n_sent;
}

struct http_exchange *openai_events_exchange(struct response_stream *stream)
{
    return events_of(stream)->x;
}
