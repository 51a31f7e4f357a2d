/* Siblings: further guesses for a position at which a drafter guesses anyway: of the draft model
 * from the same distribution without replacement (SpecInfer, arXiv 2305.09781; Sequoia, arXiv
 * 2402.12374), of a finder what else it has found. They are looked at where the guess was not
 * accepted, and cost a row of the step each and no pass of the draft. What is guessed after them
 * is chosen by speculation/planner/grow.h. The planner's own (speculation/planner/planner.h); pure
 * arithmetic. */
#pragma once

#include "base/limits.h"
#include "speculation/planner/alpha.h"
#include "speculation/planner/offer.h"

/* Counts of one drafter over all sequences, by rank: how often a sibling was accepted where all
 * guesses before it at its position were not. Older tests count less. */
struct planner_siblings {
    double tested[SIBLINGS_MAX], accepted[SIBLINGS_MAX];
};

/* The chance of sibling `rank`, 0 .. SIBLINGS_MAX - 1, if all before it at its position are
 * rejected; trust: of this sequence's siblings of the same drafter. */
float planner_sibling_chance(const struct planner_siblings *siblings,
                             const struct planner_trust *trust, int rank);

/* Learns that of n siblings of a guess that was rejected, number `kept` was accepted; kept = n:
 * none was. */
void planner_sibling_observe(struct planner_siblings *siblings, struct planner_trust *trust, int n,
                             int kept);
