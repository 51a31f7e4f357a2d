/* Texts in which the texts of special tokens stay plain text, although special tokens around them
 * count: a marker in such a text shows, after a chat template has written it somewhere, which
 * special tokens are not the template's. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/text/buffer.h"
#include "model/tokenizer/tokenizer.h"

enum guard_strength {
    /* The marker is within every special token that the text has, or could be a part of together
     * with what a template writes around it. */
    GUARD_TOKENS,
    /* In addition it is after every character that a special token begins with, so that a template
     * which takes characters out of the text makes no special token either. */
    GUARD_STARTS
};

/* True if the special tokens of this tokenizer can be told apart like this: each has two characters
 * at least, and is found before the text is normalized. */
bool guard_is_possible(const struct tokenizer *tok);

/* Appends the text with markers in it. Errors: ERR_NO_MEMORY. */
int guard_append(struct buffer *out, const struct tokenizer *tok, enum guard_strength strength,
                 const char *marker, const char *text, size_t len, struct error *err);
