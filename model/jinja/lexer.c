/* The tokens of a template, as jinja2/lexer.py finds them. */
#include "model/jinja/lexer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/jinja/literal.h"
#include "model/jinja/pystring.h"

enum { BRACES_MAX = 256 };

struct lexer {
    struct heap *heap;
    const char *at, *end; /* of the source with "\n" as its only line break */
    int line;
    bool line_starts; /* the last token ended with a line break, or there was none */
    struct token *tokens;
    size_t n_tokens, capacity;
    char braces[BRACES_MAX]; /* the closing bracket of each that is open within the tag */
    int n_braces;
};

static int fail(const struct lexer *l, struct error *err, const char *what)
{
    return error_set(err, ERR_FORMAT, "line %d: %s", l->line, what);
}

/* ---- characters ---- */

static struct string between(const char *begin, const char *end)
{
    return string_of(begin, (size_t)(end - begin));
}

static const char *after_blanks(const char *at, const char *end)
{
    return string_strip(between(at, end), NULL, STRING_LEFT).data;
}

static const char *before_blanks(const char *begin, const char *end)
{
    struct string text = string_strip(between(begin, end), NULL, STRING_RIGHT);
    return text.data + text.len;
}

/* The end of the name that begins here. */
static const char *name_end(const struct lexer *l)
{
    struct string rest = between(l->at, l->end);
    size_t end = 0;
    for (size_t at = 0; at < rest.len; end = at) {
        int32_t c = string_next(rest, &at);
        if (c != '_' && !string_is_letter_or_number(c)) break;
    }
    return l->at + end;
}

static bool starts(const struct lexer *l, const char *text)
{
    size_t len = strlen(text);
    return (size_t)(l->end - l->at) >= len && memcmp(l->at, text, len) == 0;
}

/* Advances by n bytes and counts their lines. */
static void advance(struct lexer *l, size_t n)
{
    for (size_t i = 0; i < n; i++)
        l->line += l->at[i] == '\n';
    if (n) l->line_starts = l->at[n - 1] == '\n';
    l->at += n;
}

static void skip_blanks(struct lexer *l)
{
    advance(l, (size_t)(after_blanks(l->at, l->end) - l->at));
}

/* ---- tokens ---- */

static int add(struct lexer *l, struct token token, struct error *err)
{
    int rc = heap_grow(l->heap, &l->tokens, &l->capacity, l->n_tokens, err);
    if (!rc) l->tokens[l->n_tokens++] = token;
    return rc;
}

static int add_text(struct lexer *l, int line, const char *begin, const char *end,
                    struct error *err)
{
    if (begin == end) return 0;
    return add(l, (struct token){TOKEN_TEXT, line, between(begin, end), {0}}, err);
}

/* The end of the text before a tag: without all blanks for "-", without those between the line's
 * beginning and a block for lstrip_blocks. */
static const char *text_end(const char *begin, const char *end, char sign, bool is_print,
                            bool line_started)
{
    const char *line = end;
    if (sign == '-') return before_blanks(begin, end);
    if (sign == '+' || is_print) return end;
    while (line > begin && line[-1] != '\n')
        line--;
    if (line == begin && !line_started) return end;
    return after_blanks(line, end) == end ? line : end;
}

/* After the end of a tag: blanks for "-", otherwise one line break after blocks (trim_blocks). */
static void after_tag(struct lexer *l, char sign, bool trims)
{
    if (sign == '-') {
        skip_blanks(l);
    } else if (trims && sign != '+' && l->at < l->end && *l->at == '\n') {
        advance(l, 1);
    }
}

/* "-" or "+" after the two characters that open a tag; 0 for neither. */
static char sign_at(const struct lexer *l, const char *at)
{
    return at < l->end && (*at == '-' || *at == '+') ? *at : 0;
}

static int lex_comment(struct lexer *l, struct error *err)
{
    const char *begin = l->at + (sign_at(l, l->at + 2) ? 3 : 2), *at = begin;
    while (l->end - at >= 2 && !(at[0] == '#' && at[1] == '}'))
        at++;
    if (l->end - at < 2) return fail(l, err, "a comment has no end (#})");
    char sign = at > begin ? sign_at(l, at - 1) : 0;
    advance(l, (size_t)(at + 2 - l->at));
    after_tag(l, sign, true);
    return 0;
}

/* {% raw %}: the length of the tag at `at`, 0 if it is another. *sign: before its end. */
static size_t raw_tag(const struct lexer *l, const char *at, const char *name, char *sign)
{
    const char *begin = at;
    if (l->end - at < 2 || at[0] != '{' || at[1] != '%') return 0;
    at += 2;
    if (sign_at(l, at)) at++;
    at = after_blanks(at, l->end);
    size_t len = strlen(name);
    if ((size_t)(l->end - at) < len || memcmp(at, name, len) != 0) return 0;
    at = after_blanks(at + len, l->end);
    *sign = sign_at(l, at);
    if (*sign) at++;
    if (l->end - at < 2 || at[0] != '%' || at[1] != '}') return 0;
    return (size_t)(at + 2 - begin);
}

static int lex_raw(struct lexer *l, size_t tag_len, char sign, struct error *err)
{
    advance(l, tag_len);
    after_tag(l, sign, false);
    const char *begin = l->at, *at = begin;
    int line = l->line;
    bool line_started = l->line_starts;
    size_t end_len = 0;
    while (at < l->end && !(end_len = raw_tag(l, at, "endraw", &sign)))
        at++;
    if (!end_len) return fail(l, err, "{% raw %} has no {% endraw %}");
    int rc =
        add_text(l, line, begin, text_end(begin, at, sign_at(l, at + 2), false, line_started), err);
    advance(l, (size_t)(at - begin) + end_len);
    after_tag(l, sign, true);
    return rc;
}

/* ---- within a tag ---- */

static int lex_string(struct lexer *l, struct error *err)
{
    const char *at = l->at + 1;
    while (at < l->end && *at != *l->at)
        at += *at == '\\' ? 2 : 1;
    if (at >= l->end) return fail(l, err, "a string has no end");
    struct token token = {.kind = TOKEN_STRING, .line = l->line};
    int rc = literal_string(l->heap, between(l->at + 1, at), &token.text, err);
    if (rc) return error_wrap(err, "line %d", l->line);
    advance(l, (size_t)(at + 1 - l->at));
    return add(l, token, err);
}

static int lex_number(struct lexer *l, struct error *err)
{
    struct value v;
    size_t len;
    int rc = literal_number(between(l->at, l->end), &len, &v, err);
    if (rc) return error_wrap(err, "line %d", l->line);
    struct token token = {.line = l->line, .text = string_of(l->at, len)};
    if (v.kind == VALUE_INT) {
        token.kind = TOKEN_INT;
        token.integer = v.integer;
    } else {
        token.kind = TOKEN_FLOAT;
        token.number = v.number;
    }
    advance(l, len);
    return add(l, token, err);
}

static int lex_name(struct lexer *l, struct error *err)
{
    struct token token = {TOKEN_NAME, l->line, between(l->at, name_end(l)), {0}};
    advance(l, token.text.len);
    return add(l, token, err);
}

static int note_brace(struct lexer *l, char c, struct error *err)
{
    static const char open[] = "([{", close[] = ")]}";
    const char *at = strchr(open, c);
    if (at) {
        if (l->n_braces == BRACES_MAX) return fail(l, err, "too many open brackets");
        l->braces[l->n_braces++] = close[at - open];
    } else if (strchr(close, c)) {
        if (!l->n_braces || l->braces[l->n_braces - 1] != c) {
            return error_set(err, ERR_FORMAT, "line %d: unexpected '%c'", l->line, c);
        }
        l->n_braces--;
    }
    return 0;
}

static int lex_operator(struct lexer *l, struct error *err)
{
    static const char *const operators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                            "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                            ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        if (!starts(l, operators[i])) continue;
        size_t len = strlen(operators[i]);
        int rc = len == 1 ? note_brace(l, *l->at, err) : 0;
        if (rc) return rc;
        struct token token = {TOKEN_OPERATOR, l->line, string_of(operators[i], len), {0}};
        advance(l, len);
        return add(l, token, err);
    }
    struct string rest = between(l->at, l->end);
    size_t len = 0;
    string_next(rest, &len);
    return error_set(err, ERR_FORMAT, "line %d: unexpected character '%.*s'", l->line, (int)len,
                     rest.data);
}

/* True if the tag ends here: "}}", "-}}", "%}", "-%}", "+%}". */
static bool tag_ends(const struct lexer *l, const char *mark, char *sign)
{
    if (l->n_braces) return false;
    *sign = sign_at(l, l->at);
    if (*sign == '+' && mark[0] == '}') *sign = 0; /* "+}}" is none */
    const char *at = l->at + (*sign ? 1 : 0);
    return l->end - at >= 2 && at[0] == mark[0] && at[1] == mark[1];
}

static int lex_item(struct lexer *l, struct error *err)
{
    char c = *l->at;
    bool is_digit = c >= '0' && c <= '9';
    if (is_digit) return lex_number(l, err);
    if (name_end(l) > l->at) return lex_name(l, err);
    if (c == '"' || c == '\'') return lex_string(l, err);
    return lex_operator(l, err);
}

static int lex_tag(struct lexer *l, bool is_print, struct error *err)
{
    int rc = 0, line = l->line;
    const char *mark = is_print ? "}}" : "%}";
    char sign = sign_at(l, l->at + 2);
    enum token_kind begin = is_print ? TOKEN_PRINT_BEGIN : TOKEN_BLOCK_BEGIN;
    advance(l, sign ? 3 : 2);
    TRY(add(l, (struct token){begin, line, {"", 0}, {0}}, err));
    for (skip_blanks(l); l->at < l->end && !tag_ends(l, mark, &sign); skip_blanks(l)) {
        TRY(lex_item(l, err));
    }
    if (l->at == l->end) {
        return error_set(err, ERR_FORMAT, "line %d: a tag that begins here has no end (%s)", line,
                         mark);
    }
    TRY(add(l, (struct token){is_print ? TOKEN_PRINT_END : TOKEN_BLOCK_END, l->line, {"", 0}, {0}},
            err));
    advance(l, sign ? 3 : 2);
    after_tag(l, sign, !is_print);
out:
    return rc;
}

/* ---- the whole ---- */

/* A copy in which "\n" is the only line break, without the last one. */
static int normalize(struct lexer *l, const char *source, size_t len, struct error *err)
{
    char *copy;
    size_t n = 0;
    int rc = heap_array(l->heap, &copy, len, err);
    if (rc) return rc;
    for (size_t i = 0; i < len; i++) {
        if (source[i] == '\r' && i + 1 < len && source[i + 1] == '\n') continue;
        copy[n++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (n && copy[n - 1] == '\n') n--;
    l->at = copy;
    l->end = copy + n;
    return 0;
}

/* The next "{{", "{%" or "{#", or the end. */
static const char *next_tag(const struct lexer *l)
{
    const char *at = l->at;
    while (at < l->end) {
        at = memchr(at, '{', (size_t)(l->end - at));
        if (!at) return l->end;
        if (l->end - at >= 2 && strchr("{%#", at[1]) && at[1]) return at;
        at++;
    }
    return l->end;
}

static int lex_piece(struct lexer *l, struct error *err)
{
    const char *begin = l->at, *tag = next_tag(l);
    bool line_started = l->line_starts;
    int line = l->line;
    const char *end = tag;
    if (tag < l->end) {
        end = text_end(begin, tag, sign_at(l, tag + 2), tag[1] == '{', line_started);
    }
    int rc = add_text(l, line, begin, end, err);
    if (rc) return rc;
    advance(l, (size_t)(tag - begin));
    if (tag == l->end) return 0;
    char sign = 0;
    size_t raw_len = raw_tag(l, tag, "raw", &sign);
    if (raw_len && sign != '+') return lex_raw(l, raw_len, sign, err);
    return tag[1] == '#' ? lex_comment(l, err) : lex_tag(l, tag[1] == '{', err);
}

int lexer_run(struct heap *heap, const char *source, size_t len, struct token **tokens,
              struct error *err)
{
    struct lexer l = {.heap = heap, .line = 1, .line_starts = true};
    int rc = normalize(&l, source, len, err);
    while (!rc && l.at < l.end)
        rc = lex_piece(&l, err);
    if (!rc) rc = add(&l, (struct token){TOKEN_END, l.line, {"", 0}, {0}}, err);
    *tokens = rc ? NULL : l.tokens;
    return rc;
}
