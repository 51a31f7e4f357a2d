#include "client/replay/head.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/least.h"
#include "base/memory.h"
#include "client/record/recording.h"
#include "comm/comm.h"
#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/head.h"
#include "model/checkpoint/head_readings.h"
#include "model/model.h"

enum {
    TEXT_TOKENS_MAX = 1 << 15,
    N_BLOCKS = TEXT_TOKENS_MAX / KV_BLOCK_TOKENS,
    STEP_TOKENS = 64,
    ARENA_BYTES = 4 << 20
};

struct rig {
    const struct replay_head_options *options;
    struct replay_head_figures *figures;
    struct checkpoint *target, *ck;
    struct backend *backend;
    struct model *model;
    struct head_reading reading;
    int feature_dim, n_read; /* n_read: columns of the reading */
    int32_t blocks[N_BLOCKS];
    uint16_t *rows;   /* [STEP_TOKENS][n_read][feature_dim] */
    uint16_t *output; /* [D] of the last row */
    struct arena arena;
    struct recording text;
    int columns[HEAD_FEATURES_MAX]; /* [n_read] of the recording */
    int n_known;                    /* rows of the text that have been read with its features */
};

/* ---- opening ---- */

static int open_model(struct rig *rig, struct error *err)
{
    const struct model_options options = {
        .n_kv_blocks = N_BLOCKS, .max_tokens = STEP_TOKENS, .max_rows = 1, .max_lanes = 1};
    struct backend_options backend = rig->options->backend;
    int rc = 0;
    backend.stored = checkpoint_config(rig->ck)->stored;
    TRY(backend_open(&rig->backend, &backend, err));
    TRY(model_open(&rig->model, rig->ck, comm_single(), rig->backend, &options, err));
    TRY(model_keep_output(rig->model, err));
out:
    return rc;
}

static int open_rig(struct rig *rig, struct error *err)
{
    struct head_reading readings[HEAD_READINGS_MAX];
    int rc = 0, n_readings;
    for (int i = 0; i < N_BLOCKS; i++) {
        rig->blocks[i] = i;
    }
    TRY(arena_open(&rig->arena, ARENA_BYTES, err));
    TRY(checkpoint_open(&rig->target, rig->options->target, err));
    const struct head_options lent = {.target = rig->target};
    TRY(checkpoint_open_head(&rig->ck, rig->options->head, &lent, err));
    const struct head_config *head = checkpoint_head(rig->ck);
    if (head->places.n > 0 || head->block.size > 0 || checkpoint_head_mask(rig->ck)) {
        return error_set(
            err, ERR_UNSUPPORTED,
            "%s is of %s, which guesses several tokens at once; a replay follows heads "
            "that guess token after token",
            rig->options->head, head_format_name(head));
    }
    TRY(head_readings(head, checkpoint_config(rig->target)->n_layers, readings, &n_readings, err));
    rig->reading = readings[0];
    rig->n_read = rig->reading.n + (rig->reading.normed ? 1 : 0);
    rig->feature_dim = head->entry.feature_dim;
    TRY(open_model(rig, err));
    size_t width = (size_t)rig->n_read * (size_t)rig->feature_dim;
    TRY(mem_array(&rig->rows, STEP_TOKENS * width, sizeof *rig->rows, err));
    TRY(mem_array(&rig->output, (size_t)checkpoint_config(rig->ck)->dim, sizeof *rig->output, err));
out:
    return rc;
}

static void close_rig(struct rig *rig)
{
    model_close(rig->model);
    if (rig->backend) rig->backend->ops->close(rig->backend);
    checkpoint_close(rig->ck);
    checkpoint_close(rig->target);
    arena_close(&rig->arena);
    recording_free(&rig->text);
    free(rig->rows);
    free(rig->output);
}

/* ---- a text ---- */

/* Finds the columns of the recording that the head reads. */
static int find_columns(struct rig *rig, const struct feature_wish *wish, const char *path,
                        struct error *err)
{
    const struct head_reading *reading = &rig->reading;
    for (int i = 0; i < reading->n; i++) {
        rig->columns[i] = feature_wish_column(wish, reading->boundaries[i]);
        if (rig->columns[i] >= 0) continue;
        return error_set(err, ERR_UNSUPPORTED,
                         "the head reads boundary %d, which %s lacks: record it with --boundaries",
                         reading->boundaries[i], path);
    }
    if (reading->normed && !wish->normed) {
        return error_set(err, ERR_UNSUPPORTED,
                         "the head reads the normed feature, which %s lacks: record it with "
                         "--normed",
                         path);
    }
    if (reading->normed) rig->columns[reading->n] = wish->n;
    return 0;
}

static int open_text(struct rig *rig, const char *path, struct error *err)
{
    struct feature_wish wish;
    int rc = 0, n_vocab = checkpoint_config(rig->target)->vocab_size;
    TRY(recording_read(&rig->text, &wish, path, err));
    TRY(find_columns(rig, &wish, path, err));
    const struct recording *text = &rig->text;
    bool may_be_greedy = !*text->rule || strcmp(text->rule, RECORDING_GIVEN) == 0;
    if (!may_be_greedy && strcmp(text->rule, "greedy") != 0) {
        return error_set(err, ERR_UNSUPPORTED,
                         "the answer in %s was drawn (rule %s), but in a replay the guesses stay "
                         "that are the target's best tokens: record it with --temperature 0",
                         path, text->rule);
    }
    if (text->dim != rig->feature_dim) {
        return error_set(err, ERR_FORMAT,
                         "%s has features of width %d, but the head reads those of width %d", path,
                         text->dim, rig->feature_dim);
    }
    if (text->ids.n > TEXT_TOKENS_MAX) {
        return error_set(err, ERR_UNSUPPORTED, "%s has %zu tokens, and a replay at most %d", path,
                         text->ids.n, TEXT_TOKENS_MAX);
    }
    for (size_t i = 0; i < text->ids.n; i++) {
        if (text->ids.data[i] >= 0 && text->ids.data[i] < n_vocab) continue;
        return error_set(err, ERR_FORMAT, "%s has the id %d, but %s has a vocabulary of %d", path,
                         (int)text->ids.data[i], rig->options->target, n_vocab);
    }
    rig->n_known = 0;
out:
    return rc;
}

/* Feeds n tokens as rows from `position` on. Keeps the best guess and the output of the last. */
static int step(struct rig *rig, int position, const int32_t *tokens, int n,
                const struct forward_features *features, int32_t *best, struct error *err)
{
    const struct forward_lane lane = {
        .position = position, .n_tokens = n, .tokens = tokens, .blocks = rig->blocks};
    const struct forward_row row = {0, n - 1};
    struct select_item item;
    int rc = 0, n_best = 0;
    TRY(model_forward_head(rig->model, &lane, features, 1, &row, 1, err));
    arena_reset(&rig->arena);
    TRY(model_best(rig->model, 0, 1, &rig->arena, &item, &n_best, err));
    const uint16_t *output = model_features(rig->model, 0, n - 1, 1);
    if (!output || n_best < 1) return error_set(err, ERR_UNAVAILABLE, "the device is lost");
    memcpy(rig->output, output, (size_t)checkpoint_config(rig->ck)->dim * sizeof *output);
    *best = item.id;
out:
    return rc;
}

/* Reads the rows that the first n tokens have with the target's features: n - 1 of them. */
static int read_known(struct rig *rig, int n, int32_t *best, struct error *err)
{
    const struct recording *text = &rig->text;
    size_t dim = (size_t)rig->feature_dim;
    int rc = 0;
    while (rig->n_known < n - 1) {
        int n_rows = least(n - 1 - rig->n_known, STEP_TOKENS);
        uint16_t *to = rig->rows;
        for (int i = 0; i < n_rows * rig->n_read; i++, to += dim) {
            size_t row = (size_t)(rig->n_known + i / rig->n_read) * (size_t)text->n_columns;
            size_t column = (size_t)rig->columns[i % rig->n_read];
            memcpy(to, text->features + (row + column) * dim, dim * sizeof *to);
        }
        const struct forward_features features = {.target = rig->rows, .n_target = n_rows};
        TRY(step(rig, rig->n_known, text->ids.data + rig->n_known + 1, n_rows, &features, best,
                 err));
        rig->n_known += n_rows;
    }
out:
    return rc;
}

/* Makes a round after the first n tokens with k guesses, and says how many of these stay. */
static int make_round(struct rig *rig, int n, int k, int *n_accepted, struct error *err)
{
    struct replay_head_figures *f = rig->figures;
    const struct replay_times *times = rig->options->times;
    const int32_t *text = rig->text.ids.data;
    const struct forward_features own = {.recycled = rig->output};
    int64_t start_ns = clock_now_ns();
    int32_t guess = -1;
    int rc = 0, n_right = 0;
    for (int i = 0; i < k; i++) {
        int32_t before = guess;
        if (i == 0) TRY(read_known(rig, n, &guess, err));
        if (i > 0) TRY(step(rig, n - 2 + i, &before, 1, &own, &guess, err));
        bool is_tested = n_right == i;
        f->tested[i] += is_tested;
        n_right += is_tested && guess == text[n + i];
        f->accepted[i] += n_right > i;
    }
    f->n_rounds++;
    f->n_guessed += k > 0;
    f->busy_us += (double)(clock_now_ns() - start_ns) / 1000;
    f->round_us += times->step_us[k + 1] + times->rest_us[k + 1];
    *n_accepted = n_right;
out:
    return rc;
}

static int replay_text(struct rig *rig, struct error *err)
{
    int rc = 0, n_all = (int)rig->text.ids.n, first = (int)rig->text.n_prompt;
    for (int n = first; n < n_all;) {
        int k = n == first ? 0 : least(rig->options->n_draft, n_all - n - 1), n_accepted;
        TRY(make_round(rig, n, k, &n_accepted, err));
        n += n_accepted + 1;
    }
    rig->figures->n_texts++;
    rig->figures->n_tokens += n_all - first;
out:
    return rc;
}

int replay_head_run(const struct replay_head_options *options, const char *const *files,
                    int n_files, struct replay_head_figures *figures, struct error *err)
{
    const struct replay_times *times = options->times;
    struct rig *rig = NULL;
    int rc = 0;
    *figures = (struct replay_head_figures){0};
    TRY(mem_array(&rig, 1, sizeof *rig, err));
    rig->options = options;
    rig->figures = figures;
    TRY(open_rig(rig, err));
    for (int i = 0; i < n_files; i++) {
        TRY(open_text(rig, files[i], err));
        TRY(replay_text(rig, err));
    }
    figures->round_us += figures->busy_us;
    figures->plain_us = (double)figures->n_tokens * (times->step_us[1] + times->rest_us[1]);
out:
    if (rig) close_rig(rig);
    free(rig);
    return rc;
}
