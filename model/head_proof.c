/* Tries the readings of a head on texts. Of each text the head first reads all rows with the
 * target's features, some at a time, and makes its first guess after each. Then the starts follow,
 * the last one first: the rows of a start's further guesses overwrite only such rows as no start
 * before it reads. A head of places has no rows of its own, so its starts are all that it does,
 * some at a time. */
#include "model/head_proof.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/clock.h"
#include "base/memory.h"
#include "model/checkpoint/checkpoint.h"
#include "model/model.h"

enum {
    CHUNK = HEAD_PROOF_ROWS,
    LANES = CHUNK / HEAD_TABLE_GUESSES, /* starts of a pass of a head of places */
    VARIANTS = 2,
    ARENA_BYTES = 4 << 20,
    TIMED_PASSES = 7
};

/* The head with one value of norm_before_residual. */
struct variant {
    struct checkpoint *ck;
    struct model *model;
};

struct head_proof {
    struct head_proof_options options;
    struct backend *backend;
    struct variant variants[VARIANTS]; /* [n_variants] */
    int n_variants, n_readings;
    struct feature_wish wish;
    struct head_table table;
    int width, dim; /* of the target's features, of the head */
    const struct head_proof_text *texts;
    int n_texts;
    uint8_t *right;    /* [n_trials][n_starts] bit s: guess s is right */
    float *scores;     /* [n_trials][n_starts] log q of the right token at the first guess */
    uint16_t *rows;    /* [CHUNK][width or dim, whichever is more] */
    uint16_t *outputs; /* [n_tokens_max][dim] of the rows of the text */
    int32_t *blocks;
    struct arena arena;
    /* Next, rows of the text from n_read on are read, then starts down to 0 guess. */
    int trial, text, n_read, start;
    int n_before; /* starts of the texts before */
};

/* ---- starts ---- */

/* Starts of a text, from row n_begin on; the last guess is held against the text, too. */
static int count_starts(const struct head_proof *p, const struct head_proof_text *text)
{
    int n = text->n - HEAD_TABLE_GUESSES - text->n_begin;
    return n > 0 ? (n + p->options.every - 1) / p->options.every : 0;
}

static int row_of(const struct head_proof *p, const struct head_proof_text *text, int start)
{
    return text->n_begin + start * p->options.every;
}

/* The start's index among all of the trial that goes on. */
static size_t index_of(const struct head_proof *p, int start)
{
    size_t first = (size_t)p->trial * (size_t)p->table.n_starts;
    return first + (size_t)(p->n_before + start);
}

/* ---- passes ---- */

static struct model *model_of(const struct head_proof *p)
{
    return p->variants[p->trial / p->n_readings].model;
}

/* The best ids of n rows of the last step; -1: the row has none. */
static int best_of(struct head_proof *p, int n, int32_t *ids, struct error *err)
{
    int rows[CHUNK], n_items[CHUNK], rc = 0;
    struct select_item items[CHUNK];
    for (int i = 0; i < n; i++) {
        rows[i] = i;
    }
    arena_reset(&p->arena);
    TRY(model_best_rows(model_of(p), rows, n, 1, &p->arena, items, n_items, err));
    for (int i = 0; i < n; i++) {
        ids[i] = n_items[i] ? items[i].id : -1;
    }
out:
    return rc;
}

/* The logarithm of the chance that the head gives a token in a row of the last step; -inf: it never
 * guesses this one. */
static int score_of(const struct head_proof *p, int row, int32_t id, float *score,
                    struct error *err)
{
    const struct checkpoint *ck = p->variants[0].ck;
    const int32_t *ids = checkpoint_head_ids(ck);
    const float *logits = model_logits(model_of(p), row);
    int n = ids ? checkpoint_head(ck)->n_columns : checkpoint_config(ck)->vocab_size;
    float most = -INFINITY;
    double sum = 0;
    if (!logits) return error_set(err, ERR_UNAVAILABLE, "the device is lost");
    int column = ids ? 0 : id;
    while (ids && column < n && ids[column] != id) {
        column++;
    }
    for (int i = 0; i < n; i++) {
        if (logits[i] > most) most = logits[i];
    }
    for (int i = 0; i < n; i++) {
        sum += exp((double)(logits[i] - most));
    }
    *score = column < n ? logits[column] - most - (float)log(sum) : -INFINITY;
    return 0;
}

/* Rows position .. + n that read tokens[n], with all their logits. */
static int forward(struct head_proof *p, const int32_t *tokens, int position, int n,
                   const struct forward_features *features, struct error *err)
{
    struct forward_row rows[CHUNK];
    const struct forward_lane lane = {
        .position = position, .n_tokens = n, .tokens = tokens, .blocks = p->blocks};
    for (int i = 0; i < n; i++) {
        rows[i] = (struct forward_row){0, i};
    }
    return model_forward_head(model_of(p), &lane, features, 1, rows, n, err);
}

/* As forward, with the text's own tokens; the outputs are kept. */
static int pass(struct head_proof *p, const struct head_proof_text *text, int position, int n,
                const struct forward_features *features, struct error *err)
{
    int rc = 0;
    size_t dim = (size_t)p->dim;
    TRY(forward(p, text->ids + position + 1, position, n, features, err));
    const uint16_t *output = model_features(model_of(p), 0, 0, n);
    if (!output) return error_set(err, ERR_UNAVAILABLE, "the device is lost");
    memcpy(p->outputs + (size_t)position * dim, output, (size_t)n * dim * sizeof *output);
out:
    return rc;
}

/* The features of a row, as the reading of the trial has them. */
static void gather(const struct head_proof *p, const struct head_proof_text *text, int row,
                   uint16_t *out)
{
    const struct head_reading *reading = &p->table.trials[p->trial].reading;
    int n_columns = feature_wish_columns(&p->wish), n = reading->normed ? 1 : reading->n;
    size_t dim = (size_t)(p->width / n);
    for (int i = 0; i < n; i++) {
        int column =
            reading->normed ? p->wish.n : feature_wish_column(&p->wish, reading->boundaries[i]);
        size_t at = (size_t)row * (size_t)n_columns + (size_t)column;
        memcpy(out + (size_t)i * dim, text->features + at * dim, dim * sizeof *out);
    }
}

/* Reads the next rows, and makes the first guesses of the starts among them. */
static int read_rows(struct head_proof *p, const struct head_proof_text *text, int n_rows,
                     struct error *err)
{
    int32_t best[CHUNK];
    int first = p->n_read, n = least(CHUNK, n_rows - first), rc = 0;
    for (int i = 0; i < n; i++) {
        gather(p, text, first + i, p->rows + (size_t)i * (size_t)p->width);
    }
    const struct forward_features features = {.target = p->rows, .n_target = n};
    TRY(pass(p, text, first, n, &features, err));
    TRY(best_of(p, n, best, err));
    for (int i = 0; i < n; i++) {
        int distance = first + i - text->n_begin;
        if (distance < 0 || distance % p->options.every) continue;
        size_t at = index_of(p, distance / p->options.every);
        p->right[at] = best[i] == text->best[first + i + 1];
        TRY(score_of(p, i, text->best[first + i + 1], &p->scores[at], err));
    }
    p->n_read += n;
out:
    return rc;
}

/* The further guesses of a start in one pass: each row reads a mask. */
static int guess_masks(struct head_proof *p, const struct head_proof_text *text, struct error *err)
{
    enum { N = HEAD_TABLE_GUESSES - 1 };
    const struct checkpoint *ck = p->variants[p->trial / p->n_readings].ck;
    int32_t masks[N], best[N];
    int row = row_of(p, text, p->start), rc = 0;
    size_t width = (size_t)p->width;
    for (int i = 0; i < N; i++) {
        masks[i] = checkpoint_head(ck)->mask_token_id;
        memcpy(p->rows + (size_t)i * width, checkpoint_head_mask(ck), width * sizeof *p->rows);
    }
    const struct forward_features features = {.target = p->rows, .n_target = N};
    TRY(forward(p, masks, row + 1, N, &features, err));
    TRY(best_of(p, N, best, err));
    for (int s = 1; s < HEAD_TABLE_GUESSES; s++) {
        bool is_right = best[s - 1] == text->best[row + s + 1];
        if (is_right) p->right[index_of(p, p->start)] |= (uint8_t)(1 << s);
    }
out:
    return rc;
}

/* The further guesses of a start. */
static int guess_on(struct head_proof *p, const struct head_proof_text *text, struct error *err)
{
    int row = row_of(p, text, p->start), rc = 0;
    size_t dim = (size_t)p->dim;
    for (int s = 1; s < HEAD_TABLE_GUESSES; s++) {
        int32_t best;
        memcpy(p->rows, p->outputs + (size_t)(row + s - 1) * dim, dim * sizeof *p->rows);
        const struct forward_features features = {.recycled = p->rows};
        TRY(pass(p, text, row + s, 1, &features, err));
        TRY(best_of(p, 1, &best, err));
        if (best == text->best[row + s + 1]) p->right[index_of(p, p->start)] |= (uint8_t)(1 << s);
    }
out:
    return rc;
}

/* ---- heads of places ---- */

/* Places whose guesses are looked at; 0: the head is none of places. */
static int count_places(const struct head_proof *p)
{
    return least(checkpoint_head(p->variants[0].ck)->places.n, HEAD_TABLE_GUESSES);
}

/* A pass from the features of n_lanes rows, p->rows. */
static int forward_places(struct head_proof *p, int n_lanes, int n_places, struct error *err)
{
    struct forward_lane lanes[LANES];
    struct forward_features features[LANES];
    struct forward_row rows[LANES * HEAD_TABLE_GUESSES];
    for (int i = 0; i < n_lanes; i++) {
        lanes[i] = (struct forward_lane){.n_tokens = n_places};
        features[i] = (struct forward_features){.target = p->rows + (size_t)i * (size_t)p->width,
                                                .n_target = 1};
        for (int s = 0; s < n_places; s++) {
            rows[i * n_places + s] = (struct forward_row){i, s};
        }
    }
    return model_forward_head(model_of(p), lanes, features, n_lanes, rows, n_lanes * n_places, err);
}

/* All guesses of the last starts that are left. */
static int guess_places(struct head_proof *p, const struct head_proof_text *text, struct error *err)
{
    int32_t best[LANES * HEAD_TABLE_GUESSES];
    int n_places = count_places(p), n = least(LANES, p->start + 1), first = p->start + 1 - n;
    int rc = 0;
    for (int i = 0; i < n; i++) {
        gather(p, text, row_of(p, text, first + i), p->rows + (size_t)i * (size_t)p->width);
    }
    TRY(forward_places(p, n, n_places, err));
    TRY(best_of(p, n * n_places, best, err));
    for (int i = 0; i < n; i++) {
        const int32_t *wanted = text->best + row_of(p, text, first + i) + 1;
        size_t at = index_of(p, first + i);
        p->right[at] = 0;
        for (int s = 0; s < n_places; s++) {
            bool is_right = best[i * n_places + s] == wanted[s];
            p->right[at] |= (uint8_t)(is_right ? 1 << s : 0);
        }
        TRY(score_of(p, i * n_places, wanted[0], &p->scores[at], err));
    }
    p->start = first - 1;
out:
    return rc;
}

/* ---- the order ---- */

static void begin_text(struct head_proof *p)
{
    p->n_read = 0;
    p->start = count_starts(p, &p->texts[p->text]) - 1;
}

/* Goes on to the next text, and after the last one to the next trial. */
static void end_text(struct head_proof *p)
{
    p->n_before += count_starts(p, &p->texts[p->text]);
    if (++p->text == p->n_texts) {
        size_t first = (size_t)p->trial * (size_t)p->table.n_starts;
        head_table_count(&p->table, p->trial, p->right + first, p->scores + first, p->scores);
        p->trial++;
        p->text = p->n_before = 0;
    }
    if (p->trial < p->table.n_trials) begin_text(p);
}

static int guess(struct head_proof *p, const struct head_proof_text *text, struct error *err)
{
    int rc = 0;
    if (count_places(p)) return guess_places(p, text, err);
    if (p->table.is_parallel) {
        TRY(guess_masks(p, text, err));
    } else {
        TRY(guess_on(p, text, err));
    }
    p->start--;
out:
    return rc;
}

int head_proof_next(struct head_proof *p, bool *is_done, struct error *err)
{
    int rc = 0;
    *is_done = p->trial == p->table.n_trials;
    if (*is_done) return 0;
    const struct head_proof_text *text = &p->texts[p->text];
    int n_starts = count_starts(p, text);
    int n_rows = n_starts && !count_places(p) ? row_of(p, text, n_starts - 1) + 1 : 0;
    if (p->n_read < n_rows) {
        TRY(read_rows(p, text, n_rows, err));
    } else if (p->start >= 0) {
        TRY(guess(p, text, err));
    }
    if (p->n_read == n_rows && p->start < 0) end_text(p);
    *is_done = p->trial == p->table.n_trials;
    if (*is_done) head_table_choose(&p->table);
out:
    return rc;
}

int head_proof_begin(struct head_proof *p, const struct head_proof_text *texts, int n_texts,
                     struct error *err)
{
    int rc = 0;
    p->texts = texts;
    p->n_texts = n_texts;
    p->trial = p->text = p->n_before = p->table.n_starts = 0;
    for (int i = 0; i < n_texts; i++) {
        p->table.n_starts += count_starts(p, &texts[i]);
        if (texts[i].n <= p->options.n_tokens_max) continue;
        return error_set(err, ERR_ARGUMENT, "a text of %d tokens; at most %d were announced",
                         texts[i].n, p->options.n_tokens_max);
    }
    if (p->table.n_starts == 0) {
        return error_set(err, ERR_ARGUMENT,
                         "the texts are too short to prove a head: after the beginning each needs "
                         "more than %d tokens",
                         HEAD_TABLE_GUESSES);
    }
    size_t n = (size_t)p->table.n_trials * (size_t)p->table.n_starts;
    free(p->right);
    free(p->scores);
    p->scores = NULL;
    TRY(mem_array(&p->right, n, sizeof *p->right, err));
    TRY(mem_array(&p->scores, n, sizeof *p->scores, err));
    begin_text(p);
out:
    return rc;
}

/* ---- open ---- */

static int open_backend(struct head_proof *p, const struct checkpoint *ck, struct error *err)
{
    struct backend_options options = p->options.backend;
    options.stored = checkpoint_config(ck)->stored;
    options.no_graphs = true; /* because two models take turns on it */
    return backend_open(&p->backend, &options, err);
}

static int open_variant(struct head_proof *p, enum head_choice choice, struct error *err)
{
    struct variant *v = &p->variants[p->n_variants];
    struct head_options options = p->options.head;
    const struct model *like = p->n_variants ? p->variants[0].model : p->options.like;
    int rc = 0;
    if (choice != HEAD_AS_STORED) options.norm_before_residual = choice;
    TRY(checkpoint_open_head(&v->ck, p->options.folder, &options, err));
    if (checkpoint_head(v->ck)->block.size > 0) {
        rc = error_set(err, ERR_UNSUPPORTED, "%s is of %s, whose blocks cannot be drafted yet",
                       p->options.folder, head_format_name(checkpoint_head(v->ck)));
        goto out;
    }
    if (!p->backend) TRY(open_backend(p, v->ck, err));
    bool has_places = checkpoint_head(v->ck)->places.n > 0;
    int n_kv_blocks = p->options.n_tokens_max / KV_BLOCK_TOKENS + 1;
    const struct model_options mo = {.n_kv_blocks = has_places ? 0 : n_kv_blocks,
                                     .max_tokens = CHUNK,
                                     .max_rows = CHUNK,
                                     .max_lanes = has_places ? LANES : 1,
                                     .like = like};
    TRY(model_open(&v->model, v->ck, comm_single(), p->backend, &mo, err));
    TRY(model_keep_output(v->model, err));
    p->n_variants++;
out:
    if (rc) {
        model_close(v->model);
        checkpoint_close(v->ck);
        *v = (struct variant){0};
    }
    return rc;
}

/* The first one is what the file says. If it should say what norm_before_residual is and does not,
 * both are tried, and none of them is what the file says. */
static int open_variants(struct head_proof *p, struct error *err)
{
    int rc = 0;
    bool is_given = p->options.head.norm_before_residual != HEAD_AS_STORED;
    rc = open_variant(p, HEAD_AS_STORED, err);
    p->table.is_open = rc == ERR_UNSUPPORTED && !is_given;
    if (p->table.is_open) rc = open_variant(p, HEAD_NO, err);
    if (rc || is_given) return rc;
    const struct head_config *head = checkpoint_head(p->variants[0].ck);
    if (head->format != HEAD_EAGLE3) return 0;
    p->table.has_norm_choice = true;
    return open_variant(p, head->entry.keeps_normed ? HEAD_NO : HEAD_YES, err);
}

static int check_given(const struct head_proof *p, const struct head_config *head,
                       struct error *err)
{
    const struct head_reading *given = p->options.given;
    int n = given->normed ? 1 : given->n;
    if (n != head->entry.n_features) {
        return error_set(err, ERR_ARGUMENT, "%d features are given, but the head reads %d", n,
                         head->entry.n_features);
    }
    for (int i = 0; i < given->n; i++) {
        int least = i ? given->boundaries[i - 1] + 1 : 0;
        if (given->boundaries[i] >= least && given->boundaries[i] <= p->options.n_layers) continue;
        return error_set(err, ERR_ARGUMENT,
                         "boundary %d: they must ascend, and the target has %d layers",
                         given->boundaries[i], p->options.n_layers);
    }
    return 0;
}

/* All readings with each of the variants. */
static int list_trials(struct head_proof *p, struct error *err)
{
    struct head_reading readings[HEAD_READINGS_MAX + 1];
    const struct head_config *head = checkpoint_head(p->variants[0].ck);
    int rc = 0, n = 0;
    TRY(head_readings(head, p->options.n_layers, readings, &n, err));
    if (p->options.given) {
        TRY(check_given(p, head, err));
        readings[n++] = *p->options.given;
    }
    p->n_readings = n;
    for (int v = 0; v < p->n_variants; v++) {
        bool keeps_normed = checkpoint_head(p->variants[v].ck)->entry.keeps_normed;
        for (int i = 0; i < n; i++) {
            p->table.trials[p->table.n_trials++] =
                (struct head_trial){.reading = readings[i], .keeps_normed = keeps_normed};
        }
    }
    for (int i = 0; i < n; i++) {
        struct feature_wish part = {.n = readings[i].n, .normed = readings[i].normed};
        memcpy(part.boundaries, readings[i].boundaries, sizeof readings[i].boundaries);
        feature_wish_add(&p->wish, &part);
    }
out:
    return rc;
}

int head_proof_open(struct head_proof **proof, const struct head_proof_options *options,
                    struct error *err)
{
    struct head_proof *p = NULL;
    int rc = 0;
    *proof = NULL;
    TRY(mem_array(&p, 1, sizeof *p, err));
    p->options = *options;
    TRY(arena_open(&p->arena, ARENA_BYTES, err));
    TRY(open_variants(p, err));
    TRY(list_trials(p, err));
    p->options.given = NULL;
    const struct head_config *head = checkpoint_head(p->variants[0].ck);
    size_t n = (size_t)options->n_tokens_max, n_blocks = n / KV_BLOCK_TOKENS + 1;
    p->dim = checkpoint_config(p->variants[0].ck)->dim;
    p->width = head->entry.n_features * head->entry.feature_dim;
    p->table.n_places = head->places.n;
    p->table.is_parallel = head->places.n > 0 || checkpoint_head_mask(p->variants[0].ck);
    size_t width = (size_t)(p->width > p->dim ? p->width : p->dim);
    TRY(mem_array(&p->rows, CHUNK * width, sizeof *p->rows, err));
    TRY(mem_array(&p->outputs, n * (size_t)p->dim, sizeof *p->outputs, err));
    TRY(mem_array(&p->blocks, n_blocks, sizeof *p->blocks, err));
    for (size_t i = 0; i < n_blocks; i++) {
        p->blocks[i] = (int32_t)i;
    }
    *proof = p;
    p = NULL;
out:
    head_proof_close(p);
    return rc;
}

void head_proof_close(struct head_proof *p)
{
    if (!p) return;
    for (int i = p->n_variants - 1; i >= 0; i--) { /* the first one's weights are the others' */
        model_close(p->variants[i].model);
        checkpoint_close(p->variants[i].ck);
    }
    if (p->backend) p->backend->ops->close(p->backend);
    arena_close(&p->arena);
    free(p->right);
    free(p->scores);
    free(p->rows);
    free(p->outputs);
    free(p->blocks);
    free(p);
}

/* ---- results ---- */

const struct feature_wish *head_proof_wish(const struct head_proof *p)
{
    return &p->wish;
}

uint64_t head_proof_digest(const struct head_proof *p)
{
    uint64_t words[2 + HEAD_TRIALS_MAX * (HEAD_FEATURES_MAX + 2)];
    size_t n = 0;
    words[n++] = model_fingerprint(p->options.like ? p->options.like : p->variants[0].model);
    words[n++] = (uint64_t)p->options.n_layers;
    for (int i = 0; i < p->table.n_trials; i++) {
        const struct head_trial *t = &p->table.trials[i];
        words[n++] = (uint64_t)t->reading.normed << 1 | (uint64_t)t->keeps_normed;
        for (int b = 0; b < t->reading.n; b++) {
            words[n++] = (uint64_t)t->reading.boundaries[b];
        }
    }
    return XXH3_64bits(words, n * sizeof *words);
}

const struct head_table *head_proof_table(const struct head_proof *p)
{
    return &p->table;
}

int head_proof_time(struct head_proof *p, int n_rows, double *us, struct error *err)
{
    const struct head_proof_text *text = &p->texts[0];
    int32_t best[CHUNK];
    int n_places = count_places(p), most = n_places ? n_places : text->n - 1, rc = 0;
    int n = least(n_rows, most), first = text->n - 1 - n;
    p->trial = p->table.chosen;
    for (int i = 0; i < n; i++) {
        gather(p, text, first + i, p->rows + (size_t)i * (size_t)p->width);
    }
    const struct forward_features features = {.target = p->rows, .n_target = n};
    for (int i = 0; i < TIMED_PASSES; i++) {
        int64_t start_ns = clock_now_ns();
        if (n_places) {
            TRY(forward_places(p, 1, n, err));
        } else {
            TRY(pass(p, text, first, n, &features, err));
        }
        TRY(best_of(p, n, best, err));
        double took_us = (double)(clock_now_ns() - start_ns) * 1e-3;
        if (i == 0 || took_us < *us) *us = took_us;
    }
out:
    p->trial = p->table.n_trials;
    return rc;
}
