/* The first half of the work on a request that makes texts: its body becomes a request of ours. */
#pragma once

#include "coordinator/openai/body.h"
#include "coordinator/openai/internal.h"

struct openai_prepared {
    struct openai_body body;
    struct openai_reading reading;
    struct openai_request request;
    struct served_model_info model;
    struct token_ids chat_ids; /* the prompt of a conversation */
    struct openai_prompt chat;
    int n_prompts;
};

/* Valid as long as the task's arena. Errors: ERR_UNAVAILABLE there is no group; what is wrong with
 * the body. The caller frees it in any case. */
int openai_prepare(struct openai_prepared *p, struct openai_api *api, struct intake_task *task,
                   enum openai_kind kind, struct error *err);
/* Prepares a request whose body itself says what it is: a conversation has messages. */
int openai_prepare_any(struct openai_prepared *p, struct openai_api *api, struct intake_task *task,
                       struct error *err);
void openai_prepared_free(struct openai_prepared *p);

const struct openai_prompt *openai_prepared_prompt(const struct openai_prepared *p, int i);
/* The request with prompt number i. */
struct generate_request openai_prepared_generate(const struct openai_prepared *p, int i);
