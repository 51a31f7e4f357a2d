/* The body of a request as a tree of values, charged for what it occupies. */
#pragma once

#include <jansson.h>

#include "base/budget.h"

struct openai_body {
    json_t *root;
    struct budget *budget;
    size_t charged_bytes;
};

/* Errors: ERR_FORMAT with line and column, ERR_EXHAUSTED, ERR_NO_MEMORY. */
int openai_body_parse(struct openai_body *body, const char *text, size_t len, struct budget *budget,
                      struct error *err);
/* Accepts a zeroed one. */
void openai_body_free(struct openai_body *body);
