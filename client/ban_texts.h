/* --ban TEXT: texts become banned sequences of tokens before the request is sent. */
#pragma once

#include "client/generate_options.h"

/* Bans the tokens of every --ban text, and those of a blank and the text unless it begins with one,
 * because most words of a text have a blank as part of their first token. *fingerprint is that of
 * the tokenizer that made them. Without texts it does nothing. Errors: those of tokenizer_open and
 * tokenizer_encode; ERR_ARGUMENT there are too many, or one is too long. */
int ban_texts_apply(struct generate_options *options, uint64_t *fingerprint, struct error *err);

/* The ids mean the same words to the service only if its tokenizer is this one.
 * Errors: ERR_ARGUMENT. */
int ban_texts_check(const struct generate_options *options, uint64_t fingerprint,
                    const struct service_description *service, struct error *err);
