/* Which drafter a name means. */
#include "coordinator/draft/drafter.h"

#include <string.h>

#include "coordinator/draft/internal.h"

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

void drafter_propose(struct drafter *d, struct draft_lane *lanes, int n, struct arena *arena)
{
    d->ops->propose(d, lanes, n, arena);
}

void drafter_forget(struct drafter *d, int slot)
{
    d->ops->forget(d, slot);
}
