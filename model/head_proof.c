/* Tries the readings of a head on texts. Of each text the head first reads all rows with the
 * target's features, some at a time, and makes its first guess after each. Then the starts follow,
 * the last one first: the rows of a start's further guesses overwrite only such rows as no start
 * before it reads. A block drafter reads the features, and its starts make all guesses; a head of
 * places has no rows of its own, so its starts are all that it does, some at a time. */
#include "model/head_proof.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "model/head_proof_guess.h"

enum { ARENA_BYTES = 4 << 20 };

/* ---- the order ---- */

static void begin_text(struct head_proof *p)
{
    p->n_read = 0;
    p->start = head_proof_starts(p, &p->texts[p->text]) - 1;
}

/* Goes on to the next text, and after the last one to the next trial. */
static void end_text(struct head_proof *p)
{
    p->n_before += head_proof_starts(p, &p->texts[p->text]);
    if (++p->text == p->n_texts) {
        size_t first = (size_t)p->trial * (size_t)p->table.n_starts;
        head_table_count(&p->table, p->trial, p->right + first, p->scores + first, p->scores);
        p->trial++;
        p->text = p->n_before = 0;
    }
    if (p->trial < p->table.n_trials) begin_text(p);
}

int head_proof_next(struct head_proof *p, bool *is_done, struct error *err)
{
    int rc = 0;
    *is_done = p->trial == p->table.n_trials;
    if (*is_done) return 0;
    const struct head_proof_text *text = &p->texts[p->text];
    int n_starts = head_proof_starts(p, text);
    int n_rows = n_starts && !head_proof_places(p) ? head_proof_row(p, text, n_starts - 1) + 1 : 0;
    if (p->n_read < n_rows) {
        TRY(head_proof_read(p, text, n_rows, err));
    } else if (p->start >= 0) {
        TRY(head_proof_guess(p, text, err));
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
        p->table.n_starts += head_proof_starts(p, &texts[i]);
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
    struct head_proof_variant *v = &p->variants[p->n_variants];
    struct head_options options = p->options.head;
    const struct model *like = p->n_variants ? p->variants[0].model : p->options.like;
    int rc = 0;
    if (choice != HEAD_AS_STORED) options.norm_before_residual = choice;
    TRY(checkpoint_open_head(&v->ck, p->options.folder, &options, err));
    if (!p->backend) TRY(open_backend(p, v->ck, err));
    const struct head_config *head = checkpoint_head(v->ck);
    bool has_places = head->places.n > 0;
    int n_kv_blocks = (p->options.n_tokens_max + head->block.size) / KV_BLOCK_TOKENS + 1;
    const struct model_options mo = {.n_kv_blocks = has_places ? 0 : n_kv_blocks,
                                     .max_tokens = HEAD_PROOF_ROWS,
                                     .max_rows = HEAD_PROOF_ROWS,
                                     .max_lanes = HEAD_PROOF_LANES,
                                     .like = like};
    TRY(model_open(&v->model, v->ck, comm_single(), p->backend, &mo, err));
    if (head->block.size == 0) TRY(model_keep_output(v->model, err));
    p->n_variants++;
out:
    if (rc) {
        model_close(v->model);
        checkpoint_close(v->ck);
        *v = (struct head_proof_variant){0};
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
    size_t n = (size_t)options->n_tokens_max,
           n_blocks = (n + (size_t)head->block.size) / KV_BLOCK_TOKENS + 1;
    p->dim = checkpoint_config(p->variants[0].ck)->dim;
    p->width = head->entry.n_features * head->entry.feature_dim;
    bool has_block = head->block.size > 0;
    p->table.n_places = has_block ? head_block_guesses(&head->block) : head->places.n;
    p->table.is_parallel =
        has_block || head->places.n > 0 || checkpoint_head_mask(p->variants[0].ck);
    size_t width = (size_t)(p->width > p->dim ? p->width : p->dim);
    TRY(mem_array(&p->rows, HEAD_PROOF_ROWS * width, sizeof *p->rows, err));
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
