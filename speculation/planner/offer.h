/* Guesses that are found and not computed: in what a text has said before, or in other texts. They
 * cost rows of a step and no time of a draft. The planner's own (speculation/planner/planner.h);
 * pure arithmetic. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "speculation/planner/alpha.h"

enum {
    PLANNER_MODELS = 2,   /* draft models, at most */
    PLANNER_FINDERS = 12, /* drafters that find, at most */
    PLANNER_DRAFTERS = PLANNER_MODELS + PLANNER_FINDERS,
    /* Besides them: what is found is not offered but expected of the draft
     * (speculation/planner/stage.h). */
    PLANNER_STAGED = PLANNER_FINDERS,
    PLANNER_APPENDED, /* or follow guesses of the draft (speculation/planner/append.h) */
    PLANNER_SOURCES,
    PLANNER_EVIDENCE = 16 /* kinds of evidence that a finder tells apart */
};

/* Guesses that a finder has for a lane now. */
struct planner_offer {
    int finder;   /* 0 .. PLANNER_FINDERS - 1 */
    int evidence; /* 0 .. PLANNER_EVIDENCE - 1: the reason for it, such as the length of a match;
                     the higher, the better. Guesses for equal reasons are taken to stay equally
                     often, in all sequences but for planner_trust */
    int k_max;    /* guesses, 0 .. DRAFT_MAX */
    uint8_t siblings[DRAFT_MAX]; /* further guesses that it knows for the place of each */
    bool is_fixed;               /* its guesses are not drawn, so they may be a branch */
};

/* The number, 0 .. PLANNER_DRAFTERS - 1, of the drafter that makes an offer; NULL: of the draft
 * model number `model`. */
static inline int planner_drafter_of(const struct planner_offer *offer, int model)
{
    return offer ? PLANNER_MODELS + offer->finder : model;
}

/* Guesses that were found beside those of the draft (speculation/planner/branch.h). */
struct planner_branch {
    struct planner_offer offer; /* that makes its guesses */
    float expected;             /* tokens that it is expected to add */
    float value;                /* logarithm of predicted tokens over time: what it promises */
};

/* The evidence of a match of so many tokens, for finders that know nothing else. */
int planner_evidence_of_match(int n_tokens);

/* As planner_evidence_of_match, where `count` of `total` occurrences of the match went on with the
 * first guess. */
int planner_evidence_of_counts(int n_tokens, int count, int total);

/* The evidence where the first guess would have stayed in `count` of the last `total` cases. */
int planner_evidence_of_share(int count, int total);

/* How often guesses stay, over all sequences, by reason and position. */
struct planner_reason {
    struct planner_counts counts;
    struct planner_prior prior; /* of counts */
    bool is_fitted;             /* prior is up to date */
};
struct planner_reasons {
    struct planner_reason of[PLANNER_SOURCES][PLANNER_EVIDENCE];
    /* Tokens that branches were expected to add, and those that they did. */
    double branch_expected, branch_added;
};

/* How one sequence differs from others in what a finder finds: of so many tests so many guesses
 * stayed, and so many were expected to. Older tests count less. */
struct planner_trust {
    float tested, accepted, expected;
};

/* Chances of an offer's guesses, by position. */
struct planner_chain planner_offer_chain(struct planner_reasons *reasons,
                                         const struct planner_trust *trust,
                                         const struct planner_offer *offer);

/* Learns that of k guesses of an offer the first n_accepted were accepted. */
void planner_offer_observe(struct planner_reasons *reasons, struct planner_trust *trust,
                           const struct planner_offer *offer, int k, int n_accepted);

/* The odds of this sequence's guesses over those that were expected. */
float planner_trust_shift(const struct planner_trust *trust);

/* A branch has added so many tokens. */
void planner_offer_observe_branch(struct planner_reasons *reasons,
                                  const struct planner_branch *branch, int n_added);

/* The sequence's tests fade by the tokens that it commits. */
void planner_trust_fade(struct planner_trust *trust, int n_tokens);

/* All tests fade a little, so that a reason that was found wanting is tried again some day. */
void planner_reasons_fade(struct planner_reasons *reasons);
