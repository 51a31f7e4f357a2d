/* The drafters of an engine. */
#include "coordinator/draft/drafters.h"

#include <stdio.h>
#include <stdlib.h>
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

/* A name with a file behind it, "datastore=FILE". */
static bool takes_file(int finder)
{
    return finders[finder].ops == &datastore_finder_ops;
}

/* The finder that name[len] names; -1: there is none. *argument: what is behind its "=". */
static int find(const char *name, size_t len, const char **argument)
{
    const char *equals = memchr(name, '=', len);
    size_t n = equals ? (size_t)(equals - name) : len;
    *argument = equals ? equals + 1 : NULL;
    for (int i = 0; i < N_FINDERS; i++) {
        bool is_it = strlen(finders[i].name) == n && memcmp(finders[i].name, name, n) == 0;
        if (is_it && (equals && equals + 1 < name + len) == takes_file(i)) return i;
    }
    return -1;
}

static int refuse(const char *lookup, struct error *err)
{
    char names[LOOKUP_NAMES_BYTES] = "";
    size_t n = 0;
    for (int i = 0; i < N_FINDERS && n < sizeof names; i++) {
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s%s", i ? ", " : "", finders[i].name,
                              takes_file(i) ? "=FILE" : "");
    }
    return error_set(err, ERR_ARGUMENT,
                     "--lookup %.60s: expected none or, with commas between them, names from: %s",
                     lookup, names);
}

/* A name of a list; what is behind it is the rest. */
struct word {
    int finder;
    const char *argument; /* NULL = none */
    size_t argument_len;
};

/* Takes the next word of a list; *lookup becomes NULL behind the last one. -1: it is no name. */
static int next_word(const char **lookup, struct word *word)
{
    const char *name = *lookup;
    size_t len = strcspn(name, ",");
    word->finder = find(name, len, &word->argument);
    if (word->argument) word->argument_len = (size_t)(name + len - word->argument);
    *lookup = name[len] ? name + len + 1 : NULL;
    return word->finder < 0 ? -1 : 0;
}

int drafters_check(const char *lookup, struct error *err)
{
    unsigned seen = 0;
    if (strcmp(lookup, "none") == 0) return 0;
    for (const char *left = lookup; left;) {
        struct word word;
        if (next_word(&left, &word) || seen & 1U << word.finder) return refuse(lookup, err);
        seen |= 1U << word.finder;
    }
    return 0;
}

static int open_finder(struct drafters *d, const struct word *word, const struct lookup_options *o,
                       struct error *err)
{
    char *argument = word->argument ? strndup(word->argument, word->argument_len) : strdup("");
    const struct drafter_options options = {.name = argument,
                                            .n_sequences = o->n_sequences,
                                            .store_tokens = o->store_tokens,
                                            .is_shared = o->is_shared};
    if (!argument) return error_set(err, ERR_NO_MEMORY, "no memory for a finder");
    int rc = finders[word->finder].ops->open(&d->finders[d->n_finders], &options, o->tok, err);
    if (!rc) d->n_finders++;
    free(argument);
    return rc;
}

int drafters_open(struct drafters *d, struct drafter *model, const struct lookup_options *options,
                  struct error *err)
{
    int rc = 0;
    *d = (struct drafters){.model = model};
    TRY(drafters_check(options->lookup, err));
    const char *left = strcmp(options->lookup, "none") == 0 ? NULL : options->lookup;
    while (left) {
        struct word word;
        next_word(&left, &word);
        TRY(open_finder(d, &word, options, err));
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
