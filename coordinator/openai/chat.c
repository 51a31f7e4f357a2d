/* A conversation as the model wants it to be written: its template makes one text, in which the
 * template's special tokens count as such. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "coordinator/openai/internal.h"
#include "model/tokenizer/chat_template.h"

/* Content in parts, [{"type": "text", "text": ...}, ...], as one text, which is what templates of
 * text models expect. */
static int join_parts(struct openai_reading *r, const json_t *parts, json_t **joined)
{
    struct buffer text = {0};
    size_t i;
    json_t *part;
    int rc = 0;
    json_array_foreach((json_t *)(uintptr_t)parts, i, part)
    {
        const char *type = json_string_value(json_object_get(part, "type"));
        const json_t *own = json_object_get(part, "text");
        if (!type || strcmp(type, "text") || !json_is_string(own)) {
            rc = openai_refuse(r, "has a part of type \"%.40s\"; this model reads text alone",
                               type ? type : "");
            goto out;
        }
        if (i) TRY(buffer_append(&text, "\n", 1, r->err));
        TRY(buffer_append(&text, json_string_value(own), json_string_length(own), r->err));
    }
    *joined = json_stringn(text.data ? (const char *)text.data : "", text.len);
    if (!*joined) rc = error_set(r->err, ERR_NO_MEMORY, "no memory for a message");
out:
    buffer_free(&text);
    return rc;
}

/* The messages with each content as one text; the caller calls json_decref. */
static int plain_messages(struct openai_reading *r, const json_t *messages, json_t **plain)
{
    int rc = 0;
    size_t i;
    json_t *message, *list = json_array();
    char field[OPENAI_PARAM_BYTES];
    json_array_foreach((json_t *)(uintptr_t)messages, i, message)
    {
        json_t *copy = json_copy(message), *joined;
        const json_t *content = json_object_get(message, "content");
        if (!copy || json_array_append_new(list, copy)) {
            rc = error_set(r->err, ERR_NO_MEMORY, "no memory for a conversation");
            goto out;
        }
        snprintf(field, sizeof field, "messages[%zu].content", i);
        r->field = field;
        if (!json_is_array(content)) continue;
        TRY(join_parts(r, content, &joined));
        json_object_set_new(copy, "content", joined);
    }
    *plain = list;
    list = NULL;
out:
    r->field = "messages";
    json_decref(list);
    return rc;
}

static int render(struct openai_api *api, const struct openai_request *request,
                  struct openai_reading *r, struct buffer *text)
{
    const struct chat_template *chat = api->options.chat;
    json_t *messages = json_incref(request->messages);
    int rc = 0;
    if (!chat_template_takes_parts(chat)) {
        json_decref(messages);
        rc = plain_messages(r, request->messages, &messages);
    }
    if (!rc) {
        rc = chat_template_render(chat, messages, request->add_generation_prompt,
                                  request->template_values, (int64_t)time(NULL), text, r->err);
        json_decref(messages);
    }
    /* More than the template's limits allow is as wrong at any other time. */
    return rc == ERR_EXHAUSTED ? openai_blame(r, "messages") : rc;
}

int openai_chat_prompt(struct openai_api *api, const struct openai_request *request,
                       struct openai_reading *r, struct token_ids *ids)
{
    const struct admission *admission = api->options.admission;
    struct buffer text = {0};
    int rc = 0;
    if (!api->options.chat) {
        return error_set(r->err, ERR_UNSUPPORTED,
                         "this model has no chat template; use /v1/completions, or start the "
                         "coordinator with --chat-template FILE");
    }
    r->field = "messages";
    rc = render(api, request, r, &text);
    if (rc == ERR_ARGUMENT && !*r->wrong->param) openai_blame(r, r->field);
    if (rc) goto out;
    if (text.len > (size_t)admission->max_prompt_bytes) {
        rc = openai_refuse(r, "make a text of %zu bytes, more than the %d allowed", text.len,
                           admission->max_prompt_bytes);
        goto out;
    }
    TRY(tokenizer_encode(admission->tok, (const char *)text.data, text.len, TOKENIZER_PARSE_SPECIAL,
                         ids, r->err));
out:
    buffer_free(&text);
    return rc;
}
