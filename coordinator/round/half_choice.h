/* Decides about half-batches: whether the sequences that decode are split into two halves, one of
 * which is drafted while the target has the other's step. A step of half the rows takes more than
 * half of the time, and the cores that draft may be the target's own, so it pays only where it is
 * measured to pay. half_batches.h runs the rounds. Pure decisions, no clock. Owned by the engine
 * thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum half_batches_mode {
    HALF_BATCHES_AUTO, /* where it was measured to give more tokens per second */
    HALF_BATCHES_ON,
    HALF_BATCHES_OFF
};

enum { HALF_CHOICE_SIZES = 9 /* numbers of lanes by powers of two, up to 256 */ };

/* Running means over steps of one kind. */
struct half_choice_pace {
    double us, n_tokens; /* of a step */
    int n;               /* steps that were measured */
};

/* Set mode and leave the rest zero. */
struct half_choice {
    enum half_batches_mode mode;
    struct half_choice_pace paces[HALF_CHOICE_SIZES][2]; /* [log2 of lanes][halved] */
    uint32_t n_rounds;
    /* The last step that was observed. */
    int64_t last_us; /* 0 = none that this one followed at once */
    int last_size;
    bool last_halved;
    uint64_t n_steps, n_half_steps; /* since the start; the caller counts them */
};

/* Times in us, over all lanes and over half of them. */
struct half_choice_times {
    double step_us, half_step_us;
    double rest_us, half_rest_us; /* of a round beside the step and drafting: the wire, above all */
    double draft_us, half_draft_us;
};

/* The time of two half rounds over that of a whole one. One half's drafting is hidden by the other
 * half's step, and each half pays for the wire, because one step at a time is on its way. */
double half_choice_ratio(const struct half_choice_times *times);

/* Forgets what was measured, because another group answers in other times. */
void half_choice_forget(struct half_choice *half_choice);

/* Says whether the next n_lanes lanes, two at least, should be halved. predicted_ratio: the time of
 * two half steps over that of a whole one with its drafting; 0 = not known. Where it is not below 1
 * nothing is tried. Call it once for each step that may be halved. */
bool half_choice_make(struct half_choice *half_choice, int n_lanes, double predicted_ratio);

/* A step over half of n_lanes lanes or all of them is settled now, with n_tokens tokens. is_steady:
 * it followed the one before without anything else in between. */
void half_choice_observe(struct half_choice *half_choice, int n_lanes, bool is_halved,
                         bool is_steady, int n_tokens, int64_t now_us);
