/* One sequence: its tokens, how far each model has read them, and what its request asked for. Each
 * model is fed tokens[counter ..), so a counter that is set back is all that it takes to discard
 * guesses (docs/design.md section 3). Owned by the engine thread. */
#pragma once

#include "base/end_ids.h"
#include "base/histogram.h"
#include "coordinator/blocks.h"
#include "coordinator/job.h"
#include "coordinator/output.h"
#include "speculation/planner.h"
#include "speculation/rule.h"

struct drafter;

struct sequence {
    bool is_active;
    int slot;
    struct job *job; /* owned */
    char request_id[64];

    int32_t *tokens; /* [capacity] prompt, then committed tokens, then room for guesses */
    int n_tokens, n_prompt, capacity;
    int n_target_kv, n_draft_kv; /* tokens that the target and the draft have read */
    int n_counted;               /* tokens that served_tokens knows of */
    struct block_table target_blocks;
    int n_blocks_sent; /* entries of target_blocks that the workers have */

    struct sampling_params sampling;
    const struct rule *rule;
    uint64_t seed;
    int n_draft; /* K of strategy fixed, the most of others */
    struct planner_sequence planner_state;
    float threshold;             /* of strategy threshold, otherwise 0 */
    int end;                     /* n_tokens never exceeds this: max_tokens or the context */
    const char *speculation_off; /* why it has no guesses; "" = it may have */

    struct output output;
    const char *finish_reason; /* NULL while it runs */
    struct generate_counters counters;
    struct histogram overhead; /* of a round: wall less draft, compute and collective */
    int64_t admitted_us, first_token_us;
};

/* Memory for sequences of up to `capacity` tokens in n_blocks of the target. */
int sequence_open(struct sequence *seq, int slot, int capacity, int n_blocks, struct error *err);
void sequence_close(struct sequence *seq);

/* What the engine was started with and a request may change. */
struct sequence_defaults {
    int n_draft; /* -1 = by strategy */
    enum strategy strategy;
    float threshold;
    int context_limit, vocab_size; /* of the target */
    bool has_draft;
};

/* K of requests that do not say, where the coordinator's own option is n_draft (-1: it has
 * none). */
int sequence_default_k(enum strategy strategy, int n_draft);

/* Takes the job over; on failure it stays the caller's. Errors: ERR_ARGUMENT with what is wrong. */
int sequence_begin(struct sequence *seq, struct job *job, const struct tokenizer *tok,
                   const struct sequence_defaults *defaults, struct error *err);

/* What a round adds to a sequence. */
struct commit {
    const int32_t *ids; /* [n] */
    const enum token_origin *origins;
    int n;
    int32_t rejected; /* the guess that was rejected in this round, -1 = none */
};

/* Commits the tokens and streams what may be seen. Stops at an end of sequence, a stop string or
 * the limit: then finish_reason is set and the tokens behind are dropped. Errors: those of
 * reply_ops.tokens. */
int sequence_commit(struct sequence *seq, const struct commit *commit, const struct tokenizer *tok,
                    const struct end_ids *ends, struct error *err);

/* Sends the summary and ends the answer. */
void sequence_finish(struct sequence *seq, const char *arithmetic, const struct planner *planner);

/* Ends the answer with an error. */
void sequence_fail(struct sequence *seq, const struct error *why);

/* The slot is free again; blocks go back to their pool. drafter: NULL = none. */
void sequence_end(struct sequence *seq, struct block_pool *target_pool, struct drafter *drafter);
