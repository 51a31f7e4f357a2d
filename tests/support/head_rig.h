/* A head of tests/golden/heads with its inputs and reference logits, and a model of it. It runs on
 * the CPU, or on the device that the environment variable OUTRIDER_TEST_DEVICE names. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "base/system/file.h"
#include "base/text/json.h"
#include "comm/comm.h"
#include "model/backend/open.h"
#include "model/checkpoint/head.h"
#include "model/model.h"
#include "tests/support/check_util.h"

#define HEADS_FOLDER  SOURCE_DIR "/tests/golden/heads"
#define MODELS_FOLDER SOURCE_DIR "/tests/golden/models"

enum { HEAD_ROWS_MAX = 64, HEAD_RIG_BLOCKS = 16, HEAD_STARTS_MAX = 8 };

struct head_rig {
    struct checkpoint *target, *ck;
    const struct head_config *head;
    struct backend *backend;
    struct model *model;
    int dim, width, n_columns;
    /* The contents of golden.json. */
    int32_t tokens[HEAD_ROWS_MAX], starts[HEAD_STARTS_MAX];
    int n_tokens, n_starts, n_steps;
    bool is_parallel;
    double tolerance_rms;
    struct file_view features, logits;
};

static inline json_t *head_rig_json(const char *path)
{
    struct error err;
    char *text;
    size_t len;
    json_t *root;
    CHECK_OK(file_read_text(&text, &len, path, 1 << 20, &err));
    CHECK_OK(json_parse_text(&root, text, len, path, &err));
    free(text);
    return root;
}

static inline int head_rig_ids(const json_t *root, const char *key, int32_t *ids, int most)
{
    const json_t *array = json_object_get(root, key);
    int n = (int)json_array_size(array);
    ck_assert_int_le(n, most);
    for (int i = 0; i < n; i++) {
        ids[i] = (int32_t)json_integer_value(json_array_get(array, (size_t)i));
    }
    return n;
}

static inline void head_rig_open_model(struct head_rig *rig, const char *kernels, int n_threads)
{
    struct error err;
    const char *device = getenv("OUTRIDER_TEST_DEVICE");
    const struct backend_options backend = {.device = device ? device : "cpu",
                                            .weights = "bf16",
                                            .kernels = kernels,
                                            .n_threads = n_threads,
                                            .no_graphs = getenv("OUTRIDER_TEST_NO_GRAPHS") != NULL};
    const struct model_options options = {.n_kv_blocks = HEAD_RIG_BLOCKS,
                                          .max_tokens = HEAD_ROWS_MAX,
                                          .max_rows = HEAD_ROWS_MAX,
                                          .max_lanes = 4};
    CHECK_OK(backend_open(&rig->backend, &backend, &err));
    CHECK_OK(model_open(&rig->model, rig->ck, comm_single(), rig->backend, &options, &err));
    CHECK_OK(model_keep_output(rig->model, &err));
}

static inline void head_rig_open(struct head_rig *rig, const char *name, int n_threads)
{
    struct error err;
    char path[512];
    *rig = (struct head_rig){0};
    snprintf(path, sizeof path, "%s/%s/golden.json", HEADS_FOLDER, name);
    json_t *root = head_rig_json(path);
    rig->n_tokens = head_rig_ids(root, "tokens", rig->tokens, HEAD_ROWS_MAX);
    rig->n_starts = head_rig_ids(root, "starts", rig->starts, HEAD_STARTS_MAX);
    rig->n_steps = (int)json_integer_value(json_object_get(root, "steps"));
    rig->is_parallel = json_is_true(json_object_get(root, "is_parallel"));
    rig->tolerance_rms = json_number_value(json_object_get(root, "tolerance_rms"));
    const char *target = json_string_value(json_object_get(root, "target"));
    if (target) {
        snprintf(path, sizeof path, "%s/%s", MODELS_FOLDER, target);
        CHECK_OK(checkpoint_open(&rig->target, path, &err));
    }
    const struct head_options options = {.target = rig->target};
    snprintf(path, sizeof path, "%s/%s", HEADS_FOLDER, name);
    CHECK_OK(checkpoint_open_head(&rig->ck, path, &options, &err));
    rig->head = checkpoint_head(rig->ck);
    rig->dim = checkpoint_config(rig->ck)->dim;
    rig->width = rig->head->entry.n_features * rig->head->entry.feature_dim;
    rig->n_columns = rig->head->n_columns;
    ck_assert_int_eq(rig->n_columns, json_integer_value(json_object_get(root, "columns")));
    json_decref(root);
    snprintf(path, sizeof path, "%s/%s/features.bf16", HEADS_FOLDER, name);
    CHECK_OK(file_map(&rig->features, path, &err));
    ck_assert_uint_eq(rig->features.size_bytes, (size_t)rig->n_tokens * (size_t)rig->width * 2);
    snprintf(path, sizeof path, "%s/%s/logits.f32", HEADS_FOLDER, name);
    CHECK_OK(file_map(&rig->logits, path, &err));
    ck_assert_uint_eq(rig->logits.size_bytes, (size_t)rig->n_starts * (size_t)rig->n_steps *
                                                  (size_t)rig->n_columns * sizeof(float));
    head_rig_open_model(rig, "auto", n_threads);
}

static inline void head_rig_close(struct head_rig *rig)
{
    model_close(rig->model);
    rig->backend->ops->close(rig->backend);
    checkpoint_close(rig->ck);
    checkpoint_close(rig->target);
    file_unmap(&rig->features);
    file_unmap(&rig->logits);
}

/* The target's features of row `row`. */
static inline const uint16_t *head_rig_features(const struct head_rig *rig, int row)
{
    const void *data = rig->features.data;
    return (const uint16_t *)data + (size_t)row * (size_t)rig->width;
}

/* Copies a row of logits, and the output of row `row` of the step. */
static inline void head_rig_take(struct head_rig *rig, int logits_row, int row, float *logits,
                                 uint16_t *output)
{
    const float *got = model_logits(rig->model, logits_row);
    ck_assert_ptr_nonnull(got);
    if (logits) memcpy(logits, got, (size_t)rig->n_columns * sizeof *logits);
    const uint16_t *features = model_features(rig->model, 0, row, 1);
    ck_assert_ptr_nonnull(features);
    memcpy(output, features, (size_t)rig->dim * sizeof *output);
}

/* Feeds rows first .. end of the text with the target's features, in chunks. */
static inline void head_rig_feed(struct head_rig *rig, const int32_t *blocks, int first, int end,
                                 int chunk, float *logits, uint16_t *output)
{
    struct error err;
    for (int at = first; at < end;) {
        int n = end - at < chunk ? end - at : chunk;
        const struct forward_lane lane = {
            .position = at, .n_tokens = n, .tokens = rig->tokens + at, .blocks = blocks};
        const struct forward_features features = {.target = head_rig_features(rig, at),
                                                  .n_target = n};
        const struct forward_row row = {0, n - 1};
        CHECK_OK(model_forward_head(rig->model, &lane, &features, 1, &row, 1, &err));
        at += n;
        if (at == end) head_rig_take(rig, 0, n - 1, logits, output);
    }
}

/* One row at `position` with a token and the output of the row before, which is replaced by its
 * own. */
static inline void head_rig_step(struct head_rig *rig, const int32_t *blocks, int position,
                                 int32_t token, float *logits, uint16_t *output)
{
    struct error err;
    const struct forward_lane lane = {
        .position = position, .n_tokens = 1, .tokens = &token, .blocks = blocks};
    const struct forward_features features = {.recycled = output};
    const struct forward_row row = {0, 0};
    CHECK_OK(model_forward_head(rig->model, &lane, &features, 1, &row, 1, &err));
    head_rig_take(rig, 0, 0, logits, output);
}
