/* The shape that measured acceptance and times favour: Sequoia's dynamic programme. */
#include <string.h>

#include "speculation/tree_shape.h"

/* Counts halve in about 700 tests. A depth of which nothing is known is like the one before it, and
 * the first one like a usual draft. */
static const double FORGET = 0.999, PRIOR_TESTS = 4, PRIOR_FIRST = 0.6, PRIOR_NEXT = 0.25;

static void count(struct tree_ranks *ranks, int depth, int rank, bool is_kept)
{
    if (depth >= TREE_DEPTH_MAX || rank >= TREE_RANKS_MAX) return;
    ranks->kept[depth][rank] = FORGET * ranks->kept[depth][rank] + (is_kept ? 1 : 0);
    ranks->tested[depth][rank] = FORGET * ranks->tested[depth][rank] + 1;
}

void tree_ranks_observe(struct tree_ranks *ranks, const struct tree *tree,
                        const struct tree_result *result)
{
    for (int depth = 0; depth <= result->n_accepted; depth++) {
        int node = depth > 0 ? result->path[depth - 1] : -1, rank = 0;
        int kept = depth < result->n_accepted ? result->path[depth] : -1;
        for (int c = tree_child(tree, node); c >= 0; c = tree_sibling(tree, c)) {
            count(ranks, depth, rank++, c == kept);
            if (c == kept) break;
        }
    }
}

double tree_ranks_chance(const struct tree_ranks *ranks, int depth, int rank)
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

static void split(struct programme *best, int d, int r, int m)
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

static void solve(struct programme *best, const struct tree_ranks *ranks, int n_max, int depth_max)
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
static void write_shape(const struct programme *best, int d, int m, int depth_max, int parent,
                        struct tree_shape *shape)
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

void tree_shape_best(const struct tree_ranks *ranks, const struct tree_times *times,
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
