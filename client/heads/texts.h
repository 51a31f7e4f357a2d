/* Texts that a target writes in this process, for what is to guess at them, and how long its steps
 * take. Owned by one thread. */
#pragma once

#include "base/limits.h"
#include "model/backend/open.h"
#include "model/head_proof.h"
#include "model/tokenizer/sample_prompts.h"

enum {
    HEADS_PROMPT_TOKENS = 320,
    HEADS_PART_TOKENS = 512,
    HEADS_TEXT_TOKENS = HEADS_PROMPT_TOKENS + HEADS_PART_TOKENS
};

struct heads_texts;

/* Loads the model, writes n_tokens greedily after the prompts of
 * model/tokenizer/sample_prompts.h, or fewer where texts end, and times steps of 1 .. k_max + 1
 * rows. Errors: those of opening a model, a tokenizer or a chat template; ERR_NO_MEMORY;
 * ERR_UNAVAILABLE the device is lost. */
int heads_texts_open(struct heads_texts **texts, const char *name,
                     const struct backend_options *backend, int n_tokens, int k_max,
                     struct error *err);
void heads_texts_close(struct heads_texts *texts);

const struct checkpoint *heads_texts_target(const struct heads_texts *texts);
const struct tokenizer *heads_texts_tokenizer(const struct heads_texts *texts);
/* Reads the texts with these features (NULL: none) and lists them, *n of them; they are valid until
 * the next call. Errors: ERR_NO_MEMORY, ERR_UNAVAILABLE the device is lost. */
int heads_texts_read(struct heads_texts *texts, const struct feature_wish *wish,
                     const struct head_proof_text **list, int *n, struct error *err);
/* A step of n_rows, 1 .. k_max + 1. */
double heads_texts_step_us(const struct heads_texts *texts, int n_rows);
int heads_texts_tokens(const struct heads_texts *texts); /* that were written */
