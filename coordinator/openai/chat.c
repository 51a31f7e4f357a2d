/* A conversation as the model wants it to be written: its template makes one text, in which the
 * template's special tokens count as such. */
#include <time.h>

#include "coordinator/openai/guarded.h"
#include "coordinator/openai/internal.h"
#include "model/tokenizer/chat_template.h"

/* The text of the conversation and its ids; too long a text has none. */
static int write_chat(struct openai_api *api, const struct chat_template *chat,
                      const struct openai_request *request, struct openai_reading *r,
                      struct buffer *text, struct token_ids *ids)
{
    const struct admission *admission = api->options.admission;
    const size_t most_bytes = (size_t)admission->max_prompt_bytes;
    json_t *messages = NULL;
    int rc = openai_plain_messages(request->messages, chat_template_takes_parts(chat), &messages,
                                   r->err);
    if (rc) return rc == ERR_EXHAUSTED ? openai_blame(r, "messages") : rc;
    if (api->options.guards_users) {
        const struct guarded_chat guarded = {chat, admission->tok, messages, request,
                                             (int64_t)time(NULL)};
        rc = guarded_encode(&guarded, text, most_bytes, ids, r);
    } else {
        rc = chat_template_render(chat, messages, request->add_generation_prompt,
                                  request->template_values, (int64_t)time(NULL), text, r->err);
        if (!rc && text->len <= most_bytes) {
            rc = tokenizer_encode(admission->tok, (const char *)text->data, text->len,
                                  TOKENIZER_PARSE_SPECIAL, ids, r->err);
        }
    }
    json_decref(messages);
    /* More than the template's limits allow is as wrong at any other time. */
    return rc == ERR_EXHAUSTED ? openai_blame(r, "messages") : rc;
}

int openai_chat_prompt(struct openai_api *api, const struct openai_request *request,
                       struct openai_reading *r, struct token_ids *ids)
{
    const struct admission *admission = api->options.admission;
    struct chat_template *chat;
    struct buffer text = {0};
    int rc = served_chat_get(api->options.chat, &chat, r->err);
    if (rc) return rc;
    r->field = "messages";
    rc = write_chat(api, chat, request, r, &text, ids);
    if (rc == ERR_ARGUMENT && !*r->wrong->param) openai_blame(r, r->field);
    if (rc) goto out;
    if (text.len > (size_t)admission->max_prompt_bytes) {
        rc = openai_refuse(r, "make a text of %zu bytes, more than the %d allowed", text.len,
                           admission->max_prompt_bytes);
    }
out:
    chat_template_close(chat);
    buffer_free(&text);
    return rc;
}
