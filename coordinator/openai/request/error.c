/* One table of types, which clients turn into exceptions. */
#include "coordinator/openai/request/error.h"

#include <stdlib.h>
#include <string.h>

#include "base/text/utf8.h"

static int status_of(int code, const struct openai_error *more)
{
    if (more && more->status) return more->status;
    switch (code) {
    case ERR_ARGUMENT:
    case ERR_TOO_LONG:
    case ERR_FORMAT:
    case ERR_UNSUPPORTED:
        return 400;
    case ERR_UNAUTHENTICATED:
        return 401;
    case ERR_NOT_FOUND:
        return 404;
    case ERR_EXHAUSTED:
        return 429;
    case ERR_CANCELLED:
        return 499; /* nobody reads it: the client has left */
    case ERR_TIMEOUT:
        return 504;
    case ERR_UNAVAILABLE:
    case ERR_CLOSED:
        return 503;
    default:
        return 500;
    }
}

static const char *type_of(int status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 429:
        return "rate_limit_error";
    case 503:
        return "service_unavailable_error";
    default:
        return status < 500 ? "invalid_request_error" : "server_error";
    }
}

/* Returns the code that clients look for to shorten a conversation; NULL = none. */
static const char *name_of(int code, const struct openai_error *more)
{
    if (more && *more->code) return more->code;
    return code == ERR_TOO_LONG ? "context_length_exceeded" : NULL;
}

static const char *param_of(int code, const struct openai_error *more)
{
    if (!more) return NULL;
    if (*more->param) return more->param;
    return code == ERR_TOO_LONG ? more->prompt : NULL;
}

json_t *openai_error_body(int code, const char *text, const struct openai_error *more)
{
    char clean[ERROR_TEXT_BYTES]; /* a quoted name may have been cut within a character */
    snprintf(clean, sizeof clean, "%s", text);
    utf8_clean(clean, strlen(clean));
    return json_pack("{s:{s:s, s:s, s:s?, s:s?}}", "error", "message", clean, "type",
                     type_of(status_of(code, more)), "param", param_of(code, more), "code",
                     name_of(code, more));
}

void openai_error_answer(struct http_exchange *x, int code, const char *text,
                         const struct openai_error *more)
{
    struct error err;
    int status = status_of(code, more);
    json_t *body = openai_error_body(code, text, more);
    char *dumped = body ? json_dumps(body, JSON_COMPACT) : NULL;
    if (status == 429 || status == 503) http_set_header(x, "Retry-After", "1", &err);
    if (status == 401) http_set_header(x, "WWW-Authenticate", "Bearer", &err);
    http_answer(x, status, "application/json", dumped ? dumped : "{}", dumped ? strlen(dumped) : 2);
    free(dumped);
    json_decref(body);
}
