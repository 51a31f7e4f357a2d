/* Half-batches: whether the sequences that decode take turns in two halves, one of which is drafted
 * while the target has the other's step. A step of half the rows takes more than half of the time,
 * and the cores that draft may be the target's own, so it pays only where it is measured to pay.
 * How they do it: half_batches.h. Pure decisions, no clock. Owned by the engine thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum halves_mode {
    HALVES_AUTO, /* where it was measured to give more tokens per second */
    HALVES_ON,
    HALVES_OFF
};

enum { HALVES_SIZES = 9 /* numbers of lanes by powers of two, up to 256 */ };

/* Running means over steps of one kind. */
struct halves_pace {
    double us, n_tokens; /* of a step */
    int n;               /* steps that were measured */
};

/* Set mode and leave the rest zero. */
struct halves {
    enum halves_mode mode;
    struct halves_pace paces[HALVES_SIZES][2]; /* [log2 of lanes][halved] */
    uint32_t n_rounds;
    /* The last step that was observed. */
    int64_t last_us; /* 0 = none that this one followed at once */
    int last_size;
    bool last_halved;
    uint64_t n_steps, n_half_steps; /* since the start; the caller counts them */
};

/* Forgets what was measured, because another group answers in other times. */
void halves_forget(struct halves *halves);

/* Says whether the next n_lanes lanes, two at least, should be halved. predicted_ratio: the time of
 * two half steps over that of a whole one with its drafting; 0 = not known. Where it is not below 1
 * nothing is tried. Call it once for each step that may be halved. */
bool halves_choose(struct halves *halves, int n_lanes, double predicted_ratio);

/* A step over half of n_lanes lanes or all of them is settled now, with n_tokens tokens. is_steady:
 * it followed the one before without anything else in between. */
void halves_observe(struct halves *halves, int n_lanes, bool is_halved, bool is_steady,
                    int n_tokens, int64_t now_us);
