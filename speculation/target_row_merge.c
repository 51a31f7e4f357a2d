/* Turns the slices of all ranks into one target_row, once they are checked. Sums over slices run in
 * ascending order in double, so the result does not depend on T. */
#include "speculation/target_row.h"

#include <math.h>

#include "base/limits.h"
#include "model/numerics/numerics.h"
#include "speculation/rule.h"
#include "speculation/target_row_check.h"

enum { MORE_FACTOR = 4 };

/* What one call works on. */
struct merge {
    const struct slice_row *slices;
    int n_slices;
    const struct target_want *want;
    const struct row_wish *wish;
    struct arena *arena;
};

/* Normaliser of the whole row: p = exp((logit - max) / t) / z. */
struct normaliser {
    float max, temperature;
    double z;
    double scale[SLICES_MAX]; /* exp((max of the slice - max) / t) */
};

/* Candidates of all slices in one order, best first; those that are surely the best of the row. */
struct candidates {
    int n;
    bool is_whole; /* every token of the row */
    int32_t *ids;
    float *logits;
};

static int arena_full(struct error *err)
{
    return error_set(err, ERR_NO_MEMORY, "the row arena has no room for a merged row");
}

static void normaliser_merge(const struct merge *merge, struct normaliser *norm)
{
    const struct slice_row *slices = merge->slices;
    norm->temperature = merge->want->params->temperature;
    norm->max = -INFINITY;
    norm->z = 0;
    for (int s = 0; s < merge->n_slices; s++) {
        norm->max = slices[s].max > norm->max ? slices[s].max : norm->max;
    }
    for (int s = 0; s < merge->n_slices; s++) {
        double below = ((double)slices[s].max - (double)norm->max) / (double)norm->temperature;
        norm->scale[s] = slices[s].max > -INFINITY ? num_exp_double(below) : 0;
        norm->z += slices[s].sum_exp[0] * norm->scale[s];
    }
}

static int one_hot(struct arena *arena, int32_t id, struct target_row *row, struct error *err)
{
    int32_t *ids = arena_take(arena, 1, sizeof *ids);
    float *p = arena_take(arena, 1, sizeof *p);
    if (!ids || !p) return arena_full(err);
    ids[0] = id;
    p[0] = 1;
    *row = (struct target_row){.n = 1, .ids = ids, .p = p, .outside_id = -1};
    return 0;
}

/* p of the listed ids. Ids beyond the target's vocabulary, which a draft with a longer table may
 * have guessed, have p = 0. */
static int listed_merge(const struct merge *merge, const struct normaliser *norm,
                        struct target_row *row, struct error *err)
{
    int n = merge->wish->n_ids;
    int32_t *ids = arena_take(merge->arena, (size_t)n, sizeof *ids);
    float *p = arena_take(merge->arena, (size_t)n, sizeof *p);
    if (!ids || !p) return arena_full(err);
    int used[SLICES_MAX] = {0};
    for (int i = 0; i < n; i++) {
        ids[i] = merge->wish->ids[i];
        p[i] = 0;
        for (int s = 0; s < merge->n_slices; s++) {
            const struct slice_row *slice = &merge->slices[s];
            int64_t column = (int64_t)ids[i] - slice->first_id;
            if (column < 0 || column >= slice->n_cols) continue;
            double below = (double)slice->id_logits[used[s]++] - (double)norm->max;
            p[i] = (float)(num_exp_double(below / (double)norm->temperature) / norm->z);
            break;
        }
    }
    row->n = n;
    row->ids = ids;
    row->p = p;
    return 0;
}

/* The slice is chosen by its mass, the token was drawn by the slice's rank. */
static void outside_merge(const struct merge *merge, const struct normaliser *norm,
                          struct target_row *row)
{
    double mass = 0, sum = 0;
    for (int s = 0; s < merge->n_slices; s++) {
        mass += merge->slices[s].outside_sum * norm->scale[s];
    }
    row->outside_mass = mass / norm->z;
    double left = rng_uniform(&merge->wish->at, RNG_RESIDUAL, 1) * mass;
    for (int s = 0; s < merge->n_slices && !(left < sum); s++) {
        double slice_mass = merge->slices[s].outside_sum * norm->scale[s];
        if (!(slice_mass > 0)) continue;
        sum += slice_mass;
        row->outside_id = merge->slices[s].outside_id;
    }
}

/* Of p = e scale / z: H = ln z - sum over slices of scale / z (sum e ln e + sum e ln scale). */
static double entropy_of_sums(const struct merge *merge, const struct normaliser *norm)
{
    double weighted = 0;
    for (int s = 0; s < merge->n_slices; s++) {
        const struct slice_row *slice = &merge->slices[s];
        if (!(norm->scale[s] > 0)) continue;
        double log_scale = ((double)slice->max - (double)norm->max) / (double)norm->temperature;
        weighted += norm->scale[s] * (slice->sum_exp_log + slice->sum_exp[0] * log_scale);
    }
    double entropy = num_log(norm->z) - weighted / norm->z;
    return entropy > 0 ? entropy : 0;
}

static double entropy_of_p(const float *p, int n)
{
    double entropy = 0;
    for (int i = 0; i < n; i++) {
        if (p[i] > 0) entropy -= (double)p[i] * num_log((double)p[i]);
    }
    return entropy;
}

static int merge_whole(const struct merge *merge, struct target_row *row, struct error *err)
{
    int rc = 0;
    struct normaliser norm;
    normaliser_merge(merge, &norm);
    TRY(listed_merge(merge, &norm, row, err));
    outside_merge(merge, &norm, row);
    if (merge->wish->entropy) row->entropy = entropy_of_sums(merge, &norm);
    double total = row->outside_mass;
    for (int i = 0; i < row->n; i++) {
        total += (double)row->p[i];
    }
    if (!(fabs(total - 1) <= TARGET_ROW_SLACK)) {
        rc = error_set(err, ERR_FORMAT, "the slices' probabilities sum to %g", total);
    }
out:
    return rc;
}

/* The slice whose next best is the best of all; -1 when all are used up. */
static int best_slice(const struct merge *merge, const int *used)
{
    int best = -1;
    for (int s = 0; s < merge->n_slices; s++) {
        const struct slice_row *slice = &merge->slices[s];
        if (used[s] == slice->n_best) continue;
        if (best >= 0 &&
            !(slice->best_logits[used[s]] > merge->slices[best].best_logits[used[best]])) {
            continue; /* ids ascend with the slices: a tie stays with the lower */
        }
        best = s;
    }
    return best;
}

/* Merges the slices' best lists until one ends that is not its whole slice: what that slice has
 * next is unknown, so nothing behind is certain. */
static int candidates_merge(const struct merge *merge, struct candidates *list, struct error *err)
{
    size_t n_total = 0;
    for (int s = 0; s < merge->n_slices; s++) {
        n_total += (size_t)merge->slices[s].n_best;
    }
    *list = (struct candidates){0};
    list->ids = arena_take(merge->arena, n_total, sizeof *list->ids);
    list->logits = arena_take(merge->arena, n_total, sizeof *list->logits);
    if (!list->ids || !list->logits) return arena_full(err);
    int used[SLICES_MAX] = {0};
    int s;
    while ((s = best_slice(merge, used)) >= 0) {
        const struct slice_row *slice = &merge->slices[s];
        list->ids[list->n] = slice->best_ids[used[s]];
        list->logits[list->n++] = slice->best_logits[used[s]++];
        if (used[s] == slice->n_best && slice->n_best < slice->n_cols) break;
    }
    list->is_whole = s < 0;
    return 0;
}

/* The kept candidates as a row: ids ascend. */
static int kept_row(struct arena *arena, int32_t *ids, float *p, int n, struct target_row *row,
                    struct error *err)
{
    struct select_item *items = arena_take(arena, (size_t)n, sizeof *items);
    if (!items) return arena_full(err);
    for (int i = 0; i < n; i++) {
        items[i] = (struct select_item){(double)p[i], ids[i]};
    }
    select_sort_ids(items, n);
    for (int i = 0; i < n; i++) {
        ids[i] = items[i].id;
        p[i] = (float)items[i].score;
    }
    *row = (struct target_row){.n = n, .ids = ids, .p = p, .outside_id = -1};
    return 0;
}

static int merge_truncated(const struct merge *merge, struct target_row *row, int *n_best_more,
                           struct error *err)
{
    int rc = 0;
    struct candidates list;
    struct normaliser norm;
    normaliser_merge(merge, &norm);
    TRY(candidates_merge(merge, &list, err));
    float *p = arena_take(merge->arena, (size_t)list.n, sizeof *p);
    if (!p) {
        rc = arena_full(err);
        goto out;
    }
    bool is_certain;
    int n = sampling_truncate(list.logits, list.n, norm.z, list.is_whole, merge->want->params, p,
                              &is_certain);
    if (!is_certain) {
        int width = merge->slices[0].n_cols;
        int tried = merge->wish->n_best;
        *n_best_more = tried < width / MORE_FACTOR ? tried * MORE_FACTOR : width;
    } else if (merge->want->rule->is_coupled) {
        const struct rng_address *at = &merge->wish->at;
        rc =
            one_hot(merge->arena,
                    sampling_coupled_pick(list.ids, list.logits, n,
                                          merge->want->params->temperature, at->seed, at->position),
                    row, err);
    } else {
        TRY(kept_row(merge->arena, list.ids, p, n, row, err));
        row->entropy = merge->want->rule->needs_entropy ? entropy_of_p(p, n) : 0;
    }
out:
    return rc;
}

/* The best of every slice's first, by logit or by noisy score: greedy, temperature 0, coupled. */
static int merge_choice(const struct merge *merge, struct target_row *row, struct error *err)
{
    int32_t ids[SLICES_MAX];
    float logits[SLICES_MAX];
    int n = 0, best = 0;
    for (int s = 0; s < merge->n_slices; s++) {
        const struct slice_row *slice = &merge->slices[s];
        if (slice->n_best == 0) continue;
        ids[n] = slice->best_ids[0];
        logits[n] = slice->best_logits[0];
        if (logits[n] > logits[best]) best = n;
        n++;
    }
    int32_t id = ids[best];
    if (merge->wish->best_is_noisy) {
        id = sampling_coupled_pick(ids, logits, n, merge->want->params->temperature,
                                   merge->wish->at.seed, merge->wish->at.position);
    }
    return one_hot(merge->arena, id, row, err);
}

static int merge_compact(const struct merge *merge, struct target_row *row, int *n_best_more,
                         struct error *err)
{
    int rc = 0;
    TRY(target_row_check_slices(merge->slices, merge->n_slices, merge->wish, err));
    if (merge->want->rule->is_greedy || merge->want->params->temperature == 0 ||
        merge->wish->best_is_noisy) {
        TRY(merge_choice(merge, row, err));
    } else if (sampling_truncates(merge->want->params)) {
        TRY(merge_truncated(merge, row, n_best_more, err));
    } else {
        TRY(merge_whole(merge, row, err));
    }
out:
    return rc;
}

/* Full slices: answers the compact wish here, by the workers' own function. */
static int merge_full(const struct merge *merge, struct target_row *row, struct error *err)
{
    int rc = 0;
    struct slice_row own[SLICES_MAX];
    struct row_wish compact;
    struct target_want want = *merge->want;
    want.full_rows = false;
    target_row_wish(&want, &compact);
    struct merge inner = *merge;
    inner.slices = own;
    inner.wish = &compact;
    size_t mark = merge->arena->used_bytes;
    for (int n_more = 0;; compact.n_best = n_more, n_more = 0) {
        merge->arena->used_bytes = mark;
        for (int s = 0; s < merge->n_slices; s++) {
            const struct slice_row *slice = &merge->slices[s];
            if (slice->n_cols > 0 && !slice->full) {
                return error_set(err, ERR_FORMAT, "slice %d lacks its logits", s);
            }
            const struct answer_item item = {slice->full, slice->first_id, slice->n_cols, s,
                                             &compact};
            TRY(row_slice_answer(&item, merge->arena, &own[s], err));
        }
        TRY(merge_compact(&inner, row, &n_more, err));
        if (n_more == 0) break;
    }
out:
    return rc;
}

int target_row_merge(const struct target_slices *slices, const struct target_want *want,
                     const struct row_wish *wish, struct arena *arena, struct target_row *row,
                     int *n_best_more, struct error *err)
{
    int rc = 0;
    const struct merge merge = {slices->slices, slices->n_slices, want, wish, arena};
    *row = (struct target_row){.outside_id = -1};
    *n_best_more = 0;
    TRY(target_row_check_shape(slices->slices, slices->n_slices, slices->n_vocab, err));
    if (wish->full) {
        TRY(merge_full(&merge, row, err));
    } else {
        TRY(merge_compact(&merge, row, n_best_more, err));
    }
out:
    if (rc) *row = (struct target_row){.outside_id = -1};
    return rc;
}
