/* A trajectory: tokens that are thought to follow a text, and the token that the target says after
 * each of them (Jacobi iteration, Song et al. 2021, arXiv 2002.03629; lookahead decoding, Fu et al.
 * 2024, arXiv 2402.02057). What it says is the next trajectory, one place further on, and from
 * those of successive steps n-grams are read off: a token of one, the token that was said after it,
 * the token that was said after that one a step later, and so on. They go into a pool, and so do
 * those of the text itself.
 *
 * The paper checks all of its n-grams and trajectories in one step with masks of their own. Here
 * the trajectory is a chain after the last token of the text and needs no mask. Owned by one
 * thread. */
#pragma once

#include <stdbool.h>

#include "lookup/ngrams.h"

enum { TRAJECTORY_TOKENS = 8 /* after the text's last one */ };

/* The trajectory of one step. tokens[0] is the last token of the text. */
struct trajectory_level {
    int base; /* tokens of the text; 0 = there is none */
    int32_t tokens[1 + TRAJECTORY_TOKENS];
    bool is_said[1 + TRAJECTORY_TOKENS]; /* by the target, after the token of the level before */
};

struct trajectory {
    struct trajectory_level levels[NGRAMS_TOKENS]; /* the newest first */
};

/* Begins after text[n_text], n_text >= 1, with the tokens of the pool and, where it has none, the
 * last tokens of the text. Does nothing if the trajectory is already that of n_text tokens. */
void trajectory_begin(struct trajectory *trajectory, const struct ngrams *pool, const int32_t *text,
                      int n_text);

/* Writes the trajectory's tokens after the text, up to a token that is not below n_vocab, at most
 * `most` tokens; returns how many. */
int trajectory_tokens(const struct trajectory *trajectory, int n_vocab, int32_t *tokens, int most);

/* Goes on by a step: after the first i tokens of the trajectory the target has said said[i]; -1:
 * that is not known. The text is text[n_text] now, which is longer than before. The pool learns,
 * and the trajectory goes on after the text. */
void trajectory_advance(struct trajectory *trajectory, struct ngrams *pool,
                        const int32_t said[1 + TRAJECTORY_TOKENS], const int32_t *text, int n_text);
