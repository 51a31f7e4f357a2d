/* Trees of guesses as tables, as tests write and read them: a chain of guesses, how many siblings
 * each of them has, and the guesses after siblings with a name for the parent of each. The name is
 * the number of an earlier one of these or, below 0, that of a sibling of the chain.
 *
 *   chain    c0 -- c1         growth  parents
 *   sibling  s0 -- g0 -- g2   g0      growth_after(0, 0)   after sibling 0 of guess 0
 *            `-- g1           g1      growth_after(0, 0)
 *                             g2      0
 *
 * They are in the order in which they are drawn: by their places, and those of one parent one after
 * the other. */
#pragma once

#include <string.h>

#include "base/guess_tree.h"
#include "model/logits/sampling.h"

struct growth {
    int n;
    int8_t parents[GROWN_MAX];
};

/* The parent that is sibling `sibling`, from 0, of guess `guess` of the chain. */
static inline int8_t growth_after(int guess, int sibling)
{
    return (int8_t)(-1 - (guess * SIBLINGS_MAX + sibling));
}

static inline int growth_guess(int parent)
{
    return (-1 - parent) / SIBLINGS_MAX;
}

static inline int growth_sibling(int parent)
{
    return (-1 - parent) % SIBLINGS_MAX;
}

/* The place of guess i. */
static inline int growth_place(const struct growth *growth, int i)
{
    int place = 1;
    for (; growth->parents[i] >= 0; i = growth->parents[i]) {
        place++;
    }
    return place + growth_guess(growth->parents[i]);
}

/* The first guess that has the parent of guess i. */
static inline int growth_first(const struct growth *growth, int i)
{
    while (i > 0 && growth->parents[i - 1] == growth->parents[i]) {
        i--;
    }
    return i;
}

/* The plan that the tables say. siblings[k]; NULL: as many as there is room for. */
static inline void growth_plan(int k, const uint8_t *siblings, const struct growth *growth,
                               struct guess_tree *plan)
{
    int node_of[DRAFT_MAX][SIBLINGS_MAX], grown[GROWN_MAX] = {0}, own[DRAFT_MAX] = {0};
    int room = TREE_NODES_MAX - k - (growth ? growth->n : 0);
    for (int i = 0; growth && i < growth->n; i++) {
        int parent = growth->parents[i], sibling = parent < 0 ? growth_sibling(parent) + 1 : 0;
        if (sibling > 0 && sibling > own[growth_guess(parent)]) {
            room -= sibling - own[growth_guess(parent)];
            own[growth_guess(parent)] = sibling;
        }
    }
    guess_tree_begin(plan, 0);
    for (int i = 0; i < k; i++) {
        int n = siblings ? siblings[i] : own[i], before = guess_tree_last(plan);
        for (; !siblings && n < SIBLINGS_MAX && room > 0; room--) {
            n++;
        }
        guess_tree_extend(plan, 0, -1, NULL);
        for (int s = 0; s < n; s++) {
            node_of[i][s] = guess_tree_add(plan, before, GUESS_SIBLING, -1, NULL);
        }
    }
    for (int i = 0; growth && i < growth->n; i++) {
        int name = growth->parents[i];
        int parent = name >= 0 ? grown[name] : node_of[growth_guess(name)][growth_sibling(name)];
        grown[i] = guess_tree_add(plan, parent, GUESS_GROWN, -1, NULL);
    }
}

/* The chain's guess for a place and its siblings, in a draft as it was drawn. */
static inline int32_t guess_token(const struct guess_tree *draft, int place)
{
    return draft->tokens[draft->chain[place]];
}

static inline const struct sparse_dist *guess_q(const struct guess_tree *draft, int place)
{
    return draft->q[draft->chain[place]];
}

static inline int32_t sibling_token(const struct guess_tree *draft, int place, int sibling)
{
    return draft->tokens[draft->chain[place] + 1 + sibling];
}

static inline const struct sparse_dist *sibling_q(const struct guess_tree *draft, int place,
                                                  int sibling)
{
    return draft->q[draft->chain[place] + 1 + sibling];
}

/* Writes the chain's tokens; returns how many. */
static inline int chain_tokens(const struct guess_tree *draft, int32_t tokens[DRAFT_MAX])
{
    return guess_tree_text(draft, guess_tree_last(draft), tokens);
}

/* A draft as tables. */
struct draft_view {
    int base;
    bool is_over;
    int n;
    int32_t tokens[DRAFT_MAX];
    struct sparse_dist q[DRAFT_MAX];
    uint8_t n_siblings[DRAFT_MAX];
    int32_t siblings[DRAFT_MAX][SIBLINGS_MAX];
    const struct sparse_dist *sibling_q[DRAFT_MAX][SIBLINGS_MAX];
    struct growth grown;
    int32_t grown_tokens[GROWN_MAX];
    struct sparse_dist grown_q[GROWN_MAX];
    int n_staged, n_appended;
};

/* Views a tree, whose nodes may be in the order in which they were drawn. A plan has no tokens and
 * no q's. */
static inline struct draft_view view_draft(const struct guess_tree *tree)
{
    struct draft_view view = {.base = tree->base, .is_over = tree->is_over, .n = tree->n_chain};
    int8_t names[TREE_NODES_MAX] = {0};
    view.n_staged = guess_tree_count(tree, GUESS_STAGED);
    view.n_appended = guess_tree_count(tree, GUESS_APPENDED);
    for (int i = 0; i < tree->n_chain; i++) {
        int node = tree->chain[i];
        view.tokens[i] = tree->tokens[node];
        if (tree->q[node]) view.q[i] = *tree->q[node];
    }
    for (int i = 0; i < tree->n; i++) {
        int place = guess_tree_place(tree, i);
        if (tree->marks[i] & GUESS_SIBLING) {
            int s = view.n_siblings[place]++;
            names[i] = growth_after(place, s);
            view.siblings[place][s] = tree->tokens[i];
            view.sibling_q[place][s] = tree->q[i];
        } else if (tree->marks[i] & GUESS_GROWN) {
            int g = view.grown.n++;
            names[i] = (int8_t)g;
            view.grown.parents[g] = names[tree->parents[i]];
            view.grown_tokens[g] = tree->tokens[i];
            if (tree->q[i]) view.grown_q[g] = *tree->q[i];
        }
    }
    return view;
}
