/* Patterns of the file, written for Oniguruma, through PCRE2. Where the two read the same letters
 * differently the pattern is rewritten or refused, never guessed:
 *   \s \S   White_Space; PCRE2 would also take U+180E
 *   \w \W   letters, marks, decimal digits, connectors; PCRE2 takes fewer
 *   \p{Han} the Script property; PCRE2 would take Script_Extensions
 *   \h \v \b \B \K \C \Q, classes within classes and && in classes are refused. */
#include "model/tokenizer/pattern.h"

#include <string.h>

#define SPACE_SET "\\t-\\r\\x{85}\\p{Z}"
#define WORD_SET  "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"

enum { MAX_PATTERN_BYTES = 1 << 16, MATCH_STEPS = 10000000, STACK_BYTES = 1 << 20 };

/* A pattern on its way into PCRE2's dialect. */
struct rewrite {
    struct text in;
    size_t at;
    struct text_buf out;
    bool in_class;
};

static int put(struct rewrite *r, const char *text, struct error *err)
{
    return text_buf_append(&r->out, text, strlen(text), err);
}

/* Copies the next n bytes of the pattern as they are. */
static int copy(struct rewrite *r, size_t n, struct error *err)
{
    if (n > r->in.len - r->at) n = r->in.len - r->at;
    int rc = text_buf_append(&r->out, r->in.data + r->at, n, err);
    r->at += n;
    return rc;
}

static int unsupported_pattern(const struct rewrite *r, const char *what, struct error *err)
{
    return error_set(err, ERR_UNSUPPORTED, "pattern \"%.*s\" has %s",
                     text_shown_length(r->in.data, r->in.len, 160), r->in.data, what);
}

/* Errors: ERR_NO_MEMORY; without it the pattern would come to mean something else. */
static int is_script(bool *is, const char *name, size_t len, struct error *err)
{
    char text[48];
    *is = false;
    if (len < 3 || len > 24) return 0;
    memcpy(text, "\\p{sc:", 6);
    memcpy(text + 6, name, len);
    memcpy(text + 6 + len, "}", 1);
    int code;
    PCRE2_SIZE where;
    pcre2_code *compiled =
        pcre2_compile((PCRE2_SPTR)text, len + 7, PCRE2_UTF | PCRE2_UCP, &code, &where, NULL);
    pcre2_code_free(compiled);
    *is = compiled != NULL;
    if (*is || code != PCRE2_ERROR_HEAP_FAILED) return 0;
    return error_set(err, ERR_NO_MEMORY, "no memory for a pattern");
}

/* At "\p" or "\P". */
static int rewrite_property(struct rewrite *r, struct error *err)
{
    const char *start = r->in.data + r->at;
    size_t left = r->in.len - r->at;
    const char *close = left > 2 && start[2] == '{' ? memchr(start, '}', left) : NULL;
    if (!close) return copy(r, 2, err);
    size_t len = (size_t)(close - start) - 3;
    bool is;
    int rc = is_script(&is, start + 3, len, err);
    if (rc) return rc;
    if (!is) return copy(r, len + 4, err);
    rc = copy(r, 3, err);
    if (!rc) rc = put(r, "sc:", err);
    return rc ? rc : copy(r, len + 1, err);
}

/* At a backslash. */
static int rewrite_escape(struct rewrite *r, struct error *err)
{
    if (r->at + 1 >= r->in.len) return copy(r, 1, err);
    char letter = r->in.data[r->at + 1];
    const char *text = NULL;
    switch (letter) {
    case 'p':
    case 'P':
        return rewrite_property(r, err);
    case 's':
        text = r->in_class ? SPACE_SET : "[" SPACE_SET "]";
        break;
    case 'S':
        text = r->in_class ? "\\S\\x{180e}" : "[^" SPACE_SET "]";
        break;
    case 'w':
        text = r->in_class ? WORD_SET : "[" WORD_SET "]";
        break;
    case 'W':
        if (r->in_class) {
            return unsupported_pattern(r, "\\W in a class, which is not understood", err);
        }
        text = "[^" WORD_SET "]";
        break;
    default:
        if (memchr("hHvVbBKCQEyYmMg", letter, 15)) {
            char what[] = "\\?, which is not understood";
            what[1] = letter;
            return unsupported_pattern(r, what, err);
        }
        return copy(r, 1 + text_char_length(letter), err);
    }
    r->at += 2;
    return put(r, text, err);
}

/* Inside a class, or at the bracket that opens one. */
static int rewrite_class(struct rewrite *r, struct error *err)
{
    size_t left = r->in.len - r->at;
    const char *start = r->in.data + r->at;
    if (!r->in_class) {
        r->in_class = true;
        size_t n = left > 1 && start[1] == '^' ? 2 : 1;
        if (left > n && start[n] == ']') n++; /* a literal bracket */
        return copy(r, n, err);
    }
    if (*start == ']') r->in_class = false;
    if (*start == '&' && left > 1 && start[1] == '&') {
        return unsupported_pattern(r, "&& in a class, which is not understood", err);
    }
    if (*start != '[') return copy(r, text_char_length(*start), err);
    const char *close = left > 2 && start[1] == ':' ? memchr(start, ']', left) : NULL;
    if (!close || close[-1] != ':' || close - start < 4) {
        return unsupported_pattern(r, "a class within a class, which is not understood", err);
    }
    return copy(r, (size_t)(close - start) + 1, err);
}

static int rewrite_pattern(struct rewrite *r, struct error *err)
{
    int rc = 0;
    while (!rc && r->at < r->in.len) {
        char c = r->in.data[r->at];
        if (c == '\\') {
            rc = rewrite_escape(r, err);
        } else if (r->in_class || c == '[') {
            rc = rewrite_class(r, err);
        } else {
            rc = copy(r, text_char_length(c), err);
        }
    }
    return rc;
}

static int compile(struct pattern *pattern, struct text text, struct text rewritten,
                   uint32_t options, const char *origin, struct error *err)
{
    int code;
    PCRE2_SIZE where;
    pattern->code = pcre2_compile((PCRE2_SPTR)rewritten.data, rewritten.len,
                                  options | PCRE2_UTF | PCRE2_NO_UTF_CHECK, &code, &where, NULL);
    if (!pattern->code) {
        PCRE2_UCHAR message[128] = "";
        pcre2_get_error_message(code, message, sizeof message);
        int rc = code == PCRE2_ERROR_HEAP_FAILED ? ERR_NO_MEMORY : ERR_UNSUPPORTED;
        return error_set(err, rc, "%s: pattern \"%.*s\" does not compile: %s", origin,
                         text_shown_length(text.data, text.len, 160), text.data,
                         (const char *)message);
    }
    pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE); /* without JIT it is only slower */
    return 0;
}

int pattern_compile(struct pattern *pattern, struct text text, bool literal, const char *origin,
                    struct error *err)
{
    struct rewrite r = {.in = text};
    pattern->code = NULL;
    int rc = 0;
    if (text.len > MAX_PATTERN_BYTES) {
        return error_set(err, ERR_UNSUPPORTED, "%s: a pattern of %zu bytes, more than %d", origin,
                         text.len, (int)MAX_PATTERN_BYTES);
    }
    if (literal) return compile(pattern, text, text, PCRE2_LITERAL, origin, err);
    rc = rewrite_pattern(&r, err);
    if (rc) {
        error_wrap(err, "%s", origin);
    } else {
        struct text rewritten = {r.out.data ? r.out.data : "", r.out.len};
        uint32_t options = PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
        rc = compile(pattern, text, rewritten, options, origin, err);
    }
    text_buf_free(&r.out);
    return rc;
}

void pattern_free(struct pattern *pattern)
{
    pcre2_code_free(pattern->code);
    pattern->code = NULL;
}

int matcher_open(struct matcher *matcher, struct error *err)
{
    matcher->data = pcre2_match_data_create(1, NULL);
    matcher->context = pcre2_match_context_create(NULL);
    matcher->stack = pcre2_jit_stack_create(32 * 1024, STACK_BYTES, NULL);
    if (!matcher->data || !matcher->context || !matcher->stack) {
        matcher_close(matcher);
        return error_set(err, ERR_NO_MEMORY, "no memory for pattern matching");
    }
    pcre2_jit_stack_assign(matcher->context, NULL, matcher->stack);
    pcre2_set_heap_limit(matcher->context, 64 * 1024); /* KiB */
    return 0;
}

void matcher_close(struct matcher *matcher)
{
    pcre2_match_data_free(matcher->data);
    pcre2_match_context_free(matcher->context);
    pcre2_jit_stack_free(matcher->stack);
    *matcher = (struct matcher){0};
}

static int match_failed(int code, struct error *err)
{
    PCRE2_UCHAR message[128] = "";
    pcre2_get_error_message(code, message, sizeof message);
    return error_set(err, code == PCRE2_ERROR_NOMEMORY ? ERR_NO_MEMORY : ERR_FORMAT,
                     "a pattern of the tokenizer fails on this text: %s", (const char *)message);
}

int pattern_next(struct pattern_scan *scan, size_t *begin, size_t *end, struct error *err)
{
    const struct matcher *m = scan->matcher;
    /* A run of blanks may cost one step for each; only patterns that explode need more. */
    size_t steps = MATCH_STEPS + scan->text.len * 4;
    pcre2_set_match_limit(m->context, steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX);
    while (scan->at <= scan->text.len) {
        int rc = pcre2_match(scan->pattern->code, (PCRE2_SPTR)scan->text.data, scan->text.len,
                             scan->at, PCRE2_NO_UTF_CHECK, m->data, m->context);
        if (rc == PCRE2_ERROR_NOMATCH) break;
        if (rc < 0) return match_failed(rc, err);
        const PCRE2_SIZE *at = pcre2_get_ovector_pointer(m->data);
        *begin = at[0];
        *end = at[1];
        if (*begin > *end || *begin < scan->last_end)
            return match_failed(PCRE2_ERROR_INTERNAL, err);
        if (*begin == *end && scan->any && *end == scan->last_end) {
            /* An empty match right after a match: look on from the next character. */
            scan->at =
                *end < scan->text.len ? *end + text_char_length(scan->text.data[*end]) : *end + 1;
            continue;
        }
        scan->at = scan->last_end = *end;
        scan->any = true;
        return 1;
    }
    scan->at = scan->text.len + 1;
    return 0;
}
