/* Which shape a tree of guesses has: fixed, chosen by measured acceptance and times, or grown by
 * the draft's own q. All may look at tokens that are drawn and at any q; none drops a node whose
 * token somebody looked at (speculation/tree.h says why that is exact). */
#pragma once

#include "speculation/tree.h"

enum { TREE_RANKS_MAX = 8, TREE_DEPTH_MAX = 16 };

/* Parents in preorder, -1: the root. */
struct tree_shape {
    int n;
    int parents[TREE_NODES_MAX];
};

/* "3,2,1": 3 children of the root, 2 of each of these, 1 of each of those. Errors: ERR_ARGUMENT no
 * such list, or more than TREE_NODES_MAX nodes. */
int tree_shape_parse(const char *text, struct tree_shape *shape, struct error *err);

/* How often the child of a rank (0: the sibling drawn first) stays at a depth (0: the root's
 * children), given that its parent stays and no earlier sibling does. Old counts fade. Zeroed, it
 * knows nothing and answers its prior. Owned by the caller. */
struct tree_ranks {
    double kept[TREE_DEPTH_MAX][TREE_RANKS_MAX], tested[TREE_DEPTH_MAX][TREE_RANKS_MAX];
};

/* Of a verified tree: at each node of the accepted path, the children up to the one that stays. */
void tree_ranks_observe(struct tree_ranks *ranks, const struct tree *tree,
                        const struct tree_result *result);
/* The prior of a depth is the estimate of the depth before it. */
double tree_ranks_chance(const struct tree_ranks *ranks, int depth, int rank);

/* Times of a round in us. */
struct tree_times {
    const double *step_us; /* [TREE_NODES_MAX + 2] by rows of the step, the root's included */
    double pass_us;        /* of the draft for one more depth */
    double fixed_us;       /* the rest of a round */
    int n_max, depth_max;  /* of the tree, at most TREE_NODES_MAX and TREE_DEPTH_MAX */
};

/* The shape with the most predicted tokens per second over all sizes and depths, none included: the
 * dynamic programme of Sequoia (Chen et al. 2024, arXiv 2402.12374, tree construction), with
 * acceptance by depth, and its hardware-aware choice of the size by measured times.
 * *tokens_per_second is what it predicts. About n^2 * depth^2 * ranks / 4 additions: not for every
 * round. */
void tree_shape_best(const struct tree_ranks *ranks, const struct tree_times *times,
                     struct tree_shape *shape, double *tokens_per_second);

/* EAGLE-2 (Li et al. 2024, arXiv 2406.16858, sections 4.1 and 4.2) for drawn tokens. It keeps the
 * best tokens after it has drawn them, which would bias the text; here the same values decide
 * before. A layer of a tree is made thus: tree_shape_expand says which of the last layer's nodes
 * grow, by the product of q along each path; the draft gives a q behind each of them;
 * tree_shape_share says how many siblings will be drawn from each, by that product times the k-th
 * largest value of q; then they are drawn, and all of them stay.
 *   value     [n] product of q over the tokens of each path
 *   chosen    [n_wanted] indices, best first, ties to the first; returns their number
 *   n_children [n] at most TREE_RANKS_MAX each, `budget` in all */
int tree_shape_expand(const double *value, int n, int n_wanted, int *chosen);
void tree_shape_share(const struct sparse_dist *const *q, const double *value, int n, int budget,
                      int *n_children);

/* A tree whose nodes are in the order in which they were drawn (parents before children, siblings
 * in their order), in preorder; place[i] is where node i has come to. */
void tree_in_preorder(const struct tree *drawn, struct tree *tree, int *place);
