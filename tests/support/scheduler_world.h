/* Sequences under the scheduler, without models: after every plan the world counts tokens as a
 * round would, takes and publishes KV blocks in real pools, and moves evicted sequences back to the
 * queue as the engine does. Every plan is checked against what must hold for any of them. */
#pragma once

#include "base/least.h"
#include "coordinator/draft/options.h"
#include "coordinator/draft/trees_option.h"
#include "coordinator/kv/prefix_cache.h"
#include "coordinator/schedule/places.h"
#include "coordinator/schedule/scheduler.h"
#include "tests/support/guess_shapes.h"
#include "tests/support/plan_tree.h"
#include "tests/support/sequence_world.h"

#define WORLD_DRAFT SOURCE_DIR "/deploy/models/tales/draft"

enum {
    WORLD_BLOCK = 16,
    WORLD_CONTEXT = 1024,
    WORLD_VOCAB = 4096,
    WORLD_SEQUENCES_MAX = 512,
    WORLD_READ_MAX = 512, /* tokens that the draft reads in a round */
    WORLD_PERIOD = 11,    /* tokens after which a text repeats itself, where that is wanted */
    WORLD_ROW_US = 400
};

/* The folder of look-ahead embeddings of the worlds that are opened next; NULL: none. */
static const char *world_look_ahead;

struct world_options {
    int max_step_tokens, max_step_rows, n_blocks;
    int n_draft_blocks; /* 0 = no draft */
    int n_places;
};

struct world {
    struct world_options options;
    bool has_finders;
    struct tokenizer *tok;
    struct target_description target;
    struct block_pool pool;
    struct drafter *drafter;
    struct drafters drafters; /* it, and finders */
    struct planner planner;
    struct scheduler scheduler;
    struct round_plan plan;
    struct sequence *active[SEQUENCES_MAX]; /* oldest first */
    struct sequence *waiting[WORLD_SEQUENCES_MAX];
    bool slots[SEQUENCES_MAX];
    int n_active, n_waiting, n_ended, n_evictions;
    uint32_t chance;
    uint64_t first_id;
    int idle[WORLD_SEQUENCES_MAX]; /* rounds since a sequence has got on, by id - first_id */
    uint64_t oldest_id;
    int longest_idle, oldest_idle, longest_oldest_idle;
    int row_us; /* that a row adds to a step */
    /* Guesses after siblings: of planned lanes, of those with a tree of their own, and of both the
     * ones that stayed. */
    int n_grown, n_grown_fixed, n_grown_kept;
    int n_shaped; /* trees that follow q and have another shape than planned */
};

static inline int world_dice(struct world *w, int n)
{
    w->chance = w->chance * 1664525u + 1013904223u;
    return (int)((w->chance >> 8) % (uint32_t)n);
}

/* lookup: as --lookup says; if not "none", texts repeat themselves. */
static inline void world_open_with(struct world *w, const struct world_options *options,
                                   const char *lookup)
{
    struct error err;
    *w = (struct world){.options = *options, .chance = 1, .row_us = WORLD_ROW_US};
    w->has_finders = strcmp(lookup, "none") != 0;
    w->target = (struct target_description){.n_slices = 8,
                                            .vocab_size = WORLD_VOCAB,
                                            .block_tokens = WORLD_BLOCK,
                                            .context_limit = WORLD_CONTEXT,
                                            .n_kv_blocks = options->n_blocks,
                                            .max_step_tokens = options->max_step_tokens,
                                            .max_step_rows = options->max_step_rows};
    CHECK_OK(tokenizer_open(&w->tok, WORLD_DRAFT, &err));
    CHECK_OK(block_pool_open(&w->pool, options->n_blocks, WORLD_BLOCK, &err));
    const struct drafter_options draft = {
        .name = WORLD_DRAFT,
        .backend = {.device = "cpu", .weights = "bf16", .kernels = "auto", .n_threads = 1},
        .n_sequences = options->n_places,
        .support = 16,
        .kv_tokens = options->n_draft_blocks * WORLD_BLOCK};
    if (options->n_draft_blocks) CHECK_OK(drafter_open(&w->drafter, &draft, w->tok, &err));
    const struct lookup_options lookups = {.lookup = lookup,
                                           .n_sequences = options->n_places,
                                           .store_tokens = 4096,
                                           .look_ahead = world_look_ahead,
                                           .tok = w->tok};
    CHECK_OK(drafters_open(&w->drafters, w->drafter, &lookups, &err));
    drafters_set_vocabulary(&w->drafters, WORLD_VOCAB);
    w->scheduler = (struct scheduler){.target = &w->target,
                                      .target_pool = &w->pool,
                                      .drafters = &w->drafters,
                                      .planner = &w->planner,
                                      .step_stretch = 2};
}

static inline void world_open(struct world *w, const struct world_options *options)
{
    world_open_with(w, options, "none");
}

/* ---- sequences ---- */

/* A test's request; 0 where it does not matter. */
struct world_job {
    int n_prompt, max_tokens;
    int n_draft; /* 0: none */
    enum strategy strategy;
    bool is_score, is_echo;
    uint32_t text; /* two jobs with the same one begin alike */
    /* As in struct sequence_defaults. */
    int siblings_max;
    bool grows;
    const struct tree_widths *tree;
    bool follows_q;
};

static inline int32_t world_token(uint32_t text, int position)
{
    uint32_t x = (text + 1) * 2654435761u ^ (uint32_t)position * 40503u;
    return (int32_t)(x >> 7) % WORLD_VOCAB;
}

/* Where guesses are looked up there is something to find. */
static inline int32_t world_text_token(const struct world *w, uint32_t text, int position)
{
    return world_token(text, w->has_finders ? position % WORLD_PERIOD : position);
}

/* A sequence that waits for a place. */
static inline struct sequence *world_add(struct world *w, const struct world_job *wanted)
{
    static int32_t prompt[WORLD_CONTEXT];
    const struct sequence_defaults defaults = {.n_draft = 0,
                                               .strategy = wanted->strategy,
                                               .context_limit = WORLD_CONTEXT,
                                               .vocab_size = WORLD_VOCAB,
                                               .has_draft = drafters_any(&w->drafters),
                                               .siblings_max = wanted->siblings_max,
                                               .grows = wanted->grows,
                                               .tree = wanted->tree,
                                               .follows_q = wanted->follows_q,
                                               .tree_follows_q = wanted->follows_q};
    for (int i = 0; i < wanted->n_prompt; i++) {
        prompt[i] = world_text_token(w, wanted->text, i);
    }
    struct job *job =
        new_job(wanted->is_score ? JOB_SCORE : JOB_GENERATE, prompt, wanted->n_prompt);
    job->generate.max_tokens = wanted->max_tokens;
    job->generate.n_draft = wanted->n_draft;
    job->generate.strategy = wanted->strategy;
    job->generate.echo = wanted->is_echo;
    if (wanted->is_echo) job->generate.logprobs = 0;
    struct sequence *seq = first_sequence(job, w->tok, &defaults);
    if (!w->first_id) w->first_id = seq->id;
    w->waiting[w->n_waiting++] = seq;
    return seq;
}

static inline int *world_idle(struct world *w, const struct sequence *seq)
{
    return &w->idle[seq->id - w->first_id];
}

static inline void world_leave(struct world *w, int at)
{
    for (; at + 1 < w->n_active; at++) {
        w->active[at] = w->active[at + 1];
    }
    w->n_active--;
}

/* The sequence is over, wherever it is. */
static inline void world_end(struct world *w, struct sequence *seq)
{
    int n = 0;
    for (int i = 0; i < w->n_waiting; i++) {
        if (w->waiting[i] != seq) w->waiting[n++] = w->waiting[i];
    }
    w->n_waiting = n;
    for (int i = w->n_active - 1; i >= 0; i--) {
        if (w->active[i] == seq) world_leave(w, i);
    }
    if (seq->slot >= 0) {
        w->slots[seq->slot] = false;
        places_withdraw(seq, &w->pool, &w->drafters);
    }
    sequence_close(seq);
    w->n_ended++;
}

/* Releases the blocks of tails: no guess of a window stays. */
static inline void world_release_tails(struct world *w)
{
    for (int i = 0; i < w->plan.n_tails; i++) {
        block_tails_release(&w->plan.tails[i], &w->pool);
    }
    w->plan.n_tails = 0;
}

static inline void world_close(struct world *w)
{
    world_release_tails(w);
    while (w->n_active) {
        world_end(w, w->active[0]);
    }
    while (w->n_waiting) {
        world_end(w, w->waiting[0]);
    }
    ck_assert_int_eq(block_pool_room(&w->pool), w->pool.n_blocks);
    if (w->drafter) {
        const struct draft_kv kv = drafter_kv(w->drafter);
        ck_assert_int_eq(kv.n_free + kv.n_cached, kv.n_blocks);
    }
    drafters_close(&w->drafters);
    drafter_close(w->drafter);
    block_pool_close(&w->pool);
    tokenizer_close(w->tok);
}

static inline void world_insert(struct world *w, struct sequence *seq)
{
    int at = w->n_active++;
    for (; at > 0 && w->active[at - 1]->id > seq->id; at--) {
        w->active[at] = w->active[at - 1];
    }
    w->active[at] = seq;
}

/* Gives places as the engine does. */
static inline void world_admit(struct world *w)
{
    while (w->n_active < w->options.n_places && w->n_waiting > 0) {
        struct sequence *seq = w->waiting[0];
        struct error err;
        int slot = 0;
        while (w->slots[slot]) {
            slot++;
        }
        CHECK_OK(places_give(seq, slot, &w->pool, &w->drafters, &err));
        int lacking = block_table_lacks(&seq->target_blocks, &w->pool, seq->n_tokens + 1);
        if (w->n_active > 0 && lacking + w->n_active > block_pool_room(&w->pool)) {
            places_withdraw(seq, &w->pool, &w->drafters);
            return;
        }
        sequence_admit(seq);
        w->slots[slot] = true;
        *world_idle(w, seq) = 0;
        memmove(w->waiting, w->waiting + 1, (size_t)--w->n_waiting * sizeof *w->waiting);
        world_insert(w, seq);
    }
}

/* ---- what holds for every plan ---- */

static inline const struct lane_plan *world_lane(const struct world *w, const struct sequence *seq)
{
    for (int i = 0; i < w->plan.n_lanes; i++) {
        if (w->plan.lanes[i].seq == seq) return &w->plan.lanes[i];
    }
    return NULL;
}

/* The most guesses of a sequence's next round, whatever other sequences there are. */
static inline int world_k_limit(const struct world *w, const struct sequence *seq)
{
    if (!drafters_any(&w->drafters) || seq->is_score || seq->n_draft == 0) return 0;
    bool is_first = seq->n_tokens == seq->n_prompt && seq->n_prompt > FIRST_GUESS_TOKENS;
    bool may_find = w->drafters.n_finders && seq->planner_state.strategy == STRATEGY_PLANNED;
    if (is_first && !may_find) return 0;
    int room = w->drafter && !may_find ? drafter_limit(w->drafter) - seq->n_tokens : DRAFT_MAX;
    int step = least(w->target.max_step_tokens, w->target.max_step_rows) - 1;
    room = least(least(room, seq->end - seq->n_tokens - 1), step);
    room = least(room, seq->n_draft);
    return room > 0 ? room : 0;
}

/* Guesses after siblings are the draft's, of lanes that may have them, and no deeper than a chain
 * may be; where there are no blocks for them there are none. */
static inline void world_check_growth(const struct world *w, const struct lane_plan *lane)
{
    const struct sequence *seq = lane->seq;
    const struct guess_tree *tree = &lane->tree;
    if (plan_n_grown(lane) == 0) return;
    ck_assert(lane->is_last && lane_plan_k(lane) > 0 && lane->tails && lane->drafter == w->drafter);
    ck_assert(plan_n_append(lane) == 0 && plan_n_branch(lane) == 0 && (seq->grows || seq->tree));
    for (int i = 0; i < tree->n; i++) {
        int parent = tree->parents[i];
        if (!(tree->marks[i] & GUESS_GROWN)) continue;
        ck_assert(parent < i && guess_tree_place(tree, i) < world_k_limit(w, seq));
        ck_assert(parent >= 0 && tree->marks[parent] & (GUESS_SIBLING | GUESS_GROWN));
    }
}

static inline void world_check_k(const struct world *w, const struct lane_plan *lane)
{
    const struct sequence *seq = lane->seq;
    int limit = world_k_limit(w, seq);
    ck_assert(lane_plan_k(lane) >= 0 && lane_plan_k(lane) <= limit);
    ck_assert(lane_plan_k(lane) == 0 || lane->is_last);
    ck_assert(plan_n_append(lane) >= 0 && plan_n_append(lane) <= w->scheduler.append_max);
    if (plan_n_append(lane) > 0) {
        ck_assert(lane_plan_k(lane) > 0 && lane_plan_k(lane) + plan_n_append(lane) <= limit);
        ck_assert(lane->drafter == w->drafter);
        ck_assert(seq->planner_state.strategy == STRATEGY_PLANNED);
    }
    if (plan_n_window(lane) > 0) {
        ck_assert(lane->window && plan_n_window(lane) <= limit && plan_n_branch(lane) == 0 &&
                  lane->tails);
        ck_assert(lane->is_last && seq->planner_state.strategy == STRATEGY_PLANNED);
    }
    world_check_growth(w, lane);
    if (!lane->is_last || seq->planner_state.strategy == STRATEGY_PLANNED) return;
    bool has_nothing = !w->drafter && lane_plan_k(lane) == 0; /* where a finder finds nothing */
    int own_k = planner_own_k(&seq->planner_state, limit), k = lane_plan_k(lane);
    bool is_cut = seq->tree && seq->tree->is_independent && k == seq->tree->n && k < own_k;
    ck_assert(has_nothing || is_cut || k == own_k);
}

/* Both models have KV for all that the lane may write, before anything is drawn. */
static inline void world_check_reserved(const struct world *w, const struct lane_plan *lane)
{
    struct sequence *seq = lane->seq;
    int n_guesses = most(lane_plan_k(lane) + plan_n_append(lane), plan_n_window(lane));
    int end = seq->n_target_kv + lane->n_tokens + n_guesses;
    ck_assert(block_table_lacks(&seq->target_blocks, &w->pool, end) == 0);
    for (int i = seq->n_target_kv / WORLD_BLOCK; i * WORLD_BLOCK < end; i++) {
        const struct block *block = &w->pool.blocks[seq->target_blocks.blocks[i]];
        ck_assert(block->n_refs == 1 && !block->serial); /* nobody else reads what it writes */
    }
    if (lane_plan_k(lane) == 0 || lane->drafter != w->drafter) return;
    struct error err;
    const struct draft_kv before = drafter_kv(w->drafter);
    CHECK_OK(drafter_reserve(w->drafter, seq, seq->n_tokens + lane_plan_k(lane), &err));
    const struct draft_kv after = drafter_kv(w->drafter);
    ck_assert(before.n_free == after.n_free && before.n_cached == after.n_cached);
}

/* Chains of look-ahead tokens are after different guesses of the chain, within what a tree may have
 * and before the end of the text, and there is KV for all of them. */
static inline void world_check_look_ahead(const struct world *w, const struct lane_plan *lane)
{
    const struct lane_look_ahead *l = &lane->look_ahead;
    const struct sequence *seq = lane->seq;
    struct guess_tree tree = lane->tree;
    struct tree_layout shape;
    struct error err;
    bool has[DRAFT_MAX + 1] = {false};
    if (l->n == 0) return;
    ck_assert(drafters_look_ahead(&w->drafters) && lane->is_last && !seq->is_score);
    ck_assert(l->length > 0 && l->length <= seq->n_draft && lane->tails);
    for (int i = 0; i < l->n; i++) {
        ck_assert(l->places[i] <= DRAFT_MAX - l->length && !has[l->places[i]]);
        ck_assert(seq->n_tokens + l->places[i] + l->length < seq->end);
        has[l->places[i]] = true;
        int end = seq->n_target_kv + lane->n_tokens + l->length;
        ck_assert(block_table_lacks(&seq->target_blocks, &w->pool, end) == 0);
    }
    lane_look_ahead_add(l, WORLD_VOCAB, &tree);
    ck_assert_int_le(tree.n, lane->tree.n + l->n * l->length);
    guess_tree_sort(&tree);
    CHECK_OK(tree_layout_init(&shape, tree.parents, tree.n, &err));
    ck_assert_int_le(tree_layout_tails(&shape, seq->n_tokens, WORLD_BLOCK), lane->tails->n);
    int end = seq->n_target_kv + lane->n_tokens + shape.leaf_depth[0] + 1;
    ck_assert(block_table_lacks(&seq->target_blocks, &w->pool, end) == 0);
}

/* Rows of exactly the tokens that have no score so far. */
static inline void world_check_scored(const struct lane_plan *lane)
{
    const struct sequence *seq = lane->seq;
    if (!sequence_scores_prompt(seq)) ck_assert(lane->n_scored == 0);
    if (lane->n_scored == 0) return;
    int first = seq->n_target_kv + lane->first_scored + 1; /* row i scores token i + 1 */
    ck_assert(first == (seq->n_scored ? seq->n_scored : 1));
    ck_assert(lane->first_scored + lane->n_scored <= lane->n_tokens);
    ck_assert(first + lane->n_scored <= seq->n_prompt);
}

static inline void world_check_lane(const struct world *w, const struct lane_plan *lane)
{
    const struct sequence *seq = lane->seq;
    int n_unread = seq->n_tokens - seq->n_target_kv;
    ck_assert(!seq->backpressure.slow_us && !seq->is_evicted && seq->slot >= 0);
    ck_assert(lane->n_tokens >= 1 && lane->n_tokens <= n_unread);
    ck_assert(lane->is_last == (lane->n_tokens == n_unread && !seq->is_score));
    world_check_k(w, lane);
    world_check_reserved(w, lane);
    world_check_look_ahead(w, lane);
    world_check_scored(lane);
    /* Every token of a prompt that is scored is fed with its row. */
    if (sequence_scores_prompt(seq) && seq->n_scored < seq->n_prompt) {
        int scored = seq->n_target_kv + lane->first_scored + lane->n_scored;
        int end = least(seq->n_target_kv + lane->n_tokens, seq->n_prompt - 1);
        ck_assert(lane->n_scored == 0 ? end <= seq->n_scored : scored == end);
    }
}

static inline void world_check_readings(const struct world *w)
{
    int n = 0;
    for (int i = 0; i < w->plan.n_readings; i++) {
        const struct draft_reading *reading = &w->plan.readings[i];
        const struct sequence *seq = reading->seq;
        ck_assert(!seq->is_evicted && !seq->is_score && !seq->backpressure.slow_us &&
                  seq->slot >= 0);
        ck_assert(reading->n_tokens >= 1);
        ck_assert(seq->n_draft_kv[reading->model] + reading->n_tokens < seq->n_tokens);
        n += reading->n_tokens;
    }
    ck_assert(n <= WORLD_READ_MAX);
}

static inline bool world_feeds(const struct sequence *seq)
{
    return !seq->backpressure.slow_us && (seq->is_score || seq->n_tokens - seq->n_target_kv > 1);
}

/* The oldest prompt has half of all tokens of prompts, or all but its last token, which may wait
 * for the draft; where its rows are wanted they are a limit, too. */
static inline void world_check_oldest_prompt(const struct world *w)
{
    const struct sequence *oldest = NULL;
    int n_fed = 0;
    for (int i = 0; i < w->n_active; i++) {
        const struct sequence *seq = w->active[i];
        const struct lane_plan *lane = world_lane(w, seq);
        if (seq->is_evicted || !world_feeds(seq)) continue;
        if (!oldest) oldest = seq;
        if (lane) n_fed += lane->n_tokens;
    }
    const struct lane_plan *lane = oldest ? world_lane(w, oldest) : NULL;
    if (!lane || (sequence_scores_prompt(oldest) && oldest->n_scored < oldest->n_prompt)) return;
    ck_assert(2 * lane->n_tokens >= n_fed ||
              lane->n_tokens >= oldest->n_tokens - oldest->n_target_kv - 1);
}

static inline void world_check_plan(const struct world *w)
{
    int n_tokens = 0, n_rows = 0, n_committed = 0, n_prompt = 0;
    for (int i = 0; i < w->plan.n_lanes; i++) {
        const struct lane_plan *lane = &w->plan.lanes[i];
        ck_assert(i == 0 || lane[-1].seq->id < lane->seq->id); /* so nobody occurs twice */
        world_check_lane(w, lane);
        n_committed += lane->n_tokens;
        n_prompt += lane->n_tokens - lane->is_last;
        int n_guesses = lane->tree.n + lane_look_ahead_rows(&lane->look_ahead);
        n_tokens += lane->n_tokens + n_guesses;
        n_rows += lane->n_scored + (lane->is_last ? n_guesses + 1 : 0);
    }
    ck_assert(n_tokens <= w->target.max_step_tokens);
    ck_assert(n_rows <= w->target.max_step_rows);
    ck_assert(n_committed == w->plan.n_tokens && n_prompt == w->plan.n_prompt);
    world_check_oldest_prompt(w);
    world_check_readings(w);
}

/* ---- rounds ---- */

/* Only the youngest may have been evicted, and before them those whose clients do not read. */
static inline void world_check_evictions(const struct world *w)
{
    bool is_paused_left = false, was_younger_left = false;
    for (int i = 0; i < w->n_active; i++) {
        const struct sequence *seq = w->active[i];
        is_paused_left = is_paused_left || (seq->backpressure.slow_us && !seq->is_evicted);
    }
    for (int i = w->n_active - 1; i >= 0; i--) {
        const struct sequence *seq = w->active[i];
        if (seq->backpressure.slow_us) continue;
        ck_assert(!seq->is_evicted || (!is_paused_left && !was_younger_left));
        was_younger_left = was_younger_left || !seq->is_evicted;
    }
}

/* Sequences that have lost their place wait again, the oldest first. */
static inline void world_requeue(struct world *w)
{
    for (int i = w->n_active - 1; i >= 0; i--) {
        struct sequence *seq = w->active[i];
        if (!seq->is_evicted) continue;
        ck_assert(seq->slot == -1 && seq->n_target_kv == 0 && seq->target_blocks.n == 0);
        ck_assert(!world_lane(w, seq));
        w->slots[seq->evicted_slot] = false;
        world_leave(w, i);
        memmove(w->waiting + 1, w->waiting, (size_t)w->n_waiting++ * sizeof *w->waiting);
        w->waiting[0] = seq;
        w->n_evictions++;
    }
}

static inline bool world_gets_on(const struct world *w, const struct sequence *seq)
{
    bool gets_on = world_lane(w, seq) != NULL;
    for (int r = 0; r < w->plan.n_readings; r++) {
        gets_on = gets_on || w->plan.readings[r].seq == seq;
    }
    return gets_on;
}

/* How long the oldest sequence, whose turn it always is, has waited since it is the oldest; and
 * how long any. */
static inline void world_note_idle(struct world *w)
{
    const struct sequence *oldest = NULL;
    for (int i = 0; i < w->n_active; i++) {
        const struct sequence *seq = w->active[i];
        int *idle = world_idle(w, seq);
        *idle = world_gets_on(w, seq) || seq->backpressure.slow_us ? 0 : *idle + 1;
        if (*idle > w->longest_idle) w->longest_idle = *idle;
        if (!oldest && !seq->backpressure.slow_us) oldest = seq;
    }
    bool is_same = oldest && oldest->id == w->oldest_id && !world_gets_on(w, oldest);
    w->oldest_id = oldest ? oldest->id : 0;
    w->oldest_idle = is_same ? w->oldest_idle + 1 : 0;
    if (w->oldest_idle > w->longest_oldest_idle) w->longest_oldest_idle = w->oldest_idle;
}

/* Plans a round over those that have places. */
static inline void world_plan(struct world *w)
{
    scheduler_plan(&w->scheduler, w->active, w->n_active, &w->plan);
    world_check_plan(w);
    world_check_evictions(w);
    world_requeue(w);
    world_note_idle(w);
}

/* Tells the planner what became of the chain. */
static inline void world_observe_chain(struct world *w, const struct lane_plan *lane, int n_chain)
{
    struct planner_sequence *state = &lane->seq->planner_state;
    bool is_drafted = lane_plan_k(lane) > 0 && lane->drafter == w->drafter;
    if (is_drafted || lane_plan_k(lane) == 0 || state->strategy != STRATEGY_PLANNED) {
        planner_observe_lane(&w->planner, state, 0, lane_plan_k(lane), n_chain);
    } else {
        planner_observe_offer(&w->planner, state, &lane->offer, lane_plan_k(lane), n_chain);
    }
}

/* Commits n_accepted guesses of the lane, of which the first n_chain are the chain's. From block
 * n_blocks_sent on the ranks do not know its table. */
static inline void world_commit_path(struct world *w, const struct lane_plan *lane, int n_chain,
                                     int n_accepted, int n_blocks_sent)
{
    struct sequence *seq = lane->seq;
    if (lane->n_scored) seq->n_scored = (seq->n_scored ? seq->n_scored : 1) + lane->n_scored;
    seq->n_blocks_sent = n_blocks_sent;
    if (lane->is_last) {
        int known = seq->n_tokens + n_accepted;
        bool is_drafted = lane_plan_k(lane) > 0 && lane->drafter == w->drafter;
        if (is_drafted) seq->n_draft_kv[0] = seq->n_tokens + lane_plan_k(lane) - 1;
        if (seq->n_draft_kv[0] > seq->n_tokens + n_chain)
            seq->n_draft_kv[0] = seq->n_tokens + n_chain;
        seq->n_target_kv = known;
        world_observe_chain(w, lane, n_chain);
        for (int i = 0; i <= n_accepted; i++, seq->n_tokens++) {
            seq->tokens[seq->n_tokens] =
                world_text_token(w, (uint32_t)seq->id + 7000, seq->n_tokens);
        }
        ck_assert(seq->n_tokens <= seq->end);
    } else {
        seq->n_target_kv += lane->n_tokens;
    }
    prefix_cache_publish(&seq->target_blocks, &w->pool, seq->tokens, seq->n_target_kv);
    if (!seq->is_score) drafters_commit(&w->drafters, seq);
}

static inline void world_commit(struct world *w, const struct lane_plan *lane, int n_accepted)
{
    world_commit_path(w, lane, n_accepted, n_accepted, lane->seq->target_blocks.n);
}

static inline int world_any_dice(void *w, int n)
{
    return world_dice(w, n);
}

/* Gives a lane whose tree follows q any shape that has as many guesses for each place. */
static inline void world_shape(struct world *w, const struct lane_plan *lane,
                               struct lane_plan *shaped)
{
    struct growth_shape shape = growth_shape_of(&lane->tree);
    const struct growth planned = shape.growth;
    int counts[DRAFT_MAX];
    *shaped = *lane;
    if (!lane->follows_q) return;
    growth_shape_count(shape.k, shape.siblings, &shape.growth, counts);
    growth_shape_any(counts, false, world_any_dice, w, &shape);
    growth_plan(shape.k, shape.siblings, &shape.growth, &shaped->tree);
    w->n_shaped += shape.growth.n != planned.n ||
                   memcmp(shape.growth.parents, planned.parents, (size_t)planned.n) != 0;
}

/* Commits some path of the lane's tree without its branch, in blocks that were set aside for it. */
static inline void world_play_tree(struct world *w, struct lane_plan *lane, int percent)
{
    static struct plan_tree tree;
    struct sequence *seq = lane->seq;
    const struct planner_offer *offer = lane->drafter == w->drafter ? NULL : &lane->offer;
    struct error err;
    struct lane_plan shaped;
    world_shape(w, lane, &shaped);
    plan_tree_init(&tree, &shaped);
    plan_tree_accept(&tree, percent, world_any_dice, w);
    int n_accepted = tree.result.n_accepted;
    int last = n_accepted > 0 ? tree.result.path[n_accepted - 1] : -1;
    int path = last < 0 ? 0 : tree.layout.first_path[last], n_sent = seq->target_blocks.n;
    int n_reserved = lane->tails->n;
    block_tails_release(lane->tails, &w->pool);
    CHECK_OK(block_tails_reserve(lane->tails, &w->pool, &seq->target_blocks, &tree.layout,
                                 seq->n_tokens, &err));
    ck_assert_int_le(lane->tails->n, n_reserved);
    int changed = block_tails_accept(lane->tails, &seq->target_blocks, &w->pool, path);
    bool is_planned = seq->planner_state.strategy == STRATEGY_PLANNED;
    *(is_planned ? &w->n_grown : &w->n_grown_fixed) += plan_n_grown(lane);
    w->n_grown_kept += plan_tree_n_grown(&tree);
    plan_tree_teach(&tree, &w->planner, &seq->planner_state, offer, lane);
    world_commit_path(w, lane, tree.path.n_chain, n_accepted, least(n_sent, changed));
}

static inline void world_play_lane(struct world *w, struct lane_plan *lane, int percent)
{
    int n_accepted = 0;
    if (lane_plan_k(lane) > 0 && lane->tails) {
        world_play_tree(w, lane, percent);
        return;
    }
    while (n_accepted < lane_plan_k(lane) && world_dice(w, 100) < percent) {
        n_accepted++;
    }
    world_commit(w, lane, n_accepted);
}

/* Counts what a lane adds to the step and to the passes of the draft. After siblings a pass reads
 * as many tokens again as it makes guesses there, or about so many. */
static inline void world_count_lane(const struct lane_plan *lane, struct planner_round *round)
{
    const struct guess_tree *tree = &lane->tree;
    round->n_rows +=
        lane->n_tokens + lane_plan_k(lane) + plan_n_grown(lane) + plan_n_siblings(lane);
    round->n_lanes += lane->is_last;
    round->n_prompt += lane->n_tokens - lane->is_last;
    int n_passes = lane_plan_k(lane);
    for (int i = 0; i < tree->n; i++) {
        int place = guess_tree_place(tree, i);
        if (!(tree->marks[i] & GUESS_GROWN)) continue;
        round->models[0].pass_expected[place]++;
        round->models[0].pass_grows[place] = true;
        n_passes = most(n_passes, place + 1);
    }
    for (int g = 0; g < n_passes; g++) {
        round->models[0].pass_lanes[g]++;
    }
    round->models[0].n_passes = most(round->models[0].n_passes, n_passes);
}

/* Times that a large target and a small draft might need. */
static inline void world_teach(struct world *w)
{
    struct planner_round round = {.is_timed = true};
    for (int i = 0; i < w->plan.n_lanes; i++) {
        world_count_lane(&w->plan.lanes[i], &round);
    }
    for (int g = 0; g < round.models[0].n_passes; g++) {
        round.models[0].pass_us[g] =
            1000 + 50 * (round.models[0].pass_lanes[g] + round.models[0].pass_expected[g]);
        round.models[0].draft_us += round.models[0].pass_us[g];
    }
    round.models[0].first_pass_tokens =
        round.models[0].n_passes ? round.models[0].pass_lanes[0] : 0;
    round.has_prompt = round.n_prompt > 0;
    round.step_us = 20000 + w->row_us * round.n_rows;
    round.round_us = round.step_us + round.models[0].draft_us + 500;
    planner_observe_round(&w->planner, &round);
}

static inline bool world_is_done(const struct sequence *seq)
{
    return seq->is_score ? seq->n_target_kv == seq->n_tokens : seq->n_tokens == seq->end;
}

/* Plays the planned round: the draft reads, lanes commit, texts that are complete leave.
 * percent: the chance that a guess stays; plan_tree_accept says that of a sibling. */
static inline void world_play(struct world *w, int percent)
{
    for (int i = 0; i < w->plan.n_readings; i++) {
        const struct draft_reading *reading = &w->plan.readings[i];
        reading->seq->n_draft_kv[reading->model] += reading->n_tokens;
    }
    world_teach(w);
    for (int i = 0; i < w->plan.n_lanes; i++) {
        world_play_lane(w, &w->plan.lanes[i], percent);
    }
    world_release_tails(w);
    for (int i = w->n_active - 1; i >= 0; i--) {
        struct sequence *seq = w->active[i];
        if (!world_is_done(seq)) continue;
        if (sequence_scores_prompt(seq)) ck_assert(seq->n_scored == seq->n_prompt);
        world_end(w, seq);
    }
}

static inline void world_round(struct world *w, int percent)
{
    world_admit(w);
    world_plan(w);
    world_play(w, percent);
}
