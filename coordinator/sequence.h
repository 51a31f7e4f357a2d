/* One sequence: a plain record of counters, the tokens committed so far and what hangs on them.
 * Position is the truth (docs/design.md section 3): each model is fed tokens[counter..]. */
#pragma once

#include "base/end_ids.h"
#include "base/histogram.h"
#include "coordinator/blocks.h"
#include "coordinator/job.h"
#include "coordinator/output.h"
#include "speculation/planner.h"
#include "speculation/target_row.h"

struct sequence {
    bool is_active;
    int slot;
    struct job *job; /* owned */
    char request_id[64];

    int32_t *tokens; /* [capacity] prompt, then committed tokens, then room for guesses */
    int n_tokens, n_prompt, capacity;
    int n_target_kv, n_draft_kv;
    int n_counted; /* tokens that traffic knows of */
    struct block_table target_blocks, draft_blocks;
    int n_blocks_sent; /* entries of target_blocks that the workers have */

    struct sampling_params sampling;
    enum accept_rule rule;
    uint64_t seed;
    int n_draft; /* K of strategy fixed, the most of others */
    struct planner_sequence plan;
    float threshold; /* of strategy threshold, otherwise 0 */
    int end;         /* n_tokens never exceeds this: max_tokens or the context */
    const char *speculation_off;

    struct output output;
    const char *finish_reason; /* NULL while it runs */
    struct generate_counters counters;
    struct histogram overhead; /* of a round: wall less draft, compute and collective */
    int64_t admitted_us, first_token_us;
};

/* Memory for sequences of up to `capacity` tokens. */
int sequence_open(struct sequence *seq, int slot, int capacity, int target_table, int draft_table,
                  struct error *err);
void sequence_close(struct sequence *seq);

/* What the engine was started with and a request may change. */
struct sequence_defaults {
    int n_draft; /* -1 = by strategy */
    enum strategy strategy;
    float threshold;
    int context_limit, vocab_size; /* of the target */
    bool has_draft;
};

/* K of requests that do not say, where the coordinator's own option is n_draft (-1: it has none). */
int sequence_default_k(enum strategy strategy, int n_draft);

/* Takes job over (also on failure it stays the caller's). Errors: ERR_ARGUMENT with what is wrong. */
int sequence_begin(struct sequence *seq, struct job *job, const struct tokenizer *tok,
                   const struct sequence_defaults *defaults, struct error *err);

/* Commits ids[n] with their origins: stops at end of sequence, a stop string or the limit (then
 * finish_reason is set and what is left is dropped), and streams what may be seen.
 * rejected: the guess that was rejected in this round, -1 = none.
 * Errors: ERR_CANCELLED the client is gone, ERR_EXHAUSTED it does not read. */
int sequence_commit(struct sequence *seq, const int32_t *ids, const enum token_origin *origins,
                    int n, int32_t rejected, const struct tokenizer *tok,
                    const struct end_ids *ends, struct buffer *scratch, struct error *err);

/* Sends the summary and ends the call. */
void sequence_finish(struct sequence *seq, const char *arithmetic, const struct planner *planner,
                     struct buffer *scratch);

/* Ends the call with an error. */
void sequence_fail(struct sequence *seq, const struct error *why);

/* The slot is free again; blocks go back to their pools. */
void sequence_end(struct sequence *seq, struct block_pool *target_pool,
                  struct block_pool *draft_pool);
