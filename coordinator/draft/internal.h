/* The drafters, a row each. A new drafter is a file in this folder and a row here.
 *
 * Those that compute, by what their names in --draft begin with. A name belongs to the first row
 * that it fits. So that no folder is taken for another drafter, what a row's names begin with ends
 * in a colon, as in "synthetic:". */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"
#include "model/logits/sampling.h"

struct drafter_ops; /* coordinator/draft/drafter.h */

#define DRAFTERS(DRAFTER)        \
    DRAFTER("", model_draft_ops) \
    /* the last row: every other name is a model's folder, or "synthetic:..." */

#define DRAFTER_DECLARED(prefix, ops) extern const struct drafter_ops ops;
DRAFTERS(DRAFTER_DECLARED)

/* Those that find, by their names in --lookup, in the order of struct planner_offer's `finder`. */
#define FINDERS(FINDER)                       \
    FINDER("session", session_finder_ops)     \
    FINDER("store", store_finder_ops)         \
    FINDER("datastore", datastore_finder_ops) \
    FINDER("recycled", recycled_finder_ops)   \
    FINDER("lookahead", lookahead_finder_ops)

#define FINDER_DECLARED(name, ops) extern const struct drafter_ops ops;
FINDERS(FINDER_DECLARED)
#undef FINDER_DECLARED

/* The finder of what a request predicts itself. It has no name in --lookup: an engine has it behind
 * those that are named. */
extern const struct drafter_ops predicted_finder_ops;

struct draft_lane;
struct arena;
struct sequence;
struct store_next;

/* What was found for a place of a text: a guess, and behind it its siblings. */
struct finder_guess {
    int n;
    int32_t tokens[1 + SIBLINGS_MAX]; /* [n] distinct */
    /* What they were drawn from without replacement, in the arena of the call; n = 0: they were not
     * drawn, and each has a one-hot q. */
    struct sparse_dist q;
};

/* coordinator/draft/finder.c: the lane's guesses begin, without an error. */
void finder_begin(struct draft_lane *lane);
/* Adds a guess, n >= 1, with as many siblings as the lane may have. Nothing is added behind one
 * that ends the text. False: no more can be added. */
bool finder_add(struct draft_lane *lane, const struct finder_guess *guess, struct arena *arena);
/* Both: the lane's guesses are guesses[n], up to one that ends the text. */
void finder_take(struct draft_lane *lane, const struct finder_guess *guesses, int n,
                 struct arena *arena);

/* coordinator/draft/counted_guess.c: a guess, with siblings, among n >= 1 tokens that were counted
 * behind the guesses before it. Whether a sequence's guesses are drawn from the counts: */
bool counted_is_drawn(const struct sequence *seq);
/* The lane's next guess. Every guess that is drawn must be sent. Errors: ERR_NO_MEMORY. */
int counted_draw(const struct store_next *next, const struct draft_lane *lane, struct arena *arena,
                 struct finder_guess *guess, struct error *err);
/* Guess `index` behind the committed tokens where guesses are not drawn, and n_wanted - 1 siblings;
 * no coin decides it. */
void counted_pick(const struct store_next *next, const struct sequence *seq, int index,
                  int n_wanted, struct finder_guess *guess);
/* Guesses with one-hot q's behind those that the lane has already, of a model, unless they end the
 * text. */
void finder_append(struct draft_lane *lane, const int32_t *tokens, int n, struct arena *arena);
#undef DRAFTER_DECLARED
