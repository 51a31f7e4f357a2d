/* A finder of counted texts with sequences, without an engine. */
#pragma once

#include "coordinator/draft/drafters.h"
#include "tests/support/sequence_world.h"

#define DRAFT SOURCE_DIR "/deploy/models/tales/draft"

enum { CAPACITY = 1024, BLOCK = 16, SLOTS = 3, K = 8, VOCAB = 4096 };

static const struct end_ids no_ends;

struct bench {
    struct tokenizer *tok;
    struct block_pool pool;
    struct drafters drafters;
    struct drafter *finder;
    struct arena arena;
};

static inline void setup(struct bench *b, const char *lookup, bool is_shared)
{
    struct error err;
    *b = (struct bench){0};
    CHECK_OK(tokenizer_open(&b->tok, DRAFT, &err));
    CHECK_OK(block_pool_open(&b->pool, SLOTS * CAPACITY / BLOCK, BLOCK, &err));
    const struct lookup_options options = {.lookup = lookup,
                                           .n_sequences = SLOTS,
                                           .store_tokens = 4096,
                                           .is_shared = is_shared,
                                           .tok = b->tok};
    CHECK_OK(drafters_open(&b->drafters, NULL, &options, &err));
    CHECK_OK(arena_open(&b->arena, 1 << 20, &err));
    drafters_set_vocabulary(&b->drafters, VOCAB);
    b->finder = b->drafters.finders[0]; /* NULL with "none" */
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
    const struct sequence_defaults defaults = {.n_draft = K,
                                               .strategy = STRATEGY_PLANNED,
                                               .context_limit = CAPACITY,
                                               .vocab_size = VOCAB,
                                               .has_draft = true};
    struct sequence *seq = first_sequence(new_job(JOB_GENERATE, tokens, n), b->tok, &defaults);
    seq->job->grant = key;
    CHECK_OK(sequence_place(seq, slot, &b->pool, &b->drafters, &err));
    b->finder->ops->study(b->finder, seq, 1);
    return seq;
}

static inline void take_away(struct bench *b, struct sequence *seq)
{
    sequence_displace(seq, &b->pool, &b->drafters);
    seq->job->grant = NULL; /* it is this test's */
    sequence_close(seq);
}
