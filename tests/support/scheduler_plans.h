/* Plans of one world for sequences in chosen states, for tests that look at single plans. */
#pragma once

#include "tests/support/scheduler_world.h"

enum { ALL_STAY = 100, NONE_STAYS = 0 };

static struct world w;

static const struct world_options large = {512, 256, 1024, 1024, 64};

static inline struct sequence *add(int n_prompt, int max_tokens, enum strategy strategy,
                                   int n_draft)
{
    static uint32_t text = 100;
    const struct world_job job = {.n_prompt = n_prompt,
                                  .max_tokens = max_tokens,
                                  .strategy = strategy,
                                  .n_draft = n_draft,
                                  .text = text++};
    return world_add(&w, &job);
}

/* n sequences that have read their prompts and committed their first tokens. */
static inline void begin_decoding(int n, enum strategy strategy, int n_draft)
{
    struct sequence *last = NULL;
    for (int i = 0; i < n; i++) {
        last = add(8, 400, strategy, n_draft);
    }
    while (n > 0 && last->n_tokens == last->n_prompt) {
        world_round(&w, NONE_STAYS);
    }
    ck_assert(w.n_active == n && w.n_waiting == 0);
}

static inline void plan_now(void)
{
    world_admit(&w);
    world_plan(&w);
}

static inline int tokens_of(const struct sequence *seq)
{
    const struct lane_plan *lane = world_lane(&w, seq);
    return lane ? lane->n_tokens : 0;
}

/* Then prompts have the least room, beside decoding lanes and without them. */
static inline void forget_times(void)
{
    memset(&w.planner, 0, sizeof w.planner);
}

/* All that is known: a step of n rows takes so long, and so much more for each row. */
static inline void teach_steps(int us, int row_us)
{
    forget_times();
    for (int n = 1; n <= 512; n *= 2) {
        planner_calibrate_step(&w.planner, n, us + row_us * n);
        planner_calibrate_draft(&w.planner, 0, n, 1000);
    }
}
