/* Finders: drafters that look their guesses up in texts (coordinator/draft/drafter.h). They take
 * microseconds and have no passes. The verbs are grouped by when they are called, and those that
 * few finders have are in a struct of their own. Owned by the engine thread. */
#pragma once

#include "coordinator/draft/drafter.h"
#include "model/logits/look_ahead_key.h"
#include "speculation/rows/target_row.h"

/* Rows of the target in a round: row i is p after the text that leads to before[i], which follows
 * before[parents[i]]. Row 0 is that of the last committed token before the round, and its parent is
 * -1. Rows that nothing is known of are empty. */
struct draft_rows {
    const struct target_row *rows; /* [n] */
    const int32_t *before, *parents;
    int n;
};

/* Chains of look-ahead tokens that are to be in a step. They are no guesses: the row of token i,
 * from 0 on, says what comes i + 2 places after the token that the chain follows. The token in
 * between is the one that this round draws. All chains begin with the same tokens, whose ids follow
 * the target's vocabulary (model/look_ahead.h). */
struct look_ahead_wish {
    int length; /* tokens of a chain, 1 .. DRAFT_MAX */
    int n_top;  /* best tokens that are wanted of each row */
    /* After how many guesses of the lane's chain of k, [k + 1] different numbers: first after which
     * the text most likely ends, where the next round goes on. */
    uint8_t places[DRAFT_MAX + 1];
    /* Tokens that the next round is expected to have more with a chain at the first place alone. */
    float worth;
};

/* Rows of a round's look-ahead tokens. */
struct look_ahead_said {
    int k, n_accepted; /* guesses of the lane's chain, and those that stay */
    /* [n] rows of those after the last accepted guess, with `top_ids`; n = 0: there were none, or
     * the text went on beside the chain. */
    const struct target_row *rows;
    int n;
};

/* Operations that only some finders have. NULL: this one cannot. */
struct lookup_extra_ops {
    /* ---- once ---- */

    /* Forgets what was looked up, because struct drafter has another n_vocab. Finders that
     * keep it from `offer` to `propose` have it. */
    void (*forget_offers)(struct drafter *finder);

    /* ---- for each text ---- */

    /* True if the sequence's request brings something to look in. Finders of what requests bring
     * have it. */
    bool (*is_brought)(const struct sequence *seq);

    /* The sequence's text is complete: the finder may learn from it. */
    void (*observe_text)(struct drafter *finder, const struct sequence *seq);

    /* ---- in each round ---- */

    /* The guesses that it would make after seq->tokens[0 .. n_tokens), where those that are not
     * committed are guesses: writes up to n tokens, sets *evidence as in struct planner_offer and
     * returns how many. */
    int (*continue_from)(const struct drafter *finder, const struct sequence *seq, int n_tokens,
                         int32_t *tokens, int n, int *evidence);

    /* At most `most` tokens that are to be checked after the text for what their rows teach, if
     * rows of the step cost next to nothing; returns how many. No coin of this round decides
     * them. */
    int (*extra_rows)(const struct drafter *finder, const struct sequence *seq, int32_t *tokens,
                      int most);

    /* A round has committed what the target says in *rows: the finder may learn from it. */
    void (*observe_rows)(struct drafter *finder, const struct sequence *seq,
                         const struct draft_rows *rows);

    /* The three of a finder that guesses by look-ahead tokens. */

    /* Errors: ERR_UNSUPPORTED the target's workers hold other embeddings, or none. */
    int (*check_look_ahead)(const struct drafter *finder, const struct look_ahead_key *held,
                            struct error *err);

    /* Which of them are of use in a step that checks a chain of k guesses, any drafter's. It
     * depends on the sequence alone. */
    void (*look_ahead)(const struct drafter *finder, const struct sequence *seq, int k,
                       struct look_ahead_wish *wish);

    /* A round is over, whether it had any or not. Its tokens are committed, so that no guess
     * depends on coins that judge it. */
    void (*observe_look_ahead)(struct drafter *finder, const struct sequence *seq,
                               const struct look_ahead_said *said);
};

/* The verbs of a finder. */
struct lookup_ops {
    /* ---- once ---- */

    /* options->name is what follows the finder's name. tok: the tokenizer of the texts. Errors:
     * ERR_NO_MEMORY, and those of what is looked in. */
    int (*open)(struct drafter **finder, const struct drafter_options *options,
                const struct tokenizer *tok, struct error *err);
    void (*close)(struct drafter *finder);

    /* ---- for each text ---- */

    /* Reads committed tokens of the sequence that it has not read, n_tokens at most. Returns how
     * many are left. */
    int (*read)(struct drafter *finder, const struct sequence *seq, int n_tokens);

    /* The sequence in this slot is over, or gives up its place: frees what is kept for it. */
    void (*forget)(struct drafter *finder, int slot);

    /* ---- in each round ---- */

    /* Offers what it can guess for the sequence now, if it has read all of it: sets evidence,
     * k_max, as if there were no limit but DRAFT_MAX, and siblings, if it knows any, of *offer,
     * which is zero but for `finder`. False: nothing. propose then guesses that; of siblings there
     * may be more or fewer after guesses that were drawn. */
    bool (*offer)(const struct drafter *finder, const struct sequence *seq,
                  struct planner_offer *offer);

    /* The first n guesses that propose would make now, where no coin decides them; returns how many
     * there are. 0: there are none, or they are drawn. */
    int (*preview)(const struct drafter *finder, const struct sequence *seq, int32_t *tokens,
                   int n);

    /* The lane's guesses, at most k, written as a draft model's are. Errors of the lane:
     * ERR_NO_MEMORY. */
    void (*propose)(struct drafter *finder, struct draft_lane *lane, struct arena *arena);

    struct lookup_extra_ops extra;
};

/* The verbs above. */
int lookup_read(struct drafter *finder, const struct sequence *seq, int n_tokens);
bool lookup_offer(const struct drafter *finder, const struct sequence *seq,
                  struct planner_offer *offer);
int lookup_preview(const struct drafter *finder, const struct sequence *seq, int32_t *tokens,
                   int n);
int lookup_continue_from(const struct drafter *finder, const struct sequence *seq, int n_tokens,
                         int32_t *tokens, int n, int *evidence);

/* The extra rows of a finder that has them become the branch of the lane's draft: at most lane->k
 * tokens, and none after one of lane->ends. Errors, of the lane: ERR_NO_MEMORY. */
void lookup_extra_rows(const struct drafter *finder, struct draft_lane *lane, struct arena *arena);
