/* The properties of block drafters, DFlash and DSpark, as data. */
#pragma once

#include <stdbool.h>

enum { HEAD_BLOCK_MAX = 64 };

/* A block drafter guesses a whole block in one pass. For every position i that the
 * target has computed, c = norm(fc of its features) gives K and V of every layer: Wk c, normed and
 * rotated as at position i, and Wv c. A block is the last token, whose features are not known yet,
 * and masks after it; its rows begin as those of a model, see the context and, in layers that are
 * not causal, all of the block. Their own K and V are of no use after the pass. Row j of the block
 * guesses the token at its own position, for j > 0, or the one after it (from_anchor).
 *
 * With a chain of rank r the logits of row j are those of its hidden state plus
 * w2 w1[the guess before]; the first guess comes after the block's first token. */
struct head_block {
    int size;         /* of a whole block; 0: the head is no block drafter */
    bool from_anchor; /* row 0 guesses too */
    /* Rows see no later ones of the block in layers that see all positions, and in those with a
     * window. */
    bool is_causal, window_is_causal;
    int rank;             /* of the chain; 0: none */
    int confidence_width; /* of what says how sure a guess is, which is not used; 0: none */
    bool has_confidence_bias;
};

/* The row of a block that guesses token `guess` after the block's first one, counted from 0. */
static inline int head_block_row(const struct head_block *block, int guess)
{
    return block->from_anchor ? guess : guess + 1;
}

/* The guesses of a whole block. */
static inline int head_block_guesses(const struct head_block *block)
{
    return block->from_anchor ? block->size : block->size - 1;
}
