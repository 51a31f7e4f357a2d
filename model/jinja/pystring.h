/* The operations of Python's str, on valid UTF-8. */
#pragma once

#include "model/jinja/value.h"

struct render;

/* White space of str.strip() and str.split(): Unicode's, and the separators U+001C to U+001F. */
bool string_is_blank(int32_t c);
/* str.isalpha(), str.isalnum(). */
bool string_is_letter(int32_t c);
bool string_is_letter_or_number(int32_t c);
bool string_is_valid(struct string text);
/* Returns the character at text[*at] and moves *at past it. */
int32_t string_next(struct string text, size_t *at);

enum string_sides { STRING_LEFT = 1, STRING_RIGHT = 2 };
/* The text without the characters of `chars` (NULL = blanks) on these sides. */
struct string string_strip(struct string text, const struct string *chars, unsigned sides);

/* As string_strip, for an argument of a template: NULL and None mean blanks. */
int string_strip_chars(struct render *r, struct string text, const struct value *chars,
                       unsigned sides, struct value *out, struct error *err);

/* The steps of a search, which are to be counted before it. */
size_t string_find_work(struct string text, struct string part);
/* Bytes before the first (or last) `part` at or after `from`; text.len + 1 if there is none. */
size_t string_find(struct string text, struct string part, size_t from);
size_t string_find_last(struct string text, struct string part);
/* The number of code points. */
size_t string_length(struct string text);

/* STRING_TITLE: a word begins after what is no letter; STRING_WORDS: after blanks, "-" and opening
 * brackets. */
enum string_case { STRING_UPPER, STRING_LOWER, STRING_TITLE, STRING_WORDS, STRING_CAPITALIZE };
int string_change_case(struct render *r, struct string text, enum string_case to, struct value *out,
                       struct error *err);
/* str.isupper, str.islower: there are letters with a case, and all have this one. */
int string_has_case(struct render *r, struct string text, enum string_case which, struct value *out,
                    struct error *err);

/* str.join of texts. */
int string_join(struct render *r, const struct list *texts, struct string between,
                struct value *out, struct error *err);
/* Replaces the first `most` occurrences; < 0 = all. */
int string_replace(struct render *r, struct string text, struct string from, struct string to,
                   int64_t most, struct value *out, struct error *err);
/* str.split, or str.rsplit where is_right; separator NULL = blanks; most < 0 = all. */
int string_split(struct render *r, struct string text, const struct string *separator, int64_t most,
                 bool is_right, struct value *out, struct error *err);
int string_split_lines(struct render *r, struct string text, bool keeps_ends, struct value *out,
                       struct error *err);
/* markupsafe.escape: HTML's special characters become entities, and the text is marked as safe. */
int string_escape(struct render *r, struct string text, struct value *out, struct error *err);
