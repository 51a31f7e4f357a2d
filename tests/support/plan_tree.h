/* The tree that a lane's plan has room for, as if a draft had made all of its guesses, and the path
 * of it that stays: how a world without models plays siblings and guesses behind them. The tokens
 * are numbers that all differ. */
#pragma once

#include <string.h>

#include "coordinator/draft/lane_tree.h"
#include "coordinator/schedule/plan.h"
#include "speculation/planner/planner.h"

struct plan_tree {
    struct draft draft;
    struct lane_tree tree;
    struct tree_result result;
    struct lane_path path;
};

static inline void plan_tree_init(struct plan_tree *t, const struct lane_plan *lane)
{
    int32_t token = 0;
    struct draft *draft = &t->draft;
    memset(t, 0, sizeof *t);
    draft->n = lane->k;
    for (int i = 0; i < lane->k; i++) {
        draft->tokens[i] = token++;
        draft->n_siblings[i] = lane->siblings[i];
        for (int s = 0; s < lane->siblings[i]; s++) {
            draft->siblings[i][s] = token++;
        }
    }
    draft->grown = lane->growth;
    for (int i = 0; i < draft->grown.n; i++) {
        draft->grown_tokens[i] = token++;
    }
    lane_tree_init(&t->tree, draft);
}

/* Lets a path stay: of each guess's children, in their order, the first for which the dice say
 * so. percent: the chance of a first child; that of a further one is two thirds of it. */
static inline void plan_tree_accept(struct plan_tree *t, int percent, int (*dice)(void *, int),
                                    void *world)
{
    const struct tree *guesses = &t->tree.guesses;
    int chance = percent;
    for (int at = guesses->n > 0 ? 0 : -1; at >= 0;) {
        bool stays = dice(world, 100) < chance;
        if (stays) t->result.path[t->result.n_accepted++] = at;
        chance = stays ? percent : percent * 2 / 3;
        at = stays ? tree_child(guesses, at) : tree_sibling(guesses, at);
    }
    t->path = lane_tree_path(&t->tree, &t->draft, &t->result);
}

/* Guesses behind a sibling that stay. */
static inline int plan_tree_n_grown(const struct plan_tree *t)
{
    int n = t->result.n_accepted - t->path.n_chain;
    return n > 1 ? n - 1 : 0;
}

/* The same of a tree that follows q; lane: as it was planned. */
static inline void plan_tree_teach_following(const struct plan_tree *t, struct planner *planner,
                                             struct planner_sequence *seq,
                                             const struct lane_plan *lane)
{
    for (int i = t->path.n_chain; i < t->result.n_accepted && i + 1 < DRAFT_MAX; i++) {
        planner_observe_following(planner, seq, lane->k, lane->siblings, &lane->growth, i + 1,
                                  i + 1 < t->result.n_accepted);
    }
}

/* Tells the planner what became of siblings and of what is behind the one that stayed. offer: as in
 * planner_observe_siblings. lane: as it was planned. */
static inline void plan_tree_teach(const struct plan_tree *t, struct planner *planner,
                                   struct planner_sequence *seq, const struct planner_offer *offer,
                                   const struct lane_plan *lane)
{
    const struct tree_result *result = &t->result;
    if (!lane->follows_q || t->path.n_chain == 0) {
        planner_observe_siblings(planner, seq, offer, t->path.n_tested, t->path.kept);
    }
    if (lane->follows_q) {
        if (seq->strategy == STRATEGY_PLANNED) plan_tree_teach_following(t, planner, seq, lane);
        return;
    }
    for (int i = t->path.n_chain; i < result->n_accepted; i++) {
        int next = i + 1 < result->n_accepted ? result->path[i + 1] : -1, n = 0, kept = -1;
        int child = tree_child(&t->tree.guesses, result->path[i]);
        for (; child >= 0; child = tree_sibling(&t->tree.guesses, child)) {
            if (child == next) kept = n;
            n++;
        }
        if (n == 0) return;
        planner_observe_grown(planner, seq, i + 1, n, kept < 0 ? n : kept);
    }
}
