/* Readers of single values. */
#include "coordinator/openai/request/values.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int openai_refuse(struct openai_reading *r, const char *format, ...)
{
    char text[ERROR_TEXT_BYTES / 2];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(r->wrong->param, sizeof r->wrong->param, "%s", r->field);
    return error_set(r->err, ERR_ARGUMENT, "%s %s", r->field, text);
}

int openai_blame(struct openai_reading *r, const char *field)
{
    snprintf(r->wrong->param, sizeof r->wrong->param, "%s", field);
    return r->err->code = ERR_ARGUMENT;
}

const char *openai_type_of(const json_t *v)
{
    static const char *const names[] = {"an object", "an array", "a string", "an integer",
                                        "a number",  "true",     "false",    "null"};
    return names[json_typeof(v)];
}

/* 3.0 is an integer, too: some clients have no other numbers. */
static bool is_whole(const json_t *v, json_int_t *n)
{
    *n = json_integer_value(v);
    if (!json_is_real(v)) return json_is_integer(v);
    double x = json_real_value(v);
    if (x != floor(x) || fabs(x) >= 1e9) return false;
    *n = (json_int_t)x;
    return true;
}

int openai_read_int(struct openai_reading *r, const json_t *v, int least, int most, int *out)
{
    json_int_t n;
    if (!is_whole(v, &n)) return openai_refuse(r, "is %s, must be an integer", openai_type_of(v));
    if (n < least || n > most) {
        return openai_refuse(r, "is %lld, must be %d to %d", (long long)n, least, most);
    }
    *out = (int)n;
    return 0;
}

int openai_read_float(struct openai_reading *r, const json_t *v, double least, double most,
                      float *out)
{
    if (!json_is_number(v)) return openai_refuse(r, "is %s, must be a number", openai_type_of(v));
    double x = json_number_value(v);
    if (!(x >= least && x <= most)) {
        return openai_refuse(r, "is %g, must be %g to %g", x, least, most);
    }
    *out = (float)x;
    return 0;
}

int openai_read_bool(struct openai_reading *r, const json_t *v, bool *out)
{
    if (!json_is_boolean(v)) {
        return openai_refuse(r, "is %s, must be true or false", openai_type_of(v));
    }
    *out = json_is_true(v);
    return 0;
}

int openai_read_string(struct openai_reading *r, const json_t *v, const char **out)
{
    if (!json_is_string(v)) return openai_refuse(r, "is %s, must be a string", openai_type_of(v));
    *out = json_string_value(v);
    return 0;
}

int openai_take(struct openai_reading *r, void *pointer, size_t n, size_t size)
{
    void *block = arena_take(r->arena, n ? n : 1, size);
    if (!block) return openai_refuse(r, "has %zu parts, more than there is room for", n);
    memset(block, 0, n * size);
    memcpy(pointer, &block, sizeof block);
    return 0;
}

int openai_read_ids(struct openai_reading *r, const json_t *v, int most, const int32_t **ids,
                    int *n)
{
    int rc = 0;
    int32_t *made = NULL;
    size_t size = json_array_size(v);
    if (!json_is_array(v)) {
        return openai_refuse(r, "is %s, must be an array of ids", openai_type_of(v));
    }
    if (size > (size_t)most) {
        return openai_refuse(r, "has %zu ids, at most %d are allowed", size, most);
    }
    TRY(openai_take(r, &made, size, sizeof *made));
    for (size_t i = 0; i < size; i++) {
        TRY(openai_read_int(r, json_array_get(v, i), 0, INT32_MAX, &made[i]));
    }
    *ids = made;
    *n = (int)size;
out:
    return rc;
}

bool openai_is_empty(const json_t *v)
{
    return json_is_null(v) || json_is_false(v) ||
           (json_is_string(v) && json_string_length(v) == 0) ||
           (json_is_array(v) && json_array_size(v) == 0) ||
           (json_is_object(v) && json_object_size(v) == 0);
}
