/* A plan in the making: for the files of coordinator/schedule/ alone. */
#pragma once

#include "coordinator/schedule/plan.h"
#include "coordinator/sequence/sequence.h"

struct planning {
    struct scheduler *s;
    struct sequence **seqs; /* oldest first */
    int n;
    struct round_plan *plan;
    int n_tokens, n_rows;                    /* that the step still has room for */
    int tokens_max;                          /* of the step */
    struct feature_wish features;            /* that its lanes may want */
    int n_decoding;                          /* lanes of the plan that decode */
    struct sequence *readers[SEQUENCES_MAX]; /* for which a model reads, the urgent ones first */
    int n_readers, n_urgent;
};

/* Tokens that the target has not read. */
static inline int planning_n_unread(const struct sequence *seq)
{
    return seq->n_tokens - seq->n_target_kv;
}

static inline bool planning_decodes(const struct sequence *seq)
{
    return !seq->is_score && planning_n_unread(seq) == 1 && !seq->backpressure.slow_us;
}

/* A sequence that reads a prompt, is replayed, or is scored. */
static inline bool planning_feeds(const struct sequence *seq)
{
    return !seq->backpressure.slow_us && !planning_decodes(seq);
}

static inline bool planning_is_planned(const struct sequence *seq)
{
    return seq->planner_state.strategy == STRATEGY_PLANNED;
}

/* The first token after a long prompt does not wait for the draft. */
static inline bool planning_is_first_plain(const struct sequence *seq)
{
    return seq->n_tokens == seq->n_prompt && seq->n_prompt > FIRST_GUESS_TOKENS;
}

/* True if a draft model reads features of the target that have not come: those of all tokens but
 * the last. So there are none before the first token of a text, whatever others have computed. */
static inline bool planning_lacks_features(const struct planning *p, const struct sequence *seq,
                                           int model)
{
    bool reads = p->s->drafters->models[model]->features != NULL;
    return reads && (seq->n_tokens == seq->n_prompt || seq->n_target_kv < seq->n_tokens - 1);
}

/* Tokens that a draft model has not read. */
static inline int planning_n_missed(const struct sequence *seq, int model)
{
    return seq->n_tokens - seq->n_draft_kv[model];
}

/* True if a draft model may guess for the sequence as long as the text is now. */
static inline bool planning_may_draft(const struct planning *p, const struct sequence *seq,
                                      int model)
{
    const struct drafters *drafters = p->s->drafters;
    return drafters_may_guess(drafters, seq, model) &&
           seq->n_tokens < drafter_limit(drafters->models[model]);
}

/* The most guesses of the next round, by any drafter. It depends on the sequence and on what the
 * models can do, and never on company. */
static inline int planning_guess_room(const struct planning *p, const struct sequence *seq)
{
    const struct target_description *target = p->s->target;
    int tokens = target->max_step_tokens, rows = target->max_step_rows;
    int step = (tokens < rows ? tokens : rows) - 1, left = seq->end - seq->n_tokens - 1;
    if (seq->is_score || seq->n_draft == 0) return 0;
    if (left > seq->n_draft) left = seq->n_draft;
    return left < step ? left : step;
}

/* The guesses of a sequence with a K of its own. */
struct planning_own {
    int k;
    bool reads_first;        /* the drafter has more to read before it guesses */
    struct drafter *drafter; /* that makes them */
    struct planner_offer offer;
    struct lane_look_ahead look_ahead;
};

/* Rows besides the one of the last committed token. */
static inline int planning_own_rows(const struct planning_own *own)
{
    return own->k + lane_look_ahead_rows(&own->look_ahead);
}

/* Chooses how many guesses a sequence has whose strategy does not leave that to the planner, and
 * who makes them; of others, none. */
struct planning_own planning_choose_own(const struct planning *planning, struct sequence *seq);

/* Plans the trees of lanes whose tree is given, and all guesses of planned lanes. */
void planning_guess(struct planning *planning);

/* Gives windows to planned lanes of the plan, lanes[n], whose guesses are chosen. */
void planning_open_windows(struct planning *planning, struct lane_plan **lanes, int n);

/* Chooses the look-ahead tokens of a sequence with a K of its own, beside a chain of k guesses: all
 * that its step has room for, so that they do not depend on company. Where a draft model makes the
 * guesses of such sequences there are none. */
void planning_look_ahead_own(const struct planning *planning, const struct sequence *seq, int k,
                             struct lane_look_ahead *look_ahead);
/* Gives look-ahead tokens to planned lanes of the plan, lanes[n], whose guesses are chosen, as far
 * as they are expected to be worth their rows. */
void planning_share_look_ahead(struct planning *planning, struct lane_plan **lanes, int n);

/* Planned texts for which the features that a model reads cost more than it is worth have none any
 * more, and go on without that model. */
void planning_drop_features(struct planning *planning);

/* Chooses what the draft models read of prompts in this round. */
void planning_read(struct planning *planning);

/* Takes the blocks that the lanes may need; lanes that find none wait or lose their place. */
void planning_reserve(struct planning *planning);
