/* How often guesses stay, by position, over all sequences and for each. The planner's own
 * (speculation/planner/planner.h); pure arithmetic. */
#pragma once

#include <stdbool.h>

#include "base/limits.h"

/* Tests of guesses by position; older ones count less. */
struct planner_counts {
    double tested[DRAFT_MAX], accepted[DRAFT_MAX];
};

/* Chances by position over all sequences, with their odds and the inverse of these. */
struct planner_prior {
    float alpha[DRAFT_MAX], odds[DRAFT_MAX], inverse[DRAFT_MAX];
};

/* Goes through the positions of one sequence. */
struct planner_chain {
    const struct planner_counts *counts; /* the sequence's own tests; NULL: shift says it all */
    const struct planner_prior *prior;
    float shift;  /* the sequence's odds at the position before over those of all sequences */
    int position; /* the next one */
};

/* Probability: before anything was tested, the draft's guesses are assumed to stay with this
 * one. */
#define PLANNER_FIRST_ALPHA 0.7

/* A position that was tested little is taken to be as the one before it, and the first one as
 * first_alpha. */
void planner_prior_of(const struct planner_counts *all, double first_alpha,
                      struct planner_prior *prior);

/* Keeps both. */
struct planner_chain planner_chain_begin(const struct planner_counts *counts,
                                         const struct planner_prior *prior);

/* The chance that the guess at the chain's position stays if it is tested; goes on to the next
 * one. At most DRAFT_MAX calls. */
float planner_chain_next(struct planner_chain *chain);

/* Counts a round of k guesses whose first n_accepted stayed; older tests of a position keep `keep`
 * of their weight with every new one. */
void planner_counts_add(struct planner_counts *counts, int k, int n_accepted, double keep);

/* Odds of a chance, which is kept so far from 0 and 1 that they stay finite. */
float planner_odds(float chance);

/* The share that older tests of one sequence keep when it commits n_tokens, at most DRAFT_MAX +
 * 1. */
float planner_keep_tokens(int n_tokens);

/* The older tests of one sequence fade by the tokens that it commits. */
void planner_counts_fade(struct planner_counts *counts, int n_tokens);

/* Over all positions; 0 where nothing was tested. */
double planner_counts_mean(const struct planner_counts *counts);
