/* A drafter: guesses tokens ahead of the target, one or more for each of many sequences. There are
 * two kinds. One computes its guesses with a model, which must have read the text. The other finds
 * them in texts, at no cost but the rows of the step: a finder. The engine and the round know this
 * interface and nothing behind it; coordinator/draft/internal.h lists what there is. Owned by the
 * engine thread. */
#pragma once

#include "base/end_ids.h"
#include "base/growth.h"
#include "base/limits.h"
#include "base/memory.h"
#include "coordinator/signals/signals_list.h"
#include "model/logits/sampling.h"
#include "model/tokenizer/tokenizer.h"
#include "speculation/planner/offer.h"
#include "speculation/rows/target_row.h"

struct drafter_options; /* coordinator/draft/options.h */
struct sequence;        /* coordinator/sequence/sequence.h */

/* Guesses, each with the distribution it was drawn from. */
struct draft {
    int base;     /* committed tokens that the guesses continue */
    bool is_over; /* nothing is to be guessed behind the last one */
    int n;
    int32_t tokens[DRAFT_MAX];
    struct sparse_dist q[DRAFT_MAX]; /* their arrays lie in the arena of the call */
    /* Further guesses for the place of tokens[i]. Where their q is NULL, they are from q[i] without
     * those before them or, under greedy and coupled rules, the next best ones. Otherwise each has
     * a q of its own, in the arena of the call: those that were found have one-hot ones. */
    uint8_t n_siblings[DRAFT_MAX];
    int32_t siblings[DRAFT_MAX][SIBLINGS_MAX];
    const struct sparse_dist *sibling_q[DRAFT_MAX][SIBLINGS_MAX];
    /* Guesses behind siblings. Those of one parent are drawn like a guess and its siblings, from
     * one q. */
    struct growth grown;
    int32_t grown_tokens[GROWN_MAX];
    struct sparse_dist grown_q[GROWN_MAX]; /* of the first guess behind a parent */
    /* A second chain, which goes on from `base`, too. It does not depend on the guesses above, and
     * where the two begin alike they are one. */
    int n_branch;
    int32_t branch[DRAFT_MAX];
    struct sparse_dist branch_q[DRAFT_MAX]; /* one-hot, in the arena of the call */
    int n_staged;                           /* of n: guesses that took no pass of their own */
    int n_appended; /* the last of n, behind those of a model: a finder has made them */
};

/* Tokens that a draft model is expected to guess, from its next guess on. */
struct draft_expected {
    int n;        /* that are known */
    int n_fed;    /* of them, those that the next pass may read ahead */
    int begin;    /* the guess, counted in the draft, that tokens[0] is expected to be */
    int n_passes; /* of this call of propose that it was set for */
    int n_equal;  /* leading guesses of the last of them that were expected */
    int evidence; /* the reason, as in struct planner_offer */
    int32_t tokens[DRAFT_MAX];
};

/* One sequence's share of a call of propose. */
struct draft_lane {
    struct sequence *seq;
    int k;                          /* guesses wanted, with those that the draft already has */
    const struct end_ids *ends;     /* nothing is guessed behind these */
    struct draft *draft;            /* goes on where draft->n guesses are there already */
    int siblings_max;               /* of each guess that is made */
    struct error err;               /* set by the call: code 0, or what failed this lane alone */
    struct draft_expected expected; /* of the next pass; by the draft's stage */
    /* What a draft model is to guess behind siblings, if their parents are drawn and it has KV for
     * it; NULL: nothing. Such a lane reads nothing ahead, and its draft has no guesses yet. */
    const struct growth *growth;
    /* With a growth: it follows q. The growth and siblings[k], those of the chain's guesses, say
     * how many guesses there are for each place, at most GROWN_MAX in all without the chain's, and
     * behind how many of the place before they may be; behind which ones is chosen by the draft's
     * chances when the place before is drawn (speculation/accept/tree_follow.h), and siblings_max
     * is set by the call. The siblings of the first place, and of those without a growth, are as
     * planned. NULL: all is as planned. */
    const uint8_t *siblings;
};

/* Staged speculation: the draft is itself sped up by something cheaper, which says what the draft
 * is going to guess. A draft model asks it before each pass, reads what it expects together with
 * the lane's last token, and makes its guesses from all these rows, as long as they are what was
 * expected (coordinator/draft/model_draft_guess.c). Guesses, their q and coins are those without
 * it, so it changes nothing but the number of passes. */
struct draft_stage {
    /* Sets `expected` of lanes[n], which are those of the next pass. */
    void (*expect)(struct draft_stage *stage, struct draft_lane *const *lanes, int n);
    /* The pass is over: the lanes' drafts have grown by what it has guessed. */
    void (*compare)(struct draft_stage *stage, struct draft_lane *const *lanes, int n);
    /* The chance that guess i of the sequence's next draft takes no pass of its own, if it reads
     * ahead as far as that; chances[DRAFT_MAX]. */
    void (*foresee)(struct draft_stage *stage, const struct sequence *seq, float *chances);
};

/* One sequence's share of a call of read. */
struct draft_reading {
    struct sequence *seq;
    int n_tokens; /* of those that it has not read */
};

/* Where the time of a call of propose went: each pass guesses at least once for every lane that
 * wants more guesses. The first one also reads what lanes have missed. */
struct draft_cost {
    int n_passes;
    int first_pass_tokens; /* without what was expected */
    int pass_lanes[DRAFT_MAX];
    int pass_expected[DRAFT_MAX]; /* tokens that were read ahead, a row each, or read again for
                                     guesses behind siblings */
    bool
        pass_grows[DRAFT_MAX]; /* guesses behind siblings are made; what is read again has no row */
    int64_t pass_us[DRAFT_MAX];
};

/* What the target has said in a round: row i is p behind the text that leads to before[i], which
 * follows before[parents[i]]. Row 0 is that of the last committed token before the round, and its
 * parent is -1. Rows that nothing is known of are empty. */
struct draft_rows {
    const struct target_row *rows; /* [n] */
    const int32_t *before, *parents;
    int n;
};

/* KV blocks, of all sequences together; all 0: it has none. */
struct draft_kv {
    int n_blocks, n_free, n_cached;
};

struct drafter {
    const struct drafter_ops *ops;
    int n_choices; /* tokens that it chooses its guesses from */
    /* Lent by the owner, of a draft model; NULL: each guess takes a pass of its own. */
    struct draft_stage *stage;
    /* What its backend computes with, and why; NULL: it has no backend. */
    const char *kernels, *kernels_reason;
};

/* What is NULL in a finder's operations is what only a model needs. */
struct drafter_ops {
    const char *name;             /* in answers */
    enum signals_drafter counted; /* in metrics */

    /* tok: the tokenizer of both models. Errors: ERR_ARGUMENT the draft has another token table,
     * and those of opening what the name says. */
    int (*open)(struct drafter **drafter, const struct drafter_options *options,
                const struct tokenizer *tok, struct error *err);
    void (*close)(struct drafter *drafter);

    /* Positions that it can see: no guess lies at or behind the limit. INT_MAX: it has none. */
    int (*limit)(const struct drafter *drafter);

    /* Ids from n_vocab on do not exist for the target, so none of them is guessed from now on. */
    void (*set_vocabulary)(struct drafter *drafter, int n_vocab);

    /* The sequence begins, or goes on, in seq->slot: what is known of the beginning of its text
     * need not be read again; seq->n_draft_kv says how much. It may be called again later and
     * changes nothing when the draft has read something for this sequence itself. */
    void (*begin)(struct drafter *drafter, struct sequence *seq);

    /* Sets KV for the sequence's first n_positions aside, all of it or none, before the first guess
     * is drawn: a guess that were dropped for lack of room would bias the text. Errors:
     * ERR_EXHAUSTED. */
    int (*reserve)(struct drafter *drafter, struct sequence *seq, int n_positions,
                   struct error *err);

    /* Reads n_tokens more of each sequence, without guessing. Errors: ERR_EXHAUSTED,
     * ERR_UNAVAILABLE the device is lost. */
    int (*read)(struct drafter *drafter, const struct draft_reading *readings, int n,
                struct error *err);

    /* For each lane: reads the sequence's tokens that it has not read, then guesses until there
     * are k. It may guess fewer or none, as long as that does not depend on a guess that it has
     * looked at and does not send. Stops after an end of sequence and after a guess that it gave
     * less than seq->threshold; both are still guesses, because a guess that was looked at must be
     * sent (docs/design.md section 5). Coins RNG_DRAFT at (position, base); under a coupled rule
     * the guess is the argmax under the shared noise. Siblings use coins of the same address with
     * their numbers from 1 on as the index, and may be dropped for reasons that have nothing to do
     * with their values. Guesses behind siblings use those of their position each with an
     * index of its own from 1 + SIBLINGS_MAX on. seq->n_draft_kv counts what was read, and guesses
     * are written to seq->tokens behind the committed ones. Errors of a lane:
     * ERR_NO_MEMORY, ERR_EXHAUSTED no KV block, ERR_UNAVAILABLE the device is lost. All lanes go
     * through a pass together. */
    void (*propose)(struct drafter *drafter, struct draft_lane *lanes, int n, struct arena *arena,
                    struct draft_cost *cost);

    /* The round is over: positions below seq->n_draft_kv hold committed tokens, so others whose
     * texts begin alike may use what was computed for them. */
    void (*commit)(struct drafter *drafter, struct sequence *seq);

    /* The token that the target is most likely to add behind seq->tokens[0..position): the draft's
     * best, under a coupled rule with the shared noise. It spends no coin. Errors: as propose.
     * NULL: this drafter cannot draft ahead. */
    int (*predict)(struct drafter *drafter, struct sequence *seq, int position, struct arena *arena,
                   int32_t *id, struct error *err);

    /* The sequence in this slot is over, or gives up its KV: frees what is kept for it. */
    void (*forget)(struct drafter *drafter, int slot);

    struct draft_kv (*kv)(const struct drafter *drafter);

    /* Compute threads that are worth it, 1 .. n_cores. NULL: one. Errors: those of opening. */
    int (*count_threads)(const struct drafter_options *options, int n_cores, int *n_threads,
                         struct error *err);

    bool has_tokenizer; /* its name is that of a model whose tokenizer the coordinator may use */

    /* ---- of a finder; NULL otherwise ---- */

    /* Reads committed tokens of the sequence that it has not read, n_tokens at most. Returns how
     * many are left. */
    int (*study)(struct drafter *drafter, const struct sequence *seq, int n_tokens);

    /* What it can guess for the sequence now, if it has read all of it: sets evidence, k_max, as
     * if there were no limit but DRAFT_MAX, and siblings, if it knows any, of *offer, which is zero
     * but for `finder`. False: nothing. propose then guesses that; of siblings there may be more
     * or fewer behind guesses that were drawn. */
    bool (*look)(const struct drafter *drafter, const struct sequence *seq,
                 struct planner_offer *offer);

    /* The first n guesses that propose would make now, where no coin decides them; returns how many
     * there are. 0: there are none, or they are drawn. */
    int (*foresee)(const struct drafter *drafter, const struct sequence *seq, int32_t *tokens,
                   int n);

    /* What it would guess behind seq->tokens[0 .. n_tokens), where those that are not committed
     * are guesses: writes up to n tokens, sets *evidence as in struct planner_offer and returns
     * how many. NULL: it cannot say. */
    int (*expect)(const struct drafter *drafter, const struct sequence *seq, int n_tokens,
                  int32_t *tokens, int n, int *evidence);

    /* The sequence's text is complete. NULL: that does not matter. */
    void (*finished)(struct drafter *drafter, const struct sequence *seq);

    /* A round has committed what the target says in *rows. NULL: that does not matter. */
    void (*observe)(struct drafter *drafter, const struct sequence *seq,
                    const struct draft_rows *rows);

    /* At most `most` tokens that are to be checked behind the text for what their rows teach, if
     * rows of the step cost next to nothing; returns how many. No coin of this round decides them.
     * NULL: there are none. */
    int (*window)(const struct drafter *drafter, const struct sequence *seq, int32_t *tokens,
                  int most);

    bool is_of_text;  /* what it finds depends on the sequence's text alone */
    bool keeps_texts; /* it finds guesses in texts that were made here, or in their rows */
};

/* The operations of what `name` names in --draft. */
const struct drafter_ops *drafter_find(const char *name);

/* The operations above; open finds them by options->name, close accepts NULL. */
int drafter_open(struct drafter **drafter, const struct drafter_options *options,
                 const struct tokenizer *tok, struct error *err);
void drafter_close(struct drafter *drafter);
int drafter_limit(const struct drafter *drafter);
void drafter_set_vocabulary(struct drafter *drafter, int n_vocab);
void drafter_begin(struct drafter *drafter, struct sequence *seq);
int drafter_reserve(struct drafter *drafter, struct sequence *seq, int n_positions,
                    struct error *err);
int drafter_read(struct drafter *drafter, const struct draft_reading *readings, int n,
                 struct error *err);
void drafter_propose(struct drafter *drafter, struct draft_lane *lanes, int n, struct arena *arena,
                     struct draft_cost *cost);
void drafter_commit(struct drafter *drafter, struct sequence *seq);
void drafter_forget(struct drafter *drafter, int slot);
struct draft_kv drafter_kv(const struct drafter *drafter);
/* The window of a finder that has one becomes the branch of the lane's draft: at most lane->k
 * tokens, and none behind one of lane->ends. Errors, of the lane: ERR_NO_MEMORY. */
void drafter_window(const struct drafter *drafter, struct draft_lane *lane, struct arena *arena);
