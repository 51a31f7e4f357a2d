/* How often a head's best guess is the target's best, for each reading of its features, on texts
 * that the target writes itself.
 *
 *   bench_head --target MODEL --head FOLDER [--begin TEXT] [--texts 8] [--tokens 512]
 *              [--temperature 1] [--every 8] [--boundaries LIST] [--device cpu]
 *
 * Each text begins with --begin and is drawn from the target. From every 8th row on the head makes
 * 5 guesses, teacher forced (model/head_proof.h). A line for each reading, with either value of
 * norm_before_residual where the format has it, has the share of guesses 1 to 5 that are the
 * target's best token at their place. --boundaries adds a reading of one's own, to see what a wrong
 * one costs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "bench/bench_model.h"
#include "bench/options.h"
#include "model/head_proof.h"
#include "model/model.h"
#include "model/tokenizer/ids.h"
#include "model/tokenizer/tokenizer.h"

enum { TEXT_MAX = 2048, BLOCKS_MAX = TEXT_MAX / KV_BLOCK_TOKENS + 2, ARENA_BYTES = 1 << 22 };

struct settings {
    const char *target, *head, *begin;
    struct backend_options backend;
    int n_texts, n_tokens, every;
    int32_t boundaries[HEAD_FEATURES_MAX]; /* "given"; n_given = 0: none are */
    int n_given;
    float temperature;
};

/* A text that the target writes. */
struct text {
    int32_t ids[TEXT_MAX], best[TEXT_MAX]; /* best: after ids[0 .. i] */
    int n;
    uint16_t *features; /* [n_tokens][columns][dim] */
};

struct trial {
    const struct settings *settings;
    struct bench_model target;
    struct head_proof *proof;
    struct tokenizer *tok;
    struct token_ids begin;
    struct arena arena;
    int32_t blocks[BLOCKS_MAX];
    struct text *texts;
};

/* The best id after the last token of the target's step. */
static int best_of(struct trial *t, int32_t *id, struct error *err)
{
    struct select_item item;
    int n = 0;
    arena_reset(&t->arena);
    int rc = model_best(t->target.model, 0, 1, &t->arena, &item, &n, err);
    *id = !rc && n ? item.id : -1;
    return rc;
}

static int32_t draw(struct trial *t, int n, uint64_t seed)
{
    const float *logits = model_logits(t->target.model, 0);
    int n_vocab = model_shard(t->target.model)->n_vocab;
    const struct rng_address at = {seed, (uint32_t)n, 0};
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

/* Feeds token i of the text to the target, of which the best token after it and the features are
 * kept. */
static int read_token(struct trial *t, struct text *text, int i, struct error *err)
{
    int rc = 0, n_columns = feature_wish_columns(head_proof_wish(t->proof));
    size_t dim = (size_t)checkpoint_config(t->target.ck)->dim;
    const struct forward_lane lane = {
        .position = i, .n_tokens = 1, .tokens = text->ids + i, .blocks = t->blocks};
    const struct forward_row row = {0, 0};
    TRY(model_forward(t->target.model, &lane, 1, &row, 1, err));
    TRY(best_of(t, &text->best[i], err));
    for (int c = 0; c < n_columns; c++) {
        const uint16_t *from = model_features(t->target.model, c, 0, 1);
        if (!from) return error_set(err, ERR_UNAVAILABLE, "the device is lost");
        size_t at = (size_t)i * (size_t)n_columns + (size_t)c;
        memcpy(text->features + at * dim, from, dim * sizeof *from);
    }
out:
    return rc;
}

static int write_text(struct trial *t, struct text *text, uint64_t seed, struct error *err)
{
    int rc = 0, n_tokens = t->settings->n_tokens;
    int n_columns = feature_wish_columns(head_proof_wish(t->proof));
    size_t dim = (size_t)checkpoint_config(t->target.ck)->dim;
    bool is_greedy = t->settings->temperature <= 0;
    TRY(mem_array(&text->features, (size_t)n_tokens * (size_t)n_columns * dim,
                  sizeof *text->features, err));
    for (text->n = 0; text->n < n_tokens; text->n++) {
        int n = text->n;
        bool is_begin = n < (int)t->begin.n;
        text->ids[n] = is_begin    ? t->begin.data[n]
                       : is_greedy ? text->best[n - 1]
                                   : draw(t, n, seed);
        TRY(read_token(t, text, n, err));
    }
out:
    return rc;
}

static int open_proof(struct trial *t, struct error *err)
{
    const struct settings *s = t->settings;
    struct head_reading given = {.name = "given", .n = s->n_given};
    for (int i = 0; i < s->n_given; i++) {
        given.boundaries[i] = (int)s->boundaries[i];
    }
    const struct head_proof_options options = {.folder = s->head,
                                               .head = {.target = t->target.ck},
                                               .n_layers =
                                                   checkpoint_config(t->target.ck)->n_layers,
                                               .backend = s->backend,
                                               .given = s->n_given ? &given : NULL,
                                               .n_tokens_max = s->n_tokens,
                                               .every = s->every};
    return head_proof_open(&t->proof, &options, err);
}

static int open_trial(struct trial *t, struct error *err)
{
    const struct settings *s = t->settings;
    const struct model_options mo = {
        .n_kv_blocks = BLOCKS_MAX, .max_tokens = 1, .max_rows = 1, .max_lanes = 1};
    int rc = 0;
    for (int i = 0; i < BLOCKS_MAX; i++) {
        t->blocks[i] = i;
    }
    TRY(arena_open(&t->arena, ARENA_BYTES, err));
    TRY(mem_array(&t->texts, (size_t)s->n_texts, sizeof *t->texts, err));
    TRY(checkpoint_open(&t->target.ck, s->target, err));
    TRY(open_proof(t, err));
    TRY(bench_model_open(&t->target, &s->backend, &mo, err));
    TRY(model_keep_features(t->target.model, head_proof_wish(t->proof), err));
    TRY(tokenizer_open(&t->tok, checkpoint_name(t->target.ck), err));
    TRY(tokenizer_encode(t->tok, s->begin, strlen(s->begin), TOKENIZER_PARSE_SPECIAL, &t->begin,
                         err));
    if (t->begin.n < 1 || t->begin.n >= (size_t)s->n_tokens) {
        rc = error_set(err, ERR_ARGUMENT, "--begin has %d tokens, must have 1 to %d",
                       (int)t->begin.n, s->n_tokens - 1);
    }
out:
    return rc;
}

static void print(const struct head_table *table)
{
    char text[HEAD_TRIAL_BYTES];
    for (int i = 0; i < table->n_trials; i++) {
        const struct head_trial *trial = &table->trials[i];
        printf("%s", head_trial_show(table, i, text));
        if (i > 0) {
            printf("; better at %d, worse at %d, chance %.2g", trial->n_better, trial->n_worse,
                   trial->chance);
        }
        printf("%s\n", i == table->chosen ? "; taken" : "");
    }
}

static int run(struct trial *t, struct error *err)
{
    struct head_proof_text *texts = NULL;
    bool is_done = false;
    int rc = 0, n = t->settings->n_texts;
    TRY(open_trial(t, err));
    TRY(mem_array(&texts, (size_t)n, sizeof *texts, err));
    for (int i = 0; i < n; i++) {
        struct text *text = &t->texts[i];
        TRY(write_text(t, text, (uint64_t)i + 1, err));
        texts[i] = (struct head_proof_text){text->n, (int)t->begin.n, text->ids, text->best,
                                            text->features};
    }
    TRY(head_proof_begin(t->proof, texts, n, err));
    while (!is_done) {
        TRY(head_proof_next(t->proof, &is_done, err));
    }
    print(head_proof_table(t->proof));
out:
    free(texts);
    return rc;
}

static void close_trial(struct trial *t)
{
    head_proof_close(t->proof);
    for (int i = 0; t->texts && i < t->settings->n_texts; i++) {
        free(t->texts[i].features);
    }
    free(t->texts);
    bench_model_close(&t->target);
    tokenizer_close(t->tok);
    token_ids_free(&t->begin);
    arena_close(&t->arena);
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
    close_trial(&trial);
    return rc ? 1 : 0;
}
