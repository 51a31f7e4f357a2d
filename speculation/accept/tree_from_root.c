/* The rules over a tree that go from the root on and look at one child after the other: of the row
 * after a node, only its children's tokens matter. speculation/accept/tree_traversal.c has the
 * rule that weighs whole paths. */
#include <assert.h>

#include "speculation/accept/rules.h"
#include "speculation/accept/tree_residual.h"

/* The first child that stays, else -1, with what its earlier siblings have left of p in *rest. */
static int first_kept(const struct guess_tree *tree, int node, const struct rng_address *at,
                      struct tree_residual *rest)
{
    for (int c = guess_tree_child(tree, node); c >= 0; c = guess_tree_sibling(tree, c)) {
        double left = tree_q_left(tree, c);
        double q_c = (double)sparse_prob(tree->q[c], tree->tokens[c]) / left;
        double coin = rng_uniform(at, RNG_ACCEPT, tree_coin_index(tree, c));
        if (coin * q_c < tree_residual_prob(rest, tree->tokens[c])) return c;
        tree_residual_subtract(rest, tree->q[c], left);
        tree_residual_rescale(rest, 1);
    }
    return -1;
}

/* Recursive rejection: each child is tested against what the children before it have left of p.
 * SpecInfer, Miao et al. 2023, arXiv 2305.09781, Algorithm 2, with replacement; Sequoia, Chen et
 * al. 2024, arXiv 2402.12374, its sampling and verification, without. A child with a one-hot q,
 * such as an n-gram, is one more child. */
struct tree_result tree_accept_rejection(const struct guess_tree *tree,
                                         const struct target_row *rows,
                                         const struct rng_address *at, double *scratch)
{
    return tree_residual_walk(tree, rows, at, scratch, first_kept);
}

static int child_with(const struct guess_tree *tree, int node, int32_t token)
{
    for (int c = guess_tree_child(tree, node); c >= 0; c = guess_tree_sibling(tree, c)) {
        if (tree->tokens[c] == token) return c;
    }
    return -1;
}

/* The walk of the rules that choose the token first: to the child that holds it. */
static struct tree_result follow_tokens(const struct guess_tree *tree,
                                        const struct target_row *rows, const struct rng_address *at,
                                        int32_t (*choose)(const struct target_row *row,
                                                          const struct rng_address *at))
{
    for (int node = -1;;) {
        const struct rng_address here = tree_coins_after(tree, node, at);
        int32_t next = choose(&rows[node + 1], &here);
        int child = child_with(tree, node, next);
        if (child < 0) {
            struct tree_result result = tree_path(tree, node);
            result.next = next;
            return result;
        }
        node = child;
    }
}

static int32_t only_token(const struct target_row *row, const struct rng_address *at)
{
    (void)at;
    assert(row->n == 1 && row->outside_mass == 0);
    return row->ids[0];
}

/* Exact match with the target's choice, as accept_match: of one-hot rows the child that holds the
 * row's token stays. For `coupled` the draft lists its best tokens under the shared noise
 * (multi_draft_coupled), of which the target takes the one that the same noise chooses for it
 * (Daliri et al. 2024, arXiv 2408.07978, with a list in the place of one token). */
struct tree_result tree_accept_match(const struct guess_tree *tree, const struct target_row *rows,
                                     const struct rng_address *at, double *scratch)
{
    (void)scratch;
    return follow_tokens(tree, rows, at, only_token);
}

/* Draws from p at each node and follows the child that is equal, as accept_naive. */
struct tree_result tree_accept_naive(const struct guess_tree *tree, const struct target_row *rows,
                                     const struct rng_address *at, double *scratch)
{
    (void)scratch;
    return follow_tokens(tree, rows, at, target_row_draw);
}

/* Medusa's typical acceptance (arXiv 2401.10774, section 2.3.1): the longest path whose tokens are
 * all typical; of equal ones the first. LOSSY. */
struct tree_result tree_accept_typical(const struct guess_tree *tree, const struct target_row *rows,
                                       const struct rng_address *at, double *scratch)
{
    bool is_kept[TREE_NODES_MAX];
    int best = -1;
    (void)scratch;
    for (int i = 0; i < tree->n; i++) {
        int parent = tree->parents[i];
        is_kept[i] = (parent < 0 || is_kept[parent]) &&
                     keep_typical(&rows[parent + 1], tree->q[i], tree->tokens[i], at);
        if (is_kept[i] && guess_tree_depth(tree, i) > guess_tree_depth(tree, best)) best = i;
    }
    const struct rng_address here = tree_coins_after(tree, best, at);
    struct tree_result result = tree_path(tree, best);
    result.next = target_row_draw(&rows[best + 1], &here);
    return result;
}
