/* The lanes of a step as rope and attention see them: which positions the rows of a lane have, and
 * in which blocks their KV lies. The last rows of a lane may be a tree of guesses
 * (base/tree_layout.h). Each of its paths is a chain with a block table of its own: the lane's up
 * to the block of the first guess, and private blocks from there on. A row's K and V are written at
 * its position into the blocks of every path that holds it, and it attends through the first of
 * them, so that it sees what it would see in a chain, at the same places. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"
#include "base/tree_layout.h"

struct attention_tree {
    const struct tree_layout *shape;
    int first_guess; /* row of the lane; the rows before it are a chain */
    int first_block; /* index in the block tables of the block that holds the first guess */
    const int32_t *tails[TREE_PATHS_MAX]; /* blocks of a path from first_block on */
};

/* Rows first_row .. first_row + n_rows of the step, at positions from `position` on: one after the
 * other in a chain, by their depth in a tree. */
struct attention_lane {
    int first_row, n_rows;
    int position;
    const int32_t *blocks;             /* block table: position / 16 -> block; of path 0 */
    const struct attention_tree *tree; /* NULL: a chain, which is path 0 alone */
};

/* The position of the lane's row `row`, counted from 0. */
static inline int attention_position(const struct attention_lane *lane, int row)
{
    const struct attention_tree *tree = lane->tree;
    if (!tree || row < tree->first_guess) return lane->position + row;
    return lane->position + tree->first_guess + tree->shape->depth[row - tree->first_guess];
}

/* The first position that a row at `position` sees through a window; 0: it sees all before it. */
static inline int attention_first(int position, int window)
{
    return window > 0 && position >= window ? position - window + 1 : 0;
}

static inline int attention_n_paths(const struct attention_lane *lane)
{
    return lane->tree ? lane->tree->shape->n_paths : 1;
}

/* The path that a row attends through. */
static inline int attention_path(const struct attention_lane *lane, int row)
{
    const struct attention_tree *tree = lane->tree;
    return tree && row >= tree->first_guess ? tree->shape->first_path[row - tree->first_guess] : 0;
}

/* A row is in the paths from attention_path to before this one. Committed rows are in all of them,
 * but in blocks before the first guess's all paths have the same table. */
static inline int attention_end_path(const struct attention_lane *lane, int row)
{
    const struct attention_tree *tree = lane->tree;
    if (!tree) return 1;
    if (row >= tree->first_guess) return tree->shape->end_path[row - tree->first_guess];
    bool is_private = (lane->position + row) / KV_BLOCK_TOKENS >= tree->first_block;
    return is_private ? tree->shape->n_paths : 1;
}

/* Entry `index` of a path's block table. */
static inline int32_t attention_block(const struct attention_lane *lane, int path, int index)
{
    const struct attention_tree *tree = lane->tree;
    if (!tree || index < tree->first_block) return lane->blocks[index];
    return tree->tails[path][index - tree->first_block];
}

/* Fills `out` for a lane at `position` with the block table `blocks`, whose guesses begin at row
 * first_guess. tails: blocks of paths 1, 2, ..., one path after the other, each from the block of
 * the first guess on. Keeps all three. */
void attention_tree_place(struct attention_tree *out, const struct tree_layout *shape,
                          const int32_t *blocks, const int32_t *tails, int position,
                          int first_guess);

/* The position after the last one of a path, and of the longest path. */
int attention_path_end(const struct attention_lane *lane, int path);
int attention_end(const struct attention_lane *lane);

/* How many positions the first block of each further path takes from path 0: those that were
 * written before the step. */
int attention_n_copied(const struct attention_lane *lane);
