/* The planner: how many guesses each lane of a round makes, 0 included (docs/design.md section 7).
 * It keeps running estimates of what a pass of the draft, a step and the rest of a round cost and
 * of how often guesses stay, and hands guesses out over all lanes so that their texts are finished
 * soonest. It takes those that give the least
 *
 *     log(sum over passes of t_d(lanes) + t_v(rows) + rest(rows)) - mean over lanes of log(E_i)
 *     E_i = 1 + sum over j of s(i, j)    tokens that lane i is expected to commit
 *     s(i, j) = alpha_i1 ... alpha_ij    the chance that its guess j is committed
 *
 * A guess may have siblings, further guesses for its position, which add their own chance to be
 * committed (speculation/planner/sibling.h), and after a sibling there may be further guesses, too
 * (speculation/planner/grow.h).
 * For one lane, and for lanes of equal alpha, that is the most tokens per second (Leviathan et al.
 * 2023, section 3.4, with alpha by position and measured times). Pure arithmetic: no clock, no
 * allocation, no coin. Whatever K it chooses, a text keeps its distribution, because a K depends on
 * earlier rounds alone. Owned by the engine thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/guess_tree.h"
#include "base/limits.h"
#include "speculation/planner/alpha.h"
#include "speculation/planner/offer.h"
#include "speculation/planner/sibling.h"
#include "speculation/planner/times.h"
#include "speculation/theory/strategy.h"

enum {
    /* Lanes that planner_share hands guesses to; further ones get none. */
    PLANNER_LANES_MAX = 256,
    /* Tokens, at most, that the draft may have missed where a new pair is learned. */
    PLANNER_LEARN_MISSED = 128
};

/* Everything learned of one draft model from all sequences. */
struct planner_model {
    /* One pass makes all guesses of a lane, a row each; otherwise each guess takes a pass. Set when
     * the rest is zeroed. */
    bool is_parallel;
    /* It reads guesses that stayed once more, as a head does with the target's features. Set when
     * the rest is zeroed. */
    bool rereads;
    int lane_rows; /* rows that such a pass has for each lane besides those of its guesses. Set with
                      is_parallel */
    struct planner_curve draft; /* a pass */
    struct planner_time read;   /* a token of a long text that it reads */
    struct planner_counts counts;
    struct planner_prior prior; /* of counts */
    struct planner_trust grown; /* of guesses after siblings, over those of chains */
};

/* Everything learned from all sequences of one group and its draft models. Zero it when they
 * change. */
struct planner {
    struct planner_model models[PLANNER_MODELS]; /* of those that there are, the first ones */
    struct planner_curve step, rest;             /* t_v; what is left of a round */
    /* A token whose features are sent: on the ranks, and on the wire. Not in the tables above. */
    struct planner_time feature;
    struct planner_reasons reasons;
    double stage_unused; /* share of what the draft is expected to guess and does not read ahead */
    struct planner_siblings siblings[PLANNER_DRAFTERS];
    int grow_wait;               /* rounds until guesses after siblings are looked at again */
    uint64_t n_rounds;           /* whose times were taken */
    uint64_t fitted_at;          /* n_rounds at the last fit */
    int n_plain, n_guessed;      /* of the timed rounds without prompts, up to some number */
    bool is_calibrated;          /* the times of draft and step need no rounds of learning */
    double credit_us, wanted_us; /* what probes may spend; the price of one that was too dear */
    double trial_us, trial_wanted_us; /* the same of reading for a trial: it may be dear, and others
                                         would spend what it saves */
    double planned_us, plain_us; /* of the last call of planner_share: its choice, no guesses */
    double prompt_us;            /* what prompts add to the step of that call */
    double prompt_ratio;         /* what they took over what the table of steps says of their rows:
                                    nobody asks about most of them; 0 = not known */
    bool is_predicted;           /* planned_us says what that round will take */
};

/* Everything learned from one sequence. Zero it, then set strategy. */
struct planner_sequence {
    enum strategy strategy;
    struct planner_counts counts[PLANNER_MODELS];
    struct planner_trust trust[PLANNER_SOURCES];
    struct planner_trust sibling_trust[PLANNER_DRAFTERS];
    int k_heuristic; /* 0 = not begun */
    /* By model: the last answer of planner_wants_reading, and the round of it + 1; 0 = never asked.
     * A model that has read to be tried guesses when it has caught up. */
    bool wants_reading[PLANNER_MODELS], is_on_trial[PLANNER_MODELS];
    uint64_t asked_at[PLANNER_MODELS];
    uint64_t features_asked_at; /* the round of the last answer of planner_wants_features + 1 */
};

/* Guesses that a draft model may make for a lane. */
struct planner_drafting {
    int k_max;    /* K may not be more, 0 .. DRAFT_MAX; 0 too while it reads a prompt, and where
                     there is no such model */
    int n_missed; /* committed tokens that it has not read; up to 2 when it has caught up, or one
                     more than a round's guesses where a pass makes them all. If it guesses for the
                     lane, its first pass reads them all */
    /* The chance that guess i takes no pass of its own, because the first pass reads ahead what the
     * model is expected to guess (speculation/planner/stage.h); 0 = it takes one. */
    float staged[DRAFT_MAX];
    bool grows; /* it may guess after siblings of its guesses */
};

/* One decoding lane that may guess. */
struct planner_lane {
    const struct planner_sequence *seq; /* strategy planned */
    struct planner_drafting models[PLANNER_MODELS];
    int n_left;        /* tokens that may still be committed */
    bool has_features; /* those of all of its guesses are sent */
    int siblings_max;  /* of each guess, 0 .. SIBLINGS_MAX; an offer may know fewer */
    int nodes_max;     /* guesses and siblings; 0 = as k_max and siblings_max allow */
    /* out: its guesses, without tokens. Those after siblings come in the order in which they are to
     * be drawn: place by place, those of one parent one after the other. A branch is listed from
     * the root on, because it is not known yet where it leaves the chain. */
    struct guess_tree tree;
    /* Offers that were found for this lane. */
    const struct planner_offer *offers; /* [n_offers] */
    int n_offers;
    const struct planner_offer *offer; /* out: the one that makes the guesses; NULL: a model ... */
    int model;                         /* ... which is this one */
    struct planner_branch branch;      /* out: of the tree's branch, if it has one */
};

/* Load of the step besides the lanes above, which have one row each. */
struct planner_load {
    int n_rows;     /* rows of other lanes: prompt chunks, lanes of other strategies with guesses */
    int n_prompt;   /* of them: tokens of prompt chunks. They commit nothing, and the step is paid
                        for them whether lanes guess or not */
    int n_decoding; /* lanes of other strategies that commit tokens in this step */
    int n_waiting;  /* texts whose prompts are not read to their end in this step: a longer round
                       delays their first tokens, too */
    int n_features; /* tokens whose features are sent, without guesses of the lanes above */
    int n_rows_max; /* of the step */
    /* Lanes of other strategies for which a model guesses at least i + 1 tokens. */
    int n_guessing[PLANNER_MODELS][DRAFT_MAX];
};

/* Says which guesses each lane makes, and who makes them: lanes[i].tree, lanes[i].offer and
 * lanes[i].model. All lanes draft with one model, or all take what was found for them, or each does
 * what is best for it alone, whichever of these promises most. A lane whose model must catch up
 * first is charged with the reading. A few rounds of a new pair are spent on learning, and at most
 * 1 % of the time on probes: guesses of one lane where none are planned, another number of guesses,
 * or one lane's guesses by another model.
 * Call it once a round, also when n_lanes is 0. */
void planner_share(struct planner *p, struct planner_lane *lanes, int n_lanes,
                   const struct planner_load *load);

/* K of a strategy other than planned, 0 .. k_max; it depends on the sequence alone:
 *   fixed, threshold  k_max; `threshold` ends in the drafter
 *   heuristic         starts with 5; 2 more after a round whose guesses all stayed, otherwise 1
 *                     less, at least 1 (transformers, generation/candidate_generator.py) */
int planner_own_k(const struct planner_sequence *seq, int k_max);

/* Returns the expected time of the whole round of the last planner_share, prompts in its step and
 * the reading of n_read tokens by each model included (NULL: of none), in us; 0 where that is not
 * known: nobody decodes, or the round is made to learn times. Ask before planner_observe_round. */
double planner_round_us(const struct planner *p, const int n_read[PLANNER_MODELS]);

/* Tokens that draft models have missed of a sequence, for planner_wants_reading. */
struct planner_missed {
    int model;
    int n_left;                     /* as in struct planner_lane */
    int n_lanes;                    /* in a step */
    int n_missed[PLANNER_MODELS];   /* by each model, as in struct planner_drafting; ... */
    bool may_guess[PLANNER_MODELS]; /* ... of those that may guess, or could if they had read */
};

/* True if it pays that a model reads the tokens of a planned sequence that it has missed, so that
 * it can guess: if what its guesses are expected to gain over the tokens that are to come is more
 * than the reading takes, and no other model promises more, its own reading included. It also says
 * yes when the credit for probes pays the reading, takes it from there, and the model then guesses
 * once when it has caught up. Ask for sequences of which a model has missed more than
 * PLANNER_LEARN_MISSED tokens; for others it may guess, and planner_share charges the reading. A
 * yes holds until the model has caught up, and an answer is kept for some rounds, so asking is
 * cheap. */
bool planner_wants_reading(struct planner *p, struct planner_sequence *seq,
                           const struct planner_missed *missed);

/* True if a planned sequence should go on having its tokens' features sent, because the model that
 * reads them is expected to gain more than that costs, and than others that have none gain. As long
 * as little is known of the model or the cost it says yes, and otherwise for a trial when the
 * credit pays all that may still be sent. A no is for good: features are sent once, from the first
 * token on. missed->model: the one that reads them. Asking is cheap. */
bool planner_wants_features(struct planner *p, struct planner_sequence *seq,
                            const struct planner_missed *missed);

/* The rows, least .. most, of a step whose round is predicted to take at most factor times as long
 * as one of n_rows, both without the draft. Rows beyond those that were measured are taken to cost
 * as much each as the measured ones do on average. */
int planner_rows_within(struct planner *p, int n_rows, double factor, int least, int most);
/* As planner_rows_within, for a step in which nobody decodes, over a step of one row: the rest of a
 * round is for lanes that decode, and does not make room for prompts. */
int planner_rows_alone(struct planner *p, double factor, int least, int most);

/* Tokens of prompts, least .. most, that a model is predicted to read in this share of the time of
 * a step of n_rows. The least where one of the times is not known. */
int planner_reading_within(struct planner *p, int model, int n_rows, double share, int least,
                           int most);

/* Work of a draft model in a round. */
struct planner_drafted {
    /* Passes that the round waited for, one token for each lane and those that were read ahead or
     * as masks, a row each; the first may have read first_pass_tokens, at least one for each of its
     * lanes, besides those. */
    int n_passes, pass_lanes[DRAFT_MAX + 1], pass_expected[DRAFT_MAX + 1], first_pass_tokens;
    bool pass_grows[DRAFT_MAX + 1]; /* guesses after siblings are made: its time is that of no
                                       number of rows */
    int64_t pass_us[DRAFT_MAX + 1];
    int n_read;       /* tokens of prompts that it read besides, ... */
    int64_t read_us;  /* ... and for how long the round waited for that; not in draft_us */
    int64_t draft_us; /* waited for guesses: the passes and what is around them */
};

/* Outcome of a round, over all lanes. */
struct planner_round {
    int n_rows;      /* tokens fed in the step */
    int n_lanes;     /* that committed tokens */
    int n_prompt;    /* of n_rows: tokens of prompt chunks */
    bool is_timed;   /* nothing unusual happened: the times may be learned from */
    bool has_prompt; /* some lane fed more than one committed token: prompts */
    int n_features;  /* tokens whose features were sent */
    int64_t features_step_us, features_wire_us; /* for them, of step_us and of the rest */
    struct planner_drafted models[PLANNER_MODELS];
    int64_t step_us;  /* the slowest rank: compute and collectives */
    int64_t round_us; /* everything */
};

/* Learns the times of a round. Once a round, after planner_share. */
void planner_observe_round(struct planner *p, const struct planner_round *round);

/* Learns that of k checked guesses of a model for a sequence of any strategy the first n_accepted
 * stayed. Once a round for each lane that committed tokens, k = 0 included. */
void planner_observe_lane(struct planner *p, struct planner_sequence *seq, int model, int k,
                          int n_accepted);

/* As planner_observe_lane, where an offer made the guesses. */
void planner_observe_offer(struct planner *p, struct planner_sequence *seq,
                           const struct planner_offer *offer, int k, int n_accepted);

/* Where the n siblings of the guess that was rejected were tested, number `kept` of them was
 * accepted; kept = n: none was. offer: the one that made the guesses; NULL: `model` did. Besides
 * planner_observe_lane or planner_observe_offer, whose n_accepted does not count the sibling. */
void planner_observe_siblings(struct planner *p, struct planner_sequence *seq, int model,
                              const struct planner_offer *offer, int n, int kept);

/* Where a sibling of the model's guess before `position` stayed, or a guess after one, and the
 * model had made n guesses after it: number `kept` of them stayed; kept = n: none did. */
void planner_observe_grown(struct planner *p, struct planner_sequence *seq, int model, int position,
                           int n, int kept);

/* Where the model's guesses for `place` followed its q (speculation/accept/tree_follow.h), and a
 * guess that is not of the chain stayed at the place before: whether one of those stayed that were
 * planned for this place after siblings. Of such a tree the plan says how many guesses each place
 * has and not which guesses they follow. */
void planner_observe_following(struct planner *p, struct planner_sequence *seq, int model,
                               const struct guess_tree *plan, int place, bool is_kept);

/* An offer that was not taken: of its guesses the first n_tested were held against the text, and
 * the first n_right stood in it. So it is known at no cost what an offer would have been worth.
 * Besides planner_observe_lane or planner_observe_offer. */
void planner_observe_untaken(struct planner *p, struct planner_sequence *seq,
                             const struct planner_offer *offer, int n_tested, int n_right);

/* Learns from a branch: n_tested of its guesses were compared with the text, the first n_right
 * agreed with it, and n_added were committed that the draft had not guessed. Besides
 * planner_observe_lane. */
void planner_observe_branch(struct planner *p, struct planner_sequence *seq,
                            const struct planner_branch *branch, int n_tested, int n_right,
                            int n_added);

/* One time of a calibration, best the shortest of a few: a step of n_rows decoding rows; a pass of
 * a model over n_lanes. A time that rounds have measured as often as a calibration counts stays.
 * Once passes of a model and steps of more than one row are known so, none of its rounds are spent
 * on learning. */
void planner_calibrate_step(struct planner *p, int n_rows, double us);
void planner_calibrate_draft(struct planner *p, int model, int n_lanes, double us);

/* One point of a table. */
struct planner_point {
    double rows, us;
    int n; /* measurements */
};

/* The learned times as plain numbers, to be kept and given back at the next start. Unused points
 * are zero. */
struct planner_tables {
    struct planner_point draft[PLANNER_MODELS][PLANNER_KNOTS];
    struct planner_point step[PLANNER_KNOTS], rest[PLANNER_KNOTS];
    double read_us[PLANNER_MODELS]; /* 0 = not known */
};

void planner_tables_get(const struct planner *p, struct planner_tables *tables);

/* Points that make no sense (not finite, not positive, out of range) are left out, because tables
 * may come from a file. */
void planner_tables_set(struct planner *p, const struct planner_tables *tables);

/* The model that has guessed most lately, for a sequence or, where seq is NULL, over all. */
int planner_first_model(const struct planner *p, const struct planner_sequence *seq);

/* The learned times as tables of numbers of rows, for clients that ask: of passes, those of
 * planner_first_model. */
void planner_times(const struct planner *p, struct time_tables *times);

/* The estimates as numbers, of planner_first_model; seq NULL: over all sequences. Zeros where
 * nothing was measured. */
struct estimates planner_estimates(const struct planner *p, const struct planner_sequence *seq);
