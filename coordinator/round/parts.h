/* What a round is made of: for the files of coordinator/round/ alone. */
#pragma once

#include "base/memory.h"
#include "coordinator/draft/lane_tree.h"
#include "coordinator/round/tools.h"
#include "proto/job_end.h"

/* A sequence's share of a step. */
struct round_lane {
    struct lane_plan plan;
    struct sequence *seq;
    struct draft draft;
    int step_lane; /* its index in the step; -1: it is not in it */
    int first_want, n_wants;
    struct lane_tree *tree;      /* of a draft that is more than a chain; otherwise NULL */
    int n_ahead;                 /* guesses that had been made while the last round was verified */
    int n_missed;                /* tokens that the draft had not read */
    int n_accepted;              /* guesses that stay */
    int append_evidence;         /* of the draft's n_appended guesses */
    struct lane_path path;       /* of a tree */
    uint8_t accepted[DRAFT_MAX]; /* [n_accepted] guesses of a tree that stay */
    bool is_settled;             /* tokens were committed */
    struct error err;            /* code 0, or why its job ends */
    enum job_end end;
};

/* Whether a finder makes the lane's guesses. */
static inline bool round_is_found(const struct round_lane *lane)
{
    return lane->plan.k > 0 && lane->plan.drafter->ops->look;
}

/* Guesses of the lane's drafter, without those that were found behind them. */
static inline int round_n_own(const struct round_lane *lane)
{
    return lane->draft.n - lane->draft.n_appended;
}

/* One step from its plan to the commit. Of two parts one can be drafted while the target has the
 * other. */
struct round_part {
    const struct round_tools *tools;
    struct arena arena; /* of this step */
    struct round_plan plan;
    struct round_lane lanes[SEQUENCES_MAX];
    struct step_lane step_lanes[SEQUENCES_MAX];
    struct draft_lane drafts[SEQUENCES_MAX];
    struct lane_want *wants;
    int n_lanes, n_step_lanes, n_wants, n_tokens;
    bool is_prepared;                      /* its guesses are made, and its step is still to come */
    bool is_alone;                         /* nothing else is drafted during its step */
    int64_t prepare_us, read_us, draft_us; /* how long planning and drafting took; parts of it */
    int64_t meanwhile_us;                  /* of its step: how long the other part was prepared */
    int64_t verify_us;                     /* when its step began */
    struct draft_cost draft_cost;
    struct target_cost cost;
    struct target_result result;
};

/* How long the step's answer waited because the other part's guesses took longer. */
static inline int64_t round_late_us(const struct round_part *part)
{
    int64_t late = part->meanwhile_us - part->cost.step_us;
    return late > 0 ? late : 0;
}

/* Lets the answers of the round before leave: before the draft works, or else once the step is on
 * its way (has_time: sender_flush). */
void round_flush(const struct round_part *part, bool has_time);

/* coordinator/round/draft.c: plans a step for seqs[n] and makes its guesses. hidden_rows: of the
 * step that the target has meanwhile, whose time drafting may take for nothing; 0 = none. n_ahead:
 * guesses that a single stream has already. */
void round_prepare(struct round_part *part, struct sequence **seqs, int n, int hidden_rows,
                   int n_ahead);
/* Puts the lanes into the step; those that have failed are left out. Errors: ERR_NO_MEMORY. */
int round_fill_step(struct round_part *part, struct error *err);

/* coordinator/round/append.c: what the step and the round have when the draft has guessed. Branches
 * and windows are found later, so those that are planned count. */
struct planner_append_load round_append_load(const struct round_part *part);
/* Adds what is found behind the guesses of the draft: drafts[n] of the part, which are of
 * owners[n]. Errors, of the drafts: ERR_NO_MEMORY. */
void round_append(struct round_part *part, struct round_lane **owners, int n);

/* coordinator/round/settle.c: the answers become tokens, and the planner learns. */
void round_settle(struct round_part *part);

/* coordinator/round/show.c: the lane's guesses and the times of its round, in the part's arena;
 * NULL: no memory. rows: of the accepted path; next: the token that was committed behind it. */
const struct generate_round *round_show(struct round_part *part, const struct round_lane *lane,
                                        const struct target_row *rows, int32_t next);

/* coordinator/round/teach.c: what the planner learns from a round that is settled. */
void round_teach(struct round_part *part);
