/* Literals as Python writes and prints them. */
#include "model/jinja/literal.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "model/jinja/writer.h"

enum { NUMBER_BYTES = 64 };

/* ---- reading ---- */

/* Writes a code point in UTF-8 and returns its bytes; 0 for one that UTF-8 does not have. */
static size_t put_char(char *at, uint32_t c)
{
    if (c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) return 0;
    return (size_t)utf8proc_encode_char((utf8proc_int32_t)c, (utf8proc_uint8_t *)at);
}

/* Reads at most `most` digits at text[i]; n_read says how many there are. */
static uint32_t read_digits(struct string text, size_t i, int base, size_t most, size_t *n_read)
{
    uint32_t number = 0;
    size_t n = 0;
    for (; n < most && i + n < text.len; n++) {
        const char digits[] = "0123456789abcdef";
        char c = text.data[i + n];
        if (c >= 'A' && c <= 'F') c = (char)(c - 'A' + 'a');
        const char *at = c ? strchr(digits, c) : NULL;
        if (!at || at - digits >= base) break;
        number = number * (uint32_t)base + (uint32_t)(at - digits);
    }
    *n_read = n;
    return number;
}

/* An escape with a number, whose digits begin at text[i]. */
static int numbered_escape(struct string text, size_t *i, size_t n_digits, int base, char *out,
                           size_t *n_out, struct error *err)
{
    size_t n_read;
    uint32_t c = read_digits(text, *i, base, n_digits, &n_read);
    size_t n = base == 8 || n_read == n_digits ? put_char(out + *n_out, c) : 0;
    if (!n) return error_set(err, ERR_FORMAT, "a string has an escape that is no character");
    *i += n_read;
    *n_out += n;
    return 0;
}

/* The escape after a backslash; i is at the character after it. */
static int read_escape(struct string text, size_t *i, char *out, size_t *n_out, struct error *err)
{
    static const char plain[] = "\\'\"abfnrtv", meant[] = "\\'\"\a\b\f\n\r\t\v";
    char c = text.data[*i];
    const char *at = c ? strchr(plain, c) : NULL;
    if (at) {
        out[(*n_out)++] = meant[at - plain];
        ++*i;
        return 0;
    }
    if (c == '\n') {
        ++*i;
        return 0;
    }
    if (c == 'N') return error_set(err, ERR_UNSUPPORTED, "\\N{...} in a string");
    if (c >= '0' && c <= '7') return numbered_escape(text, i, 3, 8, out, n_out, err);
    if (c == 'x' || c == 'u' || c == 'U') {
        ++*i;
        return numbered_escape(text, i, c == 'x' ? 2 : c == 'u' ? 4 : 8, 16, out, n_out, err);
    }
    out[(*n_out)++] = '\\';
    return 0;
}

int literal_string(struct heap *heap, struct string text, struct string *out, struct error *err)
{
    char *copy;
    size_t n = 0;
    int rc = heap_array(heap, &copy, text.len + 4, err); /* an escape is no shorter than its text */
    if (rc) return rc;
    for (size_t i = 0; i < text.len && !rc;) {
        if (text.data[i] == '\\' && i + 1 < text.len) {
            i++;
            rc = read_escape(text, &i, copy, &n, err);
        } else {
            copy[n++] = text.data[i++];
        }
    }
    *out = string_of(copy, n);
    return rc;
}

/* Copies digits without the "_" that may be between two of them; returns where they end. */
static size_t copy_digits(struct string text, size_t i, int base, char *out, size_t *n_out)
{
    for (size_t n_read; i < text.len; i++) {
        read_digits(text, i, base, 1, &n_read);
        bool is_gap = text.data[i] == '_' && i + 1 < text.len;
        if (is_gap) read_digits(text, i + 1, base, 1, &n_read);
        if (!n_read) break;
        if (is_gap) continue;
        if (*n_out + 1 < NUMBER_BYTES)
            out[(*n_out)++] = text.data[i];
        else
            break;
    }
    return i;
}

static int whole_number(const char *digits, int base, struct value *out, struct error *err)
{
    errno = 0;
    long long number = strtoll(digits, NULL, base);
    if (errno) return error_set(err, ERR_FORMAT, "the number %s is too large", digits);
    *out = value_int(number);
    return 0;
}

static int based_number(struct string text, size_t *len, struct value *out, struct error *err)
{
    char digits[NUMBER_BYTES] = "";
    size_t n = 0;
    int base = (text.data[1] | 32) == 'x' ? 16 : (text.data[1] | 32) == 'o' ? 8 : 2;
    *len = copy_digits(text, 2, base, digits, &n);
    if (!n) return error_set(err, ERR_FORMAT, "a number has no digits");
    return whole_number(digits, base, out, err);
}

/* Copies what may follow the whole part, ".digits" and "e+digits"; returns where it ends. */
static size_t copy_fraction(struct string text, size_t i, char *out, size_t *n)
{
    size_t n_read, at = i;
    read_digits(text, i + 1, 10, 1, &n_read);
    if (i < text.len && text.data[i] == '.' && n_read) {
        out[(*n)++] = '.';
        at = copy_digits(text, i + 1, 10, out, n);
    }
    if (at >= text.len || (text.data[at] | 32) != 'e') return at;
    size_t sign = at + 1 < text.len && strchr("+-", text.data[at + 1]) && text.data[at + 1] ? 1 : 0;
    read_digits(text, at + 1 + sign, 10, 1, &n_read);
    if (!n_read || *n + 3 >= NUMBER_BYTES) return at;
    out[(*n)++] = 'e';
    if (sign) out[(*n)++] = text.data[at + 1];
    return copy_digits(text, at + 1 + sign, 10, out, n);
}

int literal_number(struct string text, size_t *len, struct value *out, struct error *err)
{
    char digits[NUMBER_BYTES + 4] = "";
    size_t n = 0;
    bool is_based =
        text.len > 1 && text.data[0] == '0' && text.data[1] && strchr("xXoObB", text.data[1]);
    if (is_based) return based_number(text, len, out, err);
    size_t end = copy_digits(text, 0, 10, digits, &n);
    *len = copy_fraction(text, end, digits, &n);
    digits[n] = 0;
    if (*len == end) return whole_number(digits, 10, out, err);
    *out = value_float(strtod(digits, NULL));
    return 0;
}

/* ---- printing ---- */

void literal_print_float(double number, char text[LITERAL_FLOAT_BYTES])
{
    char digits[LITERAL_FLOAT_BYTES];
    if (isnan(number) || isinf(number)) {
        strcpy(text, isnan(number) ? "nan" : number > 0 ? "inf" : "-inf");
        return;
    }
    int precision = 1;
    do {
        snprintf(digits, sizeof digits, "%.*e", precision - 1, number);
    } while (strtod(digits, NULL) != number && precision++ < 17);
    int exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent < -4 || exponent >= 16) {
        snprintf(text, LITERAL_FLOAT_BYTES, "%.*e", precision - 1, number);
        return;
    }
    int decimals = precision - 1 - exponent;
    snprintf(text, LITERAL_FLOAT_BYTES, "%.*f", decimals > 0 ? decimals : 1, number);
}

static int put_escape(struct writer *w, int32_t c, struct error *err)
{
    char text[16];
    if (c == '\n') return writer_text(w, "\\n", err);
    if (c == '\r') return writer_text(w, "\\r", err);
    if (c == '\t') return writer_text(w, "\\t", err);
    if (c < 0x100) {
        snprintf(text, sizeof text, "\\x%02x", (unsigned)c);
    } else if (c < 0x10000) {
        snprintf(text, sizeof text, "\\u%04x", (unsigned)c);
    } else {
        snprintf(text, sizeof text, "\\U%08x", (unsigned)c);
    }
    return writer_text(w, text, err);
}

/* True if Python prints the character as it is: not controls, formats, surrogates, private or
 * unassigned characters, nor separators but the blank. */
static bool is_printable(int32_t c)
{
    if (c == ' ') return true;
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
        return false;
    default:
        return true;
    }
}

static int put_quoted(struct writer *w, struct string text, struct error *err)
{
    bool has_single = text.len && memchr(text.data, '\'', text.len);
    bool has_double = text.len && memchr(text.data, '"', text.len);
    char quote = has_single && !has_double ? '"' : '\'';
    int rc = writer_put(w, &quote, 1, err);
    for (size_t i = 0; i < text.len && !rc;) {
        utf8proc_int32_t c;
        utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)text.data + i,
                                              (utf8proc_ssize_t)(text.len - i), &c);
        if (n <= 0) break; /* the text is valid */
        if (c == quote || c == '\\') rc = writer_text(w, "\\", err);
        if (!rc)
            rc = is_printable(c) ? writer_put(w, text.data + i, (size_t)n, err)
                                 : put_escape(w, c, err);
        i += (size_t)n;
    }
    return rc ? rc : writer_put(w, &quote, 1, err);
}

static int put_repr(struct writer *w, const struct value *v, struct error *err)
{
    int rc = v->is_safe ? writer_text(w, "Markup(", err) : 0;
    if (!rc) rc = put_quoted(w, v->text, err);
    return rc || !v->is_safe ? rc : writer_text(w, ")", err);
}

static int print_value(struct writer *w, const struct value *v, bool is_quoted, struct error *err);

static int put_items(struct writer *w, const struct list *list, const char *begin, const char *end,
                     struct error *err)
{
    int rc = writer_text(w, begin, err);
    for (size_t i = 0; i < list->n && !rc; i++) {
        if (i) rc = writer_text(w, ", ", err);
        if (!rc) rc = print_value(w, &list->items[i], true, err);
    }
    return rc ? rc : writer_text(w, end, err);
}

static int put_pairs(struct writer *w, const struct dict *dict, struct error *err)
{
    int rc = writer_text(w, "{", err);
    for (size_t i = 0; i < dict->n && !rc; i++) {
        if (i) rc = writer_text(w, ", ", err);
        if (!rc) rc = print_value(w, &dict->pairs[i].key, true, err);
        if (!rc) rc = writer_text(w, ": ", err);
        if (!rc) rc = print_value(w, &dict->pairs[i].value, true, err);
    }
    return rc ? rc : writer_text(w, "}", err);
}

static int print_value(struct writer *w, const struct value *v, bool is_quoted, struct error *err)
{
    char text[LITERAL_FLOAT_BYTES];
    int rc = 0;
    switch (v->kind) {
    case VALUE_UNDEFINED:
        rc = is_quoted ? writer_text(w, "Undefined", err) : 0;
        break;
    case VALUE_NONE:
        rc = writer_text(w, "None", err);
        break;
    case VALUE_BOOL:
        rc = writer_text(w, v->integer ? "True" : "False", err);
        break;
    case VALUE_INT:
        snprintf(text, sizeof text, "%lld", (long long)v->integer);
        rc = writer_text(w, text, err);
        break;
    case VALUE_FLOAT:
        literal_print_float(v->number, text);
        rc = writer_text(w, text, err);
        break;
    case VALUE_STRING:
        rc = is_quoted ? put_repr(w, v, err) : writer_put(w, v->text.data, v->text.len, err);
        break;
    case VALUE_LIST:
        rc = put_items(w, v->list, "[", "]", err);
        break;
    case VALUE_TUPLE:
        rc = put_items(w, v->list, "(", v->list->n == 1 ? ",)" : ")", err);
        break;
    case VALUE_DICT:
        rc = put_pairs(w, v->dict, err);
        break;
    default:
        rc = error_set(err, ERR_ARGUMENT, "a %s cannot be printed", value_type(v));
    }
    return rc;
}

int literal_print(struct buffer *out, const struct value *v, bool is_quoted, size_t most,
                  struct error *err)
{
    struct writer w = {.out = out, .most_bytes = most};
    return print_value(&w, v, is_quoted, err);
}
