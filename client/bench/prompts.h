/* What `outrider bench` sends: prompts of a file, or random token ids. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "base/error.h"

enum { BENCH_PROMPTS_MAX = 100000, BENCH_PROMPT_TOKENS_MAX = 1 << 20 };

/* Text, or ids when text is NULL. */
struct bench_prompt {
    const char *text;
    size_t len;
    const int32_t *ids;
    int n_ids;
    int max_tokens; /* 0 = as the options say */
};

/* Immutable after open; a zeroed one is valid to close. */
struct bench_prompts {
    struct bench_prompt *items;
    int n;
    char *file;
    json_t *lines; /* owns the texts of JSON lines */
    int32_t *ids;
};

/* One prompt a line; or, when the first line begins with {, JSON objects {"prompt": TEXT, "n": TOKENS}, one a
 * line, n may be left out and other members are not looked at. Blank lines are no prompts.
 * Errors: ERR_NOT_FOUND, ERR_IO, ERR_FORMAT with file and line, ERR_NO_MEMORY. */
int bench_prompts_read(struct bench_prompts *prompts, const char *path, struct error *err);

/* n prompts of n_tokens ids each, uniform over 0 .. vocab_size - 1 (any model takes ids, whatever its
 * tokenizer), functions of the seed. Errors: ERR_NO_MEMORY. */
int bench_prompts_draw(struct bench_prompts *prompts, int n, int n_tokens, int vocab_size,
                       uint64_t seed, struct error *err);

void bench_prompts_close(struct bench_prompts *prompts);
