/* A conversation as the model wants it to be written: its template makes one text, in which the
 * template's special tokens count as such. For every door. */
#pragma once

#include "model/tokenizer/chat_template.h"
#include "model/tokenizer/tokenizer.h"

/* The conversation that is written, how, and when. */
struct chat_prompt {
    const struct chat_template *chat;
    const struct tokenizer *tok;
    json_t *messages;            /* as the template takes them */
    json_t *values;              /* further ones of the template; NULL = none */
    bool adds_generation_prompt; /* the beginning of the answer */
    bool guards_users;           /* texts of messages are no special tokens */
    int most_bytes;              /* that the text may have */
    int64_t now_s;
};

/* Appends the ids of the conversation. Errors: ERR_ARGUMENT the template refuses it, takes more
 * than a rendering may, or makes too long a text; those of guarded_encode and tokenizer_encode. */
int chat_prompt_encode(const struct chat_prompt *prompt, struct token_ids *ids, struct error *err);
