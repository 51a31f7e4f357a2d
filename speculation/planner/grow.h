/* Trees of the draft model in which siblings go on: after a sibling there is a guess like that of
 * the chain for this position, which has siblings again, and so on. A guess is committed with the
 * chance that its parent is, times its own by position or by rank (alpha.h,
 * sibling.h), so no guess is likelier than its parent. Where none is likelier than the
 * sibling before it either, the n likeliest guesses of a lane, up to a depth, are a tree, and no
 * other tree of this size and depth has more expected tokens: the sum of the chances is what it is
 * expected to commit. That is what the dynamic programme of Sequoia finds (Chen et al. 2024, arXiv
 * 2402.12374) for chances by rank and depth, in one pass; test_planner_grow.c compares the two. The
 * planner's own (speculation/planner/planner.h). */
#pragma once

#include "speculation/planner/pair.h"

enum { PLANNER_NODES_MAX = TREE_PATHS_MAX - 1 /* guesses of a lane: each may end a path */ };

/* A guess of the tree of a lane. */
struct planner_node {
    float survival, left; /* as in a pair */
    int8_t parent;        /* of those that were taken; -1: the committed text */
    int8_t position, rank;
    int8_t read_in; /* after a sibling, or one: the last pass of the draft that reads it */
};

/* The tree of a lane in the making. */
struct planner_growing {
    bool grows, is_parallel; /* as in struct planner */
    float tokens;            /* that the lane is expected to commit with what was taken */
    /* Chances of guesses by position and of siblings by rank: [0] of the chain, [1] after
     * siblings. */
    float chances[2][DRAFT_MAX], siblings[2][SIBLINGS_MAX];
    int8_t forks[DRAFT_MAX];   /* by pass: the guess from which on it reads the chain again */
    int n_places;              /* for which guesses were taken */
    int n_taken, n_next, best; /* best: index in next */
    struct planner_node taken[PLANNER_NODES_MAX], next[PLANNER_NODES_MAX + 1];
};

/* For order.c alone: the tree of lanes[lane] begins. Both return its best pair, or one
 * without survival where there is none. */
struct planner_pair planner_grow_begin(struct planner_growing *growing, struct planner *p,
                                       const struct planner_lane *lanes, int lane);
/* Takes the best pair of a lane of lanes, whose rows are set. */
struct planner_pair planner_grow_take(struct planner_growing *growing,
                                      const struct planner_lane *lanes, struct planner_pair *taken);

/* For learn.c alone: tests of guesses after siblings count for less than before, so that
 * where these were too bad to be made they are looked at again. */
void planner_grow_fade(struct planner_trust *grown);

/* Writes the trees of the first n pairs that are less deep than depth into lanes, whose trees are
 * empty. growing: of all lanes, when these pairs or more were taken. */
void planner_grow_hand_out(const struct planner_growing *growing, const struct planner_pair *pairs,
                           int depth, int n, struct planner_lane *lanes);
