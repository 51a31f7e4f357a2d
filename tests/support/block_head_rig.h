/* A block drafter of tests/golden/block_heads with its inputs and reference logits, and a model of
 * it. It runs on the CPU, or on the device that the environment variable OUTRIDER_TEST_DEVICE
 * names. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "base/system/file.h"
#include "comm/comm.h"
#include "model/backend/open.h"
#include "model/checkpoint/head.h"
#include "model/model.h"
#include "tests/support/check_util.h"
#include "tests/support/head_rig.h"

#define BLOCK_HEADS_FOLDER SOURCE_DIR "/tests/golden/block_heads"

enum { BLOCK_ROWS_MAX = 64, BLOCK_RIG_BLOCKS = 18, BLOCK_STARTS_MAX = 8 };

struct block_rig {
    struct checkpoint *target, *ck;
    const struct head_config *head;
    struct backend *backend;
    struct model *model;
    int n_columns, n_rows; /* of a block */
    /* The contents of golden.json. */
    int32_t tokens[BLOCK_ROWS_MAX], starts[BLOCK_STARTS_MAX];
    int n_tokens, n_starts;
    bool has_chain;
    double tolerance_rms;
    struct file_view features, logits;
};

static inline void block_rig_open_model(struct block_rig *rig, const char *kernels, int n_threads)
{
    struct error err;
    const char *device = getenv("OUTRIDER_TEST_DEVICE");
    const struct backend_options backend = {.device = device ? device : "cpu",
                                            .weights = "bf16",
                                            .kernels = kernels,
                                            .n_threads = n_threads,
                                            .no_graphs = getenv("OUTRIDER_TEST_NO_GRAPHS") != NULL};
    const struct model_options options = {.n_kv_blocks = BLOCK_RIG_BLOCKS,
                                          .max_tokens = BLOCK_ROWS_MAX,
                                          .max_rows = BLOCK_ROWS_MAX,
                                          .max_lanes = 4};
    CHECK_OK(backend_open(&rig->backend, &backend, &err));
    CHECK_OK(model_open(&rig->model, rig->ck, comm_single(), rig->backend, &options, &err));
}

static inline void block_rig_open(struct block_rig *rig, const char *name, int n_threads)
{
    struct error err;
    char path[512];
    *rig = (struct block_rig){0};
    snprintf(path, sizeof path, "%s/%s/golden.json", BLOCK_HEADS_FOLDER, name);
    json_t *root = head_rig_json(path);
    rig->n_tokens = head_rig_ids(root, "tokens", rig->tokens, BLOCK_ROWS_MAX);
    rig->n_starts = head_rig_ids(root, "starts", rig->starts, BLOCK_STARTS_MAX);
    rig->n_rows = (int)json_integer_value(json_object_get(root, "block"));
    rig->n_columns = (int)json_integer_value(json_object_get(root, "columns"));
    rig->has_chain = json_is_true(json_object_get(root, "has_chain"));
    rig->tolerance_rms = json_number_value(json_object_get(root, "tolerance_rms"));
    const char *target = json_string_value(json_object_get(root, "target"));
    if (target) {
        snprintf(path, sizeof path, "%s/%s", MODELS_FOLDER, target);
        CHECK_OK(checkpoint_open(&rig->target, path, &err));
    }
    json_decref(root);
    const struct head_options options = {.target = rig->target};
    snprintf(path, sizeof path, "%s/%s", BLOCK_HEADS_FOLDER, name);
    CHECK_OK(checkpoint_open_head(&rig->ck, path, &options, &err));
    rig->head = checkpoint_head(rig->ck);
    ck_assert_int_eq(rig->head->block.size, rig->n_rows);
    ck_assert_int_eq(rig->head->n_columns, rig->n_columns);
    ck_assert_int_eq(rig->head->block.rank > 0, rig->has_chain);
    size_t width = (size_t)(rig->head->entry.n_features * rig->head->entry.feature_dim);
    snprintf(path, sizeof path, "%s/%s/features.bf16", BLOCK_HEADS_FOLDER, name);
    CHECK_OK(file_map(&rig->features, path, &err));
    ck_assert_uint_eq(rig->features.size_bytes, (size_t)rig->n_tokens * width * 2);
    snprintf(path, sizeof path, "%s/%s/logits.f32", BLOCK_HEADS_FOLDER, name);
    CHECK_OK(file_map(&rig->logits, path, &err));
    ck_assert_uint_eq(rig->logits.size_bytes, (size_t)rig->n_starts * (size_t)rig->n_rows *
                                                  (size_t)rig->n_columns * sizeof(float));
    block_rig_open_model(rig, "auto", n_threads);
}

static inline void block_rig_close(struct block_rig *rig)
{
    model_close(rig->model);
    rig->backend->ops->close(rig->backend);
    checkpoint_close(rig->ck);
    checkpoint_close(rig->target);
    file_unmap(&rig->features);
    file_unmap(&rig->logits);
}

/* The target's features of row `row`. */
static inline const uint16_t *block_rig_features(const struct block_rig *rig, int row)
{
    const void *data = rig->features.data;
    int width = rig->head->entry.n_features * rig->head->entry.feature_dim;
    return (const uint16_t *)data + (size_t)row * (size_t)width;
}

/* The tokens of a block after `start` rows of context. */
static inline void block_rig_tokens(const struct block_rig *rig, int start, int32_t *tokens)
{
    tokens[0] = rig->tokens[start];
    for (int j = 1; j < rig->n_rows; j++) {
        tokens[j] = rig->head->mask_token_id;
    }
}

/* Feeds rows first .. end of the context, in chunks. */
static inline void block_rig_context(struct block_rig *rig, const int32_t *table, int first,
                                     int end, int chunk)
{
    struct error err;
    for (int at = first; at < end; at += chunk) {
        const struct forward_lane lane = {.position = at, .blocks = table};
        const struct forward_features features = {.target = block_rig_features(rig, at),
                                                  .n_target = end - at < chunk ? end - at : chunk};
        CHECK_OK(model_forward_head(rig->model, &lane, &features, 1, NULL, 0, &err));
    }
}

/* Runs the block of a token after `start` rows of context, which keeps the logits of all its
 * rows. */
static inline void block_rig_run_at(struct block_rig *rig, const int32_t *table, int start,
                                    int32_t token)
{
    struct error err;
    int32_t tokens[BLOCK_ROWS_MAX];
    struct forward_row rows[BLOCK_ROWS_MAX];
    block_rig_tokens(rig, 0, tokens);
    tokens[0] = token;
    for (int j = 0; j < rig->n_rows; j++) {
        rows[j] = (struct forward_row){0, j};
    }
    const struct forward_lane lane = {
        .position = start, .n_tokens = rig->n_rows, .tokens = tokens, .blocks = table};
    const struct forward_features features = {.n_target = 0};
    CHECK_OK(model_forward_head(rig->model, &lane, &features, 1, rows, rig->n_rows, &err));
}

/* Copies the logits of a block from row `first` on; with a chain, as they follow from the tokens of
 * the text. */
static inline void block_rig_take(struct block_rig *rig, int first, int start, float *logits)
{
    struct error err;
    for (int j = 0; j < rig->n_rows; j++) {
        int row = first + j;
        if (rig->has_chain) {
            CHECK_OK(model_chain_rows(rig->model, &row, &rig->tokens[start + j], 1, &err));
        }
        const float *got = model_logits(rig->model, row);
        ck_assert_ptr_nonnull(got);
        memcpy(logits + (size_t)j * (size_t)rig->n_columns, got,
               (size_t)rig->n_columns * sizeof *got);
    }
}

static inline void block_rig_run(struct block_rig *rig, const int32_t *table, int start)
{
    block_rig_run_at(rig, table, start, rig->tokens[start]);
}

static inline void block_rig_guess(struct block_rig *rig, const int32_t *table, int start,
                                   float *logits)
{
    block_rig_run(rig, table, start);
    block_rig_take(rig, 0, start, logits);
}

/* The best guesses of n_lanes blocks, whose rows lie one block after the other from `first` on;
 * each is chained to the one before, the first ones to last[n_lanes]: guesses[n_lanes][n_rows]. */
static inline void block_rig_chain(struct block_rig *rig, struct arena *arena, int first,
                                   int n_lanes, const int32_t *last, int32_t *guesses)
{
    struct error err;
    struct select_item best[4];
    int rows[4], n_best[4];
    int32_t previous[4];
    memcpy(previous, last, (size_t)n_lanes * sizeof *last);
    for (int j = 0; j < rig->n_rows; j++) {
        for (int lane = 0; lane < n_lanes; lane++) {
            rows[lane] = first + lane * rig->n_rows + j;
        }
        CHECK_OK(model_chain_rows(rig->model, rows, previous, n_lanes, &err));
        CHECK_OK(model_best_rows(rig->model, rows, n_lanes, 1, arena, best, n_best, &err));
        for (int lane = 0; lane < n_lanes; lane++) {
            ck_assert_int_eq(n_best[lane], 1);
            previous[lane] = guesses[lane * rig->n_rows + j] = best[lane].id;
        }
    }
}
