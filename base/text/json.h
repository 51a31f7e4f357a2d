/* jansson, with our errors: one sentence that names the file, the key and what was found. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct buffer;

/* Parses text[len] and refuses duplicate keys. origin names the file in errors. The caller calls
 * json_decref.
 * Errors: ERR_FORMAT with line and column. */
int json_parse_text(json_t **root, const char *text, size_t len, const char *origin,
                    struct error *err);

/* As json_parse_text, for an object whose member `wide` may be an integer of 64 bits without a
 * sign: from 2^63 on it becomes the negative one of the same bits. One of more bits becomes a real
 * number, so that the member's reader can refuse it by its name. */
int json_parse_wide(json_t **root, const char *text, size_t len, const char *wide,
                    const char *origin, struct error *err);
/* A text of JSON with that integer as json_parse_wide has it; nothing where it is not there. The
 * caller calls buffer_free. Errors: ERR_NO_MEMORY. */
int json_widen_member(struct buffer *out, const char *text, size_t len, const char *member,
                      struct error *err);

/* As json_parse_text, for files that Python's json has written: where a value is Infinity,
 * -Infinity or NaN, which are no JSON, it becomes the string of this name. So code that reads the
 * value as a number refuses it, and code that does not read it is not disturbed. */
int json_parse_python(json_t **root, const char *text, size_t len, const char *origin,
                      struct error *err);

/* Typed reads of object members. If the key is missing or null, *out keeps its value, the default.
 * Errors: ERR_FORMAT wrong type, or outside of [least, most]. */
int json_read_int(const json_t *object, const char *key, int least, int most, int *out,
                  const char *origin, struct error *err);
int json_read_double(const json_t *object, const char *key, double *out, const char *origin,
                     struct error *err);
int json_read_bool(const json_t *object, const char *key, bool *out, const char *origin,
                   struct error *err);
/* *out points into root. */
int json_read_string(const json_t *object, const char *key, const char **out, const char *origin,
                     struct error *err);

/* The member, or NULL when it is missing or null. */
json_t *json_member(const json_t *object, const char *key);
