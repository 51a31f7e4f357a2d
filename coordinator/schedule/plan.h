/* The plan of a round, and what decisions about it depend on (coordinator/schedule/scheduler.h). */
#pragma once

#include "coordinator/draft/drafters.h"
#include "coordinator/kv/block_tails.h"
#include "coordinator/target/target.h"
#include "speculation/planner/planner.h"

enum {
    SEQUENCES_MAX = PLANNER_LANES_MAX, /* that have a place at a time */
    /* Tokens of a prompt with which the first round of a text may guess. After a longer one the
     * first token comes plainly, so that it does not wait until the draft has read the prompt. */
    FIRST_GUESS_TOKENS = 64,
    /* Tokens that the draft may have missed when a lane guesses; more are read in chunks before. */
    CAUGHT_UP_TOKENS = 64,
    /* Tokens of what was found that are held against the text. */
    FORESEEN_MAX = 8
};

/* Guesses that could be found for a lane, and how they began: the planner learns from these whether
 * they were accepted. */
struct lane_found {
    struct planner_offer offer;
    int n;
    int32_t tokens[FORESEEN_MAX]; /* [n] */
};

/* Look-ahead tokens of a step: chains of them after the text (place 0) and after the first guesses
 * of the lane's chain, as many as a place says. Places beyond the guesses that come have none. */
struct lane_look_ahead {
    int length, n; /* tokens of a chain; chains */
    int n_top;     /* best tokens that are wanted of each row */
    uint8_t places[DRAFT_MAX + 1];
};

/* One sequence's share of a step. */
struct lane_plan {
    struct sequence *seq;
    int n_tokens; /* committed tokens that the step feeds, from n_target_kv on */
    /* Guesses after them, at most, in the order of struct planner_lane. Those of the chain that are
     * marked as appended are what a finder may add to the draft model's, and the branch, which is
     * listed from the root on, comes last. */
    struct guess_tree tree;
    struct drafter *drafter; /* that makes the chain and what is beside it; NULL: there is none */
    /* Where it is a finder: why. */
    struct planner_offer offer;
    /* The tree says how many guesses there are for each place, and after how many of the place
     * before; which ones these are is chosen by the draft's q (speculation/accept/tree_follow.h).
     */
    bool follows_q;
    struct planner_branch branch; /* of the tree's branch, if it is not a window */
    /* The branch is a window: tokens of this finder that are checked for what their rows teach. */
    const struct drafter *window;
    struct lane_look_ahead look_ahead;
    int n_found;
    struct lane_found found[PLANNER_FINDERS];
    struct block_tails *tails; /* set aside for all that is beside path 0; NULL: there are none */
    bool is_last; /* the step reaches the last committed token, so that the next one follows */
    int first_scored, n_scored; /* of n_tokens: those whose rows are wanted as scores */
};

/* True if a draft model guesses for the lane. */
static inline bool lane_plan_is_drafted(const struct lane_plan *lane)
{
    return lane->tree.n > 0 && lane->drafter && lane->drafter->row->model;
}

/* Guesses of the chain that the lane's drafter makes. */
static inline int lane_plan_k(const struct lane_plan *lane)
{
    return lane->tree.n_chain - guess_tree_count(&lane->tree, GUESS_APPENDED);
}

static inline int lane_look_ahead_rows(const struct lane_look_ahead *look_ahead)
{
    return look_ahead->n * look_ahead->length;
}

/* Adds the tokens to a tree of guesses, of which first_id is the first: a plan has -1. */
void lane_look_ahead_add(const struct lane_look_ahead *look_ahead, int32_t first_id,
                         struct guess_tree *tree);

struct round_plan {
    struct lane_plan lanes[SEQUENCES_MAX];
    int n_lanes;
    /* By the draft models, before they guess: those of each one after the other. */
    struct draft_reading readings[PLANNER_MODELS * SEQUENCES_MAX];
    int n_readings;
    struct block_tails tails[SEQUENCES_MAX];
    int n_tails;
    int n_tokens, n_prompt; /* committed tokens fed; of them, tokens of prompts */
    int n_waiting;          /* texts whose prompts are read further after this step */
    double expected_us;     /* what the planner expects the round to take; 0 = not known */
};

/* Everything that decisions depend on besides the sequences. Lent. */
struct scheduler {
    const struct target_description *target;
    struct block_pool *target_pool;
    struct drafters *drafters;
    struct planner *planner;
    /* A step with prompts may take this many times as long as the decoding lanes alone would. */
    double step_stretch;
    int append_max; /* guesses after those of the draft that rows and KV are set aside for */
    uint64_t n_rounds;
};
