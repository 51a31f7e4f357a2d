/* Where the markers go. */
#include "model/tokenizer/guard.h"

#include <string.h>

#include "model/tokenizer/internal.h"

static bool are_long(const struct added_set *set)
{
    for (int i = 0; i < set->n; i++) {
        const struct added_token *token = &set->tokens[i];
        if (token->special && token->len <= text_char_length(token->text[0])) return false;
    }
    return true;
}

bool guard_is_possible(const struct tokenizer *tok)
{
    for (int i = 0; i < tok->normalized.n; i++) {
        if (tok->normalized.tokens[i].special) return false;
    }
    return are_long(&tok->raw);
}

/* True if the text from `at` on is special, or begins a special token as far as it goes. */
static bool begins_special(const struct added_set *set, const char *text, size_t len, size_t at)
{
    size_t left = len - at;
    for (int i = set->first[(uint8_t)text[at]]; i < set->first[(uint8_t)text[at] + 1]; i++) {
        const struct added_token *token = &set->tokens[i];
        size_t n = token->len < left ? token->len : left;
        if (token->special && memcmp(token->text, text + at, n) == 0) return true;
    }
    return false;
}

/* Templates strip blanks from texts, so what is at the ends without them counts as well. */
static size_t blanks_at_begin(const char *text, size_t len)
{
    size_t n = 0, used;
    while (n < len && text_is_space(text_char(text + n, &used))) {
        n += used;
    }
    return n;
}

static size_t length_without_blanks(const char *text, size_t len)
{
    size_t used;
    while (len && text_is_space(text_char_before(text, len, &used))) {
        len -= used;
    }
    return len;
}

/* True if the text begins as a special token goes on, or is a part of one. */
static bool continues_special(const struct added_set *set, const char *text, size_t len)
{
    for (int i = 0; i < set->n; i++) {
        const struct added_token *token = &set->tokens[i];
        for (size_t k = 1; token->special && k < token->len; k++) {
            size_t n = token->len - k < len ? token->len - k : len;
            if (memcmp(token->text + k, text, n) == 0) return true;
        }
    }
    return false;
}

static bool is_start(const struct added_set *set, char first)
{
    for (int i = set->first[(uint8_t)first]; i < set->first[(uint8_t)first + 1]; i++) {
        if (set->tokens[i].special) return true;
    }
    return false;
}

int guard_append(struct buffer *out, const struct tokenizer *tok, enum guard_strength strength,
                 const char *marker, const char *text, size_t len, struct error *err)
{
    const struct added_set *set = &tok->raw;
    size_t marker_len = strlen(marker), done = blanks_at_begin(text, len);
    size_t stripped = length_without_blanks(text, len);
    int rc = 0;
    TRY(buffer_append(out, text, done, err));
    if (stripped > done && continues_special(set, text + done, stripped - done)) {
        TRY(buffer_append(out, marker, marker_len, err));
    }
    for (size_t at = done; at < len; at += text_char_length(text[at])) {
        bool is_marked = strength == GUARD_STARTS
                             ? is_start(set, text[at])
                             : begins_special(set, text, len, at) ||
                                   (at < stripped && begins_special(set, text, stripped, at));
        if (!is_marked) continue;
        size_t end = at + text_char_length(text[at]);
        TRY(buffer_append(out, text + done, end - done, err));
        TRY(buffer_append(out, marker, marker_len, err));
        done = end;
    }
    TRY(buffer_append(out, text + done, len - done, err));
out:
    return rc;
}
