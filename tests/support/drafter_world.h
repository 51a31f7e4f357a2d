/* The draft of the tales pair on one thread, and sequences that begin with a short prompt. */
#pragma once

#include "coordinator/draft/drafters.h"
#include "coordinator/draft/options.h"
#include "coordinator/schedule/places.h"
#include "tests/support/sequence_world.h"

static const struct end_ids no_ends;

#define DRAFT SOURCE_DIR "/deploy/models/tales/draft"

enum { CAPACITY = 256, SLOTS = 8, K = 4 };

static const int32_t prompt[] = {2174, 708, 262, 515, 434, 311, 262, 486, 391, 342, 729, 2240, 15};
enum { N_PROMPT = sizeof prompt / sizeof *prompt };

struct bench {
    struct tokenizer *tok;
    struct drafter *drafter;
    struct drafters drafters;      /* it alone */
    struct block_pool target_pool; /* of no target; sequences have places in it */
    struct sequence *seq;          /* in slot 0 */
    struct arena arena;
};

/* A sequence in a place of its own, with a text of n tokens of which one is not read. */
static inline struct sequence *place_text(struct bench *b, int slot, const int32_t *text, int n)
{
    struct error err;
    const struct sequence_defaults defaults = {.n_draft = K,
                                               .strategy = STRATEGY_FIXED,
                                               .context_limit = CAPACITY,
                                               .vocab_size = tokenizer_vocab_size(b->tok),
                                               .has_draft = true};
    struct sequence *seq = first_sequence(new_job(JOB_GENERATE, text, n), b->tok, &defaults);
    CHECK_OK(places_give(seq, slot, &b->target_pool, &b->drafters, &err));
    return seq;
}

static inline void take_away(struct bench *b, struct sequence *seq)
{
    places_withdraw(seq, &b->target_pool, &b->drafters);
    sequence_close(seq);
}

static inline void setup_draft(struct bench *b, const struct drafter_options *options)
{
    struct error err;
    CHECK_OK(tokenizer_open(&b->tok, DRAFT, &err));
    CHECK_OK(drafter_open(&b->drafter, options, b->tok, &err));
    b->drafters = (struct drafters){.n_models = 1, .models = {b->drafter}};
    CHECK_OK(block_pool_open(&b->target_pool, SLOTS * CAPACITY / 16, 16, &err));
    CHECK_OK(arena_open(&b->arena, 4 << 20, &err));
}

static inline void follow(struct sequence *seq, enum accept_rule rule, float temperature)
{
    seq->rule = &accept_rules[rule];
    seq->sampling = (struct sampling_params){.temperature = temperature, .top_p = 1.0f};
}

static inline void setup_support(struct bench *b, enum accept_rule rule, float temperature,
                                 int support)
{
    const struct drafter_options options = {
        .name = DRAFT,
        .backend = {.device = "cpu", .weights = "bf16", .kernels = "auto", .n_threads = 1},
        .n_sequences = SLOTS,
        .support = support,
        .kv_tokens = SLOTS * CAPACITY};
    setup_draft(b, &options);
    b->seq = place_text(b, 0, prompt, N_PROMPT);
    follow(b->seq, rule, temperature);
}

static inline void setup(struct bench *b, enum accept_rule rule, float temperature)
{
    setup_support(b, rule, temperature, 64);
}

/* Guesses in one lane until there are k. */
static inline void propose_k(struct bench *b, int k, const struct end_ids *ends,
                             struct guess_tree *draft)
{
    struct draft_lane lane = {.seq = b->seq, .k = k, .ends = ends, .draft = draft};
    struct draft_cost cost;
    drafter_propose(b->drafter, &lane, 1, &b->arena, &cost);
    ck_assert_msg(lane.err.code == 0, "%s", lane.err.text);
}

static inline void teardown(struct bench *b)
{
    if (b->seq) take_away(b, b->seq);
    block_pool_close(&b->target_pool);
    drafter_close(b->drafter);
    tokenizer_close(b->tok);
    arena_close(&b->arena);
}
