/* The draft of the tales pair on one thread, and a sequence that begins with a short prompt. */
#pragma once

#include "coordinator/draft/drafter.h"
#include "coordinator/sequence.h"
#include "tests/support/check_util.h"

static const struct end_ids no_ends;

#define DRAFT SOURCE_DIR "/deploy/models/tales/draft"

enum { CAPACITY = 256, K = 4 };

static const int32_t prompt[] = {2174, 708, 262, 515, 434, 311, 262, 486, 391, 342, 729, 2240, 15};
enum { N_PROMPT = sizeof prompt / sizeof *prompt };

struct bench {
    struct tokenizer *tok;
    struct drafter *drafter;
    struct sequence seq;
    struct arena arena;
};

static void setup(struct bench *b, enum accept_rule rule, float temperature)
{
    struct error err;
    const struct drafter_options options = {
        .name = DRAFT,
        .backend = {.device = "cpu", .weights = "bf16", .kernels = "auto", .n_threads = 1},
        .n_sequences = 1,
        .support = 64,
        .kv_tokens = CAPACITY};
    CHECK_OK(tokenizer_open(&b->tok, DRAFT, &err));
    CHECK_OK(drafter_open(&b->drafter, &options, b->tok, &err));
    CHECK_OK(sequence_open(&b->seq, 0, CAPACITY, 1, &err));
    CHECK_OK(arena_open(&b->arena, 1 << 20, &err));
    b->seq.rule = &accept_rules[rule];
    b->seq.sampling = (struct sampling_params){.temperature = temperature, .top_p = 1.0f};
    memcpy(b->seq.tokens, prompt, sizeof prompt);
    b->seq.n_tokens = b->seq.n_prompt = N_PROMPT;
}

/* Guesses in one lane until there are k. */
static void propose_k(struct bench *b, int k, const struct end_ids *ends, struct draft *draft)
{
    struct draft_lane lane = {&b->seq, k, ends, draft, {0}};
    drafter_propose(b->drafter, &lane, 1, &b->arena);
    ck_assert_msg(lane.err.code == 0, "%s", lane.err.text);
}

static void teardown(struct bench *b)
{
    sequence_close(&b->seq);
    drafter_close(b->drafter);
    tokenizer_close(b->tok);
    arena_close(&b->arena);
}
