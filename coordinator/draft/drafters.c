/* The drafters of an engine. */
#include "coordinator/draft/drafters.h"

#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "coordinator/draft/internal.h"

#define FINDER_ROW(name, ops) {(name), &(ops)},
static const struct {
    const char *name;
    const struct drafter_ops *ops;
} finders[] = {FINDERS(FINDER_ROW)};
#undef FINDER_ROW

enum { N_FINDERS = sizeof finders / sizeof *finders };
_Static_assert((int)N_FINDERS <= (int)PLANNER_FINDERS, "the planner tells them apart");

/* The finder that name[len] names; -1: there is none. */
static int find(const char *name, size_t len)
{
    for (int i = 0; i < N_FINDERS; i++) {
        if (strlen(finders[i].name) == len && memcmp(finders[i].name, name, len) == 0) return i;
    }
    return -1;
}

static int refuse(const char *lookup, struct error *err)
{
    char names[LOOKUP_NAMES_BYTES] = "";
    size_t n = 0;
    for (int i = 0; i < N_FINDERS && n < sizeof names; i++) {
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "", finders[i].name);
    }
    return error_set(err, ERR_ARGUMENT,
                     "--lookup %.60s: expected none or, with commas between them, names from: %s",
                     lookup, names);
}

/* Goes through the names of a list; *which has a bit for each. */
static int parse(const char *lookup, unsigned *which, struct error *err)
{
    *which = 0;
    if (strcmp(lookup, "none") == 0) return 0;
    for (const char *name = lookup;; name++) {
        size_t len = strcspn(name, ",");
        int i = find(name, len);
        if (i < 0) return refuse(lookup, err);
        *which |= 1U << i;
        name += len;
        if (!*name) return 0;
    }
}

int drafters_check(const char *lookup, struct error *err)
{
    unsigned which;
    return parse(lookup, &which, err);
}

int drafters_open(struct drafters *d, struct drafter *model, const char *lookup, int n_sequences,
                  struct error *err)
{
    const struct drafter_options options = {.name = "", .n_sequences = n_sequences};
    unsigned which;
    int rc = 0;
    *d = (struct drafters){.model = model};
    TRY(parse(lookup, &which, err));
    for (int i = 0; i < N_FINDERS; i++) {
        if (!(which & 1U << i)) continue;
        TRY(finders[i].ops->open(&d->finders[d->n_finders], &options, NULL, err));
        d->n_finders++;
    }
out:
    if (rc) drafters_close(d);
    return rc;
}

void drafters_close(struct drafters *d)
{
    for (int i = 0; i < d->n_finders; i++) {
        drafter_close(d->finders[i]);
    }
    *d = (struct drafters){0};
}

bool drafters_any(const struct drafters *d)
{
    return d->model || d->n_finders > 0;
}

struct drafter *drafters_first(const struct drafters *d)
{
    if (d->model) return d->model;
    return d->n_finders > 0 ? d->finders[0] : NULL;
}

void drafters_set_vocabulary(struct drafters *d, int n_vocab)
{
    if (d->model) drafter_set_vocabulary(d->model, n_vocab);
    for (int i = 0; i < d->n_finders; i++) {
        drafter_set_vocabulary(d->finders[i], n_vocab);
    }
}

void drafters_commit(struct drafters *d, struct sequence *seq)
{
    if (d->model) drafter_commit(d->model, seq);
}

void drafters_forget(struct drafters *d, int slot)
{
    if (d->model) drafter_forget(d->model, slot);
    for (int i = 0; i < d->n_finders; i++) {
        drafter_forget(d->finders[i], slot);
    }
}
