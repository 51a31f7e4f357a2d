/* --user-special-tokens off: the texts of a conversation's messages are no special tokens, while
 * those that the template writes are. */
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

/* Replaces text's content by the conversation, exactly as the template writes it, and appends its
 * ids, of which a text of more than most_bytes has none. guard_is_possible is true of its
 * tokenizer. Errors: ERR_ARGUMENT the template treats a text in another way once a marker is in
 * it, so that nobody can say which special tokens are whose; those of chat_template_render and of
 * tokenizer_encode. */
int guarded_encode(const struct chat_prompt *prompt, struct buffer *text, struct token_ids *ids,
                   struct error *err);
