/* The prompts that `outrider bench` sends: prompts of a file, or random token ids. */
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

/* Reads one prompt a line; or, when the first line begins with {, one JSON object a line,
 * {"prompt": TEXT, "n": TOKENS}, whose n is optional and whose other members are ignored. Blank
 * lines are skipped. Errors: ERR_NOT_FOUND, ERR_IO, ERR_FORMAT with file and line,
 * ERR_NO_MEMORY. */
int bench_prompts_read(struct bench_prompts *prompts, const char *path, struct error *err);

/* Random prompts. Ids suit any model, whatever its tokenizer. */
struct bench_draw {
    int n, n_tokens; /* prompts, and ids of each */
    int n_shared;    /* ids that all of them begin with */
    int vocab_size;
    uint64_t seed;
};

/* Draws the ids, uniform over 0 .. vocab_size - 1. Errors: ERR_NO_MEMORY. */
int bench_prompts_draw(struct bench_prompts *prompts, const struct bench_draw *draw,
                       struct error *err);
/* Gives drawn prompts another first id, which is a function of (draw, slice): a service that keeps
 * the KV of prefixes then knows none of them from an earlier slice, but within a slice it still
 * finds the ids that they share. Prompts of a file stay as they are. */
void bench_prompts_renew(struct bench_prompts *prompts, const struct bench_draw *draw, int slice);

void bench_prompts_close(struct bench_prompts *prompts);
