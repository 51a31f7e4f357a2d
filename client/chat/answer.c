/* The request goes out, replies come in. */
#include "client/chat/answer.h"

static int take_reply(struct server *server, const uint8_t *data, size_t len, answer_fn *take,
                      void *arg, struct generate_summary *summary, bool *is_over, struct error *err)
{
    struct generate_reply reply;
    struct arena *arena;
    int rc = 0;
    TRY(server_arena(server, len, &arena, err));
    rc = generate_reply_decode(data, len, arena, &reply, err);
    if (rc) {
        error_wrap(err, "%.160s sends what this client does not understand", server->address);
        goto out;
    }
    if (reply.tokens) rc = take(arg, reply.tokens, err);
    *is_over = reply.summary != NULL;
    if (reply.summary) *summary = *reply.summary;
out:
    return rc;
}

int answer_get(struct server *server, const struct generate_request *request, answer_fn *take,
               void *arg, struct generate_summary *summary, struct error *err)
{
    struct buffer message = {0};
    bool is_over = false;
    const uint8_t *data;
    size_t len;
    int rc = 0;
    TRY(generate_request_encode(&message, request, err));
    TRY(server_start(server, "/outrider.generation.v1.Generation/Generate", &message, err));
    while (!is_over) {
        rc = server_receive(server, &data, &len, err);
        if (rc == ERR_CLOSED) {
            rc = error_set(err, ERR_UNAVAILABLE, "%.160s ended the text without a summary",
                           server->address);
        }
        if (rc) goto out;
        TRY(take_reply(server, data, len, take, arg, summary, &is_over, err));
    }
out:
    if (rc) server_stop(server);
    buffer_free(&message);
    return rc;
}

void answer_explain(struct server *server, struct error *err)
{
    enum health_answer health;
    struct error now;
    if (err->code == ERR_UNAVAILABLE && server_health(server, "", &health, &now)) {
        error_set(err, ERR_UNAVAILABLE,
                  "the server at %.160s is gone, and the rest of the answer with it",
                  server->address);
    }
    server_explain(server, err);
}
