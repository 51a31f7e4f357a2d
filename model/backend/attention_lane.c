/* Where the paths of a lane's tree lie and end. */
#include "model/backend/attention_lane.h"

void attention_tree_place(struct attention_tree *out, const struct tree_layout *shape,
                          const int32_t *blocks, const int32_t *tails, int position,
                          int first_guess)
{
    int first = position + first_guess;
    out->shape = shape;
    out->first_guess = first_guess;
    out->first_block = first / KV_BLOCK_TOKENS;
    out->tails[0] = blocks + out->first_block;
    for (int path = 1; path < shape->n_paths; path++) {
        out->tails[path] = tails;
        tails += tree_layout_tail(shape, path, first, KV_BLOCK_TOKENS);
    }
}

int attention_path_end(const struct attention_lane *lane, int path)
{
    const struct attention_tree *tree = lane->tree;
    if (!tree) return lane->position + lane->n_rows;
    return lane->position + tree->first_guess + tree->shape->leaf_depth[path] + 1;
}

int attention_end(const struct attention_lane *lane)
{
    const struct attention_tree *tree = lane->tree;
    if (!tree) return lane->position + lane->n_rows;
    return lane->position + tree->first_guess + tree_layout_levels(tree->shape);
}

int attention_n_copied(const struct attention_lane *lane)
{
    if (attention_n_paths(lane) == 1) return 0;
    int n = lane->position - lane->tree->first_block * KV_BLOCK_TOKENS;
    return n > 0 ? n : 0;
}
