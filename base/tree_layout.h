/* Depths and paths of a tree of guesses, which the coordinator, the codec and the forward pass
 * derive from its parents in the same way (base/guess_tree.h has all of a tree). Guess i has a
 * parent: an earlier guess, or -1 for the last committed token. Guesses come in depth-first order,
 * so that each follows its parent or the end of an earlier sibling's subtree.
 *
 *   parents  -1  0  1  0  -1        guess 0 -+- 1 - 2     path 0: 0 1 2
 *                                            +- 3         path 1: 0 3
 *                                   guess 4               path 2: 4
 *
 * A path leads from the root to a leaf, and paths are numbered by their leaves. In depth-first
 * order each path ends with a run of guesses that no earlier path has, and a guess is in
 * consecutive paths, of which the first is the one whose run it belongs to. A path is a chain of
 * tokens, and its KV lies in the blocks of a table of its own (docs/design.md, section 4). */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "base/limits.h"

struct tree_layout {
    int n_nodes, n_paths;
    uint8_t depth[TREE_NODES_MAX];      /* 0: after the last committed token */
    uint8_t first_path[TREE_NODES_MAX]; /* the guess is in paths first_path .. end_path - 1 */
    uint8_t end_path[TREE_NODES_MAX];
    uint8_t leaf_depth[TREE_PATHS_MAX]; /* of the last guess of a path */
};

/* parents[n], n >= 1. Errors: ERR_FORMAT with the index and the value: a parent that is no earlier
 * guess, another order, more guesses or paths or a greater depth than base/limits.h allows. */
int tree_layout_init(struct tree_layout *tree, const int32_t *parents, int n, struct error *err);

/* The number of blocks of block_tokens positions that a path occupies from the block of the first
 * guess on, whose position is `first`. */
int tree_layout_tail(const struct tree_layout *tree, int path, int first, int block_tokens);

/* The tails of all paths but the first together: what a lane names in addition to its table. */
int tree_layout_tails(const struct tree_layout *tree, int first, int block_tokens);

/* The number of positions that the deepest path needs after the committed ones. */
int tree_layout_levels(const struct tree_layout *tree);
