/* One sequence: its tokens, how far each model's KV cache has them, and what its request asked for.
 * Each model is fed tokens[counter ..), so a counter that is set back is all that it takes to
 * discard guesses, or to begin anew after the KV was lost (docs/design.md section 3). A request for
 * n texts is n sequences of one job; a request for scores is a sequence that commits nothing. Owned
 * by the engine thread. */
#pragma once

#include "base/end_ids.h"
#include "base/metrics/histogram.h"
#include "coordinator/job/backpressure.h"
#include "coordinator/job/job.h"
#include "coordinator/kv/blocks.h"
#include "coordinator/sequence/output.h"
#include "speculation/accept/rules.h"
#include "speculation/planner/planner.h"
#include "speculation/rows/edits.h"

struct sequence {
    uint64_t id;     /* never used before; a younger sequence has a higher one */
    struct job *job; /* shared by its sequences */
    int index;       /* among them */
    int n_vocab;     /* ids that exist for the target */
    bool is_score;   /* it is read for its scores, and nothing is added to it */
    int slot;        /* of the target and the draft; -1 = it waits for a place */

    int32_t *tokens; /* [capacity] prompt, then committed tokens, then room for guesses */
    int n_tokens, n_prompt, capacity;
    int n_target_kv, n_draft_kv[PLANNER_MODELS]; /* tokens that the target and each draft model have
                                                    read */
    bool draft_forgot;                           /* a draft model has forgotten what it had read */
    bool lost_draft
        [PLANNER_MODELS]; /* such a model guesses no more for it, as its device was lost */
    bool lacked_draft_kv; /* it went without guesses, because there was no room for them */
    int n_scored;         /* tokens of the prompt whose scores were sent */
    int n_counted;        /* tokens that served_tokens knows of */
    struct block_table target_blocks;
    int n_blocks_sent; /* entries of target_blocks that the workers have */

    struct sampling_params sampling;
    const struct rule *rule;
    const struct tree_rule *tree_rule;
    uint64_t seed;
    int n_draft; /* K of strategy fixed, the most of others */
    struct planner_sequence planner_state;
    float threshold;                /* of strategy threshold, otherwise 0 */
    int end;                        /* n_tokens never exceeds this: max_tokens or the context */
    int siblings_max;               /* of each guess; 0: guesses are chains */
    bool grows;                     /* a draft model may guess after siblings */
    const struct tree_widths *tree; /* of guesses of a draft model in every round; NULL: none */
    bool follows_q;                 /* of a tree, which guesses grow is chosen by the draft's q */
    const char *speculation_off;    /* why it has no guesses; "" = it may have */
    struct end_ids ends;            /* tokens that end the text */
    struct edit_rules edit_rules; /* what the request changes in p; its arrays are the sequence's */
    struct edits *edits;          /* NULL = nothing */

    struct output output;
    const char *finish_reason; /* NULL while it runs */
    struct generate_counters counters;
    struct histogram overhead;             /* of a round: wall less draft, compute and collective */
    int64_t admitted_us;                   /* 0 = it never had a place */
    int64_t first_token_us, last_token_us; /* of its first and its last round; 0 = not yet */

    uint64_t last_round;              /* that it had a share of */
    struct backpressure backpressure; /* its client; while that is slow, the text pauses */
    bool is_evicted;                  /* it has lost its place in this round, and the slot ... */
    int evicted_slot;                 /* ... that it had */
    bool is_over;                     /* it has been finished or failed */
    struct sequence *next_moved;      /* of its job, while both go to another engine */
};

/* Options that the coordinator was started with and a request may change, and the group's
 * limits. */
struct sequence_defaults {
    int n_draft; /* -1 = by strategy */
    enum strategy strategy;
    float threshold;
    int context_limit, vocab_size, n_layers;  /* of the target */
    const struct end_ids *ends;               /* of its texts; NULL = none */
    const struct sampling_defaults *sampling; /* of its texts; NULL = none */
    bool has_draft;
    int siblings_max;                  /* of each guess of planned sequences */
    bool grows;                        /* a draft model may guess after siblings of these */
    const struct tree_widths *tree;    /* of sequences of strategy fixed; NULL: chains. Kept */
    bool has_chains;                   /* `tree` is independent chains */
    const struct tree_rule *tree_rule; /* of requests that name none; NULL = auto */
    bool follows_q, tree_follows_q;    /* which guesses grow is chosen by the draft's q: of planned
                                         sequences, and in `tree` */
};

/* K of requests that do not say, where the coordinator's own option is n_draft (-1: it has
 * none). */
int sequence_default_k(enum strategy strategy, int n_draft);

/* Sequence `index` of a job, which holds a share of it from now on. Errors: ERR_ARGUMENT with what
 * is wrong with the request, ERR_NO_MEMORY. */
int sequence_open(struct sequence **seq, struct job *job, int index, const struct tokenizer *tok,
                  const struct sequence_defaults *defaults, struct error *err);
/* Frees it, and the job with its last sequence. It has no place any more. Accepts NULL. */
void sequence_close(struct sequence *seq);

/* The memory of its tokens, when it gets a place for the first time. Errors: ERR_NO_MEMORY. */
int sequence_open_tokens(struct sequence *seq, int block_tokens, struct error *err);
/* The place is the sequence's: what it reuses and how long it waited is noted. */
void sequence_admit(struct sequence *seq);
/* Tokens of the prompt that a draft model has read, the one that has read most. */
int sequence_draft_reused(const struct sequence *seq);

/* Takes over what others have published of the first n_most tokens of its text since it got its
 * place, as long as it has computed nothing of its own. */
void sequence_reuse(struct sequence *seq, struct block_pool *target_pool, int n_most);

/* True if the rows of its prompt are wanted, too: then the target must read all of it. */
bool sequence_scores_prompt(const struct sequence *seq);

/* The target's features that its request asks for, of the tokens of its prompt; NULL: none. */
const struct feature_wish *sequence_features(const struct sequence *seq);

/* True if guesses for it must not come from texts that were made here. */
bool sequence_ignores_texts(const struct sequence *seq);

/* The tokens that a round adds to a sequence. */
struct commit {
    const int32_t *ids; /* [n] */
    const enum token_origin *origins;
    int n;
    int32_t rejected;                     /* the guess that was rejected in this round, -1 = none */
    int rejected_at;                      /* of the ids the one that took its place */
    const struct token_logprob *logprobs; /* [n]; NULL = not asked for */
    const struct generate_round *round;   /* NULL = not asked for */
};

/* Commits the tokens and streams what may be seen. Stops at an end of sequence, a stop string or
 * the limit: then finish_reason is set and the tokens after it are dropped. Errors: those of
 * reply_ops.tokens. */
int sequence_commit(struct sequence *seq, const struct commit *commit, const struct tokenizer *tok,
                    struct error *err);

/* Sends the summary; with the job's last sequence, the answer ends. */
void sequence_finish(struct sequence *seq, const char *arithmetic, const struct planner *planner);

/* Ends the answer of the whole job with an error. */
void sequence_fail(struct sequence *seq, enum job_end end, const struct error *why);
