/* Measuring heads and drafts on texts of their target. */
#include "client/heads/candidate.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/least.h"
#include "comm/comm.h"
#include "model/checkpoint/checkpoint.h"
#include "model/model.h"
#include "speculation/theory/speedup.h"

enum {
    CHUNK = 64,
    BLOCKS = HEADS_TEXT_TOKENS / KV_BLOCK_TOKENS + 1,
    ARENA_BYTES = 4 << 20,
    TIMED_PASSES = 7,
    TIMED_ROWS = 5,
    TESTS_NEEDED = 10 /* of a guess, before its share is believed */
};

/* ---- heads ---- */

static int measure_head(struct heads_candidate *c, struct heads_texts *texts,
                        const struct backend_options *backend, struct error *err)
{
    struct head_proof *proof = NULL;
    const struct head_proof_text *list;
    const struct checkpoint *target = heads_texts_target(texts);
    const struct head_proof_options options = {.folder = c->name,
                                               .head = {.target = target},
                                               .n_layers = checkpoint_config(target)->n_layers,
                                               .backend = *backend,
                                               .n_tokens_max = HEADS_TEXT_TOKENS,
                                               .every = 1};
    int rc = 0, n;
    bool is_done = false;
    double several = 0;
    TRY(head_proof_open(&proof, &options, err));
    TRY(heads_texts_read(texts, head_proof_wish(proof), &list, &n, err));
    TRY(head_proof_begin(proof, list, n, err));
    while (!is_done) {
        TRY(head_proof_next(proof, &is_done, err));
    }
    TRY(head_proof_time(proof, 1, &c->pass_us, err));
    c->table = *head_proof_table(proof);
    int n_rows = c->table.n_places ? least(c->table.n_places, TIMED_ROWS) : TIMED_ROWS;
    TRY(head_proof_time(proof, n_rows, &several, err));
    c->row_us = n_rows > 1 && several > c->pass_us ? (several - c->pass_us) / (n_rows - 1) : 0;
    if (c->table.has_norm_choice) c->format = "EAGLE-3"; /* also if its file lacks that */
out:
    head_proof_close(proof);
    return rc;
}

/* ---- drafts ---- */

struct draft {
    struct checkpoint *ck;
    struct backend *backend;
    struct model *model;
    struct arena arena;
    int32_t blocks[BLOCKS];
};

static void close_draft(struct draft *d)
{
    model_close(d->model);
    if (d->backend) d->backend->ops->close(d->backend);
    checkpoint_close(d->ck);
    arena_close(&d->arena);
}

static int check_tokenizer(const struct heads_candidate *c, const struct draft *d,
                           const struct heads_texts *texts, struct error *err)
{
    struct tokenizer *own = NULL;
    int rc = 0;
    TRY(tokenizer_open(&own, checkpoint_name(d->ck), err));
    if (tokenizer_fingerprint(own) != tokenizer_fingerprint(heads_texts_tokenizer(texts))) {
        rc = error_set(err, ERR_ARGUMENT,
                       "%.200s has another vocabulary than the target, so it cannot guess for it",
                       c->name);
    }
out:
    tokenizer_close(own);
    return rc;
}

static int open_draft(struct draft *d, const struct heads_candidate *c,
                      const struct heads_texts *texts, const struct backend_options *backend,
                      struct error *err)
{
    struct backend_options options = *backend;
    int rc = 0;
    for (int i = 0; i < BLOCKS; i++) {
        d->blocks[i] = i;
    }
    TRY(checkpoint_open(&d->ck, c->name, err));
    TRY(check_tokenizer(c, d, texts, err));
    int n_vocab = least(checkpoint_config(d->ck)->vocab_size,
                        checkpoint_config(heads_texts_target(texts))->vocab_size);
    const struct model_options mo = {.n_kv_blocks = BLOCKS,
                                     .max_tokens = CHUNK,
                                     .max_rows = CHUNK,
                                     .max_lanes = 1,
                                     .n_vocab = n_vocab};
    options.stored = checkpoint_config(d->ck)->stored;
    options.no_graphs = true; /* times would include recording */
    TRY(backend_open(&d->backend, &options, err));
    TRY(model_open(&d->model, d->ck, comm_single(), d->backend, &mo, err));
    TRY(arena_open(&d->arena, ARENA_BYTES, err));
out:
    return rc;
}

/* The best ids after tokens first .. + n. */
static int guess(struct draft *d, const int32_t *ids, int first, int n, int32_t *best,
                 struct error *err)
{
    struct forward_row rows[CHUNK];
    struct select_item items[CHUNK];
    int indexes[CHUNK], n_items[CHUNK], rc = 0;
    const struct forward_lane lane = {
        .position = first, .n_tokens = n, .tokens = ids + first, .blocks = d->blocks};
    for (int i = 0; i < n; i++) {
        rows[i] = (struct forward_row){0, i};
        indexes[i] = i;
    }
    TRY(model_forward(d->model, &lane, 1, rows, n, err));
    arena_reset(&d->arena);
    TRY(model_best_rows(d->model, indexes, n, 1, &d->arena, items, n_items, err));
    for (int i = 0; i < n; i++) {
        best[i] = n_items[i] ? items[i].id : -1;
    }
out:
    return rc;
}

/* A draft reads the text itself, so guess s of a start is its best token after the s tokens that
 * follow the start. Its starts are those of a head (model/head_proof.h). */
static int read_text(struct draft *d, const struct head_proof_text *text, uint8_t *right,
                     int *n_starts, struct error *err)
{
    int32_t best[HEADS_TEXT_TOKENS];
    int rc = 0;
    for (int at = 0; at < text->n; at += CHUNK) {
        TRY(guess(d, text->ids, at, least(CHUNK, text->n - at), best + at, err));
    }
    for (int row = text->n_begin; row + HEAD_TABLE_GUESSES < text->n; row++) {
        uint8_t bits = 0;
        for (int s = 0; s < HEAD_TABLE_GUESSES; s++) {
            bool is_right = best[row + 1 + s] == text->best[row + 1 + s];
            bits = (uint8_t)(bits | (is_right ? 1 << s : 0));
        }
        right[(*n_starts)++] = bits;
    }
out:
    return rc;
}

/* The shortest, because nothing makes a pass too short. */
static int time_passes(struct draft *d, const struct head_proof_text *text, int n_rows, double *us,
                       struct error *err)
{
    int32_t best[CHUNK];
    int rc = 0, n = least(n_rows, text->n);
    for (int i = 0; i < TIMED_PASSES; i++) {
        int64_t start_ns = clock_now_ns();
        TRY(guess(d, text->ids, text->n - n, n, best, err));
        double took_us = (double)(clock_now_ns() - start_ns) * 1e-3;
        if (i == 0 || took_us < *us) *us = took_us;
    }
out:
    return rc;
}

static int read_texts(struct heads_candidate *c, struct draft *d, struct heads_texts *texts,
                      struct error *err)
{
    static uint8_t right[SAMPLE_PROMPTS * HEADS_TEXT_TOKENS];
    static const float scores[SAMPLE_PROMPTS * HEADS_TEXT_TOKENS];
    const struct head_proof_text *list;
    int rc = 0, n;
    double several = 0;
    TRY(heads_texts_read(texts, NULL, &list, &n, err));
    c->table = (struct head_table){.n_trials = 1, .trials = {{.reading = {.name = "draft"}}}};
    for (int i = n - 1; i >= 0; i--) { /* the first one last: it is timed */
        TRY(read_text(d, &list[i], right, &c->table.n_starts, err));
    }
    head_table_count(&c->table, 0, right, scores, scores);
    head_table_choose(&c->table);
    TRY(time_passes(d, &list[0], 1, &c->pass_us, err));
    TRY(time_passes(d, &list[0], TIMED_ROWS, &several, err));
    c->row_us = several > c->pass_us ? (several - c->pass_us) / (TIMED_ROWS - 1) : 0;
out:
    return rc;
}

static int measure_draft(struct heads_candidate *c, struct heads_texts *texts,
                         const struct backend_options *backend, struct error *err)
{
    struct draft draft = {0};
    int rc = 0;
    TRY(open_draft(&draft, c, texts, backend, err));
    TRY(read_texts(c, &draft, texts, err));
out:
    close_draft(&draft);
    return rc;
}

/* ---- both ---- */

/* The name of its format; NULL: it is no head. The config.json of some heads is that of a model. */
static const char *format_of(const char *name, const struct heads_texts *texts)
{
    struct checkpoint *ck = NULL;
    struct error ignored;
    const struct head_options options = {.target = heads_texts_target(texts)};
    const char *format = checkpoint_is_head_folder(name) ? "head" : NULL;
    if (!checkpoint_open_head(&ck, name, &options, &ignored)) {
        format = head_format_name(checkpoint_head(ck));
    }
    checkpoint_close(ck);
    return format;
}

void heads_measure(struct heads_candidate *c, struct heads_texts *texts,
                   const struct backend_options *backend)
{
    struct error err = {0};
    c->format = format_of(c->name, texts);
    int rc =
        c->format ? measure_head(c, texts, backend, &err) : measure_draft(c, texts, backend, &err);
    if (!c->format) c->format = "draft";
    if (rc) c->failure = err;
}

/* The chance that each guess stays if it is tested. Guesses further than those that were measured,
 * and those that were tested too little, are taken to be like the one before. */
static void list_alpha(const struct head_table *table, double alpha[DRAFT_MAX])
{
    const struct head_trial *t = &table->trials[table->chosen];
    for (int i = 0; i < DRAFT_MAX; i++) {
        int n_tested = i == 0 ? table->n_starts : i < HEAD_TABLE_GUESSES ? t->n_kept[i - 1] : 0;
        bool is_known = i == 0 || n_tested >= TESTS_NEEDED;
        alpha[i] = is_known ? head_trial_alpha(table, table->chosen, i) : alpha[i - 1];
    }
}

/* The time of a round's k guesses, where rounds have so many tokens. A head reads all tokens of the
 * round before but for a head of places; a draft has read what it has guessed. */
static double guesses_us(const struct heads_candidate *c, int k, double tokens)
{
    bool is_head = strcmp(c->format, "draft") != 0;
    double first_us = c->pass_us + (is_head && !c->table.n_places ? (tokens - 1) * c->row_us : 0);
    return first_us + (k - 1) * (c->table.is_parallel ? c->row_us : c->pass_us);
}

void heads_predict(struct heads_candidate *c, const struct heads_texts *texts, int k_max,
                   double rtt)
{
    double alpha[DRAFT_MAX], plain_us = heads_texts_step_us(texts, 1), best = 0;
    if (c->table.n_places) k_max = least(k_max, c->table.n_places);
    list_alpha(&c->table, alpha);
    for (int k = 1; k <= k_max; k++) {
        double tokens = speedup_tokens_at(alpha, k);
        double us = guesses_us(c, k, tokens) + heads_texts_step_us(texts, k + 1) + rtt * plain_us;
        if (tokens / us <= best) continue;
        best = tokens / us;
        c->k = k;
        c->tokens = tokens;
    }
    c->tokens_per_second = 1e6 * best;
    c->ratio = best * (1 + rtt) * plain_us;
}
