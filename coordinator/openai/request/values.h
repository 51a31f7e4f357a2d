/* Values of a request's body, read one by one. What is wrong with one is said in a sentence that
 * names its field. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"
#include "coordinator/openai/request/error.h"

struct openai_reading {
    const json_t *root;
    struct arena *arena;
    const char *field; /* that is being read */
    struct openai_error *wrong;
    struct error *err;
};

/* "FIELD what is wrong". Returns ERR_ARGUMENT. */
int openai_refuse(struct openai_reading *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The error that is set already is the field's fault. Returns ERR_ARGUMENT. */
int openai_blame(struct openai_reading *r, const char *field);
/* "an object", "true", ... */
const char *openai_type_of(const json_t *v);

/* Each leaves *out as it is when it refuses. */
int openai_read_int(struct openai_reading *r, const json_t *v, int least, int most, int *out);
int openai_read_float(struct openai_reading *r, const json_t *v, double least, double most,
                      float *out);
int openai_read_bool(struct openai_reading *r, const json_t *v, bool *out);
int openai_read_string(struct openai_reading *r, const json_t *v, const char **out);
/* Up to `most` ids, in the arena. */
int openai_read_ids(struct openai_reading *r, const json_t *v, int most, const int32_t **ids,
                    int *n);
/* A zeroed array of the arena: *pointer gets it. */
int openai_take(struct openai_reading *r, void *pointer, size_t n, size_t size);

/* null, false, "", [] and {} say what everybody gets anyway. */
bool openai_is_empty(const json_t *v);

/* Refuses what is no {"type": "text", "text": ...}; r->field names it. */
int openai_check_part(struct openai_reading *r, const json_t *part);
