/* Runs of plain characters are copied as they are. */
#include "base/text/json_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { FORMATTED_BYTES = 256 };

/* JSON allows these, but Python's splitlines, with which httpx cuts a stream into lines, takes each
 * for the end of one. */
static const char *line_end_escape(const char *text, size_t len, size_t *n)
{
    static const char *const ends[][2] = {
        {"\xc2\x85", "\\u0085"}, {"\xe2\x80\xa8", "\\u2028"}, {"\xe2\x80\xa9", "\\u2029"}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t n_end = strlen(ends[i][0]);
        if (len < n_end || memcmp(text, ends[i][0], n_end) != 0) continue;
        *n = n_end;
        return ends[i][1];
    }
    return NULL;
}

/* The escape of the *n bytes that text begins with; NULL = they may be in a string as they are. */
static const char *escape_of(const char *text, size_t len, char out[8], size_t *n)
{
    unsigned char c = (unsigned char)*text;
    *n = 1;
    switch (c) {
    case '"':
        return "\\\"";
    case '\\':
        return "\\\\";
    case '\n':
        return "\\n";
    case '\r':
        return "\\r";
    case '\t':
        return "\\t";
    default:
        if (c >= 0x80) return line_end_escape(text, len, n);
        if (c >= 0x20) return NULL;
        snprintf(out, 8, "\\u%04x", c);
        return out;
    }
}

int json_text_string(struct buffer *buf, const char *text, size_t len, struct error *err)
{
    int rc = 0;
    size_t begin = 0;
    TRY(buffer_append(buf, "\"", 1, err));
    for (size_t i = 0, n; i < len; i += n) {
        char room[8];
        const char *escape = escape_of(text + i, len - i, room, &n);
        if (!escape) continue;
        TRY(buffer_append(buf, text + begin, i - begin, err));
        TRY(buffer_append(buf, escape, strlen(escape), err));
        begin = i + n;
    }
    if (len) TRY(buffer_append(buf, text + begin, len - begin, err));
    TRY(buffer_append(buf, "\"", 1, err));
out:
    return rc;
}

static int append(const char *text, size_t len, void *buf)
{
    struct error err;
    return buffer_append(buf, text, len, &err) ? -1 : 0;
}

int json_text_value(struct buffer *buf, const json_t *value, struct error *err)
{
    const size_t flags = JSON_COMPACT | JSON_ENCODE_ANY | JSON_ENSURE_ASCII; /* for line ends */
    size_t len = buf->len;
    if (value && json_dump_callback(value, append, buf, flags) == 0) return 0;
    buf->len = len;
    return error_set(err, ERR_NO_MEMORY, "no memory for an answer in JSON");
}

int json_text_take(struct buffer *buf, json_t *value, struct error *err)
{
    int rc = json_text_value(buf, value, err);
    json_decref(value);
    return rc;
}

int json_text_format(struct buffer *buf, struct error *err, const char *format, ...)
{
    char text[FORMATTED_BYTES];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (len < 0 || len >= FORMATTED_BYTES) len = FORMATTED_BYTES - 1;
    return buffer_append(buf, text, (size_t)len, err);
}
