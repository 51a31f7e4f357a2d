/* Parse, read, check, and write the conversation. */
#include "coordinator/openai/prepare.h"

#include "base/log.h"

static int read_request(struct openai_prepared *p, struct openai_api *api, struct intake_task *task,
                        enum openai_kind kind)
{
    const char *name = openai_answer_name(openai_answer_of(task->stream));
    const struct openai_limits limits = {
        .model = p->model.name, .n_stop = api->options.n_stop, .n = api->options.n};
    int rc = 0;
    p->reading.wrong->prompt = kind == OPENAI_CHAT ? "messages" : "prompt";
    TRY(openai_request_read(&p->request, kind, &limits, &p->reading));
    if (*p->request.ignored) {
        log_line(LOG_LEVEL_DEBUG, "fields_ignored", "request=%s fields=%s", name,
                 p->request.ignored);
    }
    p->request.generate.request_id = name;
    TRY(openai_request_check(&p->request, &p->reading));
    p->n_prompts = p->request.n_prompts;
    if (kind == OPENAI_COMPLETION) goto out;
    TRY(openai_chat_prompt(api, &p->request, &p->reading, &p->chat_ids));
    p->chat = (struct openai_prompt){.ids = p->chat_ids.data, .n_ids = (int)p->chat_ids.n};
    p->n_prompts = 1;
out:
    return rc;
}

static int begin(struct openai_prepared *p, struct openai_api *api, struct intake_task *task,
                 struct error *err)
{
    struct openai_answer *answer = openai_answer_of(task->stream);
    *p = (struct openai_prepared){0};
    served_model_get(api->options.model, &p->model);
    if (!p->model.is_serving) return error_set(err, ERR_UNAVAILABLE, "%s", p->model.why);
    int rc = openai_body_parse(&p->body, (const char *)task->message.data, task->message.len,
                               task->admission->budget, err);
    p->reading = (struct openai_reading){.root = p->body.root,
                                         .arena = &task->arena,
                                         .wrong = openai_answer_error(answer),
                                         .err = err};
    return rc;
}

int openai_prepare(struct openai_prepared *p, struct openai_api *api, struct intake_task *task,
                   enum openai_kind kind, struct error *err)
{
    int rc = begin(p, api, task, err);
    return rc ? rc : read_request(p, api, task, kind);
}

int openai_prepare_any(struct openai_prepared *p, struct openai_api *api, struct intake_task *task,
                       struct error *err)
{
    int rc = begin(p, api, task, err);
    bool is_chat = !rc && json_object_get(p->body.root, "messages");
    return rc ? rc : read_request(p, api, task, is_chat ? OPENAI_CHAT : OPENAI_COMPLETION);
}

void openai_prepared_free(struct openai_prepared *p)
{
    token_ids_free(&p->chat_ids);
    openai_body_free(&p->body);
}

const struct openai_prompt *openai_prepared_prompt(const struct openai_prepared *p, int i)
{
    return p->request.kind == OPENAI_CHAT ? &p->chat : &p->request.prompts[i];
}

struct generate_request openai_prepared_generate(const struct openai_prepared *p, int i)
{
    const struct openai_prompt *prompt = openai_prepared_prompt(p, i);
    struct generate_request request = p->request.generate;
    request.prompt = prompt->text;
    request.prompt_len = prompt->len;
    request.prompt_ids = prompt->ids;
    request.n_prompt_ids = prompt->n_ids;
    return request;
}
