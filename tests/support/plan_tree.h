/* The tree that a lane's plan has room for, as if a draft had made all of its guesses, and the path
 * of it that stays: how a world without models plays siblings and guesses after them. The tokens
 * are numbers that all differ. */
#pragma once

#include <string.h>

#include "base/tree_layout.h"
#include "coordinator/schedule/plan.h"
#include "speculation/accept/tree.h"
#include "speculation/planner/planner.h"
#include "tests/support/check_util.h"

/* Parts of a plan. */
static inline int plan_n_append(const struct lane_plan *lane)
{
    return guess_tree_count(&lane->tree, GUESS_APPENDED);
}

static inline int plan_n_branch(const struct lane_plan *lane)
{
    return lane->window ? 0 : guess_tree_count(&lane->tree, GUESS_BRANCH);
}

static inline int plan_n_window(const struct lane_plan *lane)
{
    return lane->window ? guess_tree_count(&lane->tree, GUESS_BRANCH) : 0;
}

static inline int plan_n_grown(const struct lane_plan *lane)
{
    return guess_tree_count(&lane->tree, GUESS_GROWN);
}

static inline int plan_n_siblings(const struct lane_plan *lane)
{
    return guess_tree_count(&lane->tree, GUESS_SIBLING);
}

struct plan_tree {
    struct guess_tree tree;
    struct tree_layout layout;
    struct tree_result result;
    struct guess_path path;
};

/* With all of the plan that the lane's drafter makes. */
static inline void plan_tree_init(struct plan_tree *t, const struct lane_plan *lane)
{
    struct error err;
    memset(t, 0, sizeof *t);
    t->tree = lane->tree;
    guess_tree_drop(&t->tree, GUESS_APPENDED | GUESS_BRANCH);
    guess_tree_sort(&t->tree);
    for (int i = 0; i < t->tree.n; i++) {
        t->tree.tokens[i] = i;
    }
    CHECK_OK(tree_layout_init(&t->layout, t->tree.parents, t->tree.n, &err));
}

/* Lets a path stay: of each guess's children, in their order, the first for which the dice say
 * so. percent: the chance of a first child; that of a further one is two thirds of it. */
static inline void plan_tree_accept(struct plan_tree *t, int percent, int (*dice)(void *, int),
                                    void *world)
{
    const struct guess_tree *guesses = &t->tree;
    int chance = percent;
    for (int at = guesses->n > 0 ? 0 : -1; at >= 0;) {
        bool stays = dice(world, 100) < chance;
        if (stays) t->result.path[t->result.n_accepted++] = at;
        chance = stays ? percent : percent * 2 / 3;
        at = stays ? guess_tree_child(guesses, at) : guess_tree_sibling(guesses, at);
    }
    t->path = guess_tree_path(&t->tree, t->result.path, t->result.n_accepted);
}

/* Guesses after a sibling that are accepted. */
static inline int plan_tree_n_grown(const struct plan_tree *t)
{
    int n = t->result.n_accepted - t->path.n_chain;
    return n > 1 ? n - 1 : 0;
}

/* Tells the planner what became of a tree that follows q; lane: as it was planned. */
static inline void plan_tree_teach_following(const struct plan_tree *t, struct planner *planner,
                                             struct planner_sequence *seq,
                                             const struct lane_plan *lane)
{
    for (int i = t->path.n_chain; i < t->result.n_accepted && i + 1 < DRAFT_MAX; i++) {
        planner_observe_following(planner, seq, 0, &lane->tree, i + 1,
                                  i + 1 < t->result.n_accepted);
    }
}

/* Tells the planner what became of siblings and of what follows the one that was accepted. offer:
 * as in planner_observe_siblings. lane: as it was planned. */
static inline void plan_tree_teach(const struct plan_tree *t, struct planner *planner,
                                   struct planner_sequence *seq, const struct planner_offer *offer,
                                   const struct lane_plan *lane)
{
    const struct tree_result *result = &t->result;
    if (!lane->follows_q || t->path.n_chain == 0) {
        planner_observe_siblings(planner, seq, 0, offer, t->path.n_tested, t->path.kept);
    }
    if (lane->follows_q) {
        if (seq->strategy == STRATEGY_PLANNED) plan_tree_teach_following(t, planner, seq, lane);
        return;
    }
    for (int i = t->path.n_chain; i < result->n_accepted; i++) {
        int next = i + 1 < result->n_accepted ? result->path[i + 1] : -1, n = 0, kept = -1;
        int child = guess_tree_child(&t->tree, result->path[i]);
        for (; child >= 0; child = guess_tree_sibling(&t->tree, child)) {
            if (child == next) kept = n;
            n++;
        }
        if (n == 0) return;
        planner_observe_grown(planner, seq, 0, i + 1, n, kept < 0 ? n : kept);
    }
}
