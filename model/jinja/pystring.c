/* The operations of Python's str, on valid UTF-8. */
#include "model/jinja/pystring.h"

#include <string.h>

#include <utf8proc.h>

#include "model/jinja/render.h"

enum { CHAR_BYTES = 4 };

int32_t string_next(struct string text, size_t *at)
{
    utf8proc_int32_t c;
    utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)text.data + *at,
                                          (utf8proc_ssize_t)(text.len - *at), &c);
    *at += n > 0 ? (size_t)n : 1;
    return n > 0 ? c : 0xfffd;
}

bool string_is_valid(struct string text)
{
    utf8proc_int32_t c;
    for (size_t at = 0; at < text.len;) {
        utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)text.data + at,
                                              (utf8proc_ssize_t)(text.len - at), &c);
        if (n <= 0) return false;
        at += (size_t)n;
    }
    return true;
}

static int32_t string_before(struct string text, size_t *end)
{
    size_t at = *end;
    do
        at--;
    while (at > 0 && (text.data[at] & 0xc0) == 0x80);
    *end = at;
    return string_next(text, &at);
}

bool string_is_blank(int32_t c)
{
    if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1c && c <= 0x1f);
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
           c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool string_is_letter(int32_t c)
{
    utf8proc_category_t category = utf8proc_category(c);
    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool string_is_letter_or_number(int32_t c)
{
    utf8proc_category_t category = utf8proc_category(c);
    return string_is_letter(c) ||
           (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO);
}

static bool is_among(struct string chars, int32_t c)
{
    for (size_t at = 0; at < chars.len;) {
        if (string_next(chars, &at) == c) return true;
    }
    return false;
}

static bool is_stripped(const struct string *chars, int32_t c)
{
    return chars ? is_among(*chars, c) : string_is_blank(c);
}

struct string string_strip(struct string text, const struct string *chars, unsigned sides)
{
    size_t begin = 0, end = text.len;
    for (size_t at = 0; (sides & STRING_LEFT) && at < end; begin = at) {
        if (!is_stripped(chars, string_next(text, &at))) break;
    }
    for (size_t at = end; (sides & STRING_RIGHT) && at > begin; end = at) {
        if (!is_stripped(chars, string_before(text, &at))) break;
    }
    return string_of(text.data + begin, end - begin);
}

int string_strip_chars(struct render *r, struct string text, const struct value *chars,
                       unsigned sides, struct value *out, struct error *err)
{
    const struct string *given = chars && chars->kind != VALUE_NONE ? &chars->text : NULL;
    if (given && chars->kind != VALUE_STRING) {
        return error_set(err, ERR_ARGUMENT, "the characters to strip are a text, not a %s",
                         value_type(chars));
    }
    int rc = render_bytes(r, text.len * (1 + (given ? given->len : 0)), err);
    if (!rc) *out = value_string(string_strip(text, given, sides));
    return rc;
}

size_t string_find_work(struct string text, struct string part)
{
    return text.len / VALUE_STEP_BYTES * (1 + part.len / VALUE_STEP_BYTES);
}

size_t string_find(struct string text, struct string part, size_t from)
{
    if (!part.len) return from;
    while (part.len <= text.len && from <= text.len - part.len) {
        size_t n_starts = text.len - part.len + 1 - from;
        const char *at = memchr(text.data + from, part.data[0], n_starts);
        if (!at) break;
        if (memcmp(at, part.data, part.len) == 0) return (size_t)(at - text.data);
        from = (size_t)(at - text.data) + 1;
    }
    return text.len + 1;
}

size_t string_find_last(struct string text, struct string part)
{
    if (!part.len) return text.len;
    for (size_t i = text.len; i-- > 0;) {
        if (part.len <= text.len - i && memcmp(text.data + i, part.data, part.len) == 0) return i;
    }
    return text.len + 1;
}

size_t string_length(struct string text)
{
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++)
        n += (text.data[i] & 0xc0) != 0x80;
    return n;
}

/* ---- case ---- */

static bool is_cased(int32_t c)
{
    utf8proc_category_t category = utf8proc_category(c);
    return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
           category == UTF8PROC_CATEGORY_LT;
}

/* True if the character after c begins a word. */
static bool word_begins_after(int32_t c, enum string_case to)
{
    if (to == STRING_TITLE) return !is_cased(c);
    return to == STRING_WORDS && (string_is_blank(c) || (c && c < 0x80 && strchr("-({[<", c)));
}

/* Characters whose capital is several letters, alone and before small ones. The rarer ones of
 * Unicode's SpecialCasing are left out; they become one letter. */
static const struct long_capital {
    int32_t c;
    const char *upper, *title;
} long_capitals[] = {{0xdf, "SS", "Ss"},     {0x149, "\u02bcN", "\u02bcN"}, {0xfb00, "FF", "Ff"},
                     {0xfb01, "FI", "Fi"},   {0xfb02, "FL", "Fl"},          {0xfb03, "FFI", "Ffi"},
                     {0xfb04, "FFL", "Ffl"}, {0xfb05, "ST", "St"},          {0xfb06, "ST", "St"}};

static const struct long_capital *find_long_capital(int32_t c)
{
    for (size_t i = 0; i < sizeof long_capitals / sizeof *long_capitals; i++) {
        if (long_capitals[i].c == c) return &long_capitals[i];
    }
    return NULL;
}

/* Writes the character in its new case and returns the bytes. */
static size_t put_cased(char *at, int32_t c, enum string_case to, bool is_first)
{
    bool is_lower = to == STRING_LOWER || (to != STRING_UPPER && !is_first);
    bool is_upper = to == STRING_UPPER || to == STRING_WORDS;
    const struct long_capital *capital = is_lower ? NULL : find_long_capital(c);
    if (capital) {
        const char *text = is_upper ? capital->upper : capital->title;
        memcpy(at, text, strlen(text));
        return strlen(text);
    }
    int32_t changed = is_lower   ? utf8proc_tolower(c)
                      : is_upper ? utf8proc_toupper(c)
                                 : utf8proc_totitle(c);
    return (size_t)utf8proc_encode_char(changed, (utf8proc_uint8_t *)at);
}

int string_change_case(struct render *r, struct string text, enum string_case to, struct value *out,
                       struct error *err)
{
    char *changed;
    size_t len = 0;
    bool is_first = true;
    int rc = render_bytes(r, text.len, err);
    if (!rc) rc = heap_array(&r->heap, &changed, CHAR_BYTES * text.len, err);
    if (rc) return rc;
    for (size_t at = 0; at < text.len;) {
        int32_t c = string_next(text, &at);
        len += put_cased(changed + len, c, to, is_first);
        is_first = word_begins_after(c, to);
    }
    *out = value_string(string_of(changed, len));
    return 0;
}

int string_has_case(struct render *r, struct string text, enum string_case which, struct value *out,
                    struct error *err)
{
    bool has_letters = false, has_others = false;
    int rc = render_bytes(r, text.len, err);
    for (size_t at = 0; at < text.len && !rc;) {
        utf8proc_category_t category = utf8proc_category(string_next(text, &at));
        bool is_upper = category == UTF8PROC_CATEGORY_LU;
        bool is_lower = category == UTF8PROC_CATEGORY_LL;
        has_letters = has_letters || is_upper || is_lower;
        has_others = has_others || category == UTF8PROC_CATEGORY_LT ||
                     (which == STRING_UPPER ? is_lower : is_upper);
    }
    *out = value_bool(has_letters && !has_others);
    return rc;
}

/* ---- joining, replacing and splitting ---- */

int string_join(struct render *r, const struct list *texts, struct string between,
                struct value *out, struct error *err)
{
    size_t len = 0;
    char *made;
    for (size_t i = 0; i < texts->n; i++)
        len += texts->items[i].text.len + (i ? between.len : 0);
    int rc = render_step(r, len / VALUE_STEP_BYTES + texts->n, err);
    if (!rc) rc = heap_array(&r->heap, &made, len, err);
    if (rc) return rc;
    *out = value_string(string_of(made, len));
    for (size_t i = 0; i < texts->n; i++) {
        struct string text = texts->items[i].text;
        if (i && between.len) memcpy(made, between.data, between.len);
        made += i ? between.len : 0;
        if (text.len) memcpy(made, text.data, text.len);
        made += text.len;
    }
    return 0;
}

static size_t count_parts(struct string text, struct string part, int64_t most)
{
    size_t n = 0;
    for (size_t at = 0; most < 0 || n < (size_t)most; n++) {
        at = string_find(text, part, at);
        if (at > text.len) break;
        at += part.len;
    }
    return n;
}

/* An empty text is found before each character and at the end. */
static int replace_nothing(struct render *r, struct string text, struct string to, int64_t most,
                           struct value *out, struct error *err)
{
    size_t n = string_length(text) + 1, len = 0;
    char *made;
    if (most >= 0 && (size_t)most < n) n = (size_t)most;
    int rc = render_bytes(r, text.len + n * to.len, err);
    if (!rc) rc = heap_array(&r->heap, &made, text.len + n * to.len, err);
    if (rc) return rc;
    for (size_t at = 0; n || at < text.len;) {
        if (n) {
            if (to.len) memcpy(made + len, to.data, to.len);
            len += to.len;
            n--;
        }
        size_t begin = at;
        if (at < text.len) string_next(text, &at);
        memcpy(made + len, text.data + begin, at - begin);
        len += at - begin;
    }
    *out = value_string(string_of(made, len));
    return 0;
}

int string_replace(struct render *r, struct string text, struct string from, struct string to,
                   int64_t most, struct value *out, struct error *err)
{
    char *made;
    if (!from.len) return replace_nothing(r, text, to, most, out, err);
    int rc = render_step(r, string_find_work(text, from), err);
    if (rc) return rc;
    size_t n = count_parts(text, from, most), len = text.len - n * from.len + n * to.len;
    rc = render_bytes(r, len, err);
    if (!rc) rc = heap_array(&r->heap, &made, len, err);
    if (rc) return rc;
    *out = value_string(string_of(made, len));
    size_t at = 0;
    for (; n; n--) {
        size_t found = string_find(text, from, at);
        memcpy(made, text.data + at, found - at);
        made += found - at;
        if (to.len) memcpy(made, to.data, to.len);
        made += to.len;
        at = found + from.len;
    }
    if (text.len > at) memcpy(made, text.data + at, text.len - at);
    return 0;
}

struct pieces {
    struct render *r;
    struct value *items;
    size_t n, capacity;
};

static int add_piece(struct pieces *p, struct string text, size_t begin, size_t end,
                     struct error *err)
{
    int rc = render_step(p->r, 1, err);
    if (!rc) rc = heap_grow(&p->r->heap, &p->items, &p->capacity, p->n, err);
    if (!rc) p->items[p->n++] = value_string(string_of(text.data + begin, end - begin));
    return rc;
}

static int finish(struct pieces *p, bool is_reversed, struct value *out, struct error *err)
{
    for (size_t i = 0; is_reversed && i < p->n / 2; i++) {
        struct value other = p->items[i];
        p->items[i] = p->items[p->n - 1 - i];
        p->items[p->n - 1 - i] = other;
    }
    return value_make_list(&p->r->heap, VALUE_LIST, p->items, p->n, out, err);
}

static int split_at(struct pieces *p, struct string text, struct string separator, int64_t most,
                    struct error *err)
{
    int rc = 0;
    size_t at = 0;
    for (; most != 0; most--) {
        size_t found = string_find(text, separator, at);
        if (found > text.len) break;
        TRY(add_piece(p, text, at, found, err));
        at = found + separator.len;
    }
    TRY(add_piece(p, text, at, text.len, err));
out:
    return rc;
}

/* From the right; the pieces come in reverse. */
static int split_at_last(struct pieces *p, struct string text, struct string separator,
                         int64_t most, struct error *err)
{
    int rc = 0;
    size_t end = text.len;
    for (; most != 0; most--) {
        size_t found = string_find_last(string_of(text.data, end), separator);
        if (found > end) break;
        TRY(add_piece(p, text, found + separator.len, end, err));
        end = found;
    }
    TRY(add_piece(p, text, 0, end, err));
out:
    return rc;
}

static int split_blanks(struct pieces *p, struct string text, int64_t most, struct error *err)
{
    int rc = 0;
    for (;;) {
        text = string_strip(text, NULL, STRING_LEFT);
        if (!text.len) break;
        size_t end = 0, at = 0;
        while (most != 0 && at < text.len && !string_is_blank(string_next(text, &at)))
            end = at;
        if (most == 0) {
            rc = add_piece(p, text, 0, text.len, err);
            break;
        }
        TRY(add_piece(p, text, 0, end, err));
        text = string_of(text.data + end, text.len - end);
        most--;
    }
out:
    return rc;
}

static int split_blanks_right(struct pieces *p, struct string text, int64_t most, struct error *err)
{
    int rc = 0;
    for (;; most--) {
        text = string_strip(text, NULL, STRING_RIGHT);
        if (!text.len) break;
        size_t begin = text.len, at = text.len;
        while (most != 0 && at > 0 && !string_is_blank(string_before(text, &at)))
            begin = at;
        if (most == 0) {
            rc = add_piece(p, text, 0, text.len, err);
            break;
        }
        TRY(add_piece(p, text, begin, text.len, err));
        text.len = begin;
    }
out:
    return rc;
}

int string_split(struct render *r, struct string text, const struct string *separator, int64_t most,
                 bool is_right, struct value *out, struct error *err)
{
    struct pieces p = {.r = r};
    const struct string blank = {" ", 1};
    int rc = render_step(r, string_find_work(text, separator ? *separator : blank), err);
    if (rc) return rc;
    if (separator && !separator->len) {
        return error_set(err, ERR_ARGUMENT, "the separator of a split is empty");
    }
    if (separator) {
        rc = is_right ? split_at_last(&p, text, *separator, most, err)
                      : split_at(&p, text, *separator, most, err);
    } else {
        rc = is_right ? split_blanks_right(&p, text, most, err) : split_blanks(&p, text, most, err);
    }
    return rc ? rc : finish(&p, is_right, out, err);
}

static bool is_line_end(int32_t c)
{
    return (c >= '\n' && c <= '\r') || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

int string_split_lines(struct render *r, struct string text, bool keeps_ends, struct value *out,
                       struct error *err)
{
    int rc = 0;
    struct pieces p = {.r = r};
    TRY(render_bytes(r, text.len, err));
    for (size_t begin = 0, at = 0; at < text.len; begin = at) {
        size_t end = at;
        while (at < text.len) {
            end = at;
            int32_t c = string_next(text, &at);
            if (!is_line_end(c)) {
                end = at;
                continue;
            }
            if (c == '\r' && at < text.len && text.data[at] == '\n') at++;
            break;
        }
        TRY(add_piece(&p, text, begin, keeps_ends ? at : end, err));
    }
    TRY(finish(&p, false, out, err));
out:
    return rc;
}

int string_escape(struct render *r, struct string text, struct value *out, struct error *err)
{
    static const struct {
        const char *from, *to;
    } entities[] = {{"&", "&amp;"}, {">", "&gt;"}, {"<", "&lt;"}, {"'", "&#39;"}, {"\"", "&#34;"}};
    int rc = 0;
    *out = value_string(text);
    for (size_t i = 0; i < sizeof entities / sizeof *entities && !rc; i++) {
        rc = string_replace(r, out->text, string_of(entities[i].from, 1),
                            string_of(entities[i].to, strlen(entities[i].to)), -1, out, err);
    }
    out->is_safe = true;
    return rc;
}
