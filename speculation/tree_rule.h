/* Acceptance over a tree of guesses: which path stays and which token comes next. Like the rules of
 * speculation/rule.h, which are those of a chain, they are pure functions, cannot fail, and give
 * bit for bit what the rule gives for a chain if the tree is one. p is the target's distribution, q
 * the draft's, both after temperature and cuts. */
#pragma once

#include "base/limits.h"
#include "speculation/target_row.h"

/* Guesses in depth-first order, as in base/guess_tree.h. Siblings whose q is the same object were
 * drawn from it without replacement, in their order: sibling j from q without those before it,
 * renormalised (tree_q_left). Siblings of different q's are independent. */
struct tree_guesses {
    int n;                              /* 1 .. TREE_NODES_MAX */
    const int32_t *tokens;              /* [n] each in the support of its q */
    const int32_t *parents;             /* [n] an earlier guess; -1: the last committed token */
    const struct sparse_dist *const *q; /* [n] */
};

struct tree_result {
    int n_accepted;
    int path[DRAFT_MAX]; /* [n_accepted] guesses from the root on */
    int32_t next;        /* the token behind them */
};

/* rows[n + 1]: what is known of p behind the committed tokens and behind each guess; row 1 + i is
 * that of guess i. at: address of the first position's coins. Guesses of depth d use coins of
 * at->position + d, and the index of their coin is how many guesses of that depth come before them.
 * scratch[tree_scratch(rows, n)]. */
typedef struct tree_result tree_rule_fn(const struct target_row *rows,
                                        const struct tree_guesses *guesses,
                                        const struct rng_address *at, double *scratch);

/* Elements of scratch that rows[n + 1] need. */
size_t tree_scratch(const struct target_row *rows, int n);

/* Recursive rejection: from the root on, the children of a guess are tested one after the other
 * against what the ones before have left of p (SpecInfer, Miao et al. 2024, arXiv 2305.09781,
 * Algorithm 2; without replacement: Sequoia, Chen et al. 2024, arXiv 2402.12374, Algorithm 1). */
tree_rule_fn tree_rejection;

/* Traversal verification (Weng et al. 2025, arXiv 2505.12398): from the leaves on, whole paths are
 * tested, so that a guess that is rejected alone may stay as a part of a longer path. On a chain it
 * is block verification. */
tree_rule_fn tree_traversal;

/* The child that is the target's choice, where rows are one-hot: greedy and coupled. */
tree_rule_fn tree_match;

/* The child that is equal to a token drawn from p. */
tree_rule_fn tree_naive;

/* The first child that typical acceptance keeps. LOSSY. */
tree_rule_fn tree_typical;

/* q without the tokens taken[n_taken]: the sum of what is left of it, by which it is renormalised;
 * and a token from it, u in [0, 1). The sum is positive where something is to be drawn. */
double tree_q_left(const struct sparse_dist *q, const int32_t *taken, int n_taken);
int32_t tree_q_draw(const struct sparse_dist *q, const int32_t *taken, int n_taken, double u);
