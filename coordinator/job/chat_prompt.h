/* A conversation as the model wants it to be written: its template makes one text, in which the
 * template's special tokens count as such. For every door. */
#pragma once

#include "coordinator/job/guarded.h"

/* Appends the ids of the conversation. Errors: ERR_ARGUMENT the template refuses it, takes more
 * than a rendering may, or makes too long a text; those of guarded_encode and tokenizer_encode. */
int chat_prompt_encode(const struct chat_prompt *prompt, struct token_ids *ids, struct error *err);
