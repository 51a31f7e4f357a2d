/* Recorded texts, for `outrider replay` and `outrider datastore build`: prompts with the answers
 * that followed them. */
#pragma once

#include "model/tokenizer/tokenizer.h"

struct recorded_text {
    struct token_ids prompt, answer;
};

/* Zero it before first use. */
struct recorded_texts {
    struct recorded_text *data;
    size_t n, capacity;
};
void recorded_texts_free(struct recorded_texts *texts);

/* Adds the texts of a file. One whose name ends in .jsonl has an object a line, with "prompt" and
 * "answer" as texts, or "prompt_ids" and "answer_ids" as lists of ids from 0 on; the prompt may be
 * missing. Any other file is one text, whose first n_prompt tokens are the prompt. tok may be NULL
 * where only ids are read. Errors: ERR_NOT_FOUND, ERR_IO, ERR_FORMAT, ERR_ARGUMENT a text needs a
 * tokenizer; ERR_NO_MEMORY. */
int recorded_texts_read(struct recorded_texts *texts, const struct tokenizer *tok, const char *path,
                        int n_prompt, struct error *err);
