/* The table's rows, and the verbs of both kinds of drafters: who has them is in a drafter's row. */
#include <string.h>

#include "coordinator/draft/drafter.h"
#include "coordinator/draft/lookup.h"
#include "coordinator/draft/options.h"
#include "coordinator/kv/blocks.h"

#define ROW_OF_MODEL(id, own_name, ops, own_prefix, ...) \
    {.name = (own_name), .model = &(ops), .prefix = (own_prefix), __VA_ARGS__},
#define ROW_OF_LOOKUP(id, own_name, ops, argument, help, ...) \
    {.name = (own_name), .lookup = &(ops), .takes_file = sizeof(argument) > 1, __VA_ARGS__},
#define ROW_WITHOUT_NAME(id, own_name, ops, ...) \
    {.name = (own_name), .lookup = &(ops), __VA_ARGS__},
const struct drafter_row drafter_rows[N_DRAFTERS] = {
    DRAFTERS(ROW_OF_MODEL, ROW_OF_LOOKUP, ROW_OF_LOOKUP, ROW_WITHOUT_NAME)};

const struct drafter_row *drafter_find(const char *name)
{
    const struct drafter_row *best = NULL;
    size_t best_len = 0;
    for (int i = 0; i < N_DRAFTERS; i++) {
        const struct drafter_row *row = &drafter_rows[i];
        size_t len = row->model ? strlen(row->prefix) : 0;
        if (!row->model || strncmp(name, row->prefix, len) != 0) continue;
        if (best && len <= best_len) continue;
        best = row;
        best_len = len;
    }
    return best; /* the prefix of the draft model fits every name */
}

/* ---- both kinds ---- */

void drafter_propose(struct drafter *d, struct draft_lane *lanes, int n, struct arena *arena,
                     struct draft_cost *cost)
{
    if (d->row->model) {
        d->row->model->propose(d, lanes, n, arena, cost);
        return;
    }
    for (int i = 0; i < n; i++) {
        d->row->lookup->propose(d, &lanes[i], arena);
    }
}

int drafter_number(const struct drafter *d)
{
    return (int)(d->row - drafter_rows);
}

void drafter_close(struct drafter *d)
{
    if (!d) return;
    if (d->row->model) {
        d->row->model->close(d);
    } else {
        d->row->lookup->close(d);
    }
}

void drafter_set_vocabulary(struct drafter *d, int n_vocab)
{
    d->n_vocab = n_vocab;
    if (d->row->model) {
        d->row->model->set_vocabulary(d, n_vocab);
    } else if (d->row->lookup->extra.forget_offers) {
        d->row->lookup->extra.forget_offers(d);
    }
}

void drafter_forget(struct drafter *d, int slot)
{
    if (d->row->model) {
        d->row->model->forget(d, slot);
    } else {
        d->row->lookup->forget(d, slot);
    }
}

/* ---- draft models ---- */

int drafter_open(struct drafter **d, const struct drafter_options *options,
                 const struct tokenizer *tok, struct error *err)
{
    const struct drafter_row *row = drafter_find(options->name);
    int rc = row->model->open(d, options, tok, err);
    if (!rc) (*d)->row = row;
    return rc;
}

int drafter_check(const struct drafter_options *options, const struct tokenizer *tok,
                  struct error *err)
{
    const struct model_draft_ops *ops = drafter_find(options->name)->model;
    return ops->extra.check ? ops->extra.check(options, tok, err) : 0;
}

int drafter_count_threads(const struct drafter_options *options, int n_cores, int *n_threads,
                          struct error *err)
{
    const struct model_draft_ops *ops = drafter_find(options->name)->model;
    *n_threads = 1;
    return ops->extra.count_threads ? ops->extra.count_threads(options, n_cores, n_threads, err)
                                    : 0;
}

void drafter_begin(struct drafter *d, struct sequence *seq)
{
    d->row->model->begin(d, seq);
}

int drafter_reserve(struct drafter *d, struct sequence *seq, int n_positions, struct error *err)
{
    return d->row->model->reserve(d, seq, n_positions, err);
}

int drafter_read(struct drafter *d, const struct draft_reading *readings, int n, struct error *err)
{
    return d->row->model->read(d, readings, n, err);
}

void drafter_commit(struct drafter *d, struct sequence *seq)
{
    d->row->model->commit(d, seq);
}

int drafter_observe(struct drafter *d, struct sequence *seq, const struct draft_features *features,
                    struct error *err)
{
    return d->row->model->extra.observe(d, seq, features, err);
}

void drafter_forget_target(struct drafter *d)
{
    const struct model_draft_ops *ops = d->row->model;
    if (ops->extra.forget_target) ops->extra.forget_target(d);
}

int drafter_open_proof(struct drafter *d, int n_layers, int n_tokens_max, struct head_proof **proof,
                       struct error *err)
{
    return d->row->model->extra.open_proof(d, n_layers, n_tokens_max, proof, err);
}

int drafter_take_reading(struct drafter *d, const struct head_trial *trial, struct error *err)
{
    return d->row->model->extra.take_reading(d, trial, err);
}

int drafter_limit(const struct drafter *d)
{
    return d->limit;
}

struct draft_kv drafter_kv(const struct drafter *d)
{
    if (!d->pool) return (struct draft_kv){0};
    return (struct draft_kv){d->pool->n_blocks, d->pool->n_free, d->pool->n_cached};
}

/* ---- finders ---- */

int lookup_read(struct drafter *finder, const struct sequence *seq, int n_tokens)
{
    return finder->row->lookup->read(finder, seq, n_tokens);
}

bool lookup_offer(const struct drafter *finder, const struct sequence *seq,
                  struct planner_offer *offer)
{
    return finder->row->lookup->offer(finder, seq, offer);
}

int lookup_preview(const struct drafter *finder, const struct sequence *seq, int32_t *tokens, int n)
{
    return finder->row->lookup->preview(finder, seq, tokens, n);
}

int lookup_continue_from(const struct drafter *finder, const struct sequence *seq, int n_tokens,
                         int32_t *tokens, int n, int *evidence)
{
    return finder->row->lookup->extra.continue_from(finder, seq, n_tokens, tokens, n, evidence);
}
