/* Traversal verification of a tree, from the leaves to the root: it weighs whole paths, as block
 * verification does for a chain, and on a chain it is block verification. */
#include "speculation/accept/rules.h"
#include "speculation/accept/tree_residual.h"

struct traversal {
    const struct guess_tree *tree;
    const struct target_row *rows;
    const struct rng_address *at; /* of the first position */
};

static bool visit(const struct traversal *walk, int node, int depth, double scale, double *scratch,
                  struct tree_result *result);

/* p of the paper after a child did not stay: the probability that the path to the node stays, given
 * that. 0 / 0: p = q so far and here. */
static double scale_left(const struct tree_residual *rest)
{
    double denominator = rest->mass + (1 - rest->scale);
    return denominator > 0 ? rest->mass / denominator : 1;
}

static bool visit_children(const struct traversal *walk, int node, int depth, double *scratch,
                           struct tree_residual *rest, struct tree_result *result)
{
    const struct guess_tree *tree = walk->tree;
    for (int c = guess_tree_child(tree, node); c >= 0; c = guess_tree_sibling(tree, c)) {
        double left = tree_q_left(tree, c);
        double q_c = (double)sparse_prob(tree->q[c], tree->tokens[c]) / left;
        double p_c = tree_residual_prob(rest, tree->tokens[c]);
        double scale = p_c < q_c ? p_c / q_c : 1;
        if (visit(walk, c, depth + 1, scale, scratch + rest->row->n, result)) return true;
        tree_residual_subtract(rest, tree->q[c], left);
        tree_residual_rescale(rest, scale_left(rest));
    }
    return false;
}

/* True if the path to `node` or one that goes on after it stays, which has probability `scale`
 * whatever tokens are below it; if not, its parent goes on with the next child. */
static bool visit(const struct traversal *walk, int node, int depth, double scale, double *scratch,
                  struct tree_result *result)
{
    struct tree_residual rest;
    tree_residual_open(&rest, &walk->rows[node + 1], scale, scratch);
    if (visit_children(walk, node, depth, scratch, &rest, result)) return true;
    struct rng_address here = *walk->at;
    here.position += (uint32_t)depth;
    if (node >= 0) {
        const struct rng_address own = {here.seed, here.position - 1, here.round};
        double coin = rng_uniform(&own, RNG_ACCEPT, tree_coin_index(walk->tree, node));
        if (!(coin < rest.scale)) return false;
    }
    *result = tree_path(walk->tree, node);
    result->next = tree_residual_draw(&rest, &here);
    return true;
}

/* Traversal verification, Weng et al. 2025, arXiv 2505.12398: a leaf stays with
 * min(1, p / q) accumulated along its path; if it does not, it is taken away and its parent's p and
 * scale are what is left. Block verification (arXiv 2403.10444, Algorithm 2) is its chain. */
struct tree_result tree_accept_traversal(const struct guess_tree *tree,
                                         const struct target_row *rows,
                                         const struct rng_address *at, double *scratch)
{
    const struct traversal walk = {tree, rows, at};
    struct tree_result result = {.n_accepted = 0};
    visit(&walk, -1, 0, 1, scratch, &result);
    return result;
}
