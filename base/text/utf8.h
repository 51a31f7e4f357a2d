/* Checks that bytes are UTF-8 (RFC 3629: no overlong forms, no surrogates). NUL counts as wrong,
 * because our texts end there. */
#pragma once

#include <stddef.h>

/* The number of leading bytes of text[len] that are UTF-8; only whole characters count. */
size_t utf8_prefix(const char *text, size_t len);

/* Puts '?' in place of every byte that is not part of a character. */
void utf8_clean(char *text, size_t len);
