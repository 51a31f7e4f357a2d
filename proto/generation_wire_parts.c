/* Parts of the messages of generation.proto that several messages have. */
#include "proto/generation_wire_parts.h"

#include <string.h>

#include "base/text/utf8.h"
#include "proto/codec.h"

/* Encoding refuses text that is not UTF-8 instead of replacing bytes: otherwise the server would
 * answer another question than the one that was asked. */
int text_check(const char *text, size_t len, const char *field, struct error *err)
{
    size_t valid = len ? utf8_prefix(text, len) : 0;
    if (valid < len) {
        return error_set(err, ERR_ARGUMENT, "%s is not UTF-8 text at byte %zu (0x%02x)", field,
                         valid, (unsigned)(uint8_t)text[valid]);
    }
    return 0;
}

Outrider__Generation__V1__TokenIds *token_ids_make(struct arena *scratch, const int32_t *ids, int n)
{
    Outrider__Generation__V1__TokenIds *out = arena_take(scratch, 1, sizeof *out);
    if (!out) return NULL;
    outrider__generation__v1__token_ids__init(out);
    out->n_ids = (size_t)n;
    out->ids = codec_lend(ids);
    return out;
}

/* The comparison is not negated, so that NaN fails too. */
int range_check(float value, float min, float max, bool is_min_open, const char *field,
                struct error *err)
{
    if (value >= min && value <= max && !(is_min_open && value == min)) return 0;
    return error_set(err, ERR_FORMAT, "%s is %g, must be %s %g and <= %g", field, (double)value,
                     is_min_open ? ">" : ">=", (double)min, (double)max);
}

int word_decode(const char **out, const char *text, size_t max, const char *field,
                struct error *err)
{
    int rc = codec_read_string(out, NULL, text, max, field, err);
    return rc ? rc : word_check(*out, max, field, err);
}

int token_ids_decode(const Outrider__Generation__V1__TokenIds *msg, const int32_t **ids, int *n,
                     const char *field, struct error *err)
{
    int rc = codec_read_count(n, msg->n_ids, GENERATE_PROMPT_IDS_MAX, field, err);
    if (!rc && !*n) rc = error_set(err, ERR_FORMAT, "%s is empty", field);
    if (!rc) rc = codec_check_ids(msg->ids, msg->n_ids, field, err);
    if (!rc) *ids = msg->ids;
    return rc;
}

/* ---- conversations ---- */

Outrider__Generation__V1__Conversation *conversation_make(struct arena *scratch,
                                                          const struct generate_request *req)
{
    size_t n = (size_t)req->n_messages;
    Outrider__Generation__V1__Conversation *out = arena_take(scratch, 1, sizeof *out);
    Outrider__Generation__V1__Message **list = arena_take(scratch, n, sizeof *list);
    Outrider__Generation__V1__Message *messages = arena_take(scratch, n, sizeof *messages);
    if (!out || !list || !messages) return NULL;
    outrider__generation__v1__conversation__init(out);
    for (size_t i = 0; i < n; i++) {
        const struct chat_message *from = &req->messages[i];
        outrider__generation__v1__message__init(&messages[i]);
        messages[i].role = codec_copy_string(scratch, from->role);
        messages[i].content = codec_copy_text(scratch, from->content, from->content_len);
        if (!messages[i].role || !messages[i].content) return NULL;
        list[i] = &messages[i];
    }
    out->n_messages = n;
    out->messages = list;
    return out;
}

int conversation_decode(const Outrider__Generation__V1__Conversation *msg, struct arena *arena,
                        struct generate_request *req, struct error *err)
{
    struct chat_message *messages;
    int rc =
        codec_read_count(&req->n_messages, msg->n_messages, GENERATE_MESSAGES_MAX, "messages", err);
    if (!rc && !req->n_messages) {
        rc = error_set(err, ERR_FORMAT, "the conversation has no messages");
    }
    if (rc) return rc;
    messages = codec_take(arena, msg->n_messages, sizeof *messages, err);
    if (!messages) return err->code;
    req->messages = messages;
    for (int i = 0; i < req->n_messages && !rc; i++) {
        const Outrider__Generation__V1__Message *from = msg->messages[i];
        rc = word_decode(&messages[i].role, from->role, GENERATE_WORD_BYTES_MAX, "role", err);
        if (!rc && !*messages[i].role) rc = error_set(err, ERR_FORMAT, "role is empty");
        if (!rc) {
            rc = codec_read_string(&messages[i].content, &messages[i].content_len, from->content,
                                   GENERATE_PROMPT_BYTES_MAX, "content", err);
        }
        if (rc) error_wrap(err, "message %d", i);
    }
    return rc;
}
