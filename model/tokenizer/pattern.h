/* Patterns of tokenizer.json through PCRE2. */
#pragma once

#define PCRE2_CODE_UNIT_WIDTH 8

#include <pcre2.h>

#include "model/tokenizer/utf8.h"

struct pattern {
    pcre2_code *code;
};

/* literal: the text itself is searched. Errors: ERR_UNSUPPORTED names the pattern and why. */
int pattern_compile(struct pattern *pattern, struct text text, bool literal, const char *origin,
                    struct error *err);
void pattern_free(struct pattern *pattern);

/* The memory that matching needs besides the pattern. Owned by one thread; zeroed is valid to
 * close. */
struct matcher {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

int matcher_open(struct matcher *matcher, struct error *err);
void matcher_close(struct matcher *matcher);

/* A walk over all matches; fill pattern, matcher and text. */
struct pattern_scan {
    const struct pattern *pattern;
    const struct matcher *matcher;
    struct text text;
    size_t at, last_end;
    bool any;
};

/* Returns 1 and the next match, 0 at the end, or an error: ERR_FORMAT when matching needs too many
 * steps. */
int pattern_next(struct pattern_scan *scan, size_t *begin, size_t *end, struct error *err);
