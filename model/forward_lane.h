/* The parts of sequences that a step of the forward pass feeds (model/model.h). */
#pragma once

#include <stdint.h>

#include "base/tree_layout.h"

/* The last tokens of a lane as a tree of guesses. */
struct forward_tree {
    const struct tree_layout *shape; /* of the lane's last shape->n_nodes tokens, at least one less
                                       than it has */
    /* [tree_layout_tails] blocks of paths 1, 2, ..., one path after the other, each from the block
     * of the first guess on. No block is in two of them or in the lane's table. */
    const int32_t *tails;
};

/* A sequence's part of a step. blocks is the block table from position 0 on. It must reach position
 * + n_tokens, or with a tree the end of path 0, and the KV of all earlier positions must have been
 * written. The logits of a guess in a tree are those of its path fed as a chain; a path whose tail
 * is put into the table can be gone on with. */
struct forward_lane {
    int position;
    int n_tokens;
    const int32_t *tokens;
    const int32_t *blocks;
    const struct forward_tree *tree; /* NULL: a chain */
};

/* Features that the rows of a head's lane (model/checkpoint/head.h) read besides tokens[n_tokens],
 * bf16: of its first n_target rows those of the target, [n_target][A Ht], and of all others
 * [n_tokens - n_target][D] in place of what fc makes of such features: outputs of the head itself,
 * or features that the target has projected (model_projected), which give the same bits as those
 * that they were made of. The feature of a row is that of the position before tokens[i], which is
 * also the row's own position.
 *
 * The features of a block drafter (struct head_block) are those of n_target positions before the
 * lane's tokens, from the lane's position on. They become KV. The tokens, which are a block and
 * have no features, come after them, and the block table reaches position + n_target + n_tokens;
 * there may be none of either. Only the KV of contexts lasts: that of a block is overwritten by the
 * next context. */
struct forward_features {
    const uint16_t *target;
    int n_target;
    const uint16_t *recycled;
};

/* The row of logits after tokens[index] of a lane. */
struct forward_row {
    int lane, index;
};
