/* The draft: a small model in the coordinator's own process that guesses ahead. Owned by the engine
 * thread. */
#pragma once

#include "coordinator/sequence.h"
#include "model/backend_open.h"
#include "model/model.h"

struct drafter;

struct drafter_options {
    const char *model; /* folder or synthetic:... */
    struct backend_options backend;
    int support;   /* q is the draft's best `support` tokens, renormalised */
    int kv_tokens; /* over all sequences */
};

/* tok: the tokenizer of both models; its fingerprint must be the draft's (checked unless the draft is
 * synthetic). Errors: ERR_ARGUMENT another token table; those of the model. */
int drafter_open(struct drafter **drafter, const struct drafter_options *options,
                 const struct tokenizer *tok, struct error *err);
void drafter_close(struct drafter *drafter);

struct block_pool *drafter_pool(struct drafter *drafter);
/* Positions that the draft can see: its context or its KV cache, whichever ends first. */
int drafter_limit(const struct drafter *drafter);

/* K guesses, each with the distribution it was drawn from. */
struct draft {
    int n;
    int32_t tokens[GENERATE_DRAFT_MAX];
    struct sparse_dist q[GENERATE_DRAFT_MAX];
};

/* Feeds the sequence's tokens that the draft has not seen, then guesses up to k ahead; stops after an
 * end of sequence, and after a guess that it gave less than seq->threshold (both are still guesses). Coins RNG_DRAFT at (position, committed length); under
 * `coupled` the guess is the argmax under the shared noise. q lives in arena. Updates n_draft_kv to
 * what is known of committed tokens. Errors: ERR_NO_MEMORY, ERR_EXHAUSTED no KV block. */
int drafter_propose(struct drafter *drafter, struct sequence *seq, int k, const int32_t *eos_ids,
                    int n_eos, struct arena *arena, struct draft *draft, struct error *err);
