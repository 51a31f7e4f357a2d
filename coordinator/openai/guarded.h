/* --user-special-tokens off: the texts of a conversation's messages are no special tokens, while
 * those that the template writes are. */
#pragma once

#include "coordinator/openai/request/request.h"
#include "model/tokenizer/chat_template.h"
#include "model/tokenizer/tokenizer.h"

/* The conversation that is rendered, and when. */
struct guarded_chat {
    const struct chat_template *chat;
    const struct tokenizer *tok; /* of which guard_is_possible is true */
    json_t *messages;
    const struct openai_request *request;
    int64_t now_s;
};

/* Replaces text's content by the conversation, exactly as the template writes it, and appends its
 * ids. Errors: ERR_ARGUMENT the template treats a text in another way once a marker is in it, so
 * that nobody can say which special tokens are whose; those of chat_template_render and of
 * tokenizer_encode. */
int guarded_encode(const struct guarded_chat *guarded, struct buffer *text, size_t most_bytes,
                   struct token_ids *ids, struct openai_reading *r);
