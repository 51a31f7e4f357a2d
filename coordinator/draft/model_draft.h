/* What the draft model's files share: its state, and reading. coordinator/draft/model_draft*.c
 * alone. */
#pragma once

#include "coordinator/draft/drafter.h"
#include "coordinator/draft/internal.h"
#include "coordinator/prefix_cache.h"
#include "coordinator/sequence.h"
#include "model/model.h"

enum {
    STEP_TOKENS = 512, /* tokens that it reads in one step, over all lanes */
    STEP_ROWS = 64     /* guesses that it makes in one step */
};

struct model_draft {
    struct drafter base;
    struct drafter_options options;
    struct checkpoint *checkpoint;
    struct backend *backend;
    struct model *model;
    struct block_pool pool;
    struct block_table *tables;   /* [n_sequences] */
    int n_vocab;                  /* ids that both models have */
    int n_vocab_target;           /* ids that exist for the target */
    struct feeding *feedings;     /* [n_sequences] of the pass that is running */
    struct draft_lane **passing;  /* [n_sequences] its lanes */
    struct forward_lane *forward; /* [n_sequences] and the step of it */
    struct forward_row rows[STEP_ROWS];
    int n_rows_max;
    int32_t *head_ids;                  /* [base.n_choices] ascending; NULL: all n_vocab ids */
    struct select_item *best, *scratch; /* [support], at least as many as siblings may be */
    float *logits;                      /* [support] of q's tokens, for coupled rules */
};

/* What a pass reads of one sequence: its tokens up to `end`. */
struct feeding {
    struct sequence *seq;
    int end;
    int n_rows;              /* that are wanted, of its last tokens */
    struct draft_lane *lane; /* that guesses from the rows; NULL: nobody does */
};

static inline struct model_draft *model_draft(struct drafter *drafter)
{
    return (struct model_draft *)drafter;
}

/* ---- model_draft.c ---- */

/* One step over the first feedings that fit. Those that it finishes, with their rows, come first:
 * *n_done of them; one more may have been read in part, but for the tokens whose rows are
 * wanted. */
int model_draft_step(struct model_draft *d, const struct feeding *feedings, int n, int *n_done,
                     struct error *err);

/* A sequence that is fed up to position. The last token before it is read in any case, because its
 * row is what comes next. */
int model_draft_plan_feeding(struct model_draft *d, struct feeding *feeding, struct sequence *seq,
                             int position, struct error *err);

/* Reads the tokens of one sequence before position; the logits of the last row stay in the
 * model. */
int model_draft_feed_before(struct model_draft *d, struct sequence *seq, int position,
                            struct error *err);

/* ---- model_draft_guess.c: struct drafter_ops ---- */

void model_draft_propose(struct drafter *drafter, struct draft_lane *lanes, int n,
                         struct arena *arena, struct draft_cost *cost);
int model_draft_predict(struct drafter *drafter, struct sequence *seq, int position,
                        struct arena *arena, int32_t *id, struct error *err);
