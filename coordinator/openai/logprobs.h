/* Log-probabilities of tokens in OpenAI's two shapes, as JSON text: of a completion, lists of
 * tokens, of their log-probabilities, of alternatives and of offsets in the text; of a chat, a list
 * of objects. As OpenAI does it, they are of the tokens that are in the text: a stop string's are
 * not. So a token is held until the text that it begins has left. */
#pragma once

#include "base/text/buffer.h"
#include "coordinator/openai/request/request.h"
#include "model/tokenizer/tokenizer.h"

enum { OPENAI_LOGPROB_LISTS = 4 }; /* tokens, token_logprobs, top_logprobs, text_offset; content */

/* How far each list goes with one token, and where that one's text begins. */
struct openai_logprobs_mark {
    uint64_t begin_bytes;
    size_t ends[OPENAI_LOGPROB_LISTS];
};

/* Log-probabilities of one text. Zero it; openai_logprobs_free. */
struct openai_logprobs {
    struct buffer lists[OPENAI_LOGPROB_LISTS]; /* items, each with a comma after it */
    size_t ready[OPENAI_LOGPROB_LISTS];        /* what openai_logprobs_put shows */
    struct openai_logprobs_mark *marks;        /* [n_marks] of those that are held */
    size_t n_marks, marks_capacity;
    struct detokenizer *detok; /* tells where the text of a token begins; opened when needed */
    uint64_t n_bytes;          /* of the text of all tokens */
    int64_t offset;            /* its characters */
    bool shows_special;        /* the text has special tokens in it */
    /* Tokens of a prompt so far; those in this range are in its text if they are special. */
    int n_prompt, special_begin, special_end;
};

/* Adds tokens with their log-probabilities, which are held; does nothing where there are none.
 * Errors: ERR_NO_MEMORY. */
int openai_logprobs_add(struct openai_logprobs *l, enum openai_kind kind,
                        const struct tokenizer *tok, const struct generate_tokens *tokens,
                        struct error *err);
/* Adds tokens of a prompt, which are not held. */
int openai_logprobs_add_scores(struct openai_logprobs *l, enum openai_kind kind,
                               const struct tokenizer *tok, const struct score_reply *scores,
                               struct error *err);
/* The text's first n_bytes have left: the tokens that begin there are held no longer. */
void openai_logprobs_release(struct openai_logprobs *l, uint64_t n_bytes);

/* Returns true if something is not held. */
bool openai_logprobs_are_ready(const struct openai_logprobs *l);
/* Appends what is not held, after that of the prompt where `prompt` is not NULL, as the value of
 * "logprobs". Errors: ERR_NO_MEMORY. */
int openai_logprobs_put(struct buffer *out, enum openai_kind kind,
                        const struct openai_logprobs *prompt, const struct openai_logprobs *l,
                        struct error *err);
/* Forgets what is not held: it has left. */
void openai_logprobs_drop(struct openai_logprobs *l);

size_t openai_logprobs_bytes(const struct openai_logprobs *l);
void openai_logprobs_free(struct openai_logprobs *l);
