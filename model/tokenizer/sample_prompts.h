/* Beginnings of texts with which any model shows how it writes: short questions as a conversation,
 * by the model's chat template where it has one, otherwise beginnings of plain texts. They are the
 * same at every call, so what a model writes after them is, too. Any thread. */
#pragma once

#include <stdint.h>

#include "model/tokenizer/chat_template.h"
#include "model/tokenizer/tokenizer.h"

enum { SAMPLE_PROMPTS = 8 };

/* Replaces *ids by those of prompt number 0 .. SAMPLE_PROMPTS - 1, of which there is at least one.
 * chat: NULL = none; one that refuses the conversation is not used, and neither is one by which the
 * prompt has more than n_most tokens. now_s: as in chat_template_render. Errors: those of
 * tokenizer_encode; ERR_ARGUMENT the prompt has more than n_most tokens. */
int sample_prompt(struct token_ids *ids, int number, const struct tokenizer *tok,
                  const struct chat_template *chat, int64_t now_s, size_t n_most,
                  struct error *err);
