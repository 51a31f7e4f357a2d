/* The worlds of the acceptance tests: the usual cases first, then the edges of docs/design.md
 * section 6. */
#pragma once

#include "tests/support/accept_world.h"

#define SAMPLE(t)                      \
    {                                  \
        .temperature = (t), .top_p = 1 \
    }

static void disjoint(float *p_logits, float *q_logits)
{
    for (int i = 0; i < 3; i++) {
        p_logits[i] = -INFINITY;
        q_logits[i + 3] = -INFINITY;
    }
}

static void masked_tail(float *p_logits, float *q_logits)
{
    (void)q_logits;
    for (int i = 70; i < 90; i++) {
        p_logits[i] = -INFINITY;
    }
}

static void equal(float *p_logits, float *q_logits)
{
    memcpy(q_logits, p_logits, WORLD_VOCAB * sizeof *p_logits);
}

/* Tokens and probabilities of the paper's example: p = (1/3, 2/3), q = (2/3, 1/3) everywhere. */
static void paper_example(float *p_logits, float *q_logits)
{
    p_logits[0] = q_logits[1] = 0;
    p_logits[1] = q_logits[0] = 0.693147181f;
}

static struct world worlds[] = {
    {.name = "small",
     .n_vocab = 5,
     .n_slices = 1,
     .n_draft = 2,
     .support = 5,
     .target = SAMPLE(1),
     .draft = SAMPLE(1),
     .spread = 1,
     .noise = 1},
    {.name = "narrow q",
     .n_vocab = 6,
     .n_slices = 1,
     .n_draft = 2,
     .support = 3,
     .target = SAMPLE(0.7f),
     .draft = SAMPLE(1.2f),
     .spread = 0.8,
     .noise = 0.8},
    {.name = "medium",
     .n_vocab = 150,
     .n_slices = 8,
     .n_draft = 2,
     .support = 16,
     .target = SAMPLE(0.8f),
     .draft = SAMPLE(0.8f),
     .spread = 1.6,
     .noise = 0.7},
    {.name = "cut",
     .n_vocab = 150,
     .n_slices = 2,
     .n_draft = 2,
     .support = 64,
     .target = {.temperature = 0.9f, .top_k = 20, .top_p = 0.9f, .min_p = 0.02f},
     .draft = {.temperature = 0.9f, .top_k = 25, .top_p = 0.95f},
     .spread = 1.2,
     .noise = 0.6},
    {.name = "three guesses",
     .n_vocab = 4,
     .n_slices = 1,
     .n_draft = 3,
     .support = 3,
     .target = SAMPLE(1),
     .draft = SAMPLE(1),
     .spread = 0.7,
     .noise = 0.7},
    {.name = "disjoint",
     .n_vocab = 6,
     .n_slices = 1,
     .n_draft = 2,
     .support = 6,
     .target = SAMPLE(1),
     .draft = SAMPLE(1),
     .spread = 1,
     .noise = 1,
     .shape = disjoint},
    {.name = "q one-hot",
     .n_vocab = 6,
     .n_slices = 1,
     .n_draft = 2,
     .support = 6,
     .target = SAMPLE(1),
     .draft = SAMPLE(0),
     .spread = 0.5,
     .noise = 0.5},
    {.name = "p one-hot",
     .n_vocab = 6,
     .n_slices = 1,
     .n_draft = 2,
     .support = 6,
     .target = SAMPLE(0),
     .draft = SAMPLE(1),
     .spread = 1,
     .noise = 0.2},
    {.name = "p = q",
     .n_vocab = 6,
     .n_slices = 1,
     .n_draft = 2,
     .support = 6,
     .target = SAMPLE(1),
     .draft = SAMPLE(1),
     .spread = 1,
     .shape = equal},
    {.name = "p = q cut",
     .n_vocab = 100,
     .n_slices = 2,
     .n_draft = 2,
     .support = 64,
     .target = {.temperature = 1, .top_k = 6, .top_p = 1},
     .draft = {.temperature = 1, .top_k = 6, .top_p = 1},
     .spread = 0.4,
     .shape = equal},
    {.name = "masked tail",
     .n_vocab = 90,
     .n_slices = 2,
     .n_draft = 2,
     .support = 64,
     .target = SAMPLE(1),
     .draft = SAMPLE(1),
     .spread = 1.2,
     .noise = 0.5,
     .shape = masked_tail},
    {.name = "longer draft table",
     .n_vocab = 5,
     .n_slices = 1,
     .n_draft = 2,
     .n_draft_vocab = 8,
     .support = 7,
     .target = SAMPLE(1),
     .draft = SAMPLE(1),
     .spread = 1,
     .noise = 0.5},
    {.name = "plain (K = 0)",
     .n_vocab = 80,
     .n_slices = 2,
     .n_draft = 0,
     .support = 8,
     .target = SAMPLE(1),
     .draft = SAMPLE(1),
     .spread = 1.2,
     .noise = 0.5},
    {.name = "paper's example",
     .n_vocab = 2,
     .n_slices = 1,
     .n_draft = 2,
     .support = 2,
     .target = SAMPLE(1),
     .draft = SAMPLE(1),
     .shape = paper_example},
};
enum { N_WORLDS = sizeof worlds / sizeof *worlds, N_MAIN_WORLDS = 5 };
