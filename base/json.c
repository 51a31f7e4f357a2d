/* jansson, with our errors. */
#include "base/json.h"

#include <math.h>

int json_parse_text(json_t **root, const char *text, size_t len, const char *origin,
                    struct error *err)
{
    json_error_t where;
    *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &where);
    if (!*root) {
        return error_set(err, ERR_FORMAT, "%s is not JSON: line %d, column %d: %s", origin,
                         where.line, where.column, where.text);
    }
    return 0;
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
