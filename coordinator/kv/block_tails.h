/* KV blocks for the paths of a tree of guesses (base/tree_layout.h). Path 0 has the sequence's own
 * table, and every further path has a tail: blocks of its own from that of the first guess on.
 *
 *   block_table_reach      for path 0: up to the first guess's position + leaf_depth[0] + 1
 *   block_tails_reserve    for the others; blocks[n] are the lane's `tails` (proto/target_wire.h)
 *   the step
 *   block_tails_accept     the accepted path's tail enters the table, the rest goes back
 *   block_tails_release    instead, when there was no step or nothing came of it
 *
 * Owned by the engine thread. */
#pragma once

#include "base/tree_layout.h"
#include "coordinator/kv/blocks.h"

struct block_tails {
    int first_block; /* index in the table of the block of the first guess */
    int n_paths, n;
    int ends[TREE_PATHS_MAX];       /* path i has blocks[ends[i - 1] .. ends[i]); ends[0] is 0 */
    int32_t blocks[TREE_TAILS_MAX]; /* [n] */
};

/* Takes the blocks of the tails of a tree whose first guess is at position `first`, all of them or
 * none, near the end of the table. On failure the tails are empty. Errors: ERR_EXHAUSTED. */
int block_tails_reserve(struct block_tails *tails, struct block_pool *pool,
                        const struct block_table *table, const struct tree_layout *tree, int first,
                        struct error *err);

/* Puts the tail of a path into the table, which may grow by it, and gives all other blocks of the
 * tails back. For the last accepted guess the path is its first_path, and 0 if none was accepted;
 * then the table stays. The ranks must be sent the table from the returned index on: it is table->n
 * when nothing has changed. The tails are empty afterwards. Cannot fail. */
int block_tails_accept(struct block_tails *tails, struct block_table *table,
                       struct block_pool *pool, int path);

/* Gives all blocks of the tails back. */
void block_tails_release(struct block_tails *tails, struct block_pool *pool);
