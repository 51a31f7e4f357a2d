/* Acceptance of a tree of guesses (base/guess_tree.h), whose nodes are in depth-first order. Every
 * rule over a tree decides over a chain bit for bit as the rule of the same name in
 * speculation/accept/chain.c, which is the text of its paper.
 *
 * Why the rules over a tree are exact whatever its shape. Say that the draft makes nodes one after
 * the other, decides before it draws a token that there will be a node for it, and draws the token
 * from the node's q. Take the node z that was drawn last: it is a leaf and the last of its
 * siblings. For whatever tokens the other nodes hold, the text after z's parent has the same
 * distribution with z as without (one step of rejection: min(p, q) by z, max(0, p - q) otherwise),
 * and z changes nothing else. So z may be taken away, then the node before it, and so on until the
 * root alone is left, where the next token is drawn from p. Therefore:
 *   - the shape may depend on all tokens drawn so far and on the q of any node, that of the node to
 *     come included: which node grows, how many siblings there will be, when to stop;
 *   - siblings are verified in the order in which they were drawn, and of a q that several of them
 *     share, each is judged by what its earlier siblings left of it;
 *   - a node must not be dropped, nor moved, after somebody looked at its token. */
#pragma once

#include "base/guess_tree.h"
#include "speculation/rows/target_row.h"

struct tree_result {
    int n_accepted;           /* nodes that stay, from the root on */
    int path[TREE_NODES_MAX]; /* [n_accepted] these nodes */
    int32_t next;             /* the token after them */
};

/* Errors: ERR_ARGUMENT the nodes are too many or not in preorder, a token is not within
 * [0, n_vocab), it is not in the support of its q, or a q without replacement gave it twice. */
int tree_check(const struct guess_tree *tree, int n_vocab, struct error *err);

/* The node's number among those of its depth: what makes its coin its own. */
uint32_t tree_coin_index(const struct guess_tree *tree, int node);

/* True if siblings of one q were drawn with replacement; and if the tree consists of chains of
 * equal length from the root on that were drawn so, each by itself. */
bool tree_is_independent(const struct guess_tree *tree);
bool tree_is_chains(const struct guess_tree *tree);

/* Doubles of scratch that acceptance needs: the rows of one path at a time. */
size_t tree_scratch_count(const struct guess_tree *tree, const struct target_row *rows);

/* The part of the node's q that its earlier siblings have left, as a sum of q; 1 for the first one
 * and where siblings are independent. */
double tree_q_left(const struct guess_tree *tree, int node);

/* The address of the coins of the children of `node`, where those of the root's are at `at`. */
struct rng_address tree_coins_after(const struct guess_tree *tree, int node,
                                    const struct rng_address *at);

/* True if tokens[n] have this one. */
bool tree_has_token(const int32_t *tokens, int n, int32_t token);

/* The result that ends at `node`; next is left to the caller. */
struct tree_result tree_path(const struct guess_tree *tree, int node);
