/* Writes the text of a conversation and turns it into ids. */
#include "coordinator/job/chat_prompt.h"

static int encode(const struct chat_prompt *p, struct buffer *text, struct token_ids *ids,
                  struct error *err)
{
    if (p->guards_users) return guarded_encode(p, text, ids, err);
    int rc = chat_template_render(p->chat, p->messages, p->adds_generation_prompt, p->values,
                                  p->now_s, text, err);
    if (rc || text->len > (size_t)p->most_bytes) return rc;
    return tokenizer_encode(p->tok, (const char *)text->data, text->len, TOKENIZER_PARSE_SPECIAL,
                            ids, err);
}

int chat_prompt_encode(const struct chat_prompt *p, struct token_ids *ids, struct error *err)
{
    struct buffer text = {0};
    int rc = encode(p, &text, ids, err);
    if (!rc && text.len > (size_t)p->most_bytes) {
        rc = error_set(err, ERR_ARGUMENT,
                       "messages make a text of %zu bytes, more than the %d allowed", text.len,
                       p->most_bytes);
    }
    /* More than the template's limits allow is as wrong at any other time. */
    if (rc == ERR_EXHAUSTED) rc = err->code = ERR_ARGUMENT;
    buffer_free(&text);
    return rc;
}
