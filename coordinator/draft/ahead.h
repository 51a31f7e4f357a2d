/* Drafting ahead (docs/design.md section 7 b; PEARL, arXiv 2408.11850). While the target verifies,
 * the draft assumes that all its guesses will be accepted, predicts the token that follows them,
 * and makes the guesses of the next round. If the assumption holds they are taken as they are: they
 * are the same guesses that would have been made later, with the same coins, so the text does not
 * depend on it. Otherwise they are discarded. For a single stream. Owned by the engine thread. */
#pragma once

#include "coordinator/draft/drafter.h"

enum ahead_mode {
    AHEAD_AUTO, /* where it was measured to make rounds shorter */
    AHEAD_ON,
    AHEAD_OFF
};

struct ahead;

/* Keeps drafter. Errors: ERR_NO_MEMORY. */
int ahead_open(struct ahead **ahead, enum ahead_mode mode, struct drafter *drafter,
               struct error *err);
void ahead_close(struct ahead *ahead);

/* Forgets what was measured, because another group answers in other times. */
void ahead_forget(struct ahead *ahead);

/* Instead of ahead_begin and ahead_end, in a round that does not draft ahead at all: its time says
 * nothing of whether that pays. */
void ahead_skip(struct ahead *ahead);

/* Fills the lane's draft, which is empty, with the guesses that were made ahead if the text went on
 * as it was assumed and they are at most k; otherwise it stays empty, and the same guesses can be
 * drawn again. No guess of the chain is dropped, because then the number of guesses would depend on
 * their values, which biases the text; each has the siblings that the lane's plan says. q stays
 * valid until the ahead_begin after the next. */
void ahead_take(struct ahead *ahead, struct draft_lane *lane);

/* How many ahead_take would give, if k allows. */
int ahead_count(const struct ahead *ahead, const struct sequence *seq);

/* Allows up to k guesses after `draft`, which is about to be verified. None are made with k = 0,
 * after a draft without guesses or at its end, and with a drafter that cannot predict. ends is
 * kept until ahead_end. */
void ahead_begin(struct ahead *ahead, struct sequence *seq, const struct guess_tree *draft, int k,
                 const struct end_ids *ends);

/* Makes one token more; false when there is nothing to do or no time for it. A draft that fails
 * here stops, and fails again in its own round. */
bool ahead_work(struct ahead *ahead);

/* Times of a round. */
struct ahead_times {
    bool is_plain;     /* neither model read more than the round's own tokens, and nothing failed */
    int64_t draft_us;  /* its own drafting, before the step */
    int64_t verify_us; /* the step and the wire */
    int64_t step_us;   /* the part of it that the slowest rank took */
};

/* The answer is here, or the step has failed. */
void ahead_end(struct ahead *ahead, struct sequence *seq, const struct ahead_times *times);
