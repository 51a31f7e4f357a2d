/* The drafters of an engine. */
#include "coordinator/draft/drafters.h"

#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/text/name_list.h"
#include "coordinator/draft/internal.h"
#include "coordinator/draft/options.h"

#define FINDER_ROW(name, ops) {(name), &(ops)},
static const struct {
    const char *name;
    const struct drafter_ops *ops;
} finders[] = {FINDERS(FINDER_ROW)};
#undef FINDER_ROW

enum { N_FINDERS = sizeof finders / sizeof *finders };
_Static_assert((int)N_FINDERS + 1 <= (int)PLANNER_FINDERS, "the planner tells them apart");
_Static_assert((int)N_FINDERS <= (int)NAME_LIST_NAMES_MAX, "all of them can be named");

static int read_list(const char *lookup, struct name_list_item *items, int *n, struct error *err)
{
    struct name_list_name names[N_FINDERS];
    for (int i = 0; i < N_FINDERS; i++) {
        bool takes_file = finders[i].ops == &datastore_finder_ops;
        names[i] = (struct name_list_name){finders[i].name, takes_file};
    }
    const struct name_list list = {"--lookup", names, N_FINDERS, true};
    return name_list_read(&list, lookup, items, n, err);
}

int drafters_check(const char *lookup, struct error *err)
{
    struct name_list_item items[NAME_LIST_NAMES_MAX];
    int n;
    return read_list(lookup, items, &n, err);
}

static int open_finder(struct drafters *d, const struct name_list_item *item,
                       const struct lookup_options *o, struct error *err)
{
    char *file = item->file ? strndup(item->file, item->file_len) : strdup("");
    const struct drafter_options options = {.name = file,
                                            .n_sequences = o->n_sequences,
                                            .store_tokens = o->store_tokens,
                                            .is_shared = o->is_shared};
    if (!file) return error_set(err, ERR_NO_MEMORY, "no memory for a finder");
    int rc = finders[item->index].ops->open(&d->finders[d->n_finders], &options, o->tok, err);
    if (!rc) d->n_finders++;
    free(file);
    return rc;
}

static int open_predicted(struct drafters *d, const struct lookup_options *o, struct error *err)
{
    const struct drafter_options options = {.name = "", .n_sequences = o->n_sequences};
    int rc = predicted_finder_ops.open(&d->predicted, &options, o->tok, err);
    if (!rc) d->finders[d->n_finders++] = d->predicted;
    return rc;
}

int drafters_open(struct drafters *d, struct drafter *model, const struct lookup_options *options,
                  struct error *err)
{
    struct name_list_item items[NAME_LIST_NAMES_MAX];
    int rc = 0, n;
    *d = (struct drafters){.model = model};
    TRY(read_list(options->lookup, items, &n, err));
    for (int i = 0; i < n; i++) {
        TRY(open_finder(d, &items[i], options, err));
    }
    if (options->reads_predictions) TRY(open_predicted(d, options, err));
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

bool drafters_look_up(const struct drafters *d)
{
    return d->n_finders > (d->predicted ? 1 : 0);
}

bool drafters_any(const struct drafters *d)
{
    return d->model || drafters_look_up(d);
}

struct drafter *drafters_predicted(const struct drafters *d, const struct sequence *seq,
                                   struct planner_offer *offer)
{
    *offer = (struct planner_offer){.finder = d->n_finders - 1};
    bool has_any = d->predicted && d->predicted->ops->look(d->predicted, seq, offer);
    return has_any ? d->predicted : NULL;
}

struct drafter *drafters_first(const struct drafters *d)
{
    if (d->model) return d->model;
    for (int i = 0; i < d->n_finders; i++) {
        if (d->finders[i]->ops->is_of_text) return d->finders[i];
    }
    return NULL;
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

void drafters_finished(struct drafters *d, const struct sequence *seq)
{
    for (int i = 0; i < d->n_finders; i++) {
        if (d->finders[i]->ops->finished) d->finders[i]->ops->finished(d->finders[i], seq);
    }
}

bool drafters_observes(const struct drafters *d)
{
    for (int i = 0; i < d->n_finders; i++) {
        if (d->finders[i]->ops->observe) return true;
    }
    return false;
}

void drafters_observe(struct drafters *d, const struct sequence *seq, const struct draft_rows *rows)
{
    for (int i = 0; i < d->n_finders; i++) {
        const struct drafter_ops *ops = d->finders[i]->ops;
        if (ops->observe) ops->observe(d->finders[i], seq, rows);
    }
}

const struct drafter *drafters_window(const struct drafters *d)
{
    for (int i = 0; i < d->n_finders; i++) {
        if (d->finders[i]->ops->window) return d->finders[i];
    }
    return NULL;
}

void drafters_forget(struct drafters *d, int slot)
{
    if (d->model) drafter_forget(d->model, slot);
    for (int i = 0; i < d->n_finders; i++) {
        drafter_forget(d->finders[i], slot);
    }
}
