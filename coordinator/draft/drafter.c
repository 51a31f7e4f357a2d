/* Which drafter a name means. */
#include "coordinator/draft/drafter.h"

#include <string.h>

#include "coordinator/draft/internal.h"
#include "coordinator/draft/options.h"

#define DRAFTER_ROW(prefix, ops) {(prefix), &(ops)},
static const struct {
    const char *prefix;
    const struct drafter_ops *ops;
} drafters[] = {DRAFTERS(DRAFTER_ROW)};

const struct drafter_ops *drafter_find(const char *name)
{
    int i = 0;
    while (strncmp(name, drafters[i].prefix, strlen(drafters[i].prefix)) != 0) {
        i++; /* the last row fits every name */
    }
    return drafters[i].ops;
}

int drafter_open(struct drafter **drafter, const struct drafter_options *options,
                 const struct tokenizer *tok, struct error *err)
{
    return drafter_find(options->name)->open(drafter, options, tok, err);
}

void drafter_close(struct drafter *d)
{
    if (d) d->ops->close(d);
}

int drafter_limit(const struct drafter *d)
{
    return d->ops->limit(d);
}

void drafter_set_vocabulary(struct drafter *d, int n_vocab)
{
    d->ops->set_vocabulary(d, n_vocab);
}

void drafter_begin(struct drafter *d, struct sequence *seq)
{
    d->ops->begin(d, seq);
}

int drafter_reserve(struct drafter *d, struct sequence *seq, int n_positions, struct error *err)
{
    return d->ops->reserve(d, seq, n_positions, err);
}

int drafter_read(struct drafter *d, const struct draft_reading *readings, int n, struct error *err)
{
    return d->ops->read(d, readings, n, err);
}

void drafter_propose(struct drafter *d, struct draft_lane *lanes, int n, struct arena *arena,
                     struct draft_cost *cost)
{
    d->ops->propose(d, lanes, n, arena, cost);
}

void drafter_commit(struct drafter *d, struct sequence *seq)
{
    d->ops->commit(d, seq);
}

void drafter_forget(struct drafter *d, int slot)
{
    d->ops->forget(d, slot);
}

struct draft_kv drafter_kv(const struct drafter *d)
{
    return d->ops->kv(d);
}
