/* Bodies of requests that make texts, with the checks that the tests of
 * coordinator/openai/request/ share. */
#pragma once

#include <stdio.h>

#include "coordinator/openai/request/request.h"
#include "tests/support/openai_bodies.h"

enum { N_MOST = 8, N_STOP = 4, TEXT_BYTES = 4096, COMPLETION = 1, CHAT = 2, BOTH = 3 };

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const struct openai_limits limits = {.model = "target", .n_stop = N_STOP, .n = N_MOST};
static struct openai_request request;

static inline int read_body(enum openai_kind kind, const char *text)
{
    parse(text);
    return openai_request_read(&request, kind, &limits, &reading);
}

/* The body of a request with this beside what it needs. "outrider.rule" is in its own object. */
static inline int read_field(enum openai_kind kind, const char *field, const char *value)
{
    char text[TEXT_BYTES];
    const char *needed =
        kind == OPENAI_CHAT ? "\"messages\": [{\"role\": \"user\"}]" : "\"prompt\": \"x\"";
    const char *own = strchr(field, '.');
    if (own)
        snprintf(text, sizeof text, "{%s, \"outrider\": {\"%s\": %s}}", needed, own + 1, value);
    else
        snprintf(text, sizeof text, "{%s, \"%s\": %s}", needed, field, value);
    return read_body(kind, text);
}

static inline void check_taken(int rc, const char *field, const char *value)
{
    ck_assert_msg(rc == 0, "%s %s: %s", field, value, err.text);
    rc = openai_request_check(&request, &reading); /* as the engine's own decoder has it */
    ck_assert_msg(rc == 0, "%s %s: %s", field, value, err.text);
}

static inline void check_refused(int rc, const char *field, const char *value, const char *words)
{
    ck_assert_msg(rc == ERR_ARGUMENT, "%s %s is taken", field, value);
    ck_assert_msg(strcmp(wrong.param, field) == 0, "%s %s: the field is %s", field, value,
                  wrong.param);
    ck_assert_msg(strstr(err.text, field) == err.text, "%s %s: %s", field, value, err.text);
    ck_assert_msg(strstr(err.text, words) != NULL, "%s %s: \"%s\" lacks \"%s\"", field, value,
                  err.text, words);
}

/* Calls it for the endpoints that have the field. */
typedef void check_fn(enum openai_kind kind, const void *row);

static inline void for_kinds(unsigned kinds, check_fn *check, const void *row)
{
    if (kinds & COMPLETION) check(OPENAI_COMPLETION, row);
    if (kinds & CHAT) check(OPENAI_CHAT, row);
}
