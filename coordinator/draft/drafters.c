/* The drafters of an engine. */
#include "coordinator/draft/drafters.h"

#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/text/name_list.h"
#include "coordinator/draft/options.h"
#include "coordinator/sequence/sequence.h"

/* One row or more of the table are draft models, and one or more have no name in --lookup. */
_Static_assert((int)N_DRAFTERS - 1 <= (int)PLANNER_FINDERS, "the planner tells them apart");
_Static_assert((int)N_DRAFTERS - 2 <= (int)NAME_LIST_NAMES_MAX, "all of them can be named");

/* Items whose index is that of a row of the table. */
static int read_list(const char *lookup, struct name_list_item *items, int *n, struct error *err)
{
    struct name_list_name names[N_DRAFTERS];
    int numbers[N_DRAFTERS], n_names = 0;
    for (int i = 0; i < N_DRAFTERS; i++) {
        const struct drafter_row *row = &drafter_rows[i];
        if (!row->lookup || row->is_of_request || row->is_of_head) continue;
        numbers[n_names] = i;
        names[n_names++] = (struct name_list_name){row->name, row->takes_file};
    }
    const struct name_list list = {"--lookup", names, n_names, true};
    int rc = name_list_read(&list, lookup, items, n, err);
    for (int i = 0; !rc && i < *n; i++) {
        items[i].index = numbers[items[i].index];
    }
    return rc;
}

int drafters_check(const char *lookup, struct error *err)
{
    struct name_list_item items[NAME_LIST_NAMES_MAX];
    int n;
    return read_list(lookup, items, &n, err);
}

/* argument[len]: what follows the finder's name in the list. */
static int open_finder(struct drafters *d, const struct drafter_row *row, const char *argument,
                       size_t len, const struct lookup_options *o, struct error *err)
{
    struct drafter **finder = &d->finders[d->n_finders];
    char *name = strndup(argument, len);
    const struct drafter_options options = {.name = name,
                                            .n_sequences = o->n_sequences,
                                            .store_tokens = o->store_tokens,
                                            .is_shared = o->is_shared};
    if (!name) return error_set(err, ERR_NO_MEMORY, "no memory for a finder");
    int rc = row->lookup->open(finder, &options, o->tok, err);
    if (!rc) {
        (*finder)->row = row;
        d->n_finders++;
    }
    free(name);
    return rc;
}

int drafters_open(struct drafters *d, struct drafter *model, const struct lookup_options *options,
                  struct error *err)
{
    struct name_list_item items[NAME_LIST_NAMES_MAX];
    int rc = 0, n;
    *d = (struct drafters){0};
    if (model) drafters_add_model(d, model);
    TRY(read_list(options->lookup, items, &n, err));
    for (int i = 0; i < n; i++) {
        const struct drafter_row *row = &drafter_rows[items[i].index];
        TRY(open_finder(d, row, items[i].file ? items[i].file : "", items[i].file_len, options,
                        err));
    }
    for (int i = 0; options->reads_predictions && i < N_DRAFTERS; i++) {
        if (!drafter_rows[i].is_of_request) continue;
        TRY(open_finder(d, &drafter_rows[i], "", 0, options, err));
    }
    for (int i = 0; options->look_ahead && i < N_DRAFTERS; i++) {
        if (!drafter_rows[i].is_of_head) continue;
        TRY(open_finder(d, &drafter_rows[i], options->look_ahead, strlen(options->look_ahead),
                        options, err));
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

void drafters_add_model(struct drafters *d, struct drafter *model)
{
    model->model = d->n_models;
    d->models[d->n_models++] = model;
}

void drafters_remove_model(struct drafters *d)
{
    d->n_models--;
}

bool drafters_may_guess(const struct drafters *d, const struct sequence *seq, int model)
{
    bool is_asked = seq->planner_state.strategy == STRATEGY_PLANNED ? model < d->n_models
                                                                    : model == d->n_models - 1;
    return is_asked && !seq->is_score && seq->n_draft > 0 && !seq->lost_draft[model];
}

void drafters_lose(const struct drafters *d, struct sequence *seq, int model, const char *why)
{
    seq->lost_draft[model] = true;
    for (int m = 0; m < d->n_models; m++) {
        if (drafters_may_guess(d, seq, m)) return;
    }
    seq->speculation_off = why;
}

struct drafter *drafters_reader(const struct drafters *d)
{
    for (int m = 0; m < d->n_models; m++) {
        if (d->models[m]->features) return d->models[m];
    }
    return NULL;
}

const struct feature_wish *drafters_features(const struct drafters *d, const struct sequence *seq)
{
    const struct drafter *reader = drafters_reader(d);
    bool may_guess = reader && drafters_may_guess(d, seq, reader->model) &&
                     seq->n_tokens < drafter_limit(reader);
    return may_guess ? reader->features : NULL;
}

int drafters_check_target(const struct drafters *d, int n_layers, int dim, struct error *err)
{
    const struct drafter *reader = drafters_reader(d);
    if (!reader) return 0;
    const struct feature_wish kept = feature_wish_kept(reader->features); /* what workers project */
    int last = kept.n > 0 ? kept.boundaries[kept.n - 1] : 0;
    if (dim == reader->feature_dim && last <= n_layers) return 0;
    return error_set(err, ERR_UNSUPPORTED,
                     "the draft reads features of %d elements, up to boundary %d, but the target "
                     "has %d layers of width %d: it is a head for another target",
                     reader->feature_dim, last, n_layers, dim);
}

bool drafters_look_up(const struct drafters *d)
{
    for (int i = 0; i < d->n_finders; i++) {
        if (!d->finders[i]->row->is_of_request) return true;
    }
    return false;
}

bool drafters_any(const struct drafters *d)
{
    return d->n_models > 0 || drafters_look_up(d);
}

bool drafters_may_look(const struct drafter *finder, const struct sequence *seq)
{
    return finder->row->source != LOOKUP_MADE_TEXTS || !sequence_ignores_texts(seq);
}

static bool is_brought(const struct drafter *finder, const struct sequence *seq)
{
    return finder->row->is_of_request && drafters_may_look(finder, seq) &&
           finder->row->lookup->extra.is_brought(seq);
}

bool drafters_is_brought(const struct drafters *d, const struct sequence *seq)
{
    for (int i = 0; i < d->n_finders; i++) {
        if (is_brought(d->finders[i], seq)) return true;
    }
    return false;
}

struct drafter *drafters_brought(const struct drafters *d, const struct sequence *seq,
                                 struct planner_offer *offer)
{
    for (int i = 0; i < d->n_finders; i++) {
        struct drafter *finder = d->finders[i];
        *offer = (struct planner_offer){.finder = i};
        if (is_brought(finder, seq) && lookup_offer(finder, seq, offer)) return finder;
    }
    return NULL;
}

struct drafter *drafters_first(const struct drafters *d)
{
    if (d->n_models > 0) return d->models[d->n_models - 1];
    for (int i = 0; i < d->n_finders; i++) {
        if (d->finders[i]->row->is_of_head) return d->finders[i];
    }
    for (int i = 0; i < d->n_finders; i++) {
        if (d->finders[i]->row->source == LOOKUP_OWN_TEXT) return d->finders[i];
    }
    return NULL;
}

void drafters_set_vocabulary(struct drafters *d, int n_vocab)
{
    for (int m = 0; m < d->n_models; m++) {
        drafter_set_vocabulary(d->models[m], n_vocab);
    }
    for (int i = 0; i < d->n_finders; i++) {
        drafter_set_vocabulary(d->finders[i], n_vocab);
    }
}

void drafters_set_projection(struct drafters *d, const struct projection_key *held)
{
    for (int m = 0; m < d->n_models; m++) {
        const struct model_draft_extra_ops *extra = &d->models[m]->row->model->extra;
        if (extra->set_projection) extra->set_projection(d->models[m], held);
    }
}

void drafters_commit(struct drafters *d, struct sequence *seq)
{
    for (int m = 0; m < d->n_models; m++) {
        drafter_commit(d->models[m], seq);
    }
}

void drafters_observe_text(struct drafters *d, const struct sequence *seq)
{
    for (int i = 0; i < d->n_finders; i++) {
        const struct lookup_extra_ops *extra = &d->finders[i]->row->lookup->extra;
        if (extra->observe_text) extra->observe_text(d->finders[i], seq);
    }
}

bool drafters_observes(const struct drafters *d)
{
    for (int i = 0; i < d->n_finders; i++) {
        if (d->finders[i]->row->lookup->extra.observe_rows) return true;
    }
    return false;
}

void drafters_observe_rows(struct drafters *d, const struct sequence *seq,
                           const struct draft_rows *rows)
{
    for (int i = 0; i < d->n_finders; i++) {
        const struct lookup_extra_ops *extra = &d->finders[i]->row->lookup->extra;
        if (extra->observe_rows) extra->observe_rows(d->finders[i], seq, rows);
    }
}

int drafters_check_look_ahead(const struct drafters *d, const struct look_ahead_key *held,
                              struct error *err)
{
    const struct drafter *finder = drafters_look_ahead(d);
    return finder ? finder->row->lookup->extra.check_look_ahead(finder, held, err) : 0;
}

const struct drafter *drafters_look_ahead(const struct drafters *d)
{
    for (int i = 0; i < d->n_finders; i++) {
        if (d->finders[i]->row->lookup->extra.look_ahead) return d->finders[i];
    }
    return NULL;
}

void drafters_observe_look_ahead(struct drafters *d, const struct sequence *seq,
                                 const struct look_ahead_said *said)
{
    for (int i = 0; i < d->n_finders; i++) {
        const struct lookup_extra_ops *extra = &d->finders[i]->row->lookup->extra;
        if (extra->observe_look_ahead) extra->observe_look_ahead(d->finders[i], seq, said);
    }
}

const struct drafter *drafters_extra_rows(const struct drafters *d)
{
    for (int i = 0; i < d->n_finders; i++) {
        if (d->finders[i]->row->lookup->extra.extra_rows) return d->finders[i];
    }
    return NULL;
}

const struct drafter *drafters_continuation(const struct drafters *d)
{
    for (int i = 0; i < d->n_finders; i++) {
        if (d->finders[i]->row->lookup->extra.continue_from) return d->finders[i];
    }
    return NULL;
}

void drafters_forget(struct drafters *d, int slot)
{
    for (int m = 0; m < d->n_models; m++) {
        drafter_forget(d->models[m], slot);
    }
    for (int i = 0; i < d->n_finders; i++) {
        drafter_forget(d->finders[i], slot);
    }
}
