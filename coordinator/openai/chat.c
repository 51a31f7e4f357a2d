/* The conversation of a request, as its model's template writes it. */
#include <time.h>

#include "coordinator/job/chat_prompt.h"
#include "coordinator/openai/internal.h"

static int write_chat(const struct admission *admission, const struct chat_template *chat,
                      const struct openai_request *request, struct openai_reading *r,
                      struct token_ids *ids)
{
    struct chat_prompt prompt = {
        .chat = chat,
        .tok = admission->tok,
        .values = request->template_values,
        .adds_generation_prompt = request->add_generation_prompt,
        .guards_users = admission->guards_users,
        .most_bytes = admission->max_prompt_bytes,
        .now_s = (int64_t)time(NULL),
    };
    int rc = openai_plain_messages(request->messages, chat_template_takes_parts(chat),
                                   &prompt.messages, r->err);
    if (!rc) rc = chat_prompt_encode(&prompt, ids, r->err);
    json_decref(prompt.messages);
    return rc;
}

int openai_chat_prompt(struct openai_api *api, const struct openai_request *request,
                       struct openai_reading *r, struct token_ids *ids)
{
    const struct admission *admission = api->options.admission;
    struct chat_template *chat;
    int rc = served_chat_get(admission->chat, &chat, r->err);
    if (rc) return rc;
    r->field = "messages";
    rc = write_chat(admission, chat, request, r, ids);
    if (rc == ERR_ARGUMENT && !*r->wrong->param) openai_blame(r, r->field);
    chat_template_close(chat);
    return rc;
}
