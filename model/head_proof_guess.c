/* The passes of a head that proves itself: reading a text, and its guesses from a start. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "model/head_proof_guess.h"

enum { TIMED_PASSES = 7 };

static struct model *model_of(const struct head_proof *p)
{
    return p->variants[p->trial / p->n_readings].model;
}

/* The best ids of n rows of the last step; -1: the row has none. */
static int best_of(struct head_proof *p, int n, int32_t *ids, struct error *err)
{
    int rows[HEAD_PROOF_ROWS], n_items[HEAD_PROOF_ROWS], rc = 0;
    struct select_item items[HEAD_PROOF_ROWS];
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
    struct forward_row rows[HEAD_PROOF_ROWS];
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
int head_proof_read(struct head_proof *p, const struct head_proof_text *text, int n_rows,
                    struct error *err)
{
    int32_t best[HEAD_PROOF_ROWS];
    int first = p->n_read, n = least(HEAD_PROOF_ROWS, n_rows - first), rc = 0;
    for (int i = 0; i < n; i++) {
        gather(p, text, first + i, p->rows + (size_t)i * (size_t)p->width);
    }
    const struct forward_features features = {.target = p->rows, .n_target = n};
    if (head_proof_block(p)->size > 0) {
        const struct forward_lane lane = {.position = first, .blocks = p->blocks};
        TRY(model_forward_head(model_of(p), &lane, &features, 1, NULL, 0, err));
        p->n_read += n;
        return 0;
    }
    TRY(pass(p, text, first, n, &features, err));
    TRY(best_of(p, n, best, err));
    for (int i = 0; i < n; i++) {
        int distance = first + i - text->n_begin;
        if (distance < 0 || distance % p->options.every) continue;
        size_t at = head_proof_index(p, distance / p->options.every);
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
    int row = head_proof_row(p, text, p->start), rc = 0;
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
        if (is_right) p->right[head_proof_index(p, p->start)] |= (uint8_t)(1 << s);
    }
out:
    return rc;
}

/* The further guesses of a start. */
static int guess_on(struct head_proof *p, const struct head_proof_text *text, struct error *err)
{
    int row = head_proof_row(p, text, p->start), rc = 0;
    size_t dim = (size_t)p->dim;
    for (int s = 1; s < HEAD_TABLE_GUESSES; s++) {
        int32_t best;
        memcpy(p->rows, p->outputs + (size_t)(row + s - 1) * dim, dim * sizeof *p->rows);
        const struct forward_features features = {.recycled = p->rows};
        TRY(pass(p, text, row + s, 1, &features, err));
        TRY(best_of(p, 1, &best, err));
        if (best == text->best[row + s + 1])
            p->right[head_proof_index(p, p->start)] |= (uint8_t)(1 << s);
    }
out:
    return rc;
}

/* ---- heads of places ---- */

/* A pass from the features of n_lanes rows, p->rows. */
static int forward_places(struct head_proof *p, int n_lanes, int n_places, struct error *err)
{
    struct forward_lane lanes[HEAD_PROOF_LANES];
    struct forward_features features[HEAD_PROOF_LANES];
    struct forward_row rows[HEAD_PROOF_LANES * HEAD_TABLE_GUESSES];
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
    int32_t best[HEAD_PROOF_LANES * HEAD_TABLE_GUESSES];
    int n_places = head_proof_places(p), n = least(HEAD_PROOF_LANES, p->start + 1),
        first = p->start + 1 - n;
    int rc = 0;
    for (int i = 0; i < n; i++) {
        gather(p, text, head_proof_row(p, text, first + i), p->rows + (size_t)i * (size_t)p->width);
    }
    TRY(forward_places(p, n, n_places, err));
    TRY(best_of(p, n * n_places, best, err));
    for (int i = 0; i < n; i++) {
        const int32_t *wanted = text->best + head_proof_row(p, text, first + i) + 1;
        size_t at = head_proof_index(p, first + i);
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

/* ---- block drafters ---- */

/* The rows of the first n guesses of the block that begins with the token after `row`; a chain
 * follows the text. */
static int forward_block(struct head_proof *p, const struct head_proof_text *text, int row, int n,
                         struct error *err)
{
    const struct head_block *block = head_proof_block(p);
    int32_t tokens[HEAD_BLOCK_MAX] = {text->ids[row + 1]};
    struct forward_row rows[HEAD_BLOCK_MAX];
    int chained[HEAD_TABLE_GUESSES], rc = 0;
    for (int i = 1; i < block->size; i++) {
        tokens[i] = checkpoint_head(p->variants[0].ck)->mask_token_id;
    }
    for (int s = 0; s < n; s++) {
        rows[s] = (struct forward_row){0, head_block_row(block, s)};
        chained[s] = s;
    }
    const struct forward_lane lane = {
        .position = row + 1, .n_tokens = block->size, .tokens = tokens, .blocks = p->blocks};
    const struct forward_features nothing = {0};
    TRY(model_forward_head(model_of(p), &lane, &nothing, 1, rows, n, err));
    if (block->rank > 0) {
        TRY(model_chain_rows(model_of(p), chained, text->ids + row + 1, n, err));
    }
out:
    return rc;
}

/* Guesses of a block that are looked at. */
static int count_block(const struct head_proof *p)
{
    return least(head_block_guesses(head_proof_block(p)), HEAD_TABLE_GUESSES);
}

/* All guesses of a start. */
static int guess_block(struct head_proof *p, const struct head_proof_text *text, struct error *err)
{
    int32_t best[HEAD_TABLE_GUESSES];
    int row = head_proof_row(p, text, p->start), n = count_block(p), rc = 0;
    const int32_t *wanted = text->best + row + 1;
    size_t at = head_proof_index(p, p->start);
    TRY(forward_block(p, text, row, n, err));
    TRY(best_of(p, n, best, err));
    p->right[at] = 0;
    for (int s = 0; s < n; s++) {
        p->right[at] |= (uint8_t)(best[s] == wanted[s] ? 1 << s : 0);
    }
    TRY(score_of(p, 0, wanted[0], &p->scores[at], err));
out:
    return rc;
}

/* ---- what there is to do ---- */

int head_proof_guess(struct head_proof *p, const struct head_proof_text *text, struct error *err)
{
    int rc = 0;
    if (head_proof_places(p)) return guess_places(p, text, err);
    if (head_proof_block(p)->size > 0) {
        TRY(guess_block(p, text, err));
    } else if (p->table.is_parallel) {
        TRY(guess_masks(p, text, err));
    } else {
        TRY(guess_on(p, text, err));
    }
    p->start--;
out:
    return rc;
}

int head_proof_time(struct head_proof *p, int n_rows, double *us, struct error *err)
{
    const struct head_proof_text *text = &p->texts[0];
    int32_t best[HEAD_PROOF_ROWS];
    bool is_block = head_proof_block(p)->size > 0;
    int n_places = is_block ? count_block(p) : head_proof_places(p), rc = 0;
    int n = least(least(n_rows, text->n - 1), n_places ? n_places : n_rows);
    int first = text->n - 1 - n;
    p->trial = p->table.chosen;
    for (int i = 0; i < n; i++) {
        gather(p, text, first + i, p->rows + (size_t)i * (size_t)p->width);
    }
    const struct forward_features features = {.target = p->rows, .n_target = n};
    for (int i = 0; i < TIMED_PASSES; i++) {
        int64_t start_ns = clock_now_ns();
        if (is_block) {
            TRY(forward_block(p, text, first, n, err));
        } else if (n_places) {
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
