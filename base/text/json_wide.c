/* A number that may need 64 bits without a sign, which jansson's integers do not have. The text is
 * looked through only where jansson found a number too large. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/buffer.h"
#include "base/text/json.h"

enum {
    WIDE_DIGITS = 20, /* of 2^64 - 1 */
    REAL_DIGITS = 300 /* that a double can still hold */
};

struct scan {
    const char *at, *end;
};

static void skip_blanks(struct scan *s)
{
    while (s->at < s->end && strchr(" \t\r\n", *s->at))
        s->at++;
}

/* Moves to after the quote that ends the string whose first character is at s->at; returns the
 * string's length without that quote. */
static size_t skip_string(struct scan *s)
{
    const char *begin = s->at;
    while (s->at < s->end && *s->at != '"')
        s->at += *s->at == '\\' ? 2 : 1;
    if (s->at > s->end) s->at = s->end;
    size_t len = (size_t)(s->at - begin);
    if (s->at < s->end) s->at++;
    return len;
}

/* Goes to the value of the outermost object's member. */
static bool find_member(struct scan *s, const char *member)
{
    int depth = 0;
    while (s->at < s->end) {
        char c = *s->at++;
        if (c == '{' || c == '[') depth++;
        if (c == '}' || c == ']') depth--;
        if (c != '"') continue;
        const char *name = s->at;
        size_t len = skip_string(s);
        skip_blanks(s);
        if (depth != 1 || s->at == s->end || *s->at != ':') continue;
        if (len != strlen(member) || memcmp(name, member, len) != 0) continue;
        s->at++;
        skip_blanks(s);
        return true;
    }
    return false;
}

/* The number of characters of the integer at s->at; 0 = there is none. */
static size_t integer_length(const struct scan *s)
{
    size_t n = 0, len = (size_t)(s->end - s->at);
    if (n < len && s->at[n] == '-') n++;
    size_t n_sign = n;
    while (n < len && isdigit((unsigned char)s->at[n]))
        n++;
    bool is_real = n < len && strchr(".eE", s->at[n]);
    return n == n_sign || is_real ? 0 : n;
}

/* Appends the number that replaces an integer that jansson does not read. */
static int append_replacement(struct buffer *buf, const char *digits, size_t n, struct error *err)
{
    char copy[WIDE_DIGITS + 1] = "", text[WIDE_DIGITS + 2];
    int rc = 0;
    if (n <= WIDE_DIGITS && *digits != '-') {
        memcpy(copy, digits, n);
        errno = 0;
        unsigned long long value = strtoull(copy, NULL, 10);
        if (!errno) {
            snprintf(text, sizeof text, "%lld", (long long)value);
            return buffer_append(buf, text, strlen(text), err);
        }
    }
    TRY(buffer_append(buf, digits, n < REAL_DIGITS ? n : REAL_DIGITS, err));
    TRY(buffer_append(buf, ".0", 2, err));
out:
    return rc;
}

int json_widen_member(struct buffer *out, const char *text, size_t len, const char *member,
                      struct error *err)
{
    struct scan s = {text, text + len};
    int rc = 0;
    if (!find_member(&s, member)) goto out;
    size_t n = integer_length(&s), before = (size_t)(s.at - text);
    if (!n) goto out;
    TRY(buffer_append(out, text, before, err));
    TRY(append_replacement(out, s.at, n, err));
    TRY(buffer_append(out, s.at + n, len - before - n, err));
out:
    return rc;
}
