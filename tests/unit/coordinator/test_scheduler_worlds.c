/* ctest: labels=quick libs=coordinator timeout=120 */
/* The scheduler under jobs that come, grow, pause, leave and end by chance, in small and large
 * worlds: every plan of tests/support/scheduler_world.h is sound, and every sequence ends. */
#include <stdio.h>

#include "coordinator/draft/trees_option.h"
#include "tests/support/scheduler_world.h"

enum {
    N_JOBS = 150,
    ROUNDS_MAX = 60000,
    /* Rounds that a sequence with a place and a reader may have to wait, because older ones have
     * the draft's KV or the step's room for prompts; and the oldest of all. */
    IDLE_MAX = 600,
    OLDEST_IDLE_MAX = 16,
    /* Plans in a row without anybody: those whose turn it was have no room in the draft's KV. */
    EMPTY_MAX = 2
};

static const struct {
    struct world_options options;
    int longest_prompt, longest_text, k_max; /* k_max 0: nobody guesses */
    int arrivals;                            /* one in so many rounds */
    int percent;                             /* of guesses stay */
    const char *lookup;                      /* NULL = none */
    int row_us;                              /* that a row adds to a step */
    bool grows;                              /* rows are so cheap that guesses after siblings pay */
} worlds[] = {
    {{512, 256, 4096, 4096, 64}, 900, 100, 8, 1, 70, NULL, WORLD_ROW_US, false},
    {{64, 64, 512, 512, 64}, 200, 60, 8, 1, 60, NULL, WORLD_ROW_US, false},
    {{64, 20, 64, 40, 16}, 300, 80, 16, 2, 80, NULL, WORLD_ROW_US, false},
    {{64, 64, 40, 64, 16}, 300, 200, 4, 2, 50, NULL, WORLD_ROW_US, false},
    {{20, 20, 30, 20, 8}, 100, 60, 16, 6, 90, NULL, WORLD_ROW_US, false},
    {{17, 17, 64, 64, 8}, 200, 60, 16, 6, 50, NULL, WORLD_ROW_US, false},
    /* the draft's pool is the small one */
    {{512, 64, 128, 12, 32}, 150, 60, 8, 2, 60, NULL, WORLD_ROW_US, false},
    {{64, 64, 24, 0, 16}, 200, 100, 0, 2, 0, NULL, WORLD_ROW_US, false},
    {{512, 512, 70, 70, 128}, 600, 100, 8, 1, 60, NULL, WORLD_ROW_US, false},
    {{3, 2, 20, 20, 4}, 40, 20, 8, 20, 50, NULL, WORLD_ROW_US, false},
    /* guesses are looked up, too, or only looked up */
    {{512, 256, 4096, 4096, 64}, 900, 100, 8, 1, 70, "session", WORLD_ROW_US, false},
    {{64, 64, 40, 0, 16}, 300, 200, 8, 2, 60, "session", WORLD_ROW_US, false},
    {{64, 20, 64, 40, 16}, 300, 80, 16, 2, 80, "session", WORLD_ROW_US, false},
    /* rows cost next to nothing, and so do trees */
    {{512, 256, 512, 512, 8}, 200, 100, 8, 4, 60, NULL, 10, true},
    {{64, 40, 64, 40, 4}, 200, 100, 16, 6, 60, NULL, 10, true},
    {{40, 64, 30, 40, 4}, 200, 100, 8, 8, 60, NULL, 10, true},
    {{64, 64, 64, 64, 4}, 200, 100, 8, 6, 60, "session", 10, true},
};

static const struct tree_widths trees[] = {{.n = 3, .widths = {3, 2, 1}},
                                           {.n = 2, .widths = {2, 4}},
                                           {.n = 4, .widths = {1, 2, 2, 2}},
                                           {.n = 2, .widths = {4, 1}, .is_independent = true}};

static void add_any(struct world *w, int i)
{
    static const enum strategy strategies[] = {STRATEGY_PLANNED, STRATEGY_FIXED, STRATEGY_HEURISTIC,
                                               STRATEGY_THRESHOLD};
    bool is_long = world_dice(w, 3) == 0;
    struct world_job job = {
        .n_prompt = 2 + world_dice(w, is_long ? worlds[i].longest_prompt : 70),
        .max_tokens = 1 + world_dice(w, worlds[i].longest_text),
        .strategy = strategies[world_dice(w, 4)],
        .n_draft = worlds[i].k_max ? world_dice(w, worlds[i].k_max + 1) : 0,
        .is_score = world_dice(w, 6) == 0,
        .is_echo = world_dice(w, 6) == 0,
        .text = (uint32_t)world_dice(w, 40),
    };
    if (world_dice(w, 4) < (worlds[i].grows ? 3 : 2)) {
        job.siblings_max = 1 + world_dice(w, SIBLINGS_MAX);
        job.grows = true;
        job.follows_q = world_dice(w, 2) > 0;
        job.tree = &trees[world_dice(w, (int)(sizeof trees / sizeof *trees))];
    }
    /* The gateway refuses what could never fit. */
    int most = worlds[i].options.n_blocks * WORLD_BLOCK - job.max_tokens;
    if (job.n_prompt > most) job.n_prompt = most;
    world_add(w, &job);
}

static void disturb(struct world *w)
{
    for (int i = 0; i < w->n_active; i++) {
        struct sequence *seq = w->active[i];
        if (seq->backpressure.slow_us && world_dice(w, 10) == 0) {
            seq->backpressure.slow_us = 0;
        } else if (world_dice(w, 300) == 0) {
            seq->backpressure.slow_us = 1;
        } else if (world_dice(w, 1000) == 0) {
            world_end(w, seq);
        }
    }
}

static bool is_anybody_there(const struct world *w)
{
    for (int i = 0; i < w->n_active; i++) {
        if (!w->active[i]->backpressure.slow_us) return true;
    }
    return false;
}

START_TEST(every_sequence_ends)
{
    static struct world w;
    int i = _i / 3, n_added = 0, n_rounds = 0, n_guesses = 0, n_empty = 0, n_append = 0;
    world_open_with(&w, &worlds[i].options, worlds[i].lookup ? worlds[i].lookup : "none");
    w.chance = 77u + (uint32_t)_i;
    w.row_us = worlds[i].row_us;
    w.scheduler.append_max = _i % 3 * 4;
    while (w.n_ended < N_JOBS) {
        if (n_added < N_JOBS && world_dice(&w, worlds[i].arrivals) == 0) {
            add_any(&w, i);
            n_added++;
        }
        disturb(&w);
        world_admit(&w);
        bool must_go_on = is_anybody_there(&w);
        world_plan(&w);
        bool goes_on = w.plan.n_lanes > 0 || w.plan.n_readings > 0;
        n_empty = must_go_on && !goes_on ? n_empty + 1 : 0;
        ck_assert(n_empty <= EMPTY_MAX);
        for (int l = 0; l < w.plan.n_lanes; l++) {
            n_guesses += lane_plan_k(&w.plan.lanes[l]);
            n_append += plan_n_append(&w.plan.lanes[l]);
        }
        world_play(&w, worlds[i].percent);
        ck_assert(w.longest_idle < IDLE_MAX && w.longest_oldest_idle < OLDEST_IDLE_MAX);
        ck_assert(++n_rounds < ROUNDS_MAX);
    }
    printf("world %d: %d rounds, %d guesses and room for %d more, after siblings %d planned and "
           "%d in fixed trees, of which %d stayed, %d trees that follow q, %d evictions, without a "
           "share %d rounds at most, the oldest %d\n",
           i, n_rounds, n_guesses, n_append, w.n_grown, w.n_grown_fixed, w.n_grown_kept, w.n_shaped,
           w.n_evictions, w.longest_idle, w.longest_oldest_idle);
    ck_assert(worlds[i].k_max == 0 || n_guesses > 0);
    ck_assert(!worlds[i].grows || (w.n_grown > 0 && w.n_grown_fixed > 0 && w.n_grown_kept > 0));
    ck_assert(!worlds[i].grows || w.n_shaped > 0);
    world_close(&w);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scheduler_worlds");
    TCase *tcase = tcase_create("by chance");
    tcase_set_timeout(tcase, 280);
    tcase_add_loop_test(tcase, every_sequence_ends, 0, 3 * (int)(sizeof worlds / sizeof *worlds));
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
