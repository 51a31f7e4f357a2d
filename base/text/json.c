/* jansson, with our errors. */
#include "base/text/json.h"

#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text/buffer.h"

/* Where jansson 2.14 has no memory for a string, it reports that the text is wrong, or drops a
 * character and goes on. So its allocations note here when one fails. */
static _Thread_local bool is_short_of_memory;

static void *noting_malloc(size_t size)
{
    void *block = malloc(size);
    if (!block) is_short_of_memory = true;
    return block;
}

static void set_alloc_funcs(void)
{
    json_set_alloc_funcs(noting_malloc, free);
}

static int parse(json_t **root, const char *text, size_t len, const char *origin,
                 json_error_t *where, struct error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_alloc_funcs);
    is_short_of_memory = false;
    *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, where);
    if (is_short_of_memory) {
        json_decref(*root);
        *root = NULL;
        return error_set(err, ERR_NO_MEMORY, "no memory for the JSON of %s", origin);
    }
    if (!*root) {
        return error_set(err, ERR_FORMAT, "%s is not JSON: line %d, column %d: %s", origin,
                         where->line, where->column, where->text);
    }
    return 0;
}

int json_parse_text(json_t **root, const char *text, size_t len, const char *origin,
                    struct error *err)
{
    json_error_t where;
    return parse(root, text, len, origin, &where, err);
}

int json_parse_wide(json_t **root, const char *text, size_t len, const char *wide,
                    const char *origin, struct error *err)
{
    json_error_t where = {0};
    struct buffer changed = {0};
    int rc = parse(root, text, len, origin, &where, err);
    if (rc != ERR_FORMAT || json_error_code(&where) != json_error_numeric_overflow) return rc;
    rc = json_widen_member(&changed, text, len, wide, err);
    bool has_it = changed.len > 0;
    rc = rc ? rc
            : parse(root, has_it ? (char *)changed.data : text, has_it ? changed.len : len, origin,
                    &where, err);
    buffer_free(&changed);
    return rc;
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Returns the first byte that is no blank, from `at` on; 0 at the end. */
static char next_sign(const char *text, size_t len, size_t at)
{
    while (at < len && strchr(" \t\r\n", text[at]))
        at++;
    return at < len ? text[at] : '\0';
}

/* The length of the name at text[at] if it is a value, and 0 otherwise. before: the last byte that
 * is no blank. */
static size_t endless_len(const char *text, size_t len, size_t at, char before)
{
    static const char *const names[] = {"Infinity", "-Infinity", "NaN"};
    if (!strchr(":[,", before)) return 0; /* also the start of the text, where before is 0 */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t n = strlen(names[i]);
        if (len - at < n || memcmp(text + at, names[i], n) != 0) continue;
        if (at + n < len && is_word(text[at + n])) return 0;
        return next_sign(text, len, at + n) == ':' ? 0 : n;
    }
    return 0;
}

/* Writes text[len] to out with those names in quotes; is_same_length: the quotes replace the last
 * letters, so that every other byte keeps its place. Returns the length, at most 2 len. */
static size_t quote_endless(char *out, const char *text, size_t len, bool is_same_length)
{
    bool is_string = false;
    char before = '\0';
    size_t n = 0;
    for (size_t at = 0; at < len; at++) {
        size_t name = is_string ? 0 : endless_len(text, len, at, before);
        char c = text[at];
        if (name) {
            size_t kept = is_same_length ? name - 2 : name;
            out[n++] = '"';
            memcpy(out + n, text + at, kept);
            n += kept;
            out[n++] = '"';
            at += name - 1;
            before = '"';
            continue;
        }
        out[n++] = c;
        if (is_string && c == '\\' && at + 1 < len) {
            out[n++] = text[++at];
        } else if (c == '"') {
            is_string = !is_string;
        }
        if (!strchr(" \t\r\n", c)) before = c;
    }
    return n;
}

int json_parse_python(json_t **root, const char *text, size_t len, const char *origin,
                      struct error *err)
{
    char *quoted = NULL;
    int rc = json_parse_text(root, text, len, origin, err);
    if (rc != ERR_FORMAT || len > SIZE_MAX / 2 - 1) return rc;
    TRY(mem_array(&quoted, 2 * len + 1, 1, err));
    /* This pass finds every other error at its place in the file. */
    TRY(json_parse_text(root, quoted, quote_endless(quoted, text, len, true), origin, err));
    json_decref(*root);
    TRY(json_parse_text(root, quoted, quote_endless(quoted, text, len, false), origin, err));
out:
    free(quoted);
    return rc;
}

json_t *json_member(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return value && !json_is_null(value) ? value : NULL;
}

int json_read_int(const json_t *object, const char *key, int least, int most, int *out,
                  const char *origin, struct error *err)
{
    const json_t *value = json_member(object, key);
    if (!value) return 0;
    if (!json_is_integer(value)) {
        return error_set(err, ERR_FORMAT, "%s: \"%s\" is not an integer", origin, key);
    }
    json_int_t n = json_integer_value(value);
    if (n < least || n > most) {
        return error_set(err, ERR_FORMAT, "%s: \"%s\" is %lld, outside of %d..%d", origin, key,
                         (long long)n, least, most);
    }
    *out = (int)n;
    return 0;
}

int json_read_double(const json_t *object, const char *key, double *out, const char *origin,
                     struct error *err)
{
    const json_t *value = json_member(object, key);
    if (!value) return 0;
    if (!json_is_number(value) || !isfinite(json_number_value(value))) {
        return error_set(err, ERR_FORMAT, "%s: \"%s\" is not a number", origin, key);
    }
    *out = json_number_value(value);
    return 0;
}

int json_read_bool(const json_t *object, const char *key, bool *out, const char *origin,
                   struct error *err)
{
    const json_t *value = json_member(object, key);
    if (!value) return 0;
    if (!json_is_boolean(value)) {
        return error_set(err, ERR_FORMAT, "%s: \"%s\" is not true or false", origin, key);
    }
    *out = json_is_true(value);
    return 0;
}

int json_read_string(const json_t *object, const char *key, const char **out, const char *origin,
                     struct error *err)
{
    const json_t *value = json_member(object, key);
    if (!value) return 0;
    if (!json_is_string(value)) {
        return error_set(err, ERR_FORMAT, "%s: \"%s\" is not a string", origin, key);
    }
    *out = json_string_value(value);
    return 0;
}
