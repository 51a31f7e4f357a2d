/* Fields of a JSON object, a row of a table for each. */
#pragma once

#include "coordinator/openai/request/request.h"

/* Bodies that have the field. */
enum { COMPLETION = 1, CHAT = 2, BOTH = 3 };

struct field;

/* A body that is being read. */
struct reading {
    struct openai_reading *r;
    struct openai_request *out;
    const struct openai_limits *limits;
    const struct field *field;
    int max_tokens, max_completion_tokens; /* -1 = not given */
};

typedef int read_fn(struct reading *r, const json_t *v);

struct field {
    const char *name;
    unsigned kinds;
    read_fn *read; /* NULL: the field means nothing here and changes nothing */
    /* Place in struct openai_request and range, for plain numbers and booleans. */
    size_t offset;
    double least, most;
};

/* Reads all of an object's fields; null is as if a field were not there. What the table lacks is
 * noted as ignored. prefix: of the names in sentences, such as "outrider.". */
int openai_read_fields(struct reading *r, const json_t *object, const struct field *list, size_t n,
                       const char *prefix);

/* The row of a body's field; NULL = there is none. */
const struct field *openai_field_find(const struct field *list, size_t n, const char *name,
                                      enum openai_kind kind);

/* ---- readers of plain fields ---- */
read_fn openai_field_int, openai_field_float, openai_field_bool, openai_field_string;
/* A boolean whose place holds the contrary. */
read_fn openai_field_not;
/* "outrider", whose own fields are in outrider.c. */
read_fn openai_field_outrider;
bool openai_field_is_outrider(const char *name, enum openai_kind kind);
/* "prediction"; prediction.c. */
read_fn openai_field_prediction;
/* Refuses a field that would change the text and is not supported, if it asks for anything. */
read_fn openai_field_refuse;
/* Takes a number or a boolean (0 or 1) only if it has the value `least`, which asks for nothing. */
read_fn openai_field_neutral;

/* The place of a word in a list. */
int openai_field_word(struct reading *r, const json_t *v, const char *const *words, int n,
                      int *out);
