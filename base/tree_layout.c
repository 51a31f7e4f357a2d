/* Trees of guesses: which paths a guess is in, and where they end. */
#include "base/tree_layout.h"

#include <stdbool.h>
#include <string.h>

/* True if `parent` is the guess before i or one of its ancestors; -1 is an ancestor of all. */
static bool is_depth_first(const int32_t *parents, int i, int32_t parent)
{
    int32_t node = i - 1;
    while (node > parent) {
        node = parents[node];
    }
    return node == parent;
}

static int check_parent(const int32_t *parents, int i, struct error *err)
{
    int32_t parent = parents[i];
    if (parent < -1 || parent >= i) {
        return error_set(err, ERR_FORMAT, "parents[%d] is %d, must be -1 to %d", i, parent, i - 1);
    }
    if (is_depth_first(parents, i, parent)) return 0;
    return error_set(err, ERR_FORMAT,
                     "parents[%d] is %d, which is no ancestor of guess %d: guesses must come in "
                     "depth-first order",
                     i, parent, i - 1);
}

/* Adds guess i, whose parent is right. */
static int add_node(struct tree_layout *tree, const int32_t *parents, int i, struct error *err)
{
    int32_t parent = parents[i];
    int depth = parent < 0 ? 0 : tree->depth[parent] + 1;
    if (i == 0 || parent != i - 1) tree->n_paths++;
    if (depth >= DRAFT_MAX) {
        return error_set(err, ERR_FORMAT, "guess %d is number %d of its path, at most %d are taken",
                         i, depth + 1, DRAFT_MAX);
    }
    if (tree->n_paths > TREE_PATHS_MAX) {
        return error_set(err, ERR_FORMAT,
                         "guess %d begins path %d of the tree, at most %d are taken", i,
                         tree->n_paths, TREE_PATHS_MAX);
    }
    tree->depth[i] = (uint8_t)depth;
    tree->first_path[i] = (uint8_t)(tree->n_paths - 1);
    tree->leaf_depth[tree->n_paths - 1] = (uint8_t)depth;
    return 0;
}

/* A guess's last path is that of its last child. */
static void end_paths(struct tree_layout *tree, const int32_t *parents)
{
    memset(tree->end_path, 0, sizeof tree->end_path);
    for (int i = tree->n_nodes - 1; i >= 0; i--) {
        if (tree->end_path[i] == 0) tree->end_path[i] = (uint8_t)(tree->first_path[i] + 1);
        int32_t parent = parents[i];
        if (parent >= 0 && tree->end_path[parent] < tree->end_path[i]) {
            tree->end_path[parent] = tree->end_path[i];
        }
    }
}

int tree_layout_init(struct tree_layout *tree, const int32_t *parents, int n, struct error *err)
{
    int rc = 0;
    *tree = (struct tree_layout){0};
    if (n < 1 || n > TREE_NODES_MAX) {
        return error_set(err, ERR_FORMAT, "a tree of %d guesses, must be 1 to %d", n,
                         TREE_NODES_MAX);
    }
    for (int i = 0; i < n; i++) {
        TRY(check_parent(parents, i, err));
        TRY(add_node(tree, parents, i, err));
    }
    tree->n_nodes = n;
    end_paths(tree, parents);
out:
    if (rc) *tree = (struct tree_layout){0};
    return rc;
}

int tree_layout_tail(const struct tree_layout *tree, int path, int first, int block_tokens)
{
    return (first + tree->leaf_depth[path]) / block_tokens - first / block_tokens + 1;
}

int tree_layout_tails(const struct tree_layout *tree, int first, int block_tokens)
{
    int n = 0;
    for (int path = 1; path < tree->n_paths; path++) {
        n += tree_layout_tail(tree, path, first, block_tokens);
    }
    return n;
}

int tree_layout_levels(const struct tree_layout *tree)
{
    int deepest = 0;
    for (int path = 0; path < tree->n_paths; path++) {
        if (tree->leaf_depth[path] > deepest) deepest = tree->leaf_depth[path];
    }
    return deepest + 1;
}
