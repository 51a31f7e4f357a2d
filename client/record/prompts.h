/* The prompts of `outrider record`: a file with an object a line, which has "prompt" as a text or
 * "prompt_ids" as a list of ids, and may have "answer_ids", the tokens that followed it. */
#pragma once

#include "model/tokenizer/tokenizer.h"

struct record_prompt {
    char *text;                   /* NULL: ids */
    struct token_ids ids, answer; /* no answer: the target is asked for one */
    int line;                     /* counted from 1 */
};

/* Zero it before first use. */
struct record_prompts {
    struct record_prompt *data;
    size_t n, capacity;
};
void record_prompts_free(struct record_prompts *prompts);

/* Errors: ERR_NOT_FOUND, ERR_IO, ERR_FORMAT with the line; ERR_NO_MEMORY. */
int record_prompts_read(struct record_prompts *prompts, const char *path, struct error *err);
