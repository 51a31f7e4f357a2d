/* The trees that a lane's guesses form: a chain; beside each of its guesses some siblings, which
 * may go on as a draft model has guessed (base/growth.h); or, where they do not, a branch, a second
 * chain, which leaves the first one where they differ and may go on behind a sibling, or behind the
 * last guess of the chain. In depth-first order (base/guess_tree.h) the chain comes first, then the
 * siblings of its last guess, and at the end those of its first, each with what is behind it; the
 * branch follows the guess that it goes on from, or the siblings of the one that it differs from.
 *
 *   c0 -+- c1 -+- c2        guesses   c0 c1 c2 s2 s1 b1 b2 s0  siblings of c2: s2
 *       |      +- s2        parents   -1  0  1  1  0  0  5 -1  of c1: s1, of c0: s0
 *       +- s1                                                  branch: c0 b1 b2
 *       +- b1 --- b2
 *   s0
 *
 * Owned by the engine thread. */
#pragma once

#include "coordinator/draft/drafter.h"
#include "coordinator/kv/block_tails.h"
#include "speculation/accept/tree.h"

/* What a guess of such a tree is: LANE_TREE_CHAIN, the number of a sibling + 1, from
 * LANE_TREE_GROWN on one behind a sibling and its own siblings, or of the branch alone. */
enum { LANE_TREE_BRANCH = -1, LANE_TREE_CHAIN = 0, LANE_TREE_GROWN = 1 + SIBLINGS_MAX };

/* Parents of the largest tree of a chain of k guesses, 1 .. DRAFT_MAX, of which guess i has
 * siblings[i], with what grows behind these, and of a branch of n_branch guesses; returns how many
 * guesses it has. In KV blocks no such tree needs more behind path 0. parents[TREE_NODES_MAX]. */
int lane_tree_parents(int k, const uint8_t *siblings, const struct growth *growth, int n_branch,
                      int32_t *parents);

/* A draft as a tree. */
struct lane_tree {
    struct guess_tree shape;
    struct tree guesses;
    int8_t kinds[TREE_NODES_MAX];
};

/* The distribution that sibling `sibling` of guess i was drawn from; it is the guess's own q where
 * they share one. Points into draft. */
const struct sparse_dist *lane_tree_sibling_q(const struct draft *draft, int i, int sibling);

/* Of a draft that has a guess besides its chain. Keeps draft, whose q's it points to. */
void lane_tree_init(struct lane_tree *tree, const struct draft *draft);

/* The siblings of a draft, all together. */
int lane_tree_siblings(const struct draft *draft);

/* Guesses of the branch that are those of the chain, from the first on. */
int lane_tree_shared(const struct draft *draft);

/* How a draft with more than a chain was accepted. */
struct lane_path {
    int n_chain;        /* leading guesses of the chain that stay */
    int n_tested, kept; /* siblings of the guess behind them, and the one that stays; kept =
                           n_tested: none */
    int n_branch;       /* of the branch alone: those that stay */
};

struct lane_path lane_tree_path(const struct lane_tree *tree, const struct draft *draft,
                                const struct tree_result *result);
