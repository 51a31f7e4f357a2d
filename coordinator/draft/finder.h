/* How finders put what they have found into a lane's draft. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"
#include "model/logits/sampling.h"

struct draft_lane;
struct arena;
struct rng_address;
struct sequence;

/* Tokens found for a place of a text: a guess, then its siblings. */
struct finder_guess {
    int n;
    int32_t tokens[1 + SIBLINGS_MAX]; /* [n] distinct */
    /* The distribution that they were drawn from without replacement, in the arena of the call; n =
     * 0: they were not drawn, and each has a one-hot q. */
    struct sparse_dist q;
};

/* Returns how many of tokens[n] come before the first that does not exist for the target. */
static inline int finder_count_known(int n_vocab, const int32_t *tokens, int n)
{
    int n_known = 0;
    while (n_known < n && tokens[n_known] < n_vocab) {
        n_known++;
    }
    return n_known;
}

/* True if a sequence's guesses are drawn, by a finder that has a q for them: its rule judges q. */
bool finder_draws(const struct sequence *seq);

/* Draws n_wanted tokens of guess->q, which is set, or as many as it has, without replacement, with
 * the coins that a draft model would use. Every guess that is drawn must be sent. */
void finder_draw(const struct rng_address *at, int n_wanted, struct finder_guess *guess);

/* The lane's guesses begin, without an error. */
void finder_begin(struct draft_lane *lane);

/* Adds a guess, n >= 1, with as many siblings as the lane may have. Nothing is added after one that
 * ends the text. False: no more can be added. */
bool finder_add(struct draft_lane *lane, const struct finder_guess *guess, struct arena *arena);

/* Both: the lane's guesses are guesses[n], up to one that ends the text. */
void finder_take(struct draft_lane *lane, const struct finder_guess *guesses, int n,
                 struct arena *arena);

/* Adds guesses with one-hot q's after those that the lane has already, of a model, unless they end
 * the text. */
void finder_append(struct draft_lane *lane, const int32_t *tokens, int n, struct arena *arena);
