/* Writing texts with a model, reading them again with features, and timing its steps. */
#include "client/heads/texts.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/least.h"
#include "comm/comm.h"
#include "model/checkpoint/checkpoint.h"
#include "model/model.h"
#include "speculation/theory/rising.h"

enum {
    CHUNK = 64,
    BLOCKS = HEADS_TEXT_TOKENS / KV_BLOCK_TOKENS + 1,
    ARENA_BYTES = 4 << 20,
    TIMED_STEPS = 7
};

struct text {
    int32_t ids[HEADS_TEXT_TOKENS], best[HEADS_TEXT_TOKENS];
    int n, n_begin;
    uint16_t *features;
};

struct heads_texts {
    struct backend_options options;
    struct checkpoint *ck;
    struct backend *backend;
    struct model *model;
    struct tokenizer *tok;
    struct chat_template *chat;
    struct arena arena;
    int32_t blocks[BLOCKS];
    struct text *texts; /* [SAMPLE_PROMPTS] */
    struct head_proof_text list[SAMPLE_PROMPTS];
    int n_texts, n_written;
    double step_us[DRAFT_MAX + 2]; /* by rows */
};

/* Feeds tokens first .. + n of a text, and asks for the row of the last one. */
static int feed(struct heads_texts *t, const struct text *text, int first, int n, struct error *err)
{
    const struct forward_lane lane = {
        .position = first, .n_tokens = n, .tokens = text->ids + first, .blocks = t->blocks};
    const struct forward_row row = {0, n - 1};
    return model_forward(t->model, &lane, 1, &row, 1, err);
}

/* ---- writing ---- */

static int write_token(struct heads_texts *t, struct text *text, struct error *err)
{
    struct select_item item;
    int n = 0, rc = 0, last = text->n - 1;
    arena_reset(&t->arena);
    TRY(model_best(t->model, 0, 1, &t->arena, &item, &n, err));
    if (n == 0) return error_set(err, ERR_FORMAT, "the target's logits are no numbers");
    text->best[last] = text->ids[text->n] = item.id;
    text->n++;
    t->n_written++;
out:
    return rc;
}

/* The last token of a text is not fed: nothing is known of what comes after it. */
static int write_text(struct heads_texts *t, int number, int n_tokens, struct error *err)
{
    struct text *text = &t->texts[number];
    const struct model_config *cfg = checkpoint_config(t->ck);
    struct token_ids prompt = {0};
    int rc = 0, most = least(HEADS_TEXT_TOKENS, cfg->max_positions);
    TRY(sample_prompt(&prompt, number, t->tok, t->chat, (int64_t)time(NULL), HEADS_PROMPT_TOKENS,
                      err));
    text->n = text->n_begin = (int)prompt.n;
    memcpy(text->ids, prompt.data, prompt.n * sizeof *text->ids);
    for (int at = 0; at < text->n; at += CHUNK) {
        TRY(feed(t, text, at, least(CHUNK, text->n - at), err));
    }
    while (text->n < least(most, text->n_begin + n_tokens)) {
        TRY(write_token(t, text, err));
        if (end_ids_have(&cfg->ends, text->ids[text->n - 1])) break;
        TRY(feed(t, text, text->n - 1, 1, err));
    }
    t->n_texts++;
out:
    token_ids_free(&prompt);
    return rc;
}

/* ---- times ---- */

/* The shortest, because nothing makes a step too short. */
static int time_steps(struct heads_texts *t, int n_rows, struct error *err)
{
    struct forward_row rows[DRAFT_MAX + 1];
    const struct text *text = &t->texts[0];
    double *us = &t->step_us[n_rows];
    int rc = 0, n = least(n_rows, text->n - 1), first = text->n - 1 - n;
    const struct forward_lane lane = {
        .position = first, .n_tokens = n, .tokens = text->ids + first, .blocks = t->blocks};
    for (int i = 0; i < n; i++) {
        rows[i] = (struct forward_row){0, i};
    }
    for (int i = 0; i < TIMED_STEPS; i++) {
        int64_t start_ns = clock_now_ns();
        TRY(model_forward(t->model, &lane, 1, rows, n, err));
        TRY(model_wait(t->model, err));
        double took_us = (double)(clock_now_ns() - start_ns) * 1e-3;
        if (i == 0 || took_us < *us) *us = took_us;
    }
out:
    return rc;
}

/* ---- open ---- */

static int open_model(struct heads_texts *t, struct error *err)
{
    const struct model_options options = {
        .n_kv_blocks = BLOCKS, .max_tokens = CHUNK, .max_rows = DRAFT_MAX + 1, .max_lanes = 1};
    int rc = 0;
    t->options.stored = checkpoint_config(t->ck)->stored;
    t->options.no_graphs = true; /* times would include recording */
    TRY(backend_open(&t->backend, &t->options, err));
    TRY(model_open(&t->model, t->ck, comm_single(), t->backend, &options, err));
out:
    return rc;
}

int heads_texts_open(struct heads_texts **texts, const char *name,
                     const struct backend_options *backend, int n_tokens, int k_max,
                     struct error *err)
{
    struct heads_texts *t = NULL;
    int rc = 0, each = (n_tokens + SAMPLE_PROMPTS - 1) / SAMPLE_PROMPTS;
    *texts = NULL;
    TRY(mem_array(&t, 1, sizeof *t, err));
    t->options = *backend;
    for (int i = 0; i < BLOCKS; i++) {
        t->blocks[i] = i;
    }
    TRY(arena_open(&t->arena, ARENA_BYTES, err));
    TRY(mem_array(&t->texts, SAMPLE_PROMPTS, sizeof *t->texts, err));
    TRY(checkpoint_open(&t->ck, name, err));
    TRY(tokenizer_open(&t->tok, checkpoint_name(t->ck), err));
    TRY(chat_template_open(&t->chat, checkpoint_name(t->ck), NULL, err));
    TRY(open_model(t, err));
    for (int i = 0; i < SAMPLE_PROMPTS; i++) {
        TRY(write_text(t, i, each, err));
    }
    TRY(heads_texts_read(t, NULL, NULL, NULL, err)); /* the KV of the first text, too */
    for (int n = 1; n <= k_max + 1; n++) {
        TRY(time_steps(t, n, err));
    }
    rising_fit(t->step_us + 1, k_max + 1);
    *texts = t;
    t = NULL;
out:
    heads_texts_close(t);
    return rc;
}

void heads_texts_close(struct heads_texts *t)
{
    if (!t) return;
    for (int i = 0; t->texts && i < SAMPLE_PROMPTS; i++) {
        free(t->texts[i].features);
    }
    free(t->texts);
    model_close(t->model);
    if (t->backend) t->backend->ops->close(t->backend);
    chat_template_close(t->chat);
    tokenizer_close(t->tok);
    checkpoint_close(t->ck);
    arena_close(&t->arena);
    free(t);
}

/* ---- reading ---- */

static int read_text(struct heads_texts *t, struct text *text, int n_columns, struct error *err)
{
    int rc = 0, n_fed = text->n - 1;
    size_t dim = (size_t)checkpoint_config(t->ck)->dim;
    free(text->features);
    text->features = NULL;
    TRY(mem_array(&text->features, (size_t)n_fed * (size_t)n_columns * dim, sizeof(uint16_t), err));
    for (int at = 0; at < n_fed; at += CHUNK) {
        int n = least(CHUNK, n_fed - at);
        TRY(feed(t, text, at, n, err));
        for (int c = 0; c < n_columns; c++) {
            const uint16_t *rows = model_features(t->model, c, 0, n);
            if (!rows) return error_set(err, ERR_UNAVAILABLE, "the device is lost");
            for (int i = 0; i < n; i++) {
                size_t to = (size_t)(at + i) * (size_t)n_columns + (size_t)c;
                memcpy(text->features + to * dim, rows + (size_t)i * dim, dim * sizeof *rows);
            }
        }
    }
out:
    return rc;
}

int heads_texts_read(struct heads_texts *t, const struct feature_wish *wish,
                     const struct head_proof_text **list, int *n, struct error *err)
{
    int rc = 0, n_columns = wish ? feature_wish_columns(wish) : 0;
    TRY(model_keep_features(t->model, wish, err));
    for (int i = t->n_texts - 1; i >= 0; i--) {
        struct text *text = &t->texts[i];
        TRY(read_text(t, text, n_columns, err));
        t->list[i] = (struct head_proof_text){text->n - 1, text->n_begin, text->ids, text->best,
                                              text->features};
    }
    TRY(model_keep_features(t->model, NULL, err));
    if (list) *list = t->list;
    if (n) *n = t->n_texts;
out:
    return rc;
}

const struct checkpoint *heads_texts_target(const struct heads_texts *t)
{
    return t->ck;
}

const struct tokenizer *heads_texts_tokenizer(const struct heads_texts *t)
{
    return t->tok;
}

double heads_texts_step_us(const struct heads_texts *t, int n_rows)
{
    return t->step_us[n_rows];
}

int heads_texts_tokens(const struct heads_texts *t)
{
    return t->n_written;
}
