/* One round over sequences that have places: plan, read, propose, build, send, merge, accept,
 * commit, learn (docs/architecture.md, "The path of one request"). round_run has the whole of it,
 * and each verb is one function, for the files of coordinator/round/ alone. Owned by the engine
 * thread. */
#pragma once

#include "base/guess_tree.h"
#include "base/memory.h"
#include "coordinator/round/tools.h"
#include "proto/generation_wire.h"
#include "proto/job_end.h"

/* A sequence's share of a step. */
struct round_lane {
    struct lane_plan plan;
    struct sequence *seq;
    struct guess_tree draft; /* once it is in the step, in the step's order */
    /* In the step's order: the draft or, where there are look-ahead tokens besides, a copy of it
     * with these. */
    const struct guess_tree *fed;
    struct tree_layout layout; /* of `fed`, if it is more than a chain; otherwise zero */
    int step_lane;             /* its index in the step; -1: it is not in it */
    int first_want, n_wants;
    int append_evidence;     /* of the draft's appended guesses */
    int n_accepted;          /* guesses that stay */
    int accepted[DRAFT_MAX]; /* [n_accepted] their nodes */
    struct guess_path path;  /* that they are */
    bool is_committed;       /* it has got tokens */
    struct error err;        /* code 0, or why its job ends */
    enum job_end end;
};

/* True if a finder makes the lane's guesses. */
static inline bool round_is_found(const struct round_lane *lane)
{
    return lane->plan.tree.n_chain > 0 && lane->plan.drafter->row->lookup;
}

/* The draft model that makes the lane's guesses; the first one where none does. */
static inline int round_model(const struct round_lane *lane)
{
    return lane_plan_is_drafted(&lane->plan) ? lane->plan.drafter->model : 0;
}

/* Guesses of the chain that the lane's drafter has made, without those found after them. */
static inline int round_n_own(const struct round_lane *lane)
{
    return lane->draft.n_chain - guess_tree_count(&lane->draft, GUESS_APPENDED);
}

/* The node of `fed` that is a guess of the draft; -1: of -1, the last committed token. */
int round_fed_node(const struct round_lane *lane, int node);

/* Work of a draft model. */
struct round_drafted {
    struct draft_cost cost;
    int64_t read_us, draft_us;
};

/* Result of a round for one lane. */
struct round_accepted {
    int n;                                 /* guesses that stay */
    int32_t ids[DRAFT_MAX + 1];            /* [n + 1] these, and the token after them */
    struct target_row rows[DRAFT_MAX + 1]; /* [n + 1] p of the place of each */
    const struct target_row *all_rows;     /* of all guesses, in the order of the step */
    int64_t begin_us;                      /* when its acceptance began */
};

/* A round and all that is known of it. */
struct round {
    const struct round_tools *tools;
    struct arena arena; /* of this round */
    struct round_plan plan;
    struct round_lane lanes[SEQUENCES_MAX];
    struct step_lane step_lanes[SEQUENCES_MAX];
    struct draft_lane drafts[SEQUENCES_MAX];
    struct lane_want *wants;
    int n_lanes, n_step_lanes, n_wants, n_tokens;
    int n_features;                               /* tokens of the step whose features are wanted */
    int64_t begin_us;                             /* when planning began */
    int64_t prepare_us;                           /* how long planning and drafting took; of it: */
    int64_t read_us, draft_us;                    /* what the draft models read, and guessed */
    int64_t verify_us;                            /* when its step began */
    int64_t accept_us;                            /* when its rows were merged */
    struct round_drafted drafted[PLANNER_MODELS]; /* by each draft model */
    struct target_query query;
    struct target_question question;
    struct target_cost cost;
    struct target_result result;
    bool has_flushed; /* the answers of the round before have left */
    uint64_t n_steps; /* of all rounds since it was opened */
};

/* Lets the answers of the round before leave (has_time: sender_flush). */
static inline void round_flush(const struct round *r, bool has_time)
{
    r->tools->flush_answers(r->tools->flush_arg, has_time);
}

/* Keeps tools. Errors: ERR_NO_MEMORY. */
int round_open(struct round **round, const struct round_tools *tools, struct error *err);
void round_close(struct round *round);

/* Runs a round for seqs[n], oldest first. A sequence whose own part fails is failed here and has
 * is_over set; one that had to give up its place has is_evicted set; the others go on. *is_idle:
 * nobody could go on. Errors: ERR_UNAVAILABLE, ERR_TIMEOUT the group is lost: nothing was
 * committed. */
int round_run(struct round *r, struct sequence **seqs, int n, bool *is_idle, struct error *err);

/* Chooses who has a step, with how many tokens and guesses: n_lanes. */
void round_plan(struct round *r, struct sequence **seqs, int n);

/* coordinator/round/propose.c: the draft models read what they will need of prompts. */
void round_read(struct round *r);
/* The guesses of all lanes, each drawn from its q. */
void round_propose(struct round *r);

/* coordinator/round/append.c: what the step and the round have when the draft has guessed. Branches
 * and windows are found later, so those that are planned count. */
struct planner_append_load round_append_load(const struct round *r);
/* Adds what is found after the guesses of the draft: drafts[n] of the round, which are of
 * owners[n]. Errors, of the drafts: ERR_NO_MEMORY. */
void round_append(struct round *r, struct round_lane **owners, int n);

/* coordinator/round/step.c: puts tokens and guesses into the step, and lists the rows that are
 * wanted; lanes that have failed are left out. Errors: ERR_NO_MEMORY. */
int round_build(struct round *r, struct error *err);
/* Sends the step to the ranks. While they compute, the answers of the round before leave; if they
 * were quick, these leave after round_merge. Errors: target_verify_send. */
int round_send(struct round *r, struct error *err);
/* Waits for the ranks, whose slices become p of each place. Errors: target_verify_merge. */
int round_merge(struct round *r, struct error *err);
/* True if the lane has an answer; not if it failed before the step, if its job has ended since, or
 * if the ranks have refused its part, which ends it. */
bool round_take_answer(struct round *r, struct round_lane *lane);

/* coordinator/round/look_ahead.c: sets lane->fed to the draft, which is sorted, with the look-ahead
 * tokens that are planned. Errors: ERR_NO_MEMORY. */
int round_feed_look_ahead(struct round *r, struct round_lane *lane, struct error *err);
/* Lists the rows of the lane's look-ahead tokens after those of its guesses. */
void round_want_look_ahead(struct round *r, const struct round_lane *lane);
/* Shows the finder that guesses by them what those have said after which the text goes on; its
 * tokens are committed. all_rows: of struct round_accepted. */
void round_show_look_ahead(struct round *r, const struct round_lane *lane,
                           const struct target_row *all_rows);

/* coordinator/round/features.c: the step's tokens whose features are wanted, of the lanes that are
 * in it. */
void round_want_features(struct round *r);
/* The features of rows[n] of the lane's tokens, ascending, with the columns of `wish`, which the
 * step's wish holds; they are lent by the target or lie in the round's arena. NULL: err says why,
 * ERR_INTERNAL none came, ERR_NO_MEMORY. */
const uint16_t *round_features(struct round *r, const struct round_lane *lane,
                               const struct feature_wish *wish, const int *rows, int n,
                               struct error *err);
/* Lists the features that the lane's request asks for, of the tokens before those that this step
 * scores; n = 0: it asks for none. Errors: as round_features. */
int round_list_features(struct round *r, const struct round_lane *lane,
                        struct score_features *features, struct error *err);
/* Shows the draft model the features of the tokens from `first` on that this step has computed and
 * that are committed, if it reads features. Without them the sequence has no draft any more. */
void round_show_features(struct round *r, struct round_lane *lane, int first);

/* coordinator/round/accept.c: how many of the lane's guesses stay, and which token comes after
 * them. What is scored of the prompt is sent before. Where a prompt goes on, nothing is judged and
 * *accepted is not set. Errors: ERR_NO_MEMORY, those of score.h. */
int round_accept(struct round *r, struct round_lane *lane, struct round_accepted *accepted,
                 struct error *err);

/* coordinator/round/commit.c: they become tokens of the text, and are counted. Where a prompt goes
 * on, it notes how far that was read, and *accepted is not looked at. Errors: those of
 * sequence_commit, ERR_NO_MEMORY. */
int round_commit(struct round *r, struct round_lane *lane, const struct round_accepted *accepted,
                 struct error *err);

/* coordinator/round/trace.c: the lane's guesses and the times of its round, in the round's arena;
 * NULL: no memory. */
const struct generate_round *round_trace(struct round *r, const struct round_lane *lane,
                                         const struct round_accepted *accepted);

/* coordinator/round/learn.c: what metrics and the planner learn from a round. */
void round_learn(struct round *r);
