/* Declarations that the draft model's files share: its state, and reading.
 * coordinator/draft/model_draft*.c alone. */
#pragma once

#include "coordinator/draft/drafter.h"
#include "coordinator/draft/options.h"
#include "coordinator/kv/prefix_cache.h"
#include "coordinator/sequence/sequence.h"
#include "model/checkpoint/config/head_config.h"
#include "model/model.h"
#include "speculation/accept/tree_follow.h"

enum {
    STEP_TOKENS = 512, /* tokens that it reads in one step, over all lanes */
    STEP_ROWS = 64,    /* guesses that it makes in one step */
    /* Best tokens of a row among which a draft at temperature 0 shares its chances where guesses
     * follow these: the more, the longer it takes to find them. */
    FOLLOW_BEST = 8
};

struct draft_inputs; /* coordinator/draft/model_draft_inputs.h */

struct model_draft {
    struct drafter base;
    struct drafter_options options;
    struct checkpoint *checkpoint;
    struct checkpoint *target;   /* of a head, which may be lent tensors of it; otherwise NULL */
    struct draft_inputs *inputs; /* NULL: it reads tokens alone */
    /* The head as it was opened, where its proof has found another norm_before_residual: its
     * weights are used, also by others (`like`). Otherwise NULL. */
    struct model *lender;
    struct checkpoint *lender_checkpoint;
    int shift;     /* tokens of a text that have no row: 1 of a head, otherwise 0 */
    int first_key; /* the token by which the first row's KV is found: 1 where rows read tokens that
                      are `shift` later, otherwise 0 */
    struct backend *backend;
    struct model *model;
    struct block_pool pool;
    struct block_table *tables;    /* [n_sequences] */
    int n_vocab;                   /* ids that both models have */
    int n_vocab_target;            /* ids that exist for the target */
    int32_t mask_token;            /* of a parallel draft; -1: it reads no masks */
    const uint16_t *mask_features; /* that masks are read with; NULL: they have none */
    int n_places; /* of a head that guesses them from one feature and has no KV; otherwise 0 */
    struct head_block block;      /* of a block drafter; otherwise its size is 0 */
    int32_t *block_tokens;        /* [n_sequences][block.size] of a step's lanes */
    struct feeding *feedings;     /* [n_sequences] of the pass that is running */
    struct draft_lane **passing;  /* [n_sequences] its lanes */
    struct forward_lane *forward; /* [n_sequences] and the step of it */
    struct forward_row rows[STEP_ROWS];
    int n_rows_max;
    int32_t *head_ids;                  /* [base.n_choices] ascending; NULL: all n_vocab ids */
    struct select_item *best, *scratch; /* [support], at least FOLLOW_BEST, and one more */
    float *logits;                      /* [support] of q's tokens, for coupled rules */
    struct draft_grower *growers;       /* [n_sequences] of the lanes of a call of propose */
    struct place_draw *draws;           /* [n_sequences] of the lanes of a pass that guesses all */
};

_Static_assert(FOLLOW_BEST >= 1 + SIBLINGS_MAX, "all children of a guess are among them");

struct draft_grower; /* coordinator/draft/model_draft_grow.h */

/* Part of a pass that reads one sequence: its tokens up to `end`. */
struct feeding {
    struct sequence *seq;
    int end;
    int n_rows;              /* that are wanted, of its last tokens */
    struct draft_lane *lane; /* that guesses from the rows; NULL: nobody does */
    /* The grower of a pass that guesses after siblings, which feeds a tree; its first row may be
     * that of the chain. NULL: the pass feeds a chain. */
    struct draft_grower *grower;
    bool has_chain_row;
    struct draft_grower *follows; /* of a lane whose guesses follow q; NULL: they do not */
    struct draft_grower *beside;  /* the lane's, whatever it guesses */
};

/* A lane of a pass that makes all its guesses: the place that is drawn next. */
struct place_draw {
    int first;      /* the place of its first row */
    int place, row; /* -1: there are no more; the row of the step that is the place's */
    struct feeding part;
};

/* Candidates of guesses: a row of logits. */
struct guess_row {
    struct select_item *best; /* [n_best] its best with their logits */
    int n_best;
    struct sparse_dist q;
};

/* A guess that is being made: for `position`, in a draft that continues `base` committed tokens. */
struct guess {
    int position, base;
    int coin; /* index of the coin that draws it; its siblings have the next ones */
    struct sparse_dist *q;
    int32_t id;
    int n_siblings, siblings_max;
    bool is_independent; /* siblings are drawn with replacement */
    int32_t siblings[SIBLINGS_MAX];
    /* Probabilities that the draft gave it and its siblings, also where q is made one-hot. */
    float chance, sibling_chances[SIBLINGS_MAX];
};

static inline struct model_draft *model_draft(struct drafter *drafter)
{
    return (struct model_draft *)drafter;
}

/* ---- model_draft.c ---- */

/* An open draft without its model: what the options say of all of them. */
int model_draft_new(struct model_draft **draft, const struct drafter_options *options,
                    struct error *err);
/* The tokens that the draft of d->checkpoint may guess, and its masks, by the options and files. */
int model_draft_choose_vocabulary(struct model_draft *d, const struct tokenizer *tok,
                                  struct error *err);
/* Opens a model of the checkpoint on the backend; a part of model_draft_start. like: as in struct
 * model_options. Errors: those of model_open. */
int model_draft_open_model(struct model_draft *d, const struct checkpoint *ck,
                           const struct model *like, struct model **model, struct error *err);

/* Opens the model of d->checkpoint, and what is needed to guess with it. */
int model_draft_start(struct model_draft *d, const struct tokenizer *tok, struct error *err);
/* The number of threads that are worth it for weights of so many bytes. */
int model_draft_threads(double weight_bytes, int n_cores);
/* Bytes of weights that a guess reads, as bf16. */
double model_draft_weight_bytes(const struct model_config *cfg);
/* As model_draft_weight_bytes, of a head with all of its places. */
double head_draft_weight_bytes(const struct checkpoint *ck);

/* struct model_draft_ops: */

void model_draft_close(struct drafter *drafter);
void model_draft_set_vocabulary(struct drafter *drafter, int n_vocab);
void model_draft_begin(struct drafter *drafter, struct sequence *seq);
int model_draft_read(struct drafter *drafter, const struct draft_reading *readings, int n,
                     struct error *err);
void model_draft_forget(struct drafter *drafter, int slot);
int model_draft_reserve(struct drafter *drafter, struct sequence *seq, int n_positions,
                        struct error *err);
void model_draft_commit(struct drafter *drafter, struct sequence *seq);

/* One step over the first feedings that fit. Those that it finishes, with their rows, come first:
 * *n_done of them; one more may have been read in part, but for the tokens whose rows are
 * wanted. */
int model_draft_step(struct model_draft *d, const struct feeding *feedings, int n, int *n_done,
                     struct error *err);

/* A sequence that is fed up to position. The last token before it is read in any case, because its
 * row is what comes next. */
int model_draft_plan_feeding(struct model_draft *d, struct feeding *feeding, struct sequence *seq,
                             int position, struct error *err);

/* ---- model_draft_feed.c ---- */

/* The first token of the sequence that has not been read, or that has no row. */
int model_draft_first_unread(const struct model_draft *d, const struct sequence *seq);

/* The end of the tokens of the sequence that can be read: of a head, those whose features are
 * there. */
int model_draft_readable(const struct model_draft *d, const struct sequence *seq, int end);

/* True if the feeding has tokens to read and the features of all that are committed, those before
 * position `base`, are there. */
bool model_draft_has_features(const struct model_draft *d, const struct feeding *feeding, int base);

/* The guesses of a round are made: rows with outputs in place of features are read again. */
void model_draft_end_guesses(const struct model_draft *d, struct draft_lane *lanes, int n);

/* Sets the features that a lane of a step reads: those of number `lane`, whose feeding it is. */
void model_draft_place_features(struct model_draft *d, int lane, const struct feeding *feeding,
                                const struct forward_lane *forward);
/* Keeps the outputs of the rows that a step was asked for; first_token: of its lane, counted over
 * those of all lanes; rows[feeding->n_rows]. Errors: ERR_UNAVAILABLE. */
int model_draft_keep_outputs(struct model_draft *d, const struct feeding *feeding, int first_token,
                             const struct forward_row *rows, struct error *err);

/* ---- model_draft_row.c ---- */

/* Makes the chain's next guess of the lane and its siblings from a row of logits of the last
 * step. */
int model_draft_choose(struct model_draft *d, const struct draft_lane *lane, int row,
                       struct arena *arena, struct guess *guess, struct error *err);

/* How many of the row's best are wanted for a guess with so many siblings. */
int model_draft_row_size(const struct model_draft *d, const struct sequence *seq, int n_siblings);

/* As model_draft_choose, in two steps, and after any node of the lane's draft (-1: the root). The
 * first keeps the n_best largest logits of the row in d->best, until the next row is read; the
 * request's edits of the node's path are in them. */
int model_draft_read_row(struct model_draft *d, const struct draft_lane *lane, int row, int node,
                         int n_best, struct arena *arena, struct guess_row *read,
                         struct error *err);
void model_draft_choose_from(struct model_draft *d, const struct sequence *seq,
                             const struct guess_row *row, struct guess *guess);

/* The largest chances of the row, best first: of q or, at temperature 0, of its best at temperature
 * 1. Returns how many there are. */
int model_draft_row_chances(const struct sequence *seq, const struct guess_row *row,
                            float chances[TREE_CHILDREN_MAX]);

/* ---- model_draft_guess.c ---- */

/* struct model_draft_ops: */

void model_draft_propose(struct drafter *drafter, struct draft_lane *lanes, int n,
                         struct arena *arena, struct draft_cost *cost);

/* ---- model_draft_grow.c ---- */

int model_draft_open_growers(struct model_draft *d, struct error *err);
void model_draft_close_growers(struct model_draft *d);

/* A call of propose begins; each lane has a grower. */
void model_draft_begin_growth(struct model_draft *d, struct draft_lane *lanes, int n);
struct draft_grower *model_draft_grower(struct model_draft *d, int lane);
bool model_draft_follows_q(const struct draft_grower *grower);

/* True if the next pass guesses after siblings of the lane. goes_on: it makes a guess of its chain.
 * Planned guesses that can never be made are left out. */
bool model_draft_wants_growth(struct draft_grower *grower, struct draft_lane *lane, bool goes_on);

/* Plans a pass that does: the feeding, whose lane is set, becomes a tree. False: there are no
 * blocks for it; then nothing more is guessed after siblings, and the feeding is as it was. */
bool model_draft_plan_growth(struct model_draft *d, struct draft_grower *grower, bool goes_on,
                             struct feeding *feeding);
/* The lane of such a feeding in a step, and the token whose row is number i of its rows. */
struct forward_lane model_draft_growth_lane(const struct draft_grower *grower,
                                            const struct feeding *feeding, const int32_t *blocks);
int model_draft_growth_row(const struct draft_grower *grower, const struct feeding *feeding, int i);

/* Makes the guesses after siblings from the rows of the feeding, the first of which is number
 * `row` of the step; that of the chain comes before the others. */
int model_draft_draw_growth(struct model_draft *d, const struct feeding *feeding, int row,
                            struct arena *arena, struct error *err);

/* When the pass of any feeding is over: gives back the blocks of its tree. */
void model_draft_end_growth(struct model_draft *d, const struct feeding *feeding);
/* Tokens that its pass reads besides the one of each lane. */
int model_draft_count_again(const struct feeding *feeding);

/* Plans guesses after siblings from one row, which holds after any guess of the place before: there
 * is no tree to feed, and the feeding, whose lane and has_chain_row are set, gets the grower for
 * the draws alone. */
void model_draft_plan_growth_of_row(struct model_draft *d, struct draft_grower *grower,
                                    struct feeding *feeding);
/* The place of the guesses that are wanted next. */
int model_draft_growth_place(const struct draft_grower *grower);
/* Nothing more is guessed after siblings. */
void model_draft_stop_growth(struct draft_grower *grower);

/* ---- model_draft_parallel.c ---- */

/* Finds out whether the model is a parallel draft. Errors: ERR_FORMAT its mask cannot be one. */
int model_draft_open_parallel(struct model_draft *d, struct error *err);

/* Places that the lane's guesses are for. */
int model_draft_count_places(const struct draft_lane *lane);

/* Adds masks to the feedings of a pass, for all guesses that their lanes want; returns how many. */
int model_draft_add_masks(struct model_draft *d, int n_feedings);

/* The place for which a lane has its next guesses made, from its row of a pass whose rows are those
 * of the places from `first` on; -1: there are no more. part: the feeding as if the place had a
 * pass of its own, with a grower if there are guesses after siblings, and has_chain_row if there is
 * one of the chain. */
int model_draft_next_place(struct model_draft *d, const struct feeding *feeding, int first,
                           struct feeding *part);

/* ---- model_draft_block.c ---- */

/* Takes over that the head is a block drafter. */
void model_draft_open_block(struct model_draft *d, const struct head_config *head);
/* Once n_sequences is known. Errors: ERR_NO_MEMORY. */
int model_draft_open_block_tokens(struct model_draft *d, struct error *err);

/* Positions of the KV that a lane of n_tokens committed tokens needs so that a block may follow. */
int model_draft_block_end(const struct model_draft *d, int n_tokens);

/* As model_draft_plan_feeding: what has not been read of the context is read, and then the block,
 * whose rows model_draft_add_blocks asks for. */
int model_draft_plan_block(struct model_draft *d, struct feeding *feeding, int position,
                           struct error *err);
/* Adds the rows of all guesses that the lanes of a pass want; returns how many tokens their blocks
 * have, and rows beyond the first one of each. */
int model_draft_add_blocks(struct model_draft *d, int n_feedings);

/* Places a feeding into a step as lane number `lane`, with its features: all of it, or a part of
 * its context if more than `left` tokens are wanted. Returns the tokens of both; 0: there are none.
 * *is_whole: it is all. */
int model_draft_place_block(struct model_draft *d, int lane, const struct feeding *feeding,
                            int left, bool *is_whole);

/* Adds the chain to the rows of the places that are drawn next. A place whose place before has no
 * guess of the draft's chain, or one of several independent ones, is drawn without it. Errors:
 * ERR_UNAVAILABLE. */
int model_draft_chain_places(struct model_draft *d, const struct place_draw *draws, int n,
                             struct error *err);

/* ---- model_draft_follow.c ---- */

/* As model_draft_choose for the next guess of a chain whose siblings follow q. */
int model_draft_choose_following(struct model_draft *d, const struct feeding *feeding, int row,
                                 struct arena *arena, struct guess *guess, struct error *err);

/* ---- model_draft_group.c ---- */

/* Adds a guess that was made, and its siblings, to a draft as children of `parent`, one after the
 * other; returns the first node. */
int model_draft_add(struct guess_tree *draft, int parent, int mark, int sibling_mark,
                    const struct guess *guess);

/* Keeps what a guess and its siblings are worth to those after them; they are nodes of the draft
 * from `first` on. */
void model_draft_value(struct draft_grower *grower, const struct guess_tree *draft, int first,
                       const struct guess *guess);
