/* How often a head's best guess is the target's best, for each reading of its features, on texts
 * that the target writes itself.
 *
 *   bench_head --target MODEL --head FOLDER [--begin TEXT] [--texts 8] [--tokens 512]
 *              [--temperature 1] [--every 8] [--boundaries LIST] [--device cpu]
 *
 * Each text begins with --begin and is drawn from the target. From every 8th row on the head makes
 * 5 guesses, teacher forced: guess s reads the text's own tokens, and from the second one on its
 * own output in place of features; a head of places makes as many as it has, up to 5, from one
 * feature. A line for each reading (model/checkpoint/head_readings.h) has the share of guesses 1 to
 * 5 that are the target's best token at their place. --boundaries adds a reading of one's own, to
 * see what a wrong one costs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "bench/bench_model.h"
#include "bench/options.h"
#include "model/checkpoint/head.h"
#include "model/checkpoint/head_readings.h"
#include "model/model.h"
#include "model/tokenizer/ids.h"
#include "model/tokenizer/tokenizer.h"

enum {
    TEXT_MAX = 2048,
    BLOCKS_MAX = TEXT_MAX / KV_BLOCK_TOKENS + 2,
    GUESSES = 5,
    READINGS_MAX = HEAD_READINGS_MAX + 1,
    CHUNK = 64,
    ARENA_BYTES = 1 << 22
};

struct settings {
    const char *target, *head, *begin;
    struct backend_options backend;
    int n_texts, n_tokens, every;
    int32_t boundaries[HEAD_FEATURES_MAX]; /* "given"; n_given = 0: none are */
    int n_given;
    float temperature;
};

struct trial {
    const struct settings *settings;
    struct bench_model target, head;
    struct tokenizer *tok;
    struct arena arena;
    int32_t blocks[BLOCKS_MAX], text[TEXT_MAX], best[TEXT_MAX]; /* best: after text[0 .. i] */
    int n, n_begin, width, dim;                                 /* of features, of the head */
    uint16_t *features;                                         /* [TEXT_MAX][width] */
    struct head_reading readings[READINGS_MAX];
    int n_readings;
    int n_right[READINGS_MAX][GUESSES], n_all[READINGS_MAX][GUESSES];
};

static int side_open(struct bench_model *side, const struct backend_options *options,
                     struct error *err)
{
    const struct model_options mo = {
        .n_kv_blocks = BLOCKS_MAX, .max_tokens = CHUNK, .max_rows = GUESSES, .max_lanes = 1};
    return bench_model_open(side, options, &mo, err);
}

/* The best column of a row as an id. */
static int best_of(struct trial *t, struct bench_model *side, int row, int32_t *id,
                   struct error *err)
{
    struct select_item item;
    int n = 0;
    int rc = model_best(side->model, row, 1, &t->arena, &item, &n, err);
    *id = !rc && n ? item.id : -1;
    return rc;
}

static int32_t draw(struct trial *t, uint64_t seed)
{
    const float *logits = model_logits(t->target.model, 0);
    int n_vocab = model_shard(t->target.model)->n_vocab;
    const struct rng_address at = {seed, (uint32_t)t->n, 0};
    double sum = 0, most = (double)logits[0], scale = 1.0 / (double)t->settings->temperature;
    for (int i = 1; i < n_vocab; i++) {
        if ((double)logits[i] > most) most = (double)logits[i];
    }
    for (int i = 0; i < n_vocab; i++) {
        sum += exp(((double)logits[i] - most) * scale);
    }
    double left = rng_uniform(&at, RNG_DRAFT, 0) * sum;
    for (int i = 0; i < n_vocab; i++) {
        left -= exp(((double)logits[i] - most) * scale);
        if (left < 0) return i;
    }
    return n_vocab - 1;
}

/* Feeds text[first .. end) to the target, of which the best token after each and the features of
 * `reading` are kept; one token after the other, because a step keeps one row of logits. */
static int read_text(struct trial *t, const struct head_reading *reading, int first, int end,
                     struct error *err)
{
    int rc = 0, n_columns = reading ? reading->n + (reading->normed ? 1 : 0) : 0;
    size_t dim = (size_t)checkpoint_config(t->target.ck)->dim;
    for (int i = first; i < end; i++) {
        const struct forward_lane lane = {
            .position = i, .n_tokens = 1, .tokens = t->text + i, .blocks = t->blocks};
        const struct forward_row row = {0, 0};
        TRY(model_forward(t->target.model, &lane, 1, &row, 1, err));
        TRY(best_of(t, &t->target, 0, &t->best[i], err));
        for (int c = 0; c < n_columns; c++) {
            const uint16_t *from = model_features(t->target.model, c, 0, 1);
            if (!from) return error_set(err, ERR_UNAVAILABLE, "the device is lost");
            memcpy(t->features + (size_t)i * (size_t)t->width + (size_t)c * dim, from,
                   dim * sizeof *from);
        }
    }
out:
    return rc;
}

static int write_text(struct trial *t, uint64_t seed, struct error *err)
{
    int rc = 0;
    t->n = t->n_begin;
    TRY(read_text(t, NULL, 0, t->n, err));
    while (t->n < t->settings->n_tokens) {
        bool is_greedy = t->settings->temperature <= 0;
        t->text[t->n] = is_greedy ? t->best[t->n - 1] : draw(t, seed);
        TRY(read_text(t, NULL, t->n, t->n + 1, err));
        t->n++;
    }
out:
    return rc;
}

static int step(struct trial *t, int position, int n, const uint16_t *rows, bool is_recycled,
                struct error *err)
{
    const struct forward_lane lane = {
        .position = position, .n_tokens = n, .tokens = t->text + position + 1, .blocks = t->blocks};
    const struct forward_features features = {rows, is_recycled ? 0 : n, rows};
    const struct forward_row row = {0, n - 1};
    return model_forward_head(t->head.model, &lane, &features, 1, &row, 1, err);
}

/* Counts the guess of a row of the last step, whose feature is of `position` or, of a head of
 * places, guess places earlier. */
static int count(struct trial *t, int reading, int position, int guess, int row, struct error *err)
{
    int32_t id;
    int rc = best_of(t, &t->head, row, &id, err);
    t->n_all[reading][guess]++;
    if (id == t->best[position + 1]) t->n_right[reading][guess]++;
    return rc;
}

/* Guesses of all places from the feature of row `start`. */
static int guess_places(struct trial *t, int reading, int start, struct error *err)
{
    int n_places = checkpoint_head(t->head.ck)->places.n, rc = 0;
    int n = n_places < GUESSES ? n_places : GUESSES;
    const struct forward_lane lane = {.n_tokens = n};
    const struct forward_features features = {
        .target = t->features + (size_t)start * (size_t)t->width, .n_target = 1};
    struct forward_row rows[GUESSES];
    for (int s = 0; s < n; s++) {
        rows[s] = (struct forward_row){0, s};
    }
    TRY(model_forward_head(t->head.model, &lane, &features, 1, rows, n, err));
    for (int s = 0; s < n; s++) {
        TRY(count(t, reading, start + s, s, s, err));
    }
out:
    arena_reset(&t->arena);
    return rc;
}

/* Guesses from row `start`; rows first .. start are read before. */
static int guess(struct trial *t, int reading, int first, int start, struct error *err)
{
    int rc = 0;
    for (int at = first; at <= start; at += CHUNK) {
        int n = start + 1 - at < CHUNK ? start + 1 - at : CHUNK;
        TRY(step(t, at, n, t->features + (size_t)at * (size_t)t->width, false, err));
        if (at + n <= start) continue;
        uint16_t *output = arena_take(&t->arena, (size_t)t->dim, sizeof *output);
        if (!output) return error_set(err, ERR_NO_MEMORY, "no room for a row");
        for (int s = 0; s < GUESSES; s++) {
            TRY(count(t, reading, start + s, s, 0, err));
            const uint16_t *row = model_features(t->head.model, 0, s ? 0 : n - 1, 1);
            if (!row) return error_set(err, ERR_UNAVAILABLE, "the device is lost");
            memcpy(output, row, (size_t)t->dim * sizeof *output);
            if (s + 1 < GUESSES) TRY(step(t, start + s + 1, 1, output, true, err));
        }
    }
out:
    arena_reset(&t->arena);
    return rc;
}

static int try_reading(struct trial *t, int r, struct error *err)
{
    const struct head_reading *reading = &t->readings[r];
    struct feature_wish wish = {.n = reading->n, .normed = reading->normed};
    int rc = 0, first = 0;
    memcpy(wish.boundaries, reading->boundaries, sizeof reading->boundaries);
    TRY(model_keep_features(t->target.model, &wish, err));
    TRY(read_text(t, reading, 0, t->n, err));
    TRY(model_keep_features(t->target.model, NULL, err));
    for (int start = t->n_begin; start + GUESSES + 1 < t->n; start += t->settings->every) {
        if (checkpoint_head(t->head.ck)->places.n) {
            TRY(guess_places(t, r, start, err));
        } else {
            TRY(guess(t, r, first, start, err));
        }
        first = start + 1;
    }
out:
    return rc;
}

/* Adds the reading of --boundaries. */
static int add_given(struct trial *t, const struct head_config *head, struct error *err)
{
    const struct settings *s = t->settings;
    struct head_reading *given = &t->readings[t->n_readings];
    if (s->n_given == 0) return 0;
    if (s->n_given != head->entry.n_features) {
        return error_set(err, ERR_ARGUMENT, "--boundaries has %d numbers, but the head reads %d",
                         s->n_given, head->entry.n_features);
    }
    *given = (struct head_reading){.name = "given", .n = s->n_given};
    for (int i = 0; i < s->n_given; i++) {
        given->boundaries[i] = (int)s->boundaries[i];
        if (i > 0 && given->boundaries[i] <= given->boundaries[i - 1]) {
            return error_set(err, ERR_ARGUMENT, "--boundaries must ascend");
        }
        if (given->boundaries[i] <= checkpoint_config(t->target.ck)->n_layers) continue;
        return error_set(err, ERR_ARGUMENT, "--boundaries has %d, but the target has %d layers",
                         given->boundaries[i], checkpoint_config(t->target.ck)->n_layers);
    }
    t->n_readings++;
    return 0;
}

static int open_trial(struct trial *t, struct error *err)
{
    const struct settings *s = t->settings;
    struct token_ids ids = {0};
    int rc = 0;
    for (int i = 0; i < BLOCKS_MAX; i++) {
        t->blocks[i] = i;
    }
    TRY(arena_open(&t->arena, ARENA_BYTES, err));
    TRY(checkpoint_open(&t->target.ck, s->target, err));
    const struct head_options options = {.target = t->target.ck};
    TRY(checkpoint_open_head(&t->head.ck, s->head, &options, err));
    const struct head_config *head = checkpoint_head(t->head.ck);
    if (head->block.size > 0) {
        rc = error_set(err, ERR_UNSUPPORTED,
                       "%s guesses blocks, and this measures heads that guess token after token",
                       s->head);
        goto out;
    }
    TRY(head_readings(head, checkpoint_config(t->target.ck)->n_layers, t->readings, &t->n_readings,
                      err));
    TRY(add_given(t, head, err));
    TRY(side_open(&t->target, &s->backend, err));
    TRY(side_open(&t->head, &s->backend, err));
    t->dim = checkpoint_config(t->head.ck)->dim;
    t->width = head->entry.n_features * head->entry.feature_dim;
    TRY(model_keep_output(t->head.model, err));
    TRY(mem_array(&t->features, (size_t)TEXT_MAX * (size_t)t->width, sizeof *t->features, err));
    TRY(tokenizer_open(&t->tok, checkpoint_name(t->target.ck), err));
    TRY(tokenizer_encode(t->tok, s->begin, strlen(s->begin), TOKENIZER_PARSE_SPECIAL, &ids, err));
    if (ids.n < 1 || ids.n >= (size_t)s->n_tokens) {
        rc = error_set(err, ERR_ARGUMENT, "--begin has %d tokens, must have 1 to %d", (int)ids.n,
                       s->n_tokens - 1);
        goto out;
    }
    t->n_begin = (int)ids.n;
    memcpy(t->text, ids.data, ids.n * sizeof *t->text);
out:
    token_ids_free(&ids);
    return rc;
}

static int run(struct trial *t, struct error *err)
{
    int rc = 0;
    TRY(open_trial(t, err));
    for (int i = 0; i < t->settings->n_texts; i++) {
        TRY(write_text(t, (uint64_t)i + 1, err));
        for (int r = 0; r < t->n_readings; r++) {
            TRY(try_reading(t, r, err));
        }
    }
    for (int r = 0; r < t->n_readings; r++) {
        const struct head_reading *reading = &t->readings[r];
        printf("%-16s", reading->name);
        for (int i = 0; i < reading->n; i++) {
            printf(" %d", reading->boundaries[i]);
        }
        printf(":");
        for (int s = 0; s < GUESSES; s++) {
            printf("  %.3f", (double)t->n_right[r][s] / (t->n_all[r][s] ? t->n_all[r][s] : 1));
        }
        printf("  of %d each\n", t->n_all[r][0]);
    }
out:
    return rc;
}

int main(int argc, char **argv)
{
    static struct trial trial;
    struct settings s = {
        .begin = "<|im_start|>user\n", .temperature = 1, .n_texts = 8, .n_tokens = 512, .every = 8};
    const struct bench_option options[] = {
        {"target", 'm', "MODEL", "the model that the head guesses for", .text = &s.target},
        {"head", 'd', "FOLDER", "the head", .text = &s.head},
        {"begin", 'b', "TEXT", "the beginning of each text; default <|im_start|>user",
         .text = &s.begin},
        {"texts", 't', "N", "default 8", 1, 4096, .number = &s.n_texts},
        {"tokens", 'n', "N", "of a text; default 512", 16, TEXT_MAX, .number = &s.n_tokens},
        {"every", 'e', "N", "rows from one start to the next; default 8", 1, TEXT_MAX,
         .number = &s.every},
        {"boundaries", 'B', "LIST", "a reading of one's own", 0, LAYERS_MAX,
         .list = {s.boundaries, &s.n_given, HEAD_FEATURES_MAX}},
        {"temperature", 'T', "T", "0: greedy; default 1", 0, 2, .fraction = &s.temperature},
        {0},
    };
    const struct bench_command command = {.options = options, .backend = &s.backend};
    struct error err = {0};
    bench_parse(argc, argv, &command);
    if (!s.target || !s.head) {
        fprintf(stderr, "bench_head: --target and --head are needed\n");
        return 2;
    }
    trial.settings = &s;
    int rc = run(&trial, &err);
    if (rc) fprintf(stderr, "bench_head: %s\n", err.text);
    bench_model_close(&trial.head);
    bench_model_close(&trial.target);
    tokenizer_close(trial.tok);
    arena_close(&trial.arena);
    free(trial.features);
    return rc ? 1 : 0;
}
