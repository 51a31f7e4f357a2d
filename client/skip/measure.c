/* Measuring sets of layers. The text is read in pieces, each from position 0 on, because that is
 * how requests begin. Of p the best P_KEPT tokens of each position are kept: tokens of a lower rank
 * are counted as never agreed on, so alpha is a little low where p is very flat. */
#include "client/skip/measure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "model/checkpoint/layers.h"
#include "model/logits/sampling.h"
#include "model/model.h"

enum {
    PIECE_TOKENS = 512,
    PIECE_BLOCKS = PIECE_TOKENS / KV_BLOCK_TOKENS,
    STEP_ROWS = 32, /* positions that are read and compared at a time */
    P_KEPT = 256,
    Q_SUPPORT = 64, /* as --draft-support of the coordinator */
    TIMED_PASSES = 5,
    TIMED_ROWS = 5,
    ARENA_BYTES = 16 << 20,
    NAME_BYTES = 4096 + 2048
};

/* p of a position: its best tokens. */
struct known_row {
    int n;
    int32_t ids[P_KEPT]; /* ascending */
    float p[P_KEPT];
};

struct skip_measure {
    struct skip_measure_options options;
    struct checkpoint *ck;
    struct backend *be;
    struct model *whole;
    struct known_row *rows; /* [n_tokens] the whole's distribution after each token */
    int32_t blocks[PIECE_BLOCKS];
    struct arena arena;
    struct select_item items[STEP_ROWS * P_KEPT], scratch[Q_SUPPORT];
    int n_items[STEP_ROWS];
    double *pass_us; /* [n_layers + 1] by the number of layers; 0: not measured */
    double row_us;
};

/* ---- reading the text ---- */

static struct model_options sizes_of(const struct skip_measure *m)
{
    return (struct model_options){.n_kv_blocks = PIECE_BLOCKS,
                                  .max_tokens = STEP_ROWS,
                                  .max_rows = STEP_ROWS,
                                  .max_lanes = 1,
                                  .n_vocab = m->options.n_vocab};
}

/* Feeds tokens[at .. at + n), of which the first has this position, and finds each row's best. */
static int read_step(struct skip_measure *m, struct model *model, int at, int position, int n,
                     int n_best, struct error *err)
{
    struct forward_row rows[STEP_ROWS];
    int indexes[STEP_ROWS], rc = 0;
    const struct forward_lane lane = {position, n, m->options.tokens + at, m->blocks, NULL};
    for (int i = 0; i < n; i++) {
        rows[i] = (struct forward_row){0, i};
        indexes[i] = i;
    }
    TRY(model_forward(model, &lane, 1, rows, n, err));
    arena_reset(&m->arena);
    TRY(model_best_rows(model, indexes, n, n_best, &m->arena, m->items, m->n_items, err));
out:
    return rc;
}

/* Calls take_row for every position of the text, after the step of its row. */
static int read_text(struct skip_measure *m, struct model *model, int n_best,
                     int (*take_row)(struct skip_measure *m, struct model *model, int row, int at,
                                     double *sum, struct error *err),
                     double *sum, struct error *err)
{
    int n_all = m->options.n_tokens, rc = 0;
    for (int at = 0, n; at < n_all; at += n) {
        int position = at % PIECE_TOKENS;
        n = n_all - at < STEP_ROWS ? n_all - at : STEP_ROWS;
        TRY(read_step(m, model, at, position, n, n_best, err));
        for (int i = 0; i < n; i++) {
            TRY(take_row(m, model, i, at + i, sum, err));
        }
    }
out:
    return rc;
}

static int by_id(const void *left, const void *right)
{
    const struct select_item *a = left, *b = right;
    return (a->id > b->id) - (a->id < b->id);
}

/* The sum over the whole row of exp((logit - best) / temperature). */
static int sum_row(struct skip_measure *m, struct model *model, int row, double best, double *sum,
                   struct error *err)
{
    const float *logits = model_logits(model, row);
    int n_vocab = model_shard(model)->n_vocab;
    if (!logits) return error_set(err, ERR_UNAVAILABLE, "the device was lost in the last step");
    *sum = 0;
    for (int i = 0; i < n_vocab; i++) {
        *sum += exp(((double)logits[i] - best) / (double)m->options.temperature);
    }
    return 0;
}

/* Keeps p of a position. */
static int keep_row(struct skip_measure *m, struct model *model, int row, int at, double *unused,
                    struct error *err)
{
    struct select_item *items = m->items + (size_t)row * P_KEPT;
    struct known_row *known = &m->rows[at];
    double sum = 1, best = items[0].score, t = (double)m->options.temperature;
    int rc = 0;
    (void)unused;
    known->n = t > 0 ? m->n_items[row] : 1;
    if (m->n_items[row] == 0) {
        return error_set(err, ERR_FORMAT, "%s: the logits after token %d are no numbers",
                         m->options.model, at);
    }
    if (t > 0) TRY(sum_row(m, model, row, best, &sum, err));
    qsort(items, (size_t)known->n, sizeof *items, by_id);
    for (int i = 0; i < known->n; i++) {
        known->ids[i] = items[i].id;
        known->p[i] = t > 0 ? (float)(exp((items[i].score - best) / t) / sum) : 1.0f;
    }
out:
    return rc;
}

/* Adds sum over x of min(p, q) at a position. */
static int compare_row(struct skip_measure *m, struct model *model, int row, int at, double *sum,
                       struct error *err)
{
    const struct sampling_params params = {.temperature = m->options.temperature, .top_p = 1};
    struct known_row *known = &m->rows[at];
    const struct sparse_dist p = {known->n, known->ids, known->p};
    int32_t ids[Q_SUPPORT];
    float q[Q_SUPPORT];
    struct sparse_dist dist = {.ids = ids, .p = q};
    (void)model;
    (void)err;
    if (m->n_items[row] == 0) return 0; /* no number: the draft's guess would not stay */
    memcpy(m->scratch, m->items + (size_t)row * Q_SUPPORT,
           (size_t)m->n_items[row] * sizeof *m->scratch);
    sampling_draft_best(m->scratch, m->n_items[row], &params, &dist);
    for (int i = 0; i < dist.n; i++) {
        *sum += (double)fminf(q[i], sparse_prob(&p, ids[i]));
    }
    return 0;
}

/* ---- times ---- */

/* The shortest of a few passes of n tokens at the end of a piece of the text, because other
 * programs only make passes longer. */
static int time_passes(struct skip_measure *m, struct model *model, int n, double *us,
                       struct error *err)
{
    int rc = 0;
    int n_read = m->options.n_tokens < PIECE_TOKENS ? m->options.n_tokens : PIECE_TOKENS;
    const struct forward_lane lane = {n_read - TIMED_ROWS, n, m->options.tokens, m->blocks, NULL};
    const struct forward_row rows[TIMED_ROWS] = {{0, 0}, {0, 1}, {0, 2}, {0, 3}, {0, 4}};
    for (int i = 0; i < TIMED_PASSES; i++) {
        int64_t start = clock_now_ns();
        TRY(model_forward(model, &lane, 1, rows, n, err));
        TRY(model_wait(model, err));
        double pass_us = (double)(clock_now_ns() - start) * 1e-3;
        if (i == 0 || pass_us < *us) *us = pass_us;
    }
out:
    return rc;
}

static int measure_whole(struct skip_measure *m, struct error *err)
{
    int n_layers = skip_measure_layers(m), rc = 0;
    double several = 0;
    TRY(read_text(m, m->whole, P_KEPT, keep_row, NULL, err));
    TRY(time_passes(m, m->whole, 1, &m->pass_us[n_layers], err));
    TRY(time_passes(m, m->whole, TIMED_ROWS, &several, err));
    m->row_us = (several - m->pass_us[n_layers]) / (TIMED_ROWS - 1);
    if (m->row_us < 0) m->row_us = 0;
out:
    return rc;
}

/* ---- the interface ---- */

static int check_text(const struct skip_measure *m, struct error *err)
{
    int n_vocab = checkpoint_config(m->ck)->vocab_size;
    if (m->options.n_tokens < TIMED_ROWS) {
        return error_set(err, ERR_ARGUMENT, "the text has %d tokens; at least %d are needed",
                         m->options.n_tokens, TIMED_ROWS);
    }
    for (int i = 0; i < m->options.n_tokens; i++) {
        if (m->options.tokens[i] < n_vocab) continue;
        return error_set(err, ERR_ARGUMENT, "%s has %d tokens, but the text has token %d",
                         m->options.model, n_vocab, m->options.tokens[i]);
    }
    return 0;
}

int skip_measure_open(struct skip_measure **measure, const struct skip_measure_options *options,
                      struct error *err)
{
    struct skip_measure *m = NULL;
    int rc = 0;
    *measure = NULL;
    TRY(mem_array(&m, 1, sizeof *m, err));
    m->options = *options;
    for (int i = 0; i < PIECE_BLOCKS; i++) {
        m->blocks[i] = i;
    }
    TRY(checkpoint_open(&m->ck, options->model, err));
    TRY(check_text(m, err));
    m->options.backend.stored = checkpoint_config(m->ck)->stored;
    m->options.backend.no_graphs = true; /* because several models take turns on the backend */
    TRY(arena_open(&m->arena, ARENA_BYTES, err));
    TRY(mem_array(&m->rows, (size_t)options->n_tokens, sizeof *m->rows, err));
    TRY(mem_array(&m->pass_us, (size_t)skip_measure_layers(m) + 1, sizeof *m->pass_us, err));
    TRY(backend_open(&m->be, &m->options.backend, err));
    const struct model_options sizes = sizes_of(m);
    TRY(model_open(&m->whole, m->ck, comm_single(), m->be, &sizes, err));
    TRY(measure_whole(m, err));
    *measure = m;
    m = NULL;
out:
    skip_measure_close(m);
    return rc;
}

void skip_measure_close(struct skip_measure *m)
{
    if (!m) return;
    model_close(m->whole);
    if (m->be) m->be->ops->close(m->be);
    checkpoint_close(m->ck);
    arena_close(&m->arena);
    free(m->rows);
    free(m->pass_us);
    free(m);
}

int skip_measure_layers(const struct skip_measure *m)
{
    return checkpoint_config(m->ck)->n_layers;
}

double skip_measure_step_us(const struct skip_measure *m)
{
    return m->pass_us[skip_measure_layers(m)];
}

double skip_measure_row_us(const struct skip_measure *m)
{
    return m->row_us;
}

static int measure_model(struct skip_measure *m, struct model *model, int n,
                         struct skip_set_cost *cost, struct error *err)
{
    int rc = 0;
    double sum = 0;
    TRY(read_text(m, model, Q_SUPPORT, compare_row, &sum, err));
    if (!(m->pass_us[n] > 0)) TRY(time_passes(m, model, 1, &m->pass_us[n], err));
    *cost = (struct skip_set_cost){sum / m->options.n_tokens, m->pass_us[n]};
out:
    return rc;
}

int skip_measure_set(struct skip_measure *m, const int *layers, int n, struct skip_set_cost *cost,
                     struct error *err)
{
    struct model_options options = sizes_of(m);
    struct checkpoint *ck = NULL;
    struct model *model = NULL;
    char name[NAME_BYTES];
    int rc = 0;
    int len = snprintf(name, sizeof name, "%s,layers=", m->options.model);
    if (len >= (int)sizeof name / 2) {
        return error_set(err, ERR_ARGUMENT, "the name %.100s... is too long", m->options.model);
    }
    layers_format(layers, n, name + len, sizeof name - (size_t)len);
    options.like = m->whole;
    TRY(checkpoint_open(&ck, name, err));
    TRY(model_open(&model, ck, comm_single(), m->be, &options, err));
    TRY(measure_model(m, model, n, cost, err));
out:
    model_close(model);
    checkpoint_close(ck);
    return rc;
}
