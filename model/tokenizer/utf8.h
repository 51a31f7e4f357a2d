/* UTF-8 as the tokenizer needs it, and a growing text. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct text {
    const char *data;
    size_t len;
};

/* A growing text; zero it before first use, free with text_buf_free. It differs from struct buffer
 * (base/text/buffer.h) because the tokenizer has many short texts of char: there is no least size
 * of 4 KiB, and data is never NULL after an append, not even of an empty text. */
struct text_buf {
    char *data;
    size_t len, capacity;
};

/* Errors: ERR_NO_MEMORY. */
int text_buf_append(struct text_buf *buf, const char *data, size_t len, struct error *err);
/* Appends `text` with `with` in place of every `mark`, which is not empty. */
int text_buf_replace(struct text_buf *buf, struct text text, const char *mark, const char *with,
                     struct error *err);
void text_buf_free(struct text_buf *buf);

/* Classifies the character at the start of data[len >= 1]: 1 whole, 0 the text ends within it, -1
 * not UTF-8. *used: its bytes; when it is not whole, the bytes that one U+FFFD replaces (Unicode
 * 3.9, U+FFFD substitution of maximal subparts; what Rust's from_utf8_lossy does). */
int text_classify(const char *data, size_t len, size_t *used);
/* Length of the longest prefix that is UTF-8. */
size_t text_valid_length(const char *data, size_t len);
/* The character at the start of valid text; *used: its bytes. */
int32_t text_char(const char *data, size_t *used);
/* Bytes of the character that begins with this byte of valid text. */
size_t text_char_length(char lead);
/* The character before data[end]; end > 0. */
int32_t text_char_before(const char *data, size_t end, size_t *used);
/* len cut to at most `most` bytes at the end of a character, for messages. */
int text_shown_length(const char *data, size_t len, int most);
bool text_is_space(int32_t c); /* White_Space */
bool text_is_word(int32_t c);  /* \w of Unicode TR18 */
