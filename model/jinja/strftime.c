/* Dates as Python's strftime writes them. The C library's function is not used, because its format
 * would come from the template and its words from the locale. */
#include "model/jinja/strftime.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { NUMBER_BYTES = 32 };

static const char *const days[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                   "Thursday", "Friday", "Saturday"};
static const char *const months[] = {"January",   "February", "March",    "April",
                                     "May",       "June",     "July",     "August",
                                     "September", "October",  "November", "December"};

/* Directives that stand for several others. */
static const struct {
    char letter;
    const char *format;
} composites[] = {{'c', "%a %b %e %H:%M:%S %Y"},
                  {'D', "%m/%d/%y"},
                  {'F', "%Y-%m-%d"},
                  {'R', "%H:%M"},
                  {'T', "%H:%M:%S"},
                  {'x', "%m/%d/%y"},
                  {'X', "%H:%M:%S"}};

/* A number, which is filled up to n_digits. */
struct field {
    int number, n_digits;
    char fill;
};

static struct field field_of(char letter, const struct tm *when)
{
    int hour_12 = when->tm_hour % 12 ? when->tm_hour % 12 : 12;
    switch (letter) {
    case 'd':
        return (struct field){when->tm_mday, 2, '0'};
    case 'e':
        return (struct field){when->tm_mday, 2, ' '};
    case 'H':
        return (struct field){when->tm_hour, 2, '0'};
    case 'I':
        return (struct field){hour_12, 2, '0'};
    case 'j':
        return (struct field){when->tm_yday + 1, 3, '0'};
    case 'm':
        return (struct field){when->tm_mon + 1, 2, '0'};
    case 'M':
        return (struct field){when->tm_min, 2, '0'};
    case 'S':
        return (struct field){when->tm_sec, 2, '0'};
    case 'u':
        return (struct field){when->tm_wday ? when->tm_wday : 7, 1, '0'};
    case 'w':
        return (struct field){when->tm_wday, 1, '0'};
    case 'y':
        return (struct field){when->tm_year % 100, 2, '0'};
    case 'Y':
        return (struct field){when->tm_year + 1900, 1, '0'};
    default:
        return (struct field){0};
    }
}

static struct string word_of(char letter, const struct tm *when)
{
    const char *day = days[when->tm_wday], *month = months[when->tm_mon];
    switch (letter) {
    case 'a':
        return string_of(day, 3);
    case 'A':
        return string_of(day, strlen(day));
    case 'b':
    case 'h':
        return string_of(month, 3);
    case 'B':
        return string_of(month, strlen(month));
    case 'p':
        return string_of(when->tm_hour < 12 ? "AM" : "PM", 2);
    case '%':
        return string_of("%", 1);
    default:
        return string_of("", 0);
    }
}

static const char *composite_of(char letter)
{
    for (size_t i = 0; i < sizeof composites / sizeof *composites; i++) {
        if (composites[i].letter == letter) return composites[i].format;
    }
    return NULL;
}

/* The directive after a "%" at format.data[i]: "-" leaves the fill of a number out. */
struct directive {
    char letter; /* 0 at the end of the format */
    bool is_short;
    size_t len;
};

static struct directive directive_at(struct string format, size_t i)
{
    bool is_short = i < format.len && format.data[i] == '-';
    size_t at = i + is_short;
    char letter = 0;
    if (at < format.len) letter = format.data[at];
    return (struct directive){letter, is_short, is_short + (size_t)1};
}

static bool is_known(struct directive d)
{
    static const struct tm some_day = {.tm_mday = 1};
    if (field_of(d.letter, &some_day).n_digits) return true;
    return !d.is_short && (composite_of(d.letter) || word_of(d.letter, &some_day).len);
}

/* The directive at format.data[i], with all bytes of its last character. */
static int refuse(struct string format, size_t i, struct directive d, struct error *err)
{
    size_t end = i + 1 + d.len;
    while (end < format.len && (format.data[end] & 0xc0) == 0x80)
        end++;
    if (end > format.len) end = format.len;
    return error_set(err, ERR_UNSUPPORTED, "strftime_now: '%.*s' is not supported", (int)(end - i),
                     format.data + i);
}

int strftime_check(struct string format, struct error *err)
{
    for (size_t i = 0; i < format.len; i++) {
        if (format.data[i] != '%') continue;
        struct directive d = directive_at(format, i + 1);
        if (!is_known(d)) return refuse(format, i, d, err);
        i += d.len;
    }
    return 0;
}

static int print(struct buffer *out, struct string format, const struct tm *when,
                 struct error *err);

static int print_number(struct buffer *out, struct field field, bool is_short, struct error *err)
{
    char digits[NUMBER_BYTES], text[NUMBER_BYTES];
    int n_digits = snprintf(digits, sizeof digits, "%d", field.number), n = 0;
    while (!is_short && n + n_digits < field.n_digits)
        text[n++] = field.fill;
    memcpy(text + n, digits, (size_t)n_digits);
    return buffer_append(out, text, (size_t)(n + n_digits), err);
}

static int print_directive(struct buffer *out, struct directive d, const struct tm *when,
                           struct error *err)
{
    struct field field = field_of(d.letter, when);
    if (field.n_digits) return print_number(out, field, d.is_short, err);
    const char *composite = composite_of(d.letter);
    if (composite) return print(out, string_of(composite, strlen(composite)), when, err);
    struct string word = word_of(d.letter, when);
    return buffer_append(out, word.data, word.len, err);
}

static int print(struct buffer *out, struct string format, const struct tm *when, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; i < format.len && !rc; i++) {
        if (format.data[i] != '%') {
            rc = buffer_append(out, format.data + i, 1, err);
            continue;
        }
        struct directive d = directive_at(format, i + 1);
        rc = print_directive(out, d, when, err);
        i += d.len;
    }
    return rc;
}

int strftime_print(struct buffer *out, struct string format, int64_t now_s, struct error *err)
{
    struct tm when;
    time_t now = (time_t)now_s;
    int rc = strftime_check(format, err);
    if (rc) return rc;
    if (!gmtime_r(&now, &when) || when.tm_year < 0 || when.tm_year > 8099) {
        return error_set(err, ERR_ARGUMENT, "strftime_now: %lld s has no date of four digits",
                         (long long)now_s);
    }
    return print(out, format, &when, err);
}
