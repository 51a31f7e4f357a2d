/* The messages of a conversation, in the order in which they were said. */
#pragma once

#include "base/error.h"
#include "base/text/buffer.h"
#include "proto/generation_wire.h"

/* A zeroed one is empty. The texts are its own. */
struct conversation {
    struct chat_message *messages; /* [n] */
    size_t n, capacity;
};

/* role is kept: a literal. Errors: ERR_NO_MEMORY, ERR_EXHAUSTED there are too many. */
int conversation_add(struct conversation *c, const char *role, const char *text, size_t len,
                     struct error *err);
/* Puts the system's message first; an empty text takes it away. Errors: as conversation_add. */
int conversation_set_system(struct conversation *c, const char *text, struct error *err);
const char *conversation_system(const struct conversation *c); /* NULL: there is none */
/* Takes the last message away; false: there is none but that of the system. */
bool conversation_drop(struct conversation *c);
bool conversation_ends_with(const struct conversation *c, const char *role);
void conversation_free(struct conversation *c);

/* Replaces text's content by all that users and the model said, one after the other, for a model
 * without a chat template. A line begins where a user begins after an answer. */
int conversation_text(const struct conversation *c, struct buffer *text, struct error *err);

/* As {"messages": [{"role": ..., "content": ...}, ...]}; load also takes the list alone, and puts
 * it in place of all. Errors: ERR_IO, ERR_NOT_FOUND, ERR_FORMAT, ERR_NO_MEMORY. */
int conversation_save(const struct conversation *c, const char *path, struct error *err);
int conversation_load(struct conversation *c, const char *path, struct error *err);
