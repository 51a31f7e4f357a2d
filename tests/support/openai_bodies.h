/* A JSON text as the body of a request that is being read, for the tests of coordinator/openai/. */
#pragma once

#include "coordinator/openai/body.h"
#include "coordinator/openai/request/values.h"
#include "tests/support/check_util.h"

enum { ARENA_BYTES = 1 << 20, BUDGET_BYTES = 64 << 20 };

static struct error err;
static struct arena arena;
static struct budget budget;
static struct openai_body body;
static struct openai_error wrong;
static struct openai_reading reading;

static inline void setup(void)
{
    CHECK_OK(arena_open(&arena, ARENA_BYTES, &err));
    budget_init(&budget, BUDGET_BYTES, "--queue-bytes");
}

static inline void teardown(void)
{
    openai_body_free(&body);
    arena_close(&arena);
}

static inline int parse_bytes(const char *text, size_t len)
{
    openai_body_free(&body);
    return openai_body_parse(&body, text, len, &budget, &err);
}

/* The next body; the one before is forgotten, and what was read of it. */
static inline const json_t *parse(const char *text)
{
    CHECK_OK(parse_bytes(text, strlen(text)));
    arena_reset(&arena);
    wrong = (struct openai_error){0};
    err.text[0] = '\0';
    reading = (struct openai_reading){
        .root = body.root, .arena = &arena, .field = "field", .wrong = &wrong, .err = &err};
    return body.root;
}
