/* Formats a whole line first and writes it with one call, so that lines of several threads, or of
 * ranks that share a terminal or a pipe, do not mix. */
#include "base/log.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/text/utf8.h"

enum {
    VALUES_BYTES = 1536, /* all fields, before they are escaped */
    FORMAT_BYTES = 1024,
    LINE_BYTES = 4096, /* what a pipe takes in one piece; escaped, all fields fit */
    HEAD_BYTES = 256,
    TIME_BYTES = 32
};

/* Set before threads start, read afterwards. */
static const char *log_program = "outrider";
static enum log_level log_least = LOG_LEVEL_INFO;
static enum log_format log_form = LOG_FORMAT_TEXT;

static const char *const level_names[] = {"debug", "info", "warn", "error"};

void log_open(const char *program, enum log_level level)
{
    log_program = program;
    log_least = level;
}

void log_set_format(enum log_format format)
{
    log_form = format;
}

/* ---- fields ---- */

struct field {
    const char *key, *value;
    size_t key_len, len;
    bool is_quoted, is_number; /* in the format */
};

/* The length of the format's first field. */
static size_t field_length(const char *format)
{
    bool in_quotes = false;
    size_t n = 0;
    for (; format[n] && (in_quotes || format[n] != ' '); n++) {
        if (format[n] == '"') in_quotes = !in_quotes;
    }
    return n;
}

/* A value format such as %d or %.1f. */
static bool is_number_format(const char *format, size_t len)
{
    return len >= 2 && format[0] == '%' && strchr("diufeg", format[len - 1]) &&
           !memchr(format + 1, '%', len - 1);
}

/* A field of the format, without its value. */
static struct field read_field(const char *format, size_t len)
{
    const char *equals = memchr(format, '=', len);
    struct field f = {.key = "text", .key_len = 4};
    if (!equals) return f;
    const char *value = equals + 1;
    size_t value_len = len - (size_t)(value - format);
    f.key = format;
    f.key_len = (size_t)(equals - format);
    f.is_quoted = value_len >= 2 && value[0] == '"';
    f.is_number = is_number_format(value, value_len);
    return f;
}

/* Returns how many bytes the first len bytes of the format become. The compiler checks the format
 * where it is written; it cannot check a part of it, and does not try where vsnprintf is called
 * through a pointer. */
static size_t printed_length(const char *format, size_t len, va_list args)
{
    int (*const print)(char *, size_t, const char *, va_list) = vsnprintf;
    char head[FORMAT_BYTES];
    va_list copy;
    snprintf(head, sizeof head, "%.*s", (int)len, format);
    va_copy(copy, args);
    int n = print(NULL, 0, head, copy);
    va_end(copy);
    return n > 0 ? (size_t)n : 0;
}

/* ---- the line ---- */

struct line {
    char text[LINE_BYTES];
    size_t len;
};

/* Appends len bytes to the line, or as many as fit; one byte is for the line's end. */
static void put(struct line *line, const char *text, size_t len)
{
    size_t room = sizeof line->text - 1 - line->len, n = len < room ? len : room;
    memcpy(line->text + line->len, text, n);
    line->len += n;
}

static void put_text(struct line *line, const char *text)
{
    put(line, text, strlen(text));
}

static void put_quoted(struct line *line, const char *text, size_t len)
{
    put(line, "\"", 1);
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '"' || text[i] == '\\') put(line, "\\", 1);
        put(line, text + i, 1);
    }
    put(line, "\"", 1);
}

static bool is_word(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (text[i] == ' ' || text[i] == '"' || text[i] == '\\') return false;
    }
    return true;
}

static void put_field(struct line *line, const struct field *f)
{
    bool is_json = log_form == LOG_FORMAT_JSON;
    bool is_bare = is_json ? f->is_number : !f->is_quoted && is_word(f->value, f->len);
    put_text(line, is_json ? ",\"" : " ");
    put(line, f->key, f->key_len);
    put_text(line, is_json ? "\":" : "=");
    if (is_bare) {
        put(line, f->value, f->len);
    } else {
        put_quoted(line, f->value, f->len);
    }
}

/* Empty, or "nan", "-nan", "inf", "-inf". */
static bool is_nothing(const struct field *f)
{
    return f->len == 0 || (f->is_number && memchr(f->value, 'n', f->len));
}

/* values: the whole format, printed and cleaned. */
static void put_fields(struct line *line, const char *format, const char *values, va_list args)
{
    size_t end = strlen(values), begin = 0;
    for (const char *at = format; *at;) {
        size_t len = field_length(at);
        struct field f = read_field(at, len);
        size_t next = printed_length(format, (size_t)(at - format) + len, args);
        size_t quote = f.is_quoted ? 1 : 0;
        size_t from = begin + (f.key == at ? f.key_len + 1 + quote : 0);
        size_t to = next > end ? end : next - quote; /* beyond the end it was cut */
        f.value = values + from;
        f.len = from < to ? to - from : 0;
        if (!is_nothing(&f)) put_field(line, &f);
        begin = next + 1;
        at += len + (at[len] == ' ' ? 1 : 0);
    }
}

static void put_head(struct line *line, enum log_level level, const char *event)
{
    char day[TIME_BYTES], head[HEAD_BYTES];
    struct timespec now;
    struct tm parts;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &parts);
    int ms = (int)(now.tv_nsec / 1000000), pid = (int)getpid();
    if (log_form == LOG_FORMAT_JSON) {
        snprintf(head, sizeof head,
                 "{\"time\":\"%s.%03dZ\",\"level\":\"%s\",\"program\":\"%s\",\"pid\":%d,"
                 "\"event\":\"%s\"",
                 day, ms, level_names[level], log_program, pid, event);
    } else {
        snprintf(head, sizeof head, "%s.%03dZ %s %s[%d] %s", day, ms, level_names[level],
                 log_program, pid, event);
    }
    put_text(line, head);
}

/* Control characters would break the line or the terminal. */
static void clean(char *text)
{
    for (char *c = text; *c; c++) {
        if ((unsigned char)*c < ' ' || *c == 0x7f) *c = '?';
    }
    utf8_clean(text, strlen(text));
}

void log_line(enum log_level level, const char *event, const char *format, ...)
{
    if (level < log_least) return;
    struct line line = {.len = 0};
    char values[VALUES_BYTES];
    va_list args;
    put_head(&line, level, event);
    va_start(args, format);
    va_list copy;
    va_copy(copy, args);
    vsnprintf(values, sizeof values, format, copy);
    va_end(copy);
    clean(values);
    put_fields(&line, format, values, args);
    va_end(args);
    if (log_form == LOG_FORMAT_JSON) put_text(&line, "}");
    line.text[line.len++] = '\n';
    ssize_t written = write(STDERR_FILENO, line.text, line.len);
    (void)written; /* if the log cannot be written, there is nowhere to report it */
}
