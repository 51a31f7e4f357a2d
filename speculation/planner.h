/* The planner: how many guesses K a round makes, 0 included (docs/design.md section 7). It keeps
 * running estimates of what a guess, a step and the rest of a round cost and of how often guesses
 * stay, and chooses the K with the most committed tokens per second:
 *
 *     E(K) / (K t_d + t_v(K + 1) + rtt)
 *     E(K) = 1 + sum over i <= K of prod over j <= i of alpha_j
 *
 * (Leviathan et al. 2023, section 3.4, with alpha by position and measured times). Pure arithmetic:
 * no clock, no allocation, no coin. Whatever K it chooses, the text keeps its distribution, because
 * a K depends on earlier rounds alone. Owned by the engine thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"
#include "speculation/strategy.h"

enum { PLANNER_ROWS_MAX = DRAFT_MAX + 1 };

/* A running mean of a time that is measured again and again; one outlier moves it little. */
struct planner_time {
    double us;
    int n;
};

/* Time as a function of the rows of a step: a scale that follows every step (load, length of the
 * text), times a shape that each number of rows learns when it is used. */
struct planner_curve {
    double scale_us;
    struct planner_time shape[PLANNER_ROWS_MAX + 1]; /* [rows], over the scale; [0] is unused */
};

/* How often guesses stayed, by position; older rounds count less. */
struct planner_counts {
    double tested[DRAFT_MAX], accepted[DRAFT_MAX];
};

/* What is learned from all sequences of one pair of models. Zero it when the pair changes. */
struct planner {
    uint64_t n_rounds;               /* whose times were taken */
    struct planner_time draft, read; /* a guess; a token of a long text that the draft reads */
    double visible; /* share of the guesses' time that rounds wait for; 0 = not known */
    struct planner_curve step, rest; /* t_v; the round without draft and step */
    struct planner_counts counts;
    double credit_us, wanted_us; /* what probes may spend; the price of one that was too dear */
    uint64_t measured_at[PLANNER_ROWS_MAX + 1]; /* n_rounds when this many rows were last timed */
    double first_read_us; /* the first prompt, until a guess's time is known */
    int n_first_read, n_first_drafted;
};

/* What is learned from one sequence. Zero it, then set strategy. */
struct planner_sequence {
    enum strategy strategy;
    struct planner_counts counts;
    int k_heuristic; /* 0 = not begun */
};

/* What a choice depends on besides the estimates. */
struct planner_ask {
    int k_max;    /* K may not be more */
    int n_missed; /* committed tokens that the draft has not read */
    int n_left;   /* tokens that may still be committed */
};

/* What happened in a round. */
struct planner_round {
    int k, n_accepted; /* guesses that were checked and that stayed */
    int n_missed;      /* as in planner_ask, when the draft began */
    int n_ahead;       /* of k: made while the round before was verified, not in draft_us */
    bool is_timed;     /* the step fed the last committed token and the guesses, nothing else */
    int64_t draft_us;  /* that the round waited for the draft */
    int64_t step_us;   /* of the slowest rank: compute and collectives */
    int64_t round_us;  /* all */
};

/* K of the next round, 0 .. ask->k_max, by the sequence's strategy:
 *   fixed, threshold  k_max; `threshold` ends in the drafter
 *   heuristic         starts with 5; 2 more after a round whose guesses all stayed, otherwise 1
 *                     less, at least 1 (transformers, generation/candidate_generator.py)
 *   planned           the K with the most tokens per second, as above. A few rounds of a new pair
 *                     are spent on learning, and at most 1 % of the time on probes: guesses where
 *                     K = 0 is planned, another K where K > 0 is */
int planner_choose(struct planner *planner, const struct planner_sequence *seq,
                   const struct planner_ask *ask);

/* Learns from a round of any strategy. */
void planner_observe(struct planner *planner, struct planner_sequence *seq,
                     const struct planner_round *round);

/* The estimates as numbers; seq NULL: over all sequences. Zeros where nothing was measured. */
struct estimates planner_estimates(const struct planner *planner,
                                   const struct planner_sequence *seq);
