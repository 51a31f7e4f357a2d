/* A drafter: guesses tokens ahead of the target, one or more for each of many sequences. There are
 * two kinds. A draft model computes its guesses and must have read the text: struct
 * model_draft_ops. A finder looks them up in texts, at no cost but the rows of the step: struct
 * lookup_ops (coordinator/draft/lookup.h). The engine and the round know these two interfaces and
 * the properties of struct drafter_row; coordinator/draft/drafter_table.h lists what there is.
 * Owned by the engine thread. */
#pragma once

#include "base/end_ids.h"
#include "base/guess_tree.h"
#include "base/limits.h"
#include "base/memory.h"
#include "coordinator/draft/drafter_table.h"
#include "model/logits/feature_wish.h"
#include "model/logits/sampling.h"
#include "model/tokenizer/tokenizer.h"
#include "speculation/planner/offer.h"

struct block_pool;      /* coordinator/kv/blocks.h */
struct drafter_options; /* coordinator/draft/options.h */
struct head_proof;      /* model/head_proof.h */
struct head_trial;      /* model/head_table.h */
struct lookup_ops;      /* coordinator/draft/lookup.h */
struct sequence;        /* coordinator/sequence/sequence.h */

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
    int k;                      /* guesses of the chain that are wanted */
    const struct end_ids *ends; /* nothing is guessed after these */
    struct guess_tree *draft;   /* without guesses before; their q's are in the arena of the call */
    int siblings_max;           /* of each guess that is made */
    struct error err;           /* set by the call: code 0, or what failed this lane alone */
    struct draft_expected expected; /* of the next pass; by the draft's stage */
    /* The tree that is wanted: k is the length of its chain, and it says how many siblings each
     * guess has. What a draft model is to guess after siblings comes last, in the order of struct
     * planner_lane; it is guessed if the parents are drawn and there is KV for it. Such a lane
     * reads nothing ahead. NULL: a chain with siblings_max siblings of each guess. */
    const struct guess_tree *plan;
    /* The plan says how many guesses there are for each place, at most GROWN_MAX in all without the
     * chain's, and after how many of the place before they may be; after which ones is chosen by
     * the draft's chances when the place before is drawn (speculation/accept/tree_follow.h). The
     * siblings of the first place, and of those where nothing is guessed after siblings, are as
     * planned. */
    bool follows_q;
};

/* Siblings that the chain's guess for a place may have. */
static inline int draft_lane_siblings(const struct draft_lane *lane, int place)
{
    return lane->plan ? guess_tree_siblings(lane->plan, place) : lane->siblings_max;
}

/* True if the lane wants guesses after siblings. */
static inline bool draft_lane_grows(const struct draft_lane *lane)
{
    return lane->plan && guess_tree_count(lane->plan, GUESS_GROWN) > 0;
}

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
    void (*predict)(struct draft_stage *stage, const struct sequence *seq, float *chances);
};

/* One sequence's share of a call of read. */
struct draft_reading {
    struct sequence *seq;
    int n_tokens; /* of those that it has not read */
    int model;    /* which of the draft models reads, as in struct drafter */
};

/* Where the time of a call of propose went: each pass guesses at least once for every lane that
 * wants more guesses. The first one also reads what lanes have missed. */
struct draft_cost {
    int n_passes;
    int first_pass_tokens; /* without what was expected */
    int pass_lanes[DRAFT_MAX];
    int pass_expected[DRAFT_MAX]; /* tokens that were read ahead or as masks, a row each, or read
                                     again for guesses after siblings */
    bool pass_grows[DRAFT_MAX]; /* guesses after siblings are made; tokens read again have no row */
    int64_t pass_us[DRAFT_MAX];
};

/* The target's features of committed tokens `first` .. + n of a text: what its residual stream was
 * at each of them, [n][columns][D] bf16 with the columns that struct drafter's `features` names; or
 * what the workers have made of them, [n][1][D] of the head's own D, where it names a projection.
 * Valid during the call. */
struct draft_features {
    int first, n;
    int n_columns, dim;
    bool is_projected;
    const uint16_t *rows;
};

/* Features of this wish, without rows yet; dim: of the target. */
static inline struct draft_features draft_features_of(const struct feature_wish *wish, int dim)
{
    if (wish->projection.key.digest != 0) {
        return (struct draft_features){
            .n_columns = 1, .dim = wish->projection.key.width, .is_projected = true};
    }
    return (struct draft_features){.n_columns = feature_wish_columns(wish), .dim = dim};
}

/* KV blocks, of all sequences together; all 0: it has none. */
struct draft_kv {
    int n_blocks, n_free, n_cached;
};

/* Where a finder looks. */
enum lookup_source {
    LOOKUP_OWN_TEXT,   /* in the sequence's text, and what it finds depends on nothing else */
    LOOKUP_MADE_TEXTS, /* in texts that were made here, or in their rows */
    LOOKUP_ELSEWHERE   /* neither of these */
};

/* A row of the table of drafters (coordinator/draft/drafter_table.h). */
struct drafter_row {
    const char *name;                    /* in --lookup, in answers and in metrics */
    const struct model_draft_ops *model; /* of a draft model, otherwise NULL */
    const struct lookup_ops *lookup;     /* of a finder, otherwise NULL */
    /* ---- of a draft model ---- */
    const char *prefix; /* what its names in --draft begin with */
    bool has_tokenizer; /* its name is that of a model whose tokenizer the coordinator may use */
    /* ---- of a finder ---- */
    bool takes_file;    /* "=FILE" follows its name in --lookup */
    bool is_of_request; /* it looks in what requests bring themselves, and has no name there */
    bool is_of_head;    /* it guesses by a folder that --head names, and has no name there either */
    enum lookup_source source; /* which sequences it may guess for depends on it */
};

extern const struct drafter_row drafter_rows[N_DRAFTERS];

struct drafter {
    const struct drafter_row *row; /* set when it is open */
    int n_vocab; /* ids from there on do not exist for the target (drafter_set_vocabulary) */
    int model;   /* of a draft model: which one of its owner's it is; others keep 0 */
    /* ---- of a draft model, set by its open ---- */
    int n_choices; /* tokens that it chooses its guesses from */
    /* One pass makes all guesses of a lane, a row each, and none of its rows has read the others'
     * guesses. Otherwise each takes a pass, which knows those before it. */
    bool is_parallel;
    int lane_rows; /* rows that its pass has for each lane besides: those of a block */
    int k_max;     /* guesses of a chain that it can make; 0: as many as are wanted */
    int limit;     /* positions that it can see: no guess is at or after it; INT_MAX: all */
    /* Its KV blocks; NULL: it has none. */
    const struct block_pool *pool;
    /* Kernels that its backend computes with, and why; NULL: it has no backend. */
    const char *kernels, *kernels_reason;
    /* The target's features that it reads, of at most FEATURE_WISH_MAX boundaries, or a projection
     * of such (model/head_wish.h), which set_projection chooses; NULL: none. With them the target
     * computes every token of a text that this drafter may guess for, but those that the drafter
     * knows already (begin). */
    const struct feature_wish *features;
    int feature_dim; /* elements of each */
    /* Tokens by which n_draft_kv of struct sequence counts more than there are positions in its KV:
     * the first block is full when it is kv_shift + KV_BLOCK_TOKENS. 1 of a head, otherwise 0. */
    int kv_shift;
    /* The folder of a head that must prove itself before it guesses (open_proof); NULL: there is
     * nothing to prove. */
    const char *head_folder;
    const char *head_format; /* of a head, such as "EAGLE-3"; NULL: it is none */
    /* Lent by the owner, and not to a parallel one; NULL: each guess takes a pass of its own. */
    struct draft_stage *stage;
};

/* Operations that only some draft models have. NULL: this one cannot. */
struct model_draft_extra_ops {
    /* The target has computed tokens of the text, which are committed; set where `features` of
     * struct drafter is. They come once each and in order, and before the next call of read or
     * propose, in parts as long as the steps were. The first one is of a token that the drafter had
     * read when the text got its place (begin), or the next one. Features of guesses that did not
     * stay do not come. A sequence that has lost its place begins again. After a failure the
     * sequence has no guesses any more. Errors: ERR_EXHAUSTED, ERR_UNAVAILABLE, ERR_NO_MEMORY. */
    int (*observe)(struct drafter *drafter, struct sequence *seq,
                   const struct draft_features *features, struct error *err);

    /* Another group serves, whose workers hold the fc of a head, or none (digest 0), and no
     * sequence has a place: `features` of struct drafter is what such workers are asked for from
     * now on. */
    void (*set_projection)(struct drafter *drafter, const struct projection_key *held);
    /* The next group serves another model or computes it otherwise, and no sequence has a place:
     * forgets what was made of features of the one before. Set where `features` is. */
    void (*forget_target)(struct drafter *drafter);
    /* Opens what tries the readings of the head's features with a target of n_layers, on texts of
     * up to n_tokens_max; the caller closes it, and before the drafter. Both are set where
     * head_folder of struct drafter is. Errors: those of head_proof_open. */
    int (*open_proof)(struct drafter *drafter, int n_layers, int n_tokens_max,
                      struct head_proof **proof, struct error *err);
    /* The head reads its features so from now on; no text has a place. Errors: those of opening. */
    int (*take_reading)(struct drafter *drafter, const struct head_trial *trial, struct error *err);

    /* Fails as open would for what the options and files say, without loading weights. NULL:
     * nothing can be said before. */
    int (*check)(const struct drafter_options *options, const struct tokenizer *tok,
                 struct error *err);

    /* Compute threads that are worth it, 1 .. n_cores. NULL: one. Errors: those of opening. */
    int (*count_threads)(const struct drafter_options *options, int n_cores, int *n_threads,
                         struct error *err);
};

/* The verbs of a draft model, by when they are called. */
struct model_draft_ops {
    /* ---- once ---- */

    /* tok: the tokenizer of both models. Sets what struct drafter says of a draft model. Errors:
     * ERR_ARGUMENT the draft has another token table, and those of opening what the name says. */
    int (*open)(struct drafter **drafter, const struct drafter_options *options,
                const struct tokenizer *tok, struct error *err);
    void (*close)(struct drafter *drafter);

    /* struct drafter has another n_vocab. */
    void (*set_vocabulary)(struct drafter *drafter, int n_vocab);

    /* ---- for each text ---- */

    /* The sequence begins, or goes on, in seq->slot: what is known of the beginning of its text
     * need not be read again; seq->n_draft_kv[model] says how much. It may be called again later
     * and changes nothing when the draft has read something for this sequence itself. */
    void (*begin)(struct drafter *drafter, struct sequence *seq);

    /* Reads n_tokens more of each sequence, without guessing. Errors: ERR_EXHAUSTED,
     * ERR_UNAVAILABLE the device is lost. */
    int (*read)(struct drafter *drafter, const struct draft_reading *readings, int n,
                struct error *err);

    /* The sequence in this slot is over, or gives up its KV: frees what is kept for it. */
    void (*forget)(struct drafter *drafter, int slot);

    /* ---- in each round ---- */

    /* Sets KV for the sequence's first n_positions aside, all of it or none, before the first guess
     * is drawn: a guess that were dropped for lack of room would bias the text. Errors:
     * ERR_EXHAUSTED. */
    int (*reserve)(struct drafter *drafter, struct sequence *seq, int n_positions,
                   struct error *err);

    /* For each lane: reads the sequence's tokens that it has not read, then guesses until there are
     * k. It may guess fewer or none, as long as that does not depend on a guess that it has looked
     * at and does not send. Stops after an end of sequence and after a guess that it gave less than
     * seq->threshold; both are still guesses, because a guess that was looked at must be sent
     * (docs/design.md section 5). Coins RNG_DRAFT at (position, base); under a coupled rule the
     * guess is the argmax under the shared noise. Siblings use coins of the same address with their
     * numbers from 1 on as the index, and may be dropped for reasons that have nothing to do with
     * their values. Guesses after siblings use those of their position each with an index of its
     * own from 1 + SIBLINGS_MAX on. seq->n_draft_kv[model] counts what was read. A model also
     * writes the guesses of the chain to seq->tokens after the committed ones, where its next pass
     * reads them. Errors of a lane: ERR_NO_MEMORY, ERR_EXHAUSTED no KV block, ERR_UNAVAILABLE the
     * device is lost. All lanes go through a pass together, and *cost says what the passes took. */
    void (*propose)(struct drafter *drafter, struct draft_lane *lanes, int n, struct arena *arena,
                    struct draft_cost *cost);

    /* The round is over: positions below seq->n_draft_kv[model] hold committed tokens, so others
     * whose texts begin alike may use what was computed for them. */
    void (*commit)(struct drafter *drafter, struct sequence *seq);

    struct model_draft_extra_ops extra;
};

/* Guesses for lanes[n], by a drafter of either kind: a draft model's as above, and of a finder each
 * lane's as in struct lookup_ops, which leaves *cost as it is. */
void drafter_propose(struct drafter *drafter, struct draft_lane *lanes, int n, struct arena *arena,
                     struct draft_cost *cost);

/* The number of its row, from 0 on, by which metrics count what it guesses. */
int drafter_number(const struct drafter *drafter);

/* For drafters of both kinds; close accepts NULL. Ids from n_vocab on do not exist for the target,
 * so none of them is guessed from now on. */
void drafter_close(struct drafter *drafter);
void drafter_set_vocabulary(struct drafter *drafter, int n_vocab);
void drafter_forget(struct drafter *drafter, int slot);

/* ---- draft models ---- */

/* The row of what `name` means in --draft. */
const struct drafter_row *drafter_find(const char *name);

/* The verbs above; open, check and count_threads find the drafter by options->name. */
int drafter_open(struct drafter **drafter, const struct drafter_options *options,
                 const struct tokenizer *tok, struct error *err);
int drafter_check(const struct drafter_options *options, const struct tokenizer *tok,
                  struct error *err);
int drafter_count_threads(const struct drafter_options *options, int n_cores, int *n_threads,
                          struct error *err);
void drafter_begin(struct drafter *drafter, struct sequence *seq);
int drafter_reserve(struct drafter *drafter, struct sequence *seq, int n_positions,
                    struct error *err);
int drafter_read(struct drafter *drafter, const struct draft_reading *readings, int n,
                 struct error *err);
void drafter_commit(struct drafter *drafter, struct sequence *seq);
int drafter_observe(struct drafter *drafter, struct sequence *seq,
                    const struct draft_features *features, struct error *err);
/* Does nothing for a draft model that reads no features. */
void drafter_forget_target(struct drafter *drafter);
int drafter_open_proof(struct drafter *drafter, int n_layers, int n_tokens_max,
                       struct head_proof **proof, struct error *err);
int drafter_take_reading(struct drafter *drafter, const struct head_trial *trial,
                         struct error *err);

/* Values of struct drafter. */
int drafter_limit(const struct drafter *drafter);
struct draft_kv drafter_kv(const struct drafter *drafter);
