/* Trees of guesses: shape, checks, and what is left of a q for a sibling. */
#include "speculation/accept/tree.h"

uint32_t tree_coin_index(const struct guess_tree *tree, int node)
{
    int depth = guess_tree_depth(tree, node);
    uint32_t index = 0;
    for (int i = 0; i < node; i++) {
        index += guess_tree_depth(tree, i) == depth;
    }
    return index;
}

bool tree_is_independent(const struct guess_tree *tree)
{
    return tree->is_independent;
}

bool tree_is_chains(const struct guess_tree *tree)
{
    int n_chains = 0;
    for (int c = guess_tree_child(tree, -1); c >= 0; c = guess_tree_sibling(tree, c)) {
        n_chains++;
    }
    if (!tree->is_independent || n_chains == 0 || tree->n % n_chains != 0) return false;
    int length = tree->n / n_chains;
    for (int i = 0; i < tree->n; i++) {
        if (tree->parents[i] != (i % length == 0 ? -1 : i - 1)) return false;
    }
    return true;
}

size_t tree_scratch_count(const struct guess_tree *tree, const struct target_row *rows)
{
    size_t on_path[TREE_NODES_MAX + 1] = {(size_t)rows[0].n}, most = on_path[0];
    for (int i = 0; i < tree->n; i++) {
        on_path[i + 1] = on_path[tree->parents[i] + 1] + (size_t)rows[i + 1].n;
        most = on_path[i + 1] > most ? on_path[i + 1] : most;
    }
    return most;
}

/* Siblings of `node` drawn from the same q before it. */
static int earlier_tokens(const struct guess_tree *tree, int node, int32_t *tokens)
{
    int n = 0;
    for (int i = tree->parents[node] + 1; i < node; i++) {
        bool is_sibling = tree->parents[i] == tree->parents[node];
        if (is_sibling && tree->q[i] == tree->q[node]) tokens[n++] = tree->tokens[i];
    }
    return n;
}

bool tree_has_token(const int32_t *tokens, int n, int32_t token)
{
    for (int i = 0; i < n; i++) {
        if (tokens[i] == token) return true;
    }
    return false;
}

/* A sum of what is left, because 1 - what is gone has no digits where the first token has nearly
 * all of q. */
double tree_q_left(const struct guess_tree *tree, int node)
{
    int32_t gone[TREE_NODES_MAX];
    int n_gone = tree->is_independent ? 0 : earlier_tokens(tree, node, gone);
    if (n_gone == 0) return 1;
    const struct sparse_dist *q = tree->q[node];
    double sum = 0;
    for (int i = 0; i < q->n; i++) {
        if (!tree_has_token(gone, n_gone, q->ids[i])) sum += (double)q->p[i];
    }
    return sum;
}

struct rng_address tree_coins_after(const struct guess_tree *tree, int node,
                                    const struct rng_address *at)
{
    return (struct rng_address){at->seed, at->position + (uint32_t)guess_tree_depth(tree, node),
                                at->round};
}

struct tree_result tree_path(const struct guess_tree *tree, int node)
{
    struct tree_result result = {.n_accepted = guess_tree_depth(tree, node), .next = -1};
    for (int i = result.n_accepted - 1; i >= 0; i--) {
        result.path[i] = node;
        node = tree->parents[node];
    }
    return result;
}

/* True if the node before `node` is its parent or below its parent. */
static bool is_preorder(const struct guess_tree *tree, int node)
{
    int parent = tree->parents[node];
    if (parent < -1 || parent >= node) return false;
    int i = node - 1;
    while (i > parent) {
        i = tree->parents[i];
    }
    return i == parent;
}

static int check_token(const struct guess_tree *tree, int node, int n_vocab, struct error *err)
{
    int32_t gone[TREE_NODES_MAX], token = tree->tokens[node];
    if (token < 0 || token >= n_vocab) {
        return error_set(err, ERR_ARGUMENT,
                         "node %d guesses token %d; tokens of this vocabulary are 0 to %d", node,
                         token, n_vocab - 1);
    }
    if (!(sparse_prob(tree->q[node], token) > 0)) {
        return error_set(err, ERR_ARGUMENT,
                         "node %d guesses token %d, which its distribution cannot give", node,
                         token);
    }
    if (tree->is_independent) return 0;
    if (!tree_has_token(gone, earlier_tokens(tree, node, gone), token)) return 0;
    return error_set(err, ERR_ARGUMENT,
                     "node %d guesses token %d, as does a sibling that was drawn from the same "
                     "distribution without replacement",
                     node, token);
}

int tree_check(const struct guess_tree *tree, int n_vocab, struct error *err)
{
    int rc = 0;
    if (tree->n < 0 || tree->n > TREE_NODES_MAX) {
        return error_set(err, ERR_ARGUMENT, "a tree has %d nodes; 0 to %d are possible", tree->n,
                         TREE_NODES_MAX);
    }
    for (int i = 0; i < tree->n; i++) {
        if (!is_preorder(tree, i)) {
            return error_set(err, ERR_ARGUMENT,
                             "node %d has parent %d, which is not the order in which a tree is "
                             "written: parents first, then all below the first child",
                             i, tree->parents[i]);
        }
        TRY(check_token(tree, i, n_vocab, err));
    }
out:
    return rc;
}
