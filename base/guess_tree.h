/* The guesses of a lane: a tree, from the planner's choice to what is sent, accepted and shown. A
 * node is a guess, and its parent is an earlier node, or -1 for the last committed token. A chain
 * is a tree whose nodes have no siblings.
 *
 *   chain     c0 -- c1 -- c2       the guesses of the lane's drafter for one place after the other
 *   sibling   s0 -- g0 -- g2       another guess for the place of c0, and guesses after it, which
 *                `- g1             may have siblings, too
 *   branch    b0 -- b1             a second chain, which was found beside the first
 *
 * While a tree is planned and drafted, a node is added when it is planned or drawn; children of one
 * parent are in the order in which they are drawn. guess_tree_sort brings the nodes into
 * depth-first order, in which they are sent and accepted (base/tree_layout.h): the chain comes
 * first, then the siblings of its last guess, each with all that follows it, and at the end those
 * of its first. A plan is such a tree without tokens. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"

struct sparse_dist; /* model/logits/sampling.h */

enum { GROWN_MAX = TREE_PATHS_MAX /* nodes beside the chain, at most: each may end a path */ };

/* Marks of a node: where it comes from. A guess of the drafter has one of the first three and, if
 * the branch goes through it, GUESS_BRANCH; with GUESS_BRANCH alone it is of the branch only. */
enum guess_mark {
    GUESS_CHAIN = 1,
    GUESS_SIBLING = 2, /* of a guess of the chain */
    GUESS_GROWN = 4,   /* after a sibling, or a sibling of such a guess */
    GUESS_BRANCH = 8,
    GUESS_STAGED = 16,    /* of the chain: it took no pass of the draft model of its own */
    GUESS_APPENDED = 32,  /* of the chain: found after the guesses of a draft model */
    GUESS_LOOK_AHEAD = 64 /* no guess, but a look-ahead token; only in the tree of a step */
};

struct guess_tree {
    int base;            /* committed tokens that the guesses continue */
    bool is_over;        /* nothing is to be guessed after the chain's last guess */
    bool is_independent; /* siblings of one q were drawn with replacement */
    int n, n_chain;
    uint8_t chain[DRAFT_MAX];      /* [n_chain] nodes of the chain */
    uint8_t marks[TREE_NODES_MAX]; /* [n] */
    int32_t parents[TREE_NODES_MAX];
    int32_t tokens[TREE_NODES_MAX]; /* of a plan -1 */
    /* The distribution that the guess was drawn from; of a plan NULL. Siblings with the same
     * pointer were drawn from it without replacement, or, with is_independent, with replacement.
     * Guesses that were found and not drawn, such as n-grams, have a one-hot q each. */
    const struct sparse_dist *q[TREE_NODES_MAX];
};

/* An empty tree. */
void guess_tree_begin(struct guess_tree *tree, int base);

/* Adds a guess, for which there is room, and returns its node. One that is marked as the chain's
 * goes on from the chain's last guess, which is `parent` then. q is kept. */
int guess_tree_add(struct guess_tree *tree, int parent, int marks, int32_t token,
                   const struct sparse_dist *q);

/* The last guess of the chain; -1: there is none. */
static inline int guess_tree_last(const struct guess_tree *tree)
{
    return tree->n_chain > 0 ? tree->chain[tree->n_chain - 1] : -1;
}

/* Adds a guess to the chain; marks: besides GUESS_CHAIN. */
static inline int guess_tree_extend(struct guess_tree *tree, int marks, int32_t token,
                                    const struct sparse_dist *q)
{
    return guess_tree_add(tree, guess_tree_last(tree), GUESS_CHAIN | marks, token, q);
}

/* Adds n guesses without tokens to a plan, one after the other: to the end of the chain or, if they
 * are not marked as the chain's, from the root on. */
void guess_tree_plan(struct guess_tree *tree, int n, int marks);

/* Adds a guess to a branch, of which `at` is the last node so far, or -1. The branch goes through a
 * child that holds the token, if there is one. Returns its last node. */
int guess_tree_branch(struct guess_tree *tree, int at, int32_t token, const struct sparse_dist *q);

/* The first child of a node (-1: the root), and the next one of the same parent; -1: none. */
int guess_tree_child(const struct guess_tree *tree, int node);
int guess_tree_sibling(const struct guess_tree *tree, int node);

/* How many children its parent has before it. */
int guess_tree_rank(const struct guess_tree *tree, int node);

/* Guesses from the root to a node; 0 for the root, which is -1. */
int guess_tree_depth(const struct guess_tree *tree, int node);

/* The place of a guess in the text, counted from 0. */
static inline int guess_tree_place(const struct guess_tree *tree, int node)
{
    return guess_tree_depth(tree, tree->parents[node]);
}

/* The tokens that lead from the root to a node, its own the last; returns how many. */
int guess_tree_text(const struct guess_tree *tree, int node, int32_t tokens[DRAFT_MAX]);

/* True if the same tokens lead from the root to two nodes, theirs included; -1 is the root. */
bool guess_tree_agree(const struct guess_tree *tree, int a, int b);

/* Nodes that have one of these marks. */
int guess_tree_count(const struct guess_tree *tree, int marks);

/* Siblings of the chain's guess for a place. */
int guess_tree_siblings(const struct guess_tree *tree, int place);

/* Brings the nodes into depth-first order; afterwards chain[i] is i. */
void guess_tree_sort(struct guess_tree *tree);

/* Takes away the nodes that have one of these marks, and none without what comes after it. */
void guess_tree_drop(struct guess_tree *tree, int marks);

/* The tree that needs the most KV blocks of all that have as many nodes beside the chain for each
 * place as the plan, or fewer, after whichever nodes of the place before, at most 1 + SIBLINGS_MAX
 * after each. A node without others after it ends a path, so it is the one in which as few nodes as
 * possible have others: the first ones of each place have as many as there may be. */
void guess_tree_pack(const struct guess_tree *plan, struct guess_tree *packed);

/* How a tree was accepted. */
struct guess_path {
    int n_chain;        /* leading guesses of the chain whose tokens stay */
    int n_tested, kept; /* siblings of the guess after them, and the one that stays; kept =
                           n_tested: none */
    int n_branch;       /* of the branch alone: those that stay */
};

/* nodes[n]: those that stay, from the root on. */
struct guess_path guess_tree_path(const struct guess_tree *tree, const int *nodes, int n);
