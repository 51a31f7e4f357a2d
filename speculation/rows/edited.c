/* Makes the questions for a row under edits, and the rows in which what is then known (known.c)
 * decides one token or a truncation.
 *
 * Edits that only lower a logit need no name where the n best decide: a token that is not among a
 * slice's best was no better than the last of them, and is no better after the edit. Those that may
 * raise it are named. Where p itself is wanted every edited id is named. */
#include "speculation/rows/edited.h"

#include <math.h>

#include "base/limits.h"
#include "speculation/rows/rule.h"

/* How many of the n best may be edited away at the first try without asking again. */
enum { CHOICE_MORE = 15, CUT_MORE = 64, MORE_FACTOR = 4 };

bool target_want_is_edited(const struct target_want *want)
{
    return want->edits && want->edits->n > 0;
}

/* The ids of edits and of q, ascending and distinct. all = false: edits that may raise a logit. */
static int join_ids(const struct edit_list *list, bool all, const struct sparse_dist *q,
                    int32_t *ids)
{
    int n = 0, n_q = q ? q->n : 0;
    for (int i = 0, k = 0; i < list->n || k < n_q;) {
        if (i < list->n && !all && !edit_can_raise(&list->edits[i])) {
            i++;
            continue;
        }
        bool is_q = k < n_q && (i == list->n || q->ids[k] <= list->edits[i].id);
        ids[n] = is_q ? q->ids[k] : list->edits[i].id;
        i += i < list->n && list->edits[i].id == ids[n];
        k += is_q;
        n++;
    }
    return n;
}

static int at_most(int n, int most)
{
    return n < most ? n : most;
}

int target_row_wish_compact(const struct target_want *want, struct arena *arena,
                            struct row_wish *wish, struct error *err)
{
    struct target_want plain = *want;
    plain.edits = NULL;
    plain.full_rows = false;
    target_row_wish(&plain, wish);
    if (!target_want_is_edited(want)) return 0;
    int n_edits = want->edits->n;
    bool needs_q = wish->outside;
    bool has_cut = sampling_truncates(want->params) && !want->rule->is_greedy;
    if (has_cut && want->params->top_p < 1) wish->outside = true; /* a share of the mass */
    wish->buckets = ROW_BUCKETS_OFF;
    bool has_best = wish->n_best > 0 && !wish->noisy_best && !needs_q;
    if (has_best) wish->n_best += at_most(n_edits, has_cut ? CUT_MORE : CHOICE_MORE);
    const struct sparse_dist *q = needs_q ? want->q : NULL;
    int32_t *ids = arena_take(arena, (size_t)n_edits + (size_t)(q ? q->n : 0), sizeof *ids);
    if (!ids) return target_row_edits_full(err);
    wish->n_ids = join_ids(want->edits, wish->outside || wish->noisy_best, q, ids);
    wish->ids = ids;
    return 0;
}

int target_row_wish_edited(const struct target_want *want, struct arena *arena,
                           struct row_wish *wish, struct error *err)
{
    int rc = 0;
    if (want->full_rows) {
        *wish = (struct row_wish){.at = want->at, .full = true};
        return 0;
    }
    TRY(target_row_wish_compact(want, arena, wish, err));
    if (wish->n_ids > ROW_IDS_MAX) *wish = (struct row_wish){.at = want->at, .full = true};
out:
    return rc;
}

/* Bound of what a slice may hold beyond its n best: nothing that ranks before its last one. */
struct bound {
    bool is_open; /* there are more columns */
    double score;
    int32_t id;
};

static double score_of(const struct row_wish *wish, float logit, int32_t id)
{
    if (!wish->noisy_best) return (double)logit;
    uint32_t bits = rng_coupled_bits(wish->at.seed, wish->at.position, (uint32_t)id);
    return row_noisy_score(logit, wish->temperatures[0], bits);
}

/* Under noise a slice names its best token. If that one is edited, others of the slice are not
 * better than it was; otherwise it is the best of those that are not edited. */
static struct bound bound_of_slice(const struct merge *merge, const struct slice_row *slice)
{
    int32_t id = -1;
    float logit = -INFINITY;
    if (slice->n_best == slice->n_cols) return (struct bound){.score = -HUGE_VAL};
    if (!merge->wish->noisy_best) {
        id = slice->best_ids[slice->n_best - 1];
        logit = slice->best_logits[slice->n_best - 1];
    } else if (target_row_is_named(merge->wish, slice->noisy_id)) {
        id = slice->noisy_id;
        logit = slice->noisy_logit;
    }
    double score = id >= 0 ? score_of(merge->wish, logit, id) : -HUGE_VAL;
    return (struct bound){score > -HUGE_VAL, score, id};
}

/* The bound of all slices: the best one. */
static struct bound bound_of_rest(const struct merge *merge)
{
    struct bound bound = {.score = -HUGE_VAL};
    for (int s = 0; s < merge->n_slices; s++) {
        const struct bound own = bound_of_slice(merge, &merge->slices[s]);
        if (!own.is_open || (bound.is_open && own.score <= bound.score)) continue;
        bound = own; /* of a tie the first slice has the lower ids */
    }
    return bound;
}

/* True if `item`, a known column, ranks before every unknown one. */
static bool is_before(const struct select_item *item, const struct bound *bound)
{
    if (!bound->is_open || item->score > bound->score) return true;
    return item->score == bound->score && item->id <= bound->id;
}

/* The next question has more best; a slice that is whole answers no more. */
static void ask_best(const struct merge *merge, bool *more)
{
    int width = merge->slices[0].n_cols, tried = merge->wish->n_best;
    bool is_last = merge->wish->noisy_best || tried >= width / MORE_FACTOR;
    merge->wish->n_best = is_last ? width : tried * MORE_FACTOR;
    *more = true;
}

static int one_hot(const struct merge *merge, const struct edited_known *known, int32_t id,
                   struct target_row *row, struct error *err)
{
    const struct select_item item = {1, id};
    return target_row_of_items(merge->arena, known, &item, 1, row, err);
}

/* Greedy, temperature 0, coupled without a cut: the best after edits and noise. */
static int merge_choice(const struct merge *merge, struct target_row *row, bool *more,
                        struct error *err)
{
    int rc = 0;
    struct edited_known known;
    struct select_item best = {-HUGE_VAL, -1};
    TRY(target_row_know(merge, true, &known, err));
    for (int i = 0; i < known.n; i++) {
        struct select_item item = known.items[i];
        if (item.score == -HUGE_VAL) continue;
        item.score = score_of(merge->wish, (float)item.score, item.id);
        bool is_tie = item.score == best.score;
        if (item.score > best.score || (is_tie && item.id < best.id)) best = item;
    }
    const struct bound bound = bound_of_rest(merge);
    if (!is_before(&best, &bound)) {
        ask_best(merge, more);
    } else if (best.id < 0) {
        rc = target_row_no_token(merge, err);
    } else {
        rc = one_hot(merge, &known, best.id, row, err);
    }
out:
    return rc;
}

/* Candidates for a cut, best first, and the mass of the whole row in units of the first one's. */
struct edited_cut {
    int n;
    bool is_whole; /* every token that is left */
    int32_t *ids;
    float *logits;
    double sum_all;
};

/* Sorts what is known and keeps what surely ranks before the rest. */
static int list_candidates(const struct merge *merge, struct edited_known *known,
                           struct edited_cut *cut, struct error *err)
{
    struct select_heap heap = {.items = known->items, .capacity = known->n};
    for (int i = 0; i < known->n; i++) { /* the heap grows over what was read */
        const struct select_item item = known->items[i];
        if (item.score > -HUGE_VAL) select_offer(&heap, item.score, item.id);
    }
    select_sort_best(&heap);
    const struct bound bound = bound_of_rest(merge);
    while (heap.n > 0 && !is_before(&heap.items[heap.n - 1], &bound)) {
        heap.n--;
    }
    *cut = (struct edited_cut){.n = heap.n, .is_whole = !bound.is_open};
    cut->ids = arena_take(merge->arena, (size_t)heap.n, sizeof *cut->ids);
    cut->logits = arena_take(merge->arena, (size_t)heap.n, sizeof *cut->logits);
    if (!cut->ids || !cut->logits) return target_row_edits_full(err);
    for (int i = 0; i < heap.n; i++) {
        cut->ids[i] = heap.items[i].id;
        cut->logits[i] = (float)heap.items[i].score;
    }
    return 0;
}

/* Mass of the row, which top-p takes a share of. False: ask for more. */
static bool measure(const struct merge *merge, const struct edited_known *known,
                    struct edited_mass *mass)
{
    *mass = target_row_mass(merge, known->items, known->n_named, true);
    if (target_row_mass_is_good(mass)) return true;
    if (!target_row_best_counts(merge)) return false;
    *mass = target_row_mass(merge, known->items, known->n, false);
    mass->lost = target_row_mass_unknown(merge, known, mass->best);
    return target_row_mass_is_good(mass);
}

static float *candidate_p(const struct merge *merge, const struct edited_cut *cut,
                          struct error *err)
{
    float *p = arena_take(merge->arena, (size_t)cut->n, sizeof *p);
    if (!p) target_row_edits_full(err);
    return p;
}

/* The n candidates that are left with their p, or the one among them that the noise picks. */
static int kept_row(const struct merge *merge, const struct edited_known *known,
                    const struct edited_cut *cut, const float *p, int n, struct target_row *row,
                    struct error *err)
{
    int rc = 0;
    const struct target_want *want = merge->want;
    if (want->rule->is_coupled) {
        return one_hot(merge, known,
                       sampling_coupled_pick(cut->ids, cut->logits, n, want->params->temperature,
                                             want->at.seed, want->at.position),
                       row, err);
    }
    struct select_item *items = arena_take(merge->arena, (size_t)n, sizeof *items);
    if (!items) return target_row_edits_full(err);
    for (int i = 0; i < n; i++) {
        items[i] = (struct select_item){(double)p[i], cut->ids[i]};
    }
    select_sort_ids(items, n);
    TRY(target_row_of_items(merge->arena, known, items, n, row, err));
    row->entropy = want->rule->needs_entropy ? target_row_entropy(p, n) : 0;
out:
    return rc;
}

static int merge_cut(const struct merge *merge, struct target_row *row, bool *more,
                     struct error *err)
{
    int rc = 0;
    struct edited_known known;
    struct edited_cut cut;
    struct edited_mass mass = {0};
    const struct sampling_params *params = merge->want->params;
    TRY(target_row_know(merge, true, &known, err));
    if (params->top_p < 1 && !measure(merge, &known, &mass)) {
        merge->wish->n_best = target_row_best_next(merge);
        *more = true;
        goto out;
    }
    TRY(list_candidates(merge, &known, &cut, err));
    if (cut.n == 0) {
        if (!cut.is_whole) ask_best(merge, more);
        rc = cut.is_whole ? target_row_no_token(merge, err) : 0;
        goto out;
    }
    double above = (mass.best - (double)cut.logits[0]) / (double)params->temperature;
    double sum_all = (mass.known + mass.outside) * num_exp_double(above);
    float *p = candidate_p(merge, &cut, err);
    if (!p) {
        rc = ERR_NO_MEMORY;
        goto out;
    }
    bool is_certain;
    int n = sampling_truncate(cut.logits, cut.n, sum_all, cut.is_whole, params, p, &is_certain);
    if (!is_certain) {
        ask_best(merge, more);
    } else {
        rc = kept_row(merge, &known, &cut, p, n, row, err);
    }
out:
    return rc;
}

int target_row_merge_edited(const struct merge *merge, struct target_row *row, bool *more,
                            struct error *err)
{
    const struct target_want *want = merge->want;
    if (want->rule->is_greedy || want->params->temperature == 0 || merge->wish->noisy_best) {
        return merge_choice(merge, row, more, err);
    }
    if (sampling_truncates(want->params)) return merge_cut(merge, row, more, err);
    return target_row_merge_edited_p(merge, row, more, err);
}
