/* The draft: a small model in the coordinator's own process that guesses ahead. Owned by the engine
 * thread. */
#pragma once

#include "base/limits.h"
#include "coordinator/sequence.h"
#include "model/backend/open.h"
#include "model/model.h"

struct drafter;

struct drafter_options {
    const char *model; /* folder or synthetic:... */
    struct backend_options backend;
    int support;   /* q is the draft's best `support` tokens, renormalised */
    int kv_tokens; /* over all sequences */
    /* "FILE[:N]": guesses are made among the N most frequent tokens of a list (draft_head.h), and the
     * head is that much smaller; NULL = among all. Legal for every rule, since q may have any support. */
    const char *head;
};

/* tok: the tokenizer of both models; its fingerprint must be the draft's (checked unless the draft is
 * synthetic). Errors: ERR_ARGUMENT another token table; those of the model and of draft_head_choose. */
int drafter_open(struct drafter **drafter, const struct drafter_options *options,
                 const struct tokenizer *tok, struct error *err);
void drafter_close(struct drafter *drafter);

struct block_pool *drafter_pool(struct drafter *drafter);
/* Tokens that the draft chooses its guesses from. */
int drafter_head_tokens(const struct drafter *drafter);
/* Positions that the draft can see: its context or its KV cache, whichever ends first. */
int drafter_limit(const struct drafter *drafter);

/* Guesses, each with the distribution it was drawn from. */
struct draft {
    int base;     /* committed tokens that the guesses continue */
    bool is_over; /* nothing is to be guessed behind the last one */
    int n;
    int32_t tokens[DRAFT_MAX];
    struct sparse_dist q[DRAFT_MAX];
};

/* Feeds the sequence's tokens that the draft has not seen, then guesses until there are k; goes on
 * where draft->n guesses are there already, and stops after an end of sequence and after a guess that it
 * gave less than seq->threshold (both are still guesses). Coins RNG_DRAFT at (position, base); under
 * `coupled` the guess is the argmax under the shared noise. q lives in arena. n_draft_kv follows what
 * was fed; guesses stand in seq->tokens past the committed ones. Errors: ERR_NO_MEMORY, ERR_EXHAUSTED
 * no KV block, ERR_UNAVAILABLE the device is lost. */
int drafter_propose(struct drafter *drafter, struct sequence *seq, int k,
                    const struct end_ids *ends, struct arena *arena, struct draft *draft,
                    struct error *err);

/* The token that the target is likeliest to add behind seq->tokens[0..position): the draft's best, under
 * `coupled` with the shared noise. No coin is spent. Errors: as drafter_propose. */
int drafter_predict(struct drafter *drafter, struct sequence *seq, int position,
                    struct arena *arena, int32_t *id, struct error *err);
