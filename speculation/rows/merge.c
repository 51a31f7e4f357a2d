/* Turns the slices of all ranks into one target_row, once they are checked. Sums over slices run in
 * ascending order in double, so the result does not depend on T. */
#include "speculation/rows/target_row.h"

#include <math.h>
#include <string.h>

#include "base/limits.h"
#include "model/numerics/numerics.h"
#include "speculation/rows/check.h"
#include "speculation/rows/cut.h"
#include "speculation/rows/edited.h"
#include "speculation/rows/logprobs.h"
#include "speculation/rows/rule.h"

/* Normaliser of the whole row: p = exp((logit - max) / t) / z. */
struct normaliser {
    float max, temperature;
    double z;
    double scale[SLICES_MAX]; /* exp((max of the slice - max) / t) */
};

/* The arrays of a row of n ids. */
struct row_arrays {
    int32_t *ids;
    float *p, *logits;
};

/* Candidates of all slices in one order, best first; those that are surely the best of the row. */
struct candidates {
    int n;
    bool is_whole; /* every token of the row */
    struct row_arrays to;
    size_t mark; /* of the arena, where the arrays begin */
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

/* False: the arena is full. */
static bool take_row(struct arena *arena, size_t n, struct row_arrays *to)
{
    to->ids = arena_take(arena, n, sizeof *to->ids);
    to->p = arena_take(arena, n, sizeof *to->p);
    to->logits = arena_take(arena, n, sizeof *to->logits);
    return to->ids && to->p && to->logits;
}

static void set_row(struct target_row *row, const struct row_arrays *from, int n)
{
    row->n = n;
    row->ids = from->ids;
    row->p = from->p;
    row->logits = from->logits;
}

static int one_hot(struct arena *arena, int32_t id, float logit, struct target_row *row,
                   struct error *err)
{
    struct row_arrays one;
    if (!take_row(arena, 1, &one)) return arena_full(err);
    one.ids[0] = id;
    one.p[0] = 1;
    one.logits[0] = logit;
    set_row(row, &one, 1);
    return 0;
}

/* Lists ids[n] of a one-hot row with their logits, in any order, as its best ones. */
static int list_best(const struct merge *merge, const int32_t *ids, const float *logits, int n,
                     struct target_row *row, struct error *err)
{
    if (!merge->want->lists_best || n == 0) return 0;
    int32_t *best = arena_take(merge->arena, TARGET_ROW_BEST_MAX, sizeof *best);
    float score[TARGET_ROW_BEST_MAX];
    if (!best) return arena_full(err);
    for (int i = 0; i < n && i < TARGET_ROW_BEST_MAX; i++) {
        int at = i;
        for (; at > 0 && score[at - 1] < logits[i]; at--) {
            best[at] = best[at - 1];
            score[at] = score[at - 1];
        }
        best[at] = ids[i];
        score[at] = logits[i];
        row->n_best = i + 1;
    }
    row->best_ids = best;
    return 0;
}

/* p of the listed ids. Ids beyond the target's vocabulary, which a draft with a longer table may
 * have guessed, have p = 0. */
static int listed_merge(const struct merge *merge, const struct normaliser *norm,
                        struct target_row *row, struct error *err)
{
    int n = merge->wish->n_ids;
    struct row_arrays to;
    if (!take_row(merge->arena, (size_t)n, &to)) return arena_full(err);
    int used[SLICES_MAX] = {0};
    for (int i = 0; i < n; i++) {
        to.ids[i] = merge->wish->ids[i];
        to.p[i] = 0;
        to.logits[i] = -INFINITY;
        for (int s = 0; s < merge->n_slices; s++) {
            const struct slice_row *slice = &merge->slices[s];
            int64_t column = (int64_t)to.ids[i] - slice->first_id;
            if (column < 0 || column >= slice->n_cols) continue;
            to.logits[i] = slice->id_logits[used[s]++];
            double below = (double)to.logits[i] - (double)norm->max;
            to.p[i] = (float)(num_exp_double(below / (double)norm->temperature) / norm->z);
            break;
        }
    }
    set_row(row, &to, n);
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
        row->outside_logit = merge->slices[s].outside_logit;
    }
}

/* Entropy of p = e scale / z: H = ln z - sum over slices of scale / z (sum e ln e + sum e ln
 * scale). */
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

/* Merges the slices' best lists until one ends that may not be all of its slice from the wish's
 * bound on: what that slice has next is unknown, so nothing after that is certain. list->arrays
 * have room for all. */
static void candidates_merge(const struct merge *merge, struct candidates *list)
{
    int used[SLICES_MAX] = {0}, s;
    list->n = 0;
    list->is_whole = true;
    for (int i = 0; i < merge->n_slices; i++) {
        list->is_whole = list->is_whole && merge->slices[i].n_best == merge->slices[i].n_cols;
    }
    while ((s = logprobs_best_slice(merge->slices, merge->n_slices, used)) >= 0) {
        const struct slice_row *slice = &merge->slices[s];
        list->to.ids[list->n] = slice->best_ids[used[s]];
        list->to.logits[list->n++] = slice->best_logits[used[s]++];
        bool is_cut = slice->n_best == merge->wish->n_best && slice->n_best < slice->n_cols;
        if (used[s] == slice->n_best && is_cut) break;
    }
}

/* The kept candidates as a row: ids ascend. Scratch and what was not kept goes back to the
 * arena. */
static int kept_row(const struct merge *merge, struct candidates *list, int n,
                    struct target_row *row, struct error *err)
{
    struct row_arrays *to = &list->to;
    struct select_item *items = arena_take(merge->arena, (size_t)n, sizeof *items);
    float *logits = arena_take(merge->arena, (size_t)n, sizeof *logits);
    float *p = arena_take(merge->arena, (size_t)n, sizeof *p);
    if (!items || !logits || !p) return arena_full(err);
    for (int i = 0; i < n; i++) {
        items[i] = (struct select_item){i, to->ids[i]};
    }
    memcpy(logits, to->logits, (size_t)n * sizeof *logits);
    memcpy(p, to->p, (size_t)n * sizeof *p);
    select_sort_ids(items, n);
    merge->arena->used_bytes = list->mark; /* the arrays of n begin where those of all did */
    if (!take_row(merge->arena, (size_t)n, to)) return arena_full(err);
    for (int i = 0; i < n; i++) {
        int from = (int)items[i].score;
        to->ids[i] = items[i].id;
        to->p[i] = p[from];
        to->logits[i] = logits[from];
    }
    set_row(row, to, n);
    return 0;
}

/* The next question: all logits from where the cut lies, or every logit. */
static void ask_next(const struct merge *merge, const struct normaliser *norm)
{
    const struct target_slices all = {merge->slices, merge->n_slices, merge->n_vocab};
    float least = -INFINITY;
    if (!merge->wish->has_least) {
        least = target_row_least(&all, merge->want, norm->max, norm->z, norm->scale);
    }
    *merge->wish = (struct row_wish){.n_best = merge->slices[0].n_cols,
                                     .has_least = true,
                                     .least = least,
                                     .at = merge->wish->at};
}
static int take_candidates(const struct merge *merge, struct candidates *list, struct error *err)
{
    size_t n_total = 0;
    for (int s = 0; s < merge->n_slices; s++) {
        n_total += (size_t)merge->slices[s].n_best;
    }
    list->mark = merge->arena->used_bytes;
    if (!take_row(merge->arena, n_total, &list->to)) return arena_full(err);
    candidates_merge(merge, list);
    return 0;
}

/* The coupled choice among the n kept. */
static int coupled_row(const struct merge *merge, const struct candidates *list, int n,
                       struct target_row *row, struct error *err)
{
    const struct rng_address *at = &merge->wish->at;
    int32_t id = sampling_coupled_pick(list->to.ids, list->to.logits, n,
                                       merge->want->params->temperature, at->seed, at->position);
    int i = 0;
    while (list->to.ids[i] != id) {
        i++;
    }
    float logit = list->to.logits[i];
    struct {
        int32_t ids[TARGET_ROW_BEST_MAX];
        float logits[TARGET_ROW_BEST_MAX];
        int n;
    } first = {.n = n < TARGET_ROW_BEST_MAX ? n : TARGET_ROW_BEST_MAX};
    memcpy(first.ids, list->to.ids, (size_t)first.n * sizeof *first.ids);
    memcpy(first.logits, list->to.logits, (size_t)first.n * sizeof *first.logits);
    merge->arena->used_bytes = list->mark;
    int rc = one_hot(merge->arena, id, logit, row, err);
    return rc ? rc : list_best(merge, first.ids, first.logits, first.n, row, err);
}

static int merge_truncated(const struct merge *merge, struct target_row *row, bool *more,
                           struct error *err)
{
    const struct target_want *want = merge->want;
    const struct row_wish *wish = merge->wish;
    struct candidates list = {0};
    struct normaliser norm;
    bool is_certain;
    int rc = take_candidates(merge, &list, err);
    if (rc) return rc;
    normaliser_merge(merge, &norm);
    bool rest_is_cut =
        wish->has_least && target_row_min_p_cuts(want, norm.max, wish->least, list.n);
    int n = sampling_truncate(list.to.logits, list.n, norm.z, list.is_whole || rest_is_cut,
                              want->params, list.to.p, &is_certain);
    if (!is_certain) {
        merge->arena->used_bytes = list.mark;
        ask_next(merge, &norm);
        *more = true;
        return 0;
    }
    if (want->rule->is_coupled) return coupled_row(merge, &list, n, row, err);
    rc = kept_row(merge, &list, n, row, err);
    if (!rc && want->rule->needs_entropy) row->entropy = target_row_entropy(row->p, n);
    return rc;
}

/* The best of every slice's first, by logit or by noisy score: greedy, temperature 0, coupled. */
static int merge_choice(const struct merge *merge, struct target_row *row, struct error *err)
{
    int32_t ids[SLICES_MAX] = {0};
    float logits[SLICES_MAX] = {0};
    int n = 0, best = 0;
    bool is_noisy = merge->wish->noisy_best;
    for (int s = 0; s < merge->n_slices; s++) {
        const struct slice_row *slice = &merge->slices[s];
        if (slice->n_cols == 0 || (is_noisy && slice->noisy_id < 0)) continue;
        ids[n] = is_noisy ? slice->noisy_id : slice->best_ids[0];
        logits[n] = is_noisy ? slice->noisy_logit : slice->best_logits[0];
        if (logits[n] > logits[best]) best = n;
        n++;
    }
    int32_t id = ids[best];
    if (is_noisy) {
        id = sampling_coupled_pick(ids, logits, n, merge->want->params->temperature,
                                   merge->wish->at.seed, merge->wish->at.position);
    }
    float logit = logits[0];
    for (int i = 0; i < n; i++) {
        logit = ids[i] == id ? logits[i] : logit;
    }
    int rc = one_hot(merge->arena, id, logit, row, err);
    return rc ? rc : list_best(merge, ids, logits, n, row, err);
}

/* Log of the normaliser at temperature 1, and the best tokens. */
static int merge_logprobs(const struct merge *merge, struct target_row *row, struct error *err)
{
    const struct target_want *want = merge->want;
    float t = want->params->temperature;
    bool is_first = want->rule->is_greedy || t == 0 || t == 1.0f; /* as in target_row_wish */
    int32_t *ids = arena_take(merge->arena, (size_t)want->n_top, sizeof *ids);
    float *logprobs = arena_take(merge->arena, (size_t)want->n_top, sizeof *logprobs);
    if (!ids || !logprobs) return arena_full(err);
    row->log_z = logprobs_normaliser(merge->slices, merge->n_slices, is_first ? 0 : 1);
    row->n_top =
        logprobs_best(merge->slices, merge->n_slices, want->n_top, row->log_z, ids, logprobs);
    row->top_ids = ids;
    row->top_logprobs = logprobs;
    return 0;
}

static int merge_compact(const struct merge *merge, struct target_row *row, bool *more,
                         struct error *err)
{
    int rc = 0;
    TRY(target_row_check_slices(merge->slices, merge->n_slices, merge->wish, err));
    if (target_want_is_edited(merge->want)) {
        TRY(target_row_merge_edited(merge, row, more, err));
    } else if (merge->want->rule->is_greedy || merge->want->params->temperature == 0 ||
               merge->wish->noisy_best) {
        TRY(merge_choice(merge, row, err));
    } else if (sampling_truncates(merge->want->params)) {
        TRY(merge_truncated(merge, row, more, err));
    } else {
        TRY(merge_whole(merge, row, err));
    }
    if (merge->want->wants_logprobs && !*more) TRY(merge_logprobs(merge, row, err));
out:
    return rc;
}

int target_row_carry(const struct slice_row *before, struct slice_row *slices, int n_slices,
                     struct error *err)
{
    for (int s = 0; s < n_slices; s++) {
        if (slices[s].max != before[s].max) {
            return error_set(err, ERR_FORMAT, "slice %d has a largest logit of %g, and %g before",
                             s, (double)slices[s].max, (double)before[s].max);
        }
        memcpy(slices[s].sum_exp, before[s].sum_exp, sizeof slices[s].sum_exp);
    }
    return 0;
}

/* The workers' own function on whole slices. */
static int answer_full(const struct merge *merge, const struct row_wish *wish,
                       struct slice_row *own, struct error *err)
{
    int rc = 0;
    for (int s = 0; s < merge->n_slices; s++) {
        const struct slice_row *slice = &merge->slices[s];
        const struct answer_item item = {slice->full, slice->first_id, slice->n_cols, s, wish};
        if (slice->n_cols > 0 && !slice->full) {
            return error_set(err, ERR_FORMAT, "slice %d lacks its logits", s);
        }
        TRY(row_slice_answer(&item, merge->arena, &own[s], err));
    }
out:
    return rc;
}

/* Full slices: asks and answers the compact questions here. */
static int merge_full(const struct merge *merge, struct target_row *row, struct error *err)
{
    int rc = 0;
    struct slice_row own[SLICES_MAX], before[SLICES_MAX];
    struct row_wish compact;
    TRY(target_row_wish_compact(merge->want, merge->arena, &compact, err));
    struct merge inner = *merge;
    inner.slices = own;
    inner.wish = &compact;
    size_t mark = merge->arena->used_bytes;
    for (bool more = true, is_first = true; more; is_first = false) {
        merge->arena->used_bytes = mark;
        more = false;
        memcpy(before, own, is_first ? 0 : sizeof own);
        TRY(answer_full(merge, &compact, own, err));
        if (!is_first) TRY(target_row_carry(before, own, merge->n_slices, err));
        TRY(merge_compact(&inner, row, &more, err));
    }
out:
    return rc;
}

int target_row_merge(const struct target_slices *slices, const struct target_want *want,
                     struct row_wish *wish, struct arena *arena, struct target_row *row, bool *more,
                     struct error *err)
{
    int rc = 0;
    const struct merge merge = {slices->slices, slices->n_slices, want,
                                wish,           slices->n_vocab,  arena};
    *row = (struct target_row){.outside_id = -1};
    *more = false;
    TRY(target_row_check_shape(slices->slices, slices->n_slices, slices->n_vocab, err));
    if (wish->full) {
        TRY(merge_full(&merge, row, err));
    } else {
        TRY(merge_compact(&merge, row, more, err));
    }
out:
    if (rc) *row = (struct target_row){.outside_id = -1};
    return rc;
}

void target_row_merge_spare(const struct target_slices *slices, const struct target_want *want,
                            const struct row_wish *wish, struct arena *arena,
                            struct target_row *row)
{
    struct row_wish asked = *wish;
    struct error err;
    bool more = false;
    *row = (struct target_row){.outside_id = -1};
    if (!want->lists_best || wish->full || target_want_is_edited(want)) return;
    if (!want->rule->is_greedy && sampling_truncates(want->params)) return;
    if (target_row_merge(slices, want, &asked, arena, row, &more, &err) || more) {
        *row = (struct target_row){.outside_id = -1};
    }
}
