/* Sets of layers, one change at a time. */
#include "client/skip/search.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

int skip_candidate_layers(const struct skip_candidate *candidate, int layers[SKIP_LAYERS_MAX])
{
    int n = 0;
    for (int i = 0; i < SKIP_LAYERS_MAX; i++) {
        if (candidate->has[i]) layers[n++] = i;
    }
    return n;
}

static const struct skip_candidate *find(const struct skip_search *s,
                                         const struct skip_candidate *wanted)
{
    for (int i = 0; i < s->n_found; i++) {
        if (memcmp(s->found[i].has, wanted->has, sizeof wanted->has) == 0) return &s->found[i];
    }
    return NULL;
}

/* Fills the candidate with what is known of its set, or measures it. Sets *is_over, and leaves it
 * as it is, where there is no time for that. */
static int try_set(struct skip_search *s, struct skip_candidate *candidate, bool *is_over,
                   struct error *err)
{
    const struct skip_candidate *known = find(s, candidate);
    int rc = 0;
    if (known) {
        *candidate = *known;
        return 0;
    }
    *is_over = s->n_found > 0 && s->is_over(s->context);
    if (*is_over) return 0;
    TRY(s->measure(s->context, candidate, err));
    TRY(mem_grow(&s->found, &s->capacity, (size_t)s->n_found + 1, err));
    s->found[s->n_found++] = *candidate;
out:
    return rc;
}

static struct skip_candidate first_layers(int n)
{
    struct skip_candidate set = {.n = n};
    for (int i = 0; i < n; i++) {
        set.has[i] = true;
    }
    return set;
}

static int try_early_exits(struct skip_search *s, bool *is_over, struct error *err)
{
    int rc = 0;
    for (int n = 1; n < s->n_layers && !*is_over && !rc; n++) {
        struct skip_candidate set = first_layers(n);
        rc = try_set(s, &set, is_over, err);
    }
    return rc;
}

/* The fastest of the sets that differ from `from` by one layer; n = 0: there was none, or no time.
 * can_add: a layer may also be added, not only left out. */
static int best_neighbour(struct skip_search *s, const struct skip_candidate *from, bool can_add,
                          struct skip_candidate *best, bool *is_over, struct error *err)
{
    int rc = 0;
    *best = (struct skip_candidate){0};
    for (int i = 0; i < s->n_layers && !*is_over && !rc; i++) {
        struct skip_candidate set = {.n = from->n + (from->has[i] ? -1 : 1)};
        if (set.n == 0 || set.n == s->n_layers || (!from->has[i] && !can_add)) continue;
        memcpy(set.has, from->has, sizeof set.has);
        set.has[i] = !set.has[i];
        rc = try_set(s, &set, is_over, err);
        if (!rc && !*is_over && set.speed_up > best->speed_up) *best = set;
    }
    return rc;
}

static int compare_speed(const void *left, const void *right)
{
    const struct skip_candidate *a = left, *b = right;
    if (a->speed_up != b->speed_up) return a->speed_up > b->speed_up ? -1 : 1;
    return a->n - b->n;
}

static void sort_found(struct skip_search *s)
{
    if (s->n_found) qsort(s->found, (size_t)s->n_found, sizeof *s->found, compare_speed);
}

/* Changes the fastest set while that makes it faster. */
static int climb(struct skip_search *s, bool *is_over, struct error *err)
{
    int rc = 0;
    sort_found(s);
    struct skip_candidate at = s->found[0], next;
    while (!*is_over) {
        TRY(best_neighbour(s, &at, true, &next, is_over, err));
        if (!(next.speed_up > at.speed_up)) break;
        at = next;
    }
out:
    return rc;
}

/* Leaves out layer after layer of the whole. */
static int shrink(struct skip_search *s, bool *is_over, struct error *err)
{
    struct skip_candidate at = first_layers(s->n_layers), next;
    int rc = 0;
    while (at.n > 1 && !*is_over) {
        TRY(best_neighbour(s, &at, false, &next, is_over, err));
        if (next.n == 0) break;
        at = next;
    }
out:
    return rc;
}

int skip_search_run(struct skip_search *s, struct error *err)
{
    bool is_over = false;
    int rc = 0;
    TRY(try_early_exits(s, &is_over, err));
    TRY(climb(s, &is_over, err));
    TRY(shrink(s, &is_over, err));
    TRY(climb(s, &is_over, err));
out:
    sort_found(s);
    return rc;
}
