/* A head as a drafter, and a second model of it for computing by hand: each guess of a draft is the
 * best of the row that the head computes when it reads the whole text with the target's features,
 * and then the guesses before with its own outputs; or masks, where one pass makes all guesses; or
 * from the last feature alone; or of a block, after the context. For one program alone: the world
 * is static. */
#pragma once

#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "coordinator/draft/drafters.h"
#include "coordinator/draft/model_draft.h"
#include "coordinator/draft/options.h"
#include "coordinator/schedule/places.h"
#include "model/checkpoint/head.h"
#include "model/numerics/numerics.h"
#include "model/projection.h"
#include "tests/support/guess_tables.h"
#include "tests/support/sequence_world.h"

#define GOLDEN SOURCE_DIR "/tests/golden/"

enum {
    LENGTH = 60,
    VOCAB = 320,
    DIM_MAX = 1024,
    BLOCKS = 16,
    LANES = 4,
    GUESSES = 3, /* every head has so many */
    FIRST = 5
};

struct world {
    /* Another model of the head, for computing by hand. */
    struct checkpoint *target, *ck;
    struct backend *backend;
    struct model *model;
    const struct head_config *head;
    int width; /* of a token's features */
    struct tokenizer *tok;
    struct drafters drafters;
    struct block_pool target_pool;
    struct arena arena;
    float logits[VOCAB];
    uint16_t output[DIM_MAX];
    int32_t blocks[BLOCKS];
    struct projection projection; /* of workers with the head; not open: they have none */
    int k;                        /* guesses of a chain that are wanted */
};

static struct world w;
static const struct end_ids nothing_ends;

/* Any features are as good as those of a target: a function of the position and the token. */
static inline void make_feature(uint16_t *row, int position, int32_t token)
{
    for (int i = 0; i < w.width; i++) {
        const struct rng_address at = {(uint64_t)token, (uint32_t)position, (uint32_t)i};
        row[i] = num_float_to_bf16((float)(rng_uniform(&at, RNG_DRAFT, 0) * 4 - 2));
    }
}

/* A text and what the target would say of it, if it were this. */
struct text {
    int32_t tokens[LENGTH];
    int n, n_shown; /* shown: positions whose features the drafter has seen */
    struct sequence *seq;
};

/* Features of positions first .. + n of a text, one after the other. */
static inline uint16_t *features_of(const struct text *text, int first, int n)
{
    size_t width = (size_t)w.width;
    uint16_t *rows = arena_take(&w.arena, (size_t)n * width, sizeof *rows);
    ck_assert_ptr_nonnull(rows);
    for (int i = 0; i < n; i++) {
        make_feature(rows + (size_t)i * width, first + i, text->tokens[first + i]);
    }
    return rows;
}

/* Makes of them what workers with the head's fc send. */
static inline uint16_t *projected_of(const struct text *text, int first, int n)
{
    struct error err;
    struct kept_features kept = {0};
    size_t width = (size_t)w.width, dim = (size_t)w.head->entry.feature_dim;
    const struct feature_wish *wish = w.drafters.models[0]->features;
    size_t len = (size_t)n * (size_t)wish->projection.key.width;
    const uint16_t *rows = features_of(text, first, n);
    uint16_t *out = arena_take(&w.arena, len, sizeof *out);
    ck_assert_ptr_nonnull(out);
    CHECK_OK(kept_features_set(&kept, w.backend, wish, n, (int)dim, &err));
    ck_assert_uint_eq((size_t)feature_wish_columns(&kept.kept) * dim, width);
    for (int c = 0; c < feature_wish_columns(&kept.kept); c++) {
        for (int i = 0; i < n; i++) {
            memcpy(kept_features_column(&kept, c) + (size_t)i * dim,
                   rows + (size_t)i * width + (size_t)c * dim, dim * sizeof *rows);
        }
    }
    projection_forward(&w.projection, w.backend, &kept, n);
    memcpy(out, kept_features_column(&kept, feature_wish_columns(&kept.kept)), len * sizeof *out);
    kept_features_close(&kept, w.backend);
    return out;
}

static inline const char *device_of_test(void)
{
    const char *device = getenv("OUTRIDER_TEST_DEVICE");
    return device ? device : "cpu";
}

/* ---- by hand ---- */

static inline void step_by_hand(const struct forward_lane *lane,
                                const struct forward_features *features, int index)
{
    struct error err;
    const struct forward_row row = {0, index};
    CHECK_OK(model_forward_head(w.model, lane, features, 1, &row, 1, &err));
    memcpy(w.logits, model_logits(w.model, 0), (size_t)w.head->n_columns * sizeof *w.logits);
    if (w.head->places.n || w.head->block.size > 0) return;
    memcpy(w.output, model_features(w.model, 0, index, 1),
           (size_t)checkpoint_config(w.ck)->dim * sizeof *w.output);
}

/* Reads a text of n tokens and then n_path masks, in one step. */
static inline void read_masks(const struct text *text, int n, int n_path)
{
    int32_t tokens[LENGTH + DRAFT_MAX];
    size_t width = (size_t)w.width, n_rows = (size_t)(n - 1 + n_path);
    uint16_t *rows = arena_take(&w.arena, n_rows * width, sizeof *rows);
    memcpy(rows, features_of(text, 0, n - 1), (size_t)(n - 1) * width * sizeof *rows);
    memcpy(tokens, text->tokens + 1, (size_t)(n - 1) * sizeof *tokens);
    for (int i = n - 1; i < n - 1 + n_path; i++) {
        memcpy(rows + (size_t)i * width, checkpoint_head_mask(w.ck), width * sizeof *rows);
        tokens[i] = w.head->mask_token_id;
    }
    const struct forward_lane lane = {
        .n_tokens = (int)n_rows, .tokens = tokens, .blocks = w.blocks};
    step_by_hand(&lane, &(struct forward_features){rows, (int)n_rows, NULL}, (int)n_rows - 1);
}

/* Reads a text of n tokens and then `path`, and leaves the row after it in w.logits. */
static inline void read_by_hand(const struct text *text, int n, const int32_t *path, int n_path)
{
    if (w.head->places.n) {
        const struct forward_lane lane = {.n_tokens = n_path + 1};
        step_by_hand(&lane, &(struct forward_features){features_of(text, n - 2, 1), 1, NULL},
                     n_path);
        return;
    }
    if (checkpoint_head_mask(w.ck)) {
        read_masks(text, n, n_path);
        return;
    }
    const struct forward_lane lane = {
        .n_tokens = n - 1, .tokens = text->tokens + 1, .blocks = w.blocks};
    step_by_hand(&lane, &(struct forward_features){features_of(text, 0, n - 1), n - 1, NULL},
                 n - 2);
    for (int i = 0; i < n_path; i++) {
        const struct forward_lane next = {
            .position = n - 1 + i, .n_tokens = 1, .tokens = &path[i], .blocks = w.blocks};
        uint16_t before[DIM_MAX];
        memcpy(before, w.output, sizeof before);
        step_by_hand(&next, &(struct forward_features){.recycled = before}, 0);
    }
}

/* Reads a text and its block, and leaves in w.logits the row of a place, after `previous` where it
 * is chained to one (-1: it is not). */
static inline void read_block(const struct text *text, int place, int32_t previous)
{
    struct error err;
    int32_t tokens[HEAD_BLOCK_MAX] = {text->tokens[text->n - 1]};
    const int row = 0;
    for (int i = 1; i < w.head->block.size; i++) {
        tokens[i] = w.head->mask_token_id;
    }
    const struct forward_lane lane = {
        .n_tokens = w.head->block.size, .tokens = tokens, .blocks = w.blocks};
    const struct forward_features features = {.target = features_of(text, 0, text->n - 1),
                                              .n_target = text->n - 1};
    step_by_hand(&lane, &features, head_block_row(&w.head->block, place));
    if (w.head->block.rank == 0 || previous < 0) return;
    CHECK_OK(model_chain_rows(w.model, &row, &previous, 1, &err));
    memcpy(w.logits, model_logits(w.model, 0), (size_t)w.head->n_columns * sizeof *w.logits);
}

/* Leaves the row after a node of the draft in w.logits. */
static inline void read_after(const struct text *text, const struct guess_tree *draft, int node)
{
    int32_t path[DRAFT_MAX];
    int place = guess_tree_text(draft, node, path);
    if (w.head->block.size == 0) {
        read_by_hand(text, text->n, path, place);
    } else if (place == 0) {
        read_block(text, 0, text->tokens[text->n - 1]);
    } else {
        bool has_chain = place <= draft->n_chain && !draft->is_independent;
        read_block(text, place, has_chain ? draft->tokens[draft->chain[place - 1]] : -1);
    }
}

/* The best ids of w.logits, best first. */
static inline void best_by_hand(int32_t *best, int n)
{
    const int32_t *ids = checkpoint_head_ids(w.ck);
    bool is_taken[VOCAB] = {false};
    for (int i = 0; i < n; i++) {
        int at = -1, mask = w.head->mask_token_id;
        for (int c = 0; c < w.head->n_columns; c++) {
            if ((ids ? ids[c] : c) == mask) continue; /* it is no token of a text */
            if (!is_taken[c] && (at < 0 || w.logits[c] > w.logits[at])) at = c;
        }
        is_taken[at] = true;
        best[i] = ids ? ids[at] : at;
    }
}

/* Every guess of a draft is one of the best after its parent, in their order. */
static inline void check_draft(const struct text *text, const struct guess_tree *draft)
{
    for (int parent = -1; parent < draft->n; parent++) {
        int32_t best[TREE_CHILDREN_MAX];
        int n = 0, first = guess_tree_child(draft, parent);
        if (first < 0) continue;
        read_after(text, draft, parent);
        best_by_hand(best, TREE_CHILDREN_MAX);
        for (int c = first; c >= 0; c = guess_tree_sibling(draft, c)) {
            ck_assert_int_eq(draft->tokens[c], best[n++]);
        }
        arena_reset(&w.arena);
    }
}

/* ---- the drafter ---- */

static inline void open_by_hand(const char *folder, const char *target)
{
    struct error err;
    const struct backend_options backend = {
        .device = device_of_test(), .weights = "bf16", .kernels = "auto", .n_threads = 1};
    const struct model_options options = {
        .n_kv_blocks = BLOCKS, .max_tokens = 2 * LENGTH, .max_rows = 4, .max_lanes = 1};
    CHECK_OK(checkpoint_open(&w.target, target, &err));
    CHECK_OK(checkpoint_open_head(&w.ck, folder, &(struct head_options){.target = w.target}, &err));
    w.head = checkpoint_head(w.ck);
    w.width = w.head->entry.n_features * w.head->entry.feature_dim;
    ck_assert_int_le(w.head->n_columns, VOCAB);
    CHECK_OK(backend_open(&w.backend, &backend, &err));
    CHECK_OK(model_open(&w.model, w.ck, comm_single(), w.backend, &options, &err));
    if (w.head->block.size == 0) CHECK_OK(model_keep_output(w.model, &err));
    for (int i = 0; i < BLOCKS; i++) {
        w.blocks[i] = BLOCKS - 1 - i;
    }
}

/* The folders of a head and of its target. The drafter has KV for kv_tokens. */
static inline void open_world(const char *folder, const char *target, int kv_tokens)
{
    struct error err;
    char name[600];
    w = (struct world){.k = GUESSES};
    open_by_hand(folder, target);
    snprintf(name, sizeof name, "head:%s", folder);
    const struct drafter_options options = {.name = name,
                                            .target = checkpoint_name(w.target),
                                            .backend = {.device = device_of_test(),
                                                        .weights = "bf16",
                                                        .kernels = "auto",
                                                        .n_threads = 1},
                                            .n_sequences = LANES,
                                            .support = 64,
                                            .kv_tokens = kv_tokens};
    CHECK_OK(tokenizer_open_bytes(&w.tok, VOCAB, &err));
    CHECK_OK(arena_open(&w.arena, 16 << 20, &err));
    CHECK_OK(block_pool_open(&w.target_pool, 2 * LANES * LENGTH / KV_BLOCK_TOKENS, KV_BLOCK_TOKENS,
                             &err));
    CHECK_OK(drafter_open(&w.drafters.models[0], &options, w.tok, &err));
    w.drafters.n_models = 1;
    ck_assert_ptr_nonnull(w.drafters.models[0]->features);
}

/* Lets another group serve, whose workers hold the head's fc, if it has one. */
static inline void give_projection(void)
{
    struct error err;
    const struct projection_key key = model_projection(w.model), other = {1, 64};
    const struct feature_wish *wish = w.drafters.models[0]->features;
    drafters_set_projection(&w.drafters, &other);
    ck_assert(wish->projection.key.digest == 0 && !feature_wish_is_empty(wish));
    ck_assert((key.digest != 0) == w.head->entry.has_fc);
    drafters_set_projection(&w.drafters, &key);
    if (!key.digest || checkpoint_head_mask(w.ck) || w.head->block.size > 0) {
        ck_assert(wish->projection.key.digest == 0 && !feature_wish_is_empty(wish));
        return;
    }
    CHECK_OK(projection_open(&w.projection, w.ck, w.target, LENGTH, w.backend, &err));
    ck_assert(wish->projection.key.digest == key.digest && feature_wish_columns(wish) == 0);
}

/* Lets another group serve, whose workers hold none. */
static inline void take_projection(void)
{
    const struct projection_key none = {0};
    drafters_set_projection(&w.drafters, &none);
    ck_assert(w.drafters.models[0]->features->projection.key.digest == 0);
    projection_close(&w.projection, w.backend);
}

static inline void teardown(void)
{
    projection_close(&w.projection, w.backend);
    drafter_close(w.drafters.models[0]);
    block_pool_close(&w.target_pool);
    arena_close(&w.arena);
    tokenizer_close(w.tok);
    model_close(w.model);
    w.backend->ops->close(w.backend);
    checkpoint_close(w.ck);
    checkpoint_close(w.target);
}

static inline void begin(struct text *text, int slot, int n)
{
    struct error err;
    const struct sequence_defaults defaults = {.n_draft = w.k,
                                               .strategy = STRATEGY_FIXED,
                                               .context_limit = LENGTH,
                                               .vocab_size = VOCAB,
                                               .has_draft = true};
    text->n = n;
    text->seq = first_sequence(new_job(JOB_GENERATE, text->tokens, n), w.tok, &defaults);
    CHECK_OK(places_give(text->seq, slot, &w.target_pool, &w.drafters, &err));
    text->seq->rule = &accept_rules[RULE_GREEDY];
    bool reads = text->seq->n_draft_kv[0] > 0 && !w.head->places.n;
    text->n_shown = reads ? text->seq->n_draft_kv[0] - 1 : 0;
}

static inline void end(struct text *text)
{
    places_withdraw(text->seq, &w.target_pool, &w.drafters);
    sequence_close(text->seq);
}

/* The target has computed all tokens but the last: in steps of at most `chunk` tokens. */
static inline void show(struct text *text, int chunk)
{
    struct error err;
    memcpy(text->seq->tokens, text->tokens, (size_t)text->n * sizeof *text->tokens);
    text->seq->n_tokens = text->n;
    while (text->n_shown < text->n - 1) {
        int n = text->n - 1 - text->n_shown < chunk ? text->n - 1 - text->n_shown : chunk;
        bool is_projected = w.drafters.models[0]->features->projection.key.digest != 0;
        const struct draft_features features = {.first = text->n_shown,
                                                .n = n,
                                                .is_projected = is_projected,
                                                .rows = is_projected
                                                            ? projected_of(text, text->n_shown, n)
                                                            : features_of(text, text->n_shown, n)};
        CHECK_OK(drafter_observe(w.drafters.models[0], text->seq, &features, &err));
        text->n_shown += n;
    }
    drafter_commit(w.drafters.models[0], text->seq);
    arena_reset(&w.arena);
}

static inline void propose_all(struct text *texts, int n, struct guess_tree *drafts,
                               const struct guess_tree *plan)
{
    struct draft_lane lanes[LANES];
    struct draft_cost cost;
    for (int i = 0; i < n; i++) {
        guess_tree_begin(&drafts[i], texts[i].n);
        lanes[i] = (struct draft_lane){.seq = texts[i].seq,
                                       .k = w.k,
                                       .ends = &nothing_ends,
                                       .draft = &drafts[i],
                                       .siblings_max = plan ? SIBLINGS_MAX : 0,
                                       .plan = plan};
    }
    drafter_propose(w.drafters.models[0], lanes, n, &w.arena, &cost);
    for (int i = 0; i < n; i++) {
        ck_assert_msg(lanes[i].err.code == 0, "%s", lanes[i].err.text);
        ck_assert_int_eq(drafts[i].n_chain, w.k);
    }
}

/* The first `stay` guesses of the chain stay, and another token comes after them. */
static inline void accept(struct text *text, const struct guess_tree *draft, int stay)
{
    for (int i = 0; i < stay; i++) {
        text->tokens[text->n++] = draft->tokens[draft->chain[i]];
    }
    text->tokens[text->n] = (text->n * 31 + 3) % VOCAB;
    text->n++;
}

static inline void fill(struct text *text, int seed)
{
    *text = (struct text){0};
    for (int i = 0; i < LENGTH; i++) {
        text->tokens[i] = (i * 13 + seed * 101 + 7) % VOCAB;
    }
}

/* ---- what holds of every head ---- */

/* Checks drafts of ragged texts, of which all and some and none stay. */
static inline void check_company(void)
{
    static const int stays[] = {0, GUESSES, 1, 2, 0, GUESSES, 3, 1, GUESSES};
    struct text texts[LANES];
    struct guess_tree drafts[LANES];
    for (int i = 0; i < LANES; i++) {
        fill(&texts[i], i);
        begin(&texts[i], i, FIRST + 9 * i); /* across the end of a KV block, too */
    }
    for (int round = 0; round < (int)(sizeof stays / sizeof *stays); round++) {
        int n = round % LANES + 1; /* company changes */
        for (int i = 0; i < n; i++) {
            show(&texts[i], 1 + round);
        }
        propose_all(texts, n, drafts, NULL);
        for (int i = 0; i < n; i++) {
            check_draft(&texts[i], &drafts[i]);
            if (w.head->block.size > 0) {
                ck_assert_int_eq(texts[i].seq->n_draft_kv[0], texts[i].n);
            }
            accept(&texts[i], &drafts[i], stays[(round + i) % 9]);
        }
        arena_reset(&w.arena);
    }
    for (int i = 0; i < LANES; i++) {
        end(&texts[i]);
    }
}

/* Checks guesses after siblings of the first two guesses, and after one of these. */
static inline void check_growth(void)
{
    static const struct growth growth = {.n = 5, .parents = {-1, -1, -2, 0, -4}};
    struct text text;
    struct guess_tree draft, plan;
    growth_plan(GUESSES, NULL, &growth, &plan);
    fill(&text, 3);
    begin(&text, 0, 14);
    for (int round = 0; round < 6; round++) {
        show(&text, LENGTH);
        propose_all(&text, 1, &draft, &plan);
        ck_assert_int_eq(guess_tree_count(&draft, GUESS_GROWN), growth.n);
        check_draft(&text, &draft);
        accept(&text, &draft, round % 3);
        arena_reset(&w.arena);
    }
    end(&text);
}

/* Checks the draft of a text of n tokens, n_known of which others have read, and publishes its
 * KV. */
static inline void check_beginning(struct text *text, int slot, int n, int n_known)
{
    struct guess_tree draft;
    begin(text, slot, n);
    ck_assert_int_eq(text->seq->n_draft_kv[0], n_known);
    show(text, LENGTH);
    propose_all(text, 1, &draft, NULL);
    check_draft(text, &draft);
    accept(text, &draft, 2);
    show(text, LENGTH); /* what was read is published */
    arena_reset(&w.arena);
}
