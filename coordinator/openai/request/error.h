/* Errors in OpenAI's form, with the status that HTTP has for them. */
#pragma once

#include <jansson.h>

#include "http/exchange.h"

enum { OPENAI_PARAM_BYTES = 64, OPENAI_CODE_BYTES = 32 };

/* Details of an error beside its text. Zeroed: none. */
struct openai_error {
    int status;                     /* of HTTP; 0 = that of the error's code */
    char param[OPENAI_PARAM_BYTES]; /* the field that is wrong; "" = none */
    char code[OPENAI_CODE_BYTES];   /* such as model_not_found; "" = none */
    const char *prompt;             /* the field whose tokens may be too many; NULL = unknown */
};

/* {"error": {"message", "type", "param", "code"}} for one of our codes; the caller calls
 * json_decref. NULL: there is no memory. more NULL: nothing more is known. */
json_t *openai_error_body(int code, const char *text, const struct openai_error *more);
/* Answers with it and the status of HTTP that is meant for the code. 429 and 503 say when to try
 * again. */
void openai_error_answer(struct http_exchange *x, int code, const char *text,
                         const struct openai_error *more);
