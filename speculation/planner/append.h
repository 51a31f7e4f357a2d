/* Guesses that are found after those of the draft (the horizontal cascade of Cascade Speculative
 * Drafting: Chen et al. 2023, arXiv 2312.11462): later guesses are committed less often, so they
 * are left to something that costs no pass. Each costs a row of the step. The planner's own
 * (speculation/planner/planner.h); pure arithmetic. */
#pragma once

#include "speculation/planner/planner.h"

enum {
    /* Guesses, at most, that are found after those of the draft. */
    PLANNER_APPEND_MAX = 8
};

/* A lane whose guesses the draft has made. */
struct planner_append_lane {
    const struct planner_sequence *seq;
    int model;    /* that has made them */
    int k;        /* those guesses */
    int n_known;  /* tokens that were found after them, as many as there is room for */
    int evidence; /* for them, as in struct planner_offer */
    int n;        /* out: those that are worth a row */
};

/* The round so far. */
struct planner_append_load {
    int n_rows, n_wanted; /* of the step; of them, without those of prompts */
    int n_lanes;          /* delayed by a longer round: they commit or wait for a first token */
    double draft_us;      /* waited for guesses */
};

/* Says how many found guesses each lane gets: those that gain more than their rows cost, as in
 * planner_share. At most PLANNER_LANES_MAX lanes. */
void planner_append(struct planner *p, struct planner_append_lane *lanes, int n_lanes,
                    const struct planner_append_load *load);

/* Learns that of n found guesses, after guesses of the draft that all stayed, the first n_accepted
 * stayed, too. Besides planner_observe_lane. */
void planner_observe_append(struct planner *p, struct planner_sequence *seq, int evidence, int n,
                            int n_accepted);
