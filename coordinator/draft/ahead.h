/* Drafting on while the target verifies (docs/design.md section 7 b; PEARL, arXiv 2408.11850): the
 * draft assumes that all its guesses are accepted, predicts the token that follows them, and makes the
 * guesses of the next round. When it was right they are taken as they are: they are the very guesses
 * that would have been made later, with the same coins, so the text does not depend on it. When it
 * was wrong they are forgotten. For a single stream. Owned by the engine thread. */
#pragma once

#include "coordinator/draft/drafter.h"

enum ahead_mode {
    AHEAD_AUTO, /* where rounds were measured to be shorter with it */
    AHEAD_ON,
    AHEAD_OFF
};

struct ahead;

/* "auto", "on", "off". Errors: ERR_ARGUMENT. */
int ahead_parse_mode(const char *text, enum ahead_mode *mode, struct error *err);

/* Keeps drafter. Errors: ERR_NO_MEMORY. */
int ahead_open(struct ahead **ahead, enum ahead_mode mode, struct drafter *drafter,
               struct error *err);
void ahead_close(struct ahead *ahead);

/* Forgets what was measured: another group answers in other times. */
void ahead_forget(struct ahead *ahead);

/* Fills draft (n = 0, base = seq->n_tokens) with what was guessed ahead when the text went on as it was
 * assumed; otherwise it stays empty. Nothing of it is cut off, lest the number of guesses depend on
 * them. q lives until the ahead_begin after the next. */
void ahead_take(struct ahead *ahead, struct sequence *seq, struct draft *draft);

/* What comes behind `draft`, which is about to be verified: up to k guesses. k = 0, and a draft without
 * guesses or at its end: nothing. ends lives until ahead_end. */
void ahead_begin(struct ahead *ahead, struct sequence *seq, const struct draft *draft, int k,
                 const struct end_ids *ends);
/* One token more; false: there is nothing to do, or no time for it. A struct target_meanwhile's work.
 * A draft that fails stops here and fails in its own round. */
bool ahead_work(void *ahead);
/* What a round that verified took. */
struct ahead_times {
    bool is_plain;     /* neither model read more than the round's own tokens, and nothing failed */
    int64_t draft_us;  /* its own drafting, before the step */
    int64_t verify_us; /* the step and the wire */
    int64_t step_us;   /* of it, the slowest rank's */
};

/* The verification has come back. */
void ahead_end(struct ahead *ahead, struct sequence *seq, const struct ahead_times *times);
