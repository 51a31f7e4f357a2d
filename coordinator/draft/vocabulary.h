/* Chooses the tokens that a draft model guesses among, as --draft-vocab says; its lm_head is
 * that much smaller. */
#pragma once

#include "model/checkpoint/config/config.h"
#include "model/tokenizer/tokenizer.h"

/* option: "FILE" or "FILE:N", the N most frequent tokens of a list
 * (model/tokenizer/token_counts.h), or all of it. The draft's ends of sequence are always among
 * them. *ids ascend, are below n_vocab, and belong to the caller. Errors: ERR_ARGUMENT N is 0 or
 * more than the list has, the list is of another tokenizer; ERR_FORMAT it is no list, or empty;
 * ERR_NOT_FOUND, ERR_IO, ERR_NO_MEMORY. */
int draft_vocabulary_choose(int32_t **ids, int *n_ids, const char *option,
                            const struct tokenizer *tok, const struct model_config *draft,
                            int n_vocab, struct error *err);
