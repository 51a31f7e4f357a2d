/* The trees that a lane's guesses form: a chain, and besides each of its guesses some siblings,
 * behind which nothing is guessed. In depth-first order (base/guess_tree.h) the chain comes first,
 * then the siblings of its last guess, and at the end those of its first.
 *
 *   c0 -+- c1 -+- c2        guesses   c0 c1 c2 s2 s1 s0        siblings of c2: s2
 *       |      +- s2        parents   -1  0  1  1  0 -1        of c1: s1, of c0: s0
 *       +- s1
 *   s0
 *
 * Owned by the engine thread. */
#pragma once

#include "coordinator/block_tails.h"
#include "coordinator/draft/drafter.h"
#include "speculation/tree.h"

/* Parents of a chain of k guesses, 1 .. DRAFT_MAX, of which guess i has siblings[i]; returns how
 * many guesses the tree has. parents[TREE_NODES_MAX]. */
int lane_tree_parents(int k, const uint8_t *siblings, int32_t *parents);

/* A draft as a tree. */
struct lane_tree {
    struct guess_tree shape;
    struct tree guesses;
};

/* The distribution that sibling `sibling` of guess i was drawn from; it is the guess's own q where
 * they share one. Points into draft. */
const struct sparse_dist *lane_tree_sibling_q(const struct draft *draft, int i, int sibling);

/* Of a draft that has at least one sibling. Keeps draft, whose q's it points to. */
void lane_tree_init(struct lane_tree *tree, const struct draft *draft);

/* The siblings of a draft, all together. */
int lane_tree_siblings(const struct draft *draft);

/* How a draft with siblings was accepted. */
struct lane_path {
    int n_chain;        /* leading guesses of the chain that stay */
    int n_tested, kept; /* siblings of the guess behind them, and the one that stays; kept =
                           n_tested: none */
};

struct lane_path lane_tree_path(const struct draft *draft, const struct tree_result *result);
