/* References for trees of guesses: fixed shapes, and the shape that Sequoia's dynamic programme
 * finds, against which the planner's trees are held. Those that follow the draft's q are chosen by
 * speculation/accept/tree_follow.h. */
#pragma once

#include <stdlib.h>
#include <string.h>

#include "speculation/accept/tree.h"

enum { TREE_RANKS_MAX = 8, TREE_DEPTH_MAX = 16 };

/* Parents in preorder, -1: the root. */
struct tree_shape {
    int n;
    int parents[TREE_NODES_MAX];
};

/* How often the child of a rank (0: the sibling drawn first) stays at a depth (0: the root's
 * children), given that its parent stays and no earlier sibling does. Old counts fade. Zeroed, it
 * knows nothing and answers its prior. Owned by the caller. */
struct tree_ranks {
    double kept[TREE_DEPTH_MAX][TREE_RANKS_MAX], tested[TREE_DEPTH_MAX][TREE_RANKS_MAX];
};

/* Times of a round in us. */
struct tree_times {
    const double *step_us; /* [TREE_NODES_MAX + 2] by rows of the step, the root's included */
    double pass_us;        /* of the draft for one more depth */
    double fixed_us;       /* the rest of a round */
    int n_max, depth_max;  /* of the tree, at most TREE_NODES_MAX and TREE_DEPTH_MAX */
};

static inline bool add_below(const int *k, int n_depths, int depth, int parent,
                             struct tree_shape *shape)
{
    for (int i = 0; depth < n_depths && i < k[depth]; i++) {
        if (shape->n == TREE_NODES_MAX) return false;
        int node = shape->n++;
        shape->parents[node] = parent;
        if (!add_below(k, n_depths, depth + 1, node, shape)) return false;
    }
    return true;
}

/* "3,2,1": 3 children of the root, 2 of each of these, 1 of each of those. Errors: ERR_ARGUMENT no
 * such list, or more than TREE_NODES_MAX nodes. */
static inline int tree_shape_parse(const char *text, struct tree_shape *shape, struct error *err)
{
    int k[TREE_DEPTH_MAX], n = 0;
    const char *rest = text;
    shape->n = 0;
    for (bool more = true; more; n++) {
        char *end;
        long value = strtol(rest, &end, 10);
        if (*rest < '0' || *rest > '9' || value < 1 || value > TREE_NODES_MAX ||
            (*end != ',' && *end != '\0') || n == TREE_DEPTH_MAX) {
            return error_set(err, ERR_ARGUMENT,
                             "'%s' is no shape of a tree; write up to %d numbers of children, each "
                             "1 to %d, such as 3,2,1",
                             text, TREE_DEPTH_MAX, TREE_NODES_MAX);
        }
        k[n] = (int)value;
        more = *end == ',';
        rest = end + 1;
    }
    if (add_below(k, n, 0, -1, shape)) return 0;
    shape->n = 0;
    return error_set(err, ERR_ARGUMENT, "the shape '%s' has more than %d nodes", text,
                     TREE_NODES_MAX);
}

/* Counts halve in about 700 tests. A depth of which nothing is known is like the one before it, and
 * the first one like a usual draft. */
static const double FORGET = 0.999, PRIOR_TESTS = 4, PRIOR_FIRST = 0.6, PRIOR_NEXT = 0.25;

static inline void count(struct tree_ranks *ranks, int depth, int rank, bool is_kept)
{
    if (depth >= TREE_DEPTH_MAX || rank >= TREE_RANKS_MAX) return;
    ranks->kept[depth][rank] = FORGET * ranks->kept[depth][rank] + (is_kept ? 1 : 0);
    ranks->tested[depth][rank] = FORGET * ranks->tested[depth][rank] + 1;
}

/* Counts, at each node of a verified tree's accepted path, the children up to the one that
 * stays. */
static inline void tree_ranks_observe(struct tree_ranks *ranks, const struct guess_tree *tree,
                                      const struct tree_result *result)
{
    for (int depth = 0; depth <= result->n_accepted; depth++) {
        int node = depth > 0 ? result->path[depth - 1] : -1, rank = 0;
        int kept = depth < result->n_accepted ? result->path[depth] : -1;
        for (int c = guess_tree_child(tree, node); c >= 0; c = guess_tree_sibling(tree, c)) {
            count(ranks, depth, rank++, c == kept);
            if (c == kept) break;
        }
    }
}

/* The prior of a depth is the estimate of the depth before it. */
static inline double tree_ranks_chance(const struct tree_ranks *ranks, int depth, int rank)
{
    double chance = rank == 0 ? PRIOR_FIRST : PRIOR_NEXT;
    for (int d = 0; d <= depth; d++) {
        chance =
            (ranks->kept[d][rank] + PRIOR_TESTS * chance) / (ranks->tested[d][rank] + PRIOR_TESTS);
    }
    return chance;
}

/* most[d][r][m]: expected accepted nodes of the best m nodes that are children of one node at depth
 * d, from rank r on, with all that is below them, given that this node stays; first[d][r][m]: how
 * many of them belong to child r. */
struct programme {
    double chance[TREE_DEPTH_MAX][TREE_RANKS_MAX]; /* that child r is the one that stays */
    double most[TREE_DEPTH_MAX + 1][TREE_RANKS_MAX + 1][TREE_NODES_MAX + 1];
    int first[TREE_DEPTH_MAX][TREE_RANKS_MAX][TREE_NODES_MAX + 1];
};

static inline void split(struct programme *best, int d, int r, int m)
{
    best->most[d][r][m] = 0;
    best->first[d][r][m] = 0;
    for (int s = 1; s <= m; s++) {
        double below = best->most[d + 1][0][s - 1], beside = best->most[d][r + 1][m - s];
        double value = best->chance[d][r] * (1 + below) + beside;
        if (!(value > best->most[d][r][m])) continue;
        best->most[d][r][m] = value;
        best->first[d][r][m] = s;
    }
}

static inline void solve(struct programme *best, const struct tree_ranks *ranks, int n_max,
                         int depth_max)
{
    memset(best->most, 0, sizeof best->most);
    for (int d = depth_max - 1; d >= 0; d--) {
        double none = 1; /* chance that no earlier sibling stays */
        for (int r = 0; r < TREE_RANKS_MAX; r++) {
            best->chance[d][r] = none * tree_ranks_chance(ranks, d, r);
            none -= best->chance[d][r];
        }
        for (int r = TREE_RANKS_MAX - 1; r >= 0; r--) {
            for (int m = 1; m <= n_max; m++) {
                split(best, d, r, m);
            }
        }
    }
}

/* Writes the children from rank r on of `parent`, m nodes in all. */
static inline void write_shape(const struct programme *best, int d, int m, int depth_max,
                               int parent, struct tree_shape *shape)
{
    for (int r = 0; d < depth_max && r < TREE_RANKS_MAX && m > 0; r++) {
        int s = best->first[d][r][m];
        if (s == 0) return;
        int node = shape->n++;
        shape->parents[node] = parent;
        write_shape(best, d + 1, s - 1, depth_max, node, shape);
        m -= s;
    }
}

/* The shape with the most predicted tokens per second over all sizes and depths, none included: the
 * dynamic programme of Sequoia (Chen et al. 2024, arXiv 2402.12374, tree construction), with
 * acceptance by depth, and its hardware-aware choice of the size by measured times.
 * *tokens_per_second is what it predicts. About n^2 * depth^2 * ranks / 4 additions: not for every
 * round. */
static inline void tree_shape_best(const struct tree_ranks *ranks, const struct tree_times *times,
                                   struct tree_shape *shape, double *tokens_per_second)
{
    struct programme best;
    double most = 1e6 / (times->step_us[1] + times->fixed_us);
    shape->n = 0;
    for (int depth = 1; depth <= times->depth_max; depth++) {
        solve(&best, ranks, times->n_max, depth);
        double draft_us = depth * times->pass_us + times->fixed_us;
        for (int m = depth; m <= times->n_max; m++) {
            double speed = 1e6 * (1 + best.most[0][0][m]) / (times->step_us[m + 1] + draft_us);
            if (!(speed > most)) continue;
            most = speed;
            shape->n = 0;
            write_shape(&best, 0, m, depth, -1, shape);
        }
    }
    *tokens_per_second = most;
}
