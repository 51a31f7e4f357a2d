/* A message of an answer as plain structs (proto/generation_wire.h), on its way from the engine to
 * a response stream: that of gRPC encodes it, those of HTTP read it. */
#pragma once

#include "proto/generation_wire.h"

/* Exactly one part is set. */
struct answer_message {
    const struct generate_reply *reply;
    const struct score_reply *scores;
    const struct service_description *description;
};

/* Sets *copy to a copy of the message and all that it points to, in one block of *n_bytes that
 * free() releases. The text of tokens has '?' in place of bytes that are not UTF-8, because a
 * client would refuse the whole message for them.
 * Errors: ERR_NO_MEMORY. */
int answer_message_copy(struct answer_message **copy, size_t *n_bytes,
                        const struct answer_message *message, struct error *err);
