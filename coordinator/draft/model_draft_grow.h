/* A lane whose draft model guesses after siblings. coordinator/draft/model_draft_grow.c, _follow.c
 * and _group.c alone. */
#pragma once

#include "coordinator/draft/model_draft.h"
#include "coordinator/kv/block_tails.h"

enum { PASS_TOKENS = 1 + TREE_NODES_MAX };

/* State of a lane whose guesses follow q. */
struct draft_following {
    double constant_ratio;         /* speculation/accept/tree_follow.h */
    int budget[DRAFT_MAX];         /* guesses after siblings, for each place ... */
    int n_parents[DRAFT_MAX];      /* ... and how many of the place before they are after */
    int place;                     /* the next one */
    int n_siblings;                /* of the chain's next guess */
    double values[TREE_NODES_MAX]; /* of the draft's nodes */
    struct guess_row chain_row;    /* of the pass, if the chain goes on */
};

/* State of a lane that guesses after siblings. Nodes are those of the lane's draft. */
struct draft_grower {
    const struct guess_tree *plan; /* NULL: nothing is made after siblings */
    bool follows;
    struct draft_following f;

    /* Where it does not follow q: nodes of the plan. */
    int next;                    /* the first one after siblings that has not had its pass */
    int end;                     /* the pass makes those from next on */
    int8_t made[TREE_NODES_MAX]; /* of those after siblings, its node; -1: there is none */

    /* The pass. */
    int n_parents;
    int8_t pass_parents[GROWN_MAX]; /* [n_parents] that get others */
    bool shares_row;                /* one row is that of all of them; there is no tree */
    bool is_needed[TREE_NODES_MAX]; /* it, or what is after it, is one of these */
    int n_tokens, n_rows;
    int32_t tokens[PASS_TOKENS], parents[TREE_NODES_MAX]; /* tokens[0] is before the tree */
    int8_t nodes[PASS_TOKENS];                            /* of the draft; -1: it is committed */
    int16_t rows[GROWN_MAX];  /* [n_rows] index in tokens of a guess that gets others ... */
    int8_t of_row[GROWN_MAX]; /* ... and its node */
    struct tree_layout shape;
    struct block_tails tails;
    struct forward_tree tree;
};

/* True if nothing is guessed after this token. Independent chains go on, so that all of them have
 * the same length, whatever their tokens (speculation/accept/tree_paths.c). */
static inline bool model_draft_ends(const struct draft_lane *lane, int32_t token)
{
    return !lane->draft->is_independent && end_ids_have(lane->ends, token);
}

/* The row of a step that is number r of a grower's rows; `row` is the first one of the feeding,
 * which is the chain's if that has one. */
static inline int model_draft_row_after(const struct draft_grower *grower,
                                        const struct feeding *feeding, int row, int r)
{
    if (grower->shares_row) return row;
    return row + (feeding->has_chain_row ? 1 : 0) + r;
}

/* ---- model_draft_group.c ---- */

/* A guess and its siblings to be drawn: n in all, after a node of the draft. Their coins begin with
 * number `coin` of those after siblings. */
struct draft_group {
    int parent, n, coin;
};

/* Draws a group from the row of its parent. Returns how many guesses there are, which may be fewer
 * than n, or an error. Errors: ERR_NO_MEMORY. */
int model_draft_draw_group(struct model_draft *d, const struct feeding *feeding,
                           const struct draft_group *group, const struct guess_row *row,
                           struct arena *arena, struct error *err);

/* ---- model_draft_follow.c ---- */

/* A lane whose guesses follow q begins. */
void model_draft_begin_following(struct draft_grower *g, const struct draft_lane *lane);

/* As model_draft_wants_growth; also says how many siblings the next guess of the chain has, if this
 * is not decided by the pass. */
bool model_draft_follows_on(struct draft_grower *g, const struct draft_lane *lane, bool goes_on);

/* Chooses the guesses whose rows the pass reads: those that are expanded. */
void model_draft_choose_parents(struct draft_grower *g, const struct draft_lane *lane, bool goes_on,
                                int n_rows_max);

/* Shares the guesses of the place among the rows of the pass, the first of which is number `row` of
 * the step, and draws those that are after siblings. */
int model_draft_draw_following(struct model_draft *d, const struct feeding *feeding, int row,
                               struct arena *arena, struct error *err);
