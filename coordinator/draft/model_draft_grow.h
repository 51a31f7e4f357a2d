/* What the files that guess behind siblings share: a lane's growth in the making.
 * coordinator/draft/model_draft_grow.c, _follow.c and _group.c alone. */
#pragma once

#include "base/growth.h"
#include "coordinator/draft/model_draft.h"
#include "coordinator/kv/block_tails.h"

/* What a growth calls a guess of the chain, which is no parent in it. */
enum { OF_CHAIN = GROWN_MAX, PASS_TOKENS = 1 + TREE_NODES_MAX };

/* What a growth that follows q keeps of its lane. */
struct draft_following {
    double constant_ratio;    /* speculation/accept/tree_follow.h */
    int budget[DRAFT_MAX];    /* guesses behind siblings, for each place ... */
    int n_parents[DRAFT_MAX]; /* ... and how many of the place before they are behind */
    int place;                /* the next one */
    double chain[DRAFT_MAX];  /* values of the guesses: of the chain, ... */
    double siblings[DRAFT_MAX][SIBLINGS_MAX], grown[GROWN_MAX]; /* ... and of the others */
    struct guess_row chain_row; /* of the pass, if the chain goes on */
};

/* The growth of a lane in the making. */
struct draft_grower {
    const struct growth *plan; /* NULL: nothing is made behind siblings */
    int next;                  /* of the plan: the first guess that has not had its pass */
    int8_t made[GROWN_MAX];    /* [next] its number in the draft; -1: it was left out */

    /* Where the growth follows q: `plan` is `own`, which is written place by place. */
    bool follows;
    struct growth own;
    struct draft_following f;

    /* The pass that makes the guesses next .. end of the plan. */
    int end;
    int n_names;
    int8_t names[GROWN_MAX];   /* [n_names] what the growth calls those that get others */
    bool is_needed[GROWN_MAX]; /* it, or what is behind it, is one of these */
    bool needs_sibling[DRAFT_MAX][SIBLINGS_MAX]; /* the same of siblings */
    int n_tokens, n_rows;
    int32_t tokens[PASS_TOKENS], parents[TREE_NODES_MAX]; /* tokens[0] is before the tree */
    int16_t rows[GROWN_MAX];  /* [n_rows] index in tokens of a guess that gets others ... */
    int8_t of_row[GROWN_MAX]; /* ... and its name */
    struct guess_tree shape;
    struct block_tails tails;
    struct forward_tree tree;
};

/* Whether nothing is guessed behind this token. */
static inline bool model_draft_ends(const struct draft_lane *lane, int32_t token)
{
    return end_ids_have(lane->ends, token);
}

/* What a guess that is not of the chain is worth to those behind it, by its name. */
static inline double model_draft_value_of(const struct draft_grower *g, int name)
{
    if (name >= 0) return g->f.grown[name];
    return g->f.siblings[growth_guess(name)][growth_sibling(name)];
}

/* ---- model_draft_group.c ---- */

/* The guesses of the pass from guess `first` on that have its parent. */
int model_draft_count_group(const struct draft_grower *g, int first);

/* Draws a group: guess `first` of the plan and its siblings, from the row behind their parent. */
void model_draft_draw_group(struct model_draft *d, struct draft_grower *g, struct draft_lane *lane,
                            int first, const struct guess_row *row);

/* ---- model_draft_follow.c ---- */

/* The growth of a lane whose growth follows q begins. */
void model_draft_begin_following(struct draft_grower *g, struct draft_lane *lane);

/* As model_draft_wants_growth; also says how many siblings the next guess of the chain has, if this
 * is not decided by the pass. */
bool model_draft_follows_on(struct draft_grower *g, struct draft_lane *lane, bool goes_on);

/* Chooses the guesses whose rows the pass reads: those that are expanded. */
void model_draft_name_parents(struct draft_grower *g, const struct draft_lane *lane, bool goes_on,
                              int n_rows_max);

/* Shares the guesses of the place among the rows of the pass, the first of which is number `row` of
 * the step, and draws those that are behind siblings. */
int model_draft_draw_following(struct model_draft *d, const struct feeding *feeding, int row,
                               struct arena *arena, struct error *err);
