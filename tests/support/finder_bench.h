/* A finder with sequences, without an engine. */
#pragma once

#include "coordinator/draft/drafters.h"
#include "coordinator/schedule/places.h"
#include "tests/support/sequence_world.h"

#define DRAFT SOURCE_DIR "/deploy/models/tales/draft"

enum { CAPACITY = 1024, BLOCK = 16, SLOTS = 3, K = 8, VOCAB = 4096 };

static const struct end_ids no_ends;

/* The folder of look-ahead embeddings of the benches that are set up next; NULL: none. */
static const char *bench_look_ahead;

struct bench {
    struct tokenizer *tok;
    struct block_pool pool;
    struct drafters drafters;
    struct drafter *finder;
    struct arena arena;
    struct sequence_defaults defaults; /* of each sequence that is placed from now on */
};

/* capacity: tokens that each slot has room for. */
static inline void setup_with_room(struct bench *b, const char *lookup, bool is_shared,
                                   int capacity)
{
    struct error err;
    *b = (struct bench){.defaults = {.n_draft = K,
                                     .strategy = STRATEGY_PLANNED,
                                     .context_limit = capacity,
                                     .vocab_size = VOCAB,
                                     .has_draft = true}};
    CHECK_OK(tokenizer_open(&b->tok, DRAFT, &err));
    CHECK_OK(block_pool_open(&b->pool, SLOTS * capacity / BLOCK, BLOCK, &err));
    const struct lookup_options options = {.lookup = lookup,
                                           .n_sequences = SLOTS,
                                           .store_tokens = 4096,
                                           .is_shared = is_shared,
                                           .look_ahead = bench_look_ahead,
                                           .tok = b->tok};
    CHECK_OK(drafters_open(&b->drafters, NULL, &options, &err));
    CHECK_OK(arena_open(&b->arena, 1 << 20, &err));
    drafters_set_vocabulary(&b->drafters, VOCAB);
    b->finder = b->drafters.finders[0]; /* NULL with "none" */
}

static inline void setup(struct bench *b, const char *lookup, bool is_shared)
{
    setup_with_room(b, lookup, is_shared, CAPACITY);
}

static inline void teardown(struct bench *b)
{
    arena_close(&b->arena);
    drafters_close(&b->drafters);
    block_pool_close(&b->pool);
    tokenizer_close(b->tok);
}

/* key: NULL = the request came without one. */
static inline struct sequence *place(struct bench *b, int slot, struct grant *key,
                                     const int32_t *tokens, int n)
{
    struct error err;
    struct sequence *seq = first_sequence(new_job(JOB_GENERATE, tokens, n), b->tok, &b->defaults);
    seq->job->grant = key;
    CHECK_OK(places_give(seq, slot, &b->pool, &b->drafters, &err));
    return seq;
}

/* One that the finder has read all of. */
static inline struct sequence *place_studied(struct bench *b, int slot, struct grant *key,
                                             const int32_t *tokens, int n)
{
    struct sequence *seq = place(b, slot, key, tokens, n);
    ck_assert_int_eq(lookup_read(b->finder, seq, n), 0);
    return seq;
}

static inline void take_away(struct bench *b, struct sequence *seq)
{
    places_withdraw(seq, &b->pool, &b->drafters);
    seq->job->grant = NULL; /* it is the test's */
    sequence_close(seq);
}

/* At most k guesses without siblings; returns how many there are. */
static inline int propose_chain(struct bench *b, struct sequence *seq, int k,
                                const struct end_ids *ends, struct guess_tree *draft)
{
    struct draft_cost cost;
    *draft = (struct guess_tree){.base = seq->n_tokens};
    struct draft_lane lane = {.seq = seq, .k = k, .ends = ends, .draft = draft, .siblings_max = 0};
    arena_reset(&b->arena);
    drafter_propose(b->finder, &lane, 1, &b->arena, &cost);
    ck_assert_msg(lane.err.code == 0, "%s", lane.err.text);
    return draft->n_chain;
}
