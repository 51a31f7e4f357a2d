/* Passes of the draft that are saved where it reads ahead what it is expected to guess (staged
 * speculation: Spector and Re 2023, arXiv 2308.04623). A pass that reads n expected tokens more
 * makes as many guesses without a pass of their own as the draft agrees with, and is longer by n
 * rows. The planner's own (speculation/planner/planner.h); pure arithmetic. */
#pragma once

#include "speculation/planner/planner.h"

/* A lane of the next pass. */
struct planner_stage_lane {
    const struct planner_sequence *seq;
    int n_wanted; /* guesses, of this pass and those after it; 1 .. DRAFT_MAX */
    int n_known;  /* expected tokens */
    int evidence; /* for them, as in struct planner_offer */
    int n_fed;    /* out: those that the pass should read ahead, less than n_wanted */
};

/* Says how much of what is expected the next pass reads ahead: as much as makes it and the passes
 * after it shortest, by the times that were measured; nothing where that is hardly shorter. At most
 * PLANNER_LANES_MAX lanes. */
void planner_stage(struct planner *p, int model, struct planner_stage_lane *lanes, int n_lanes);

/* Learns that the draft's guesses were compared with n_tested expected tokens, one after the other
 * up to the first that was another one, and the first n_equal were equal. */
void planner_observe_stage(struct planner *p, struct planner_sequence *seq, int evidence,
                           int n_tested, int n_equal);

/* True if the draft of this text agrees with the expected tokens so often that they are worth
 * looking up in each pass; also true as long as little is known. */
bool planner_stage_is_likely(const struct planner_sequence *seq);

/* True if expected tokens have lately been read ahead for a fair share of the lanes that had some;
 * also true as long as little is known. */
bool planner_stage_is_used(const struct planner *p);

/* The chance that guess i needs no pass of its own, if the first one reads ahead i of n_known
 * expected tokens; chances[DRAFT_MAX], 0 where nothing is known. */
void planner_stage_chances(struct planner *p, const struct planner_sequence *seq, int evidence,
                           int n_known, float *chances);
