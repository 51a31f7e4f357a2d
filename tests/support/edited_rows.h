/* Rows under edits, for tests: random rows and edits of many shapes, merged as production does it,
 * and a slow reference that edits every logit and sorts all of them. */
#pragma once

#include "tests/support/target_row_world.h"

enum { KINDS_OF_ROWS = 6, KINDS_OF_EDITS = 6 };

static struct edit edits[VOCAB];
static struct edit_list list = {.edits = edits};

static inline double random_at(int row, int index)
{
    return world_uniform(1000 + (uint32_t)row, (uint32_t)index);
}

static inline struct target_want edited_want(enum accept_rule rule,
                                             const struct sampling_params *params,
                                             const struct sparse_dist *draft, bool full)
{
    struct target_want want = want_of(rule, params, draft, full);
    want.edits = &list;
    return want;
}

/* The edited row, asking again as long as the merge wants more; *n_asked: how often. */
static inline int try_merge(const struct target_want *want, int n_slices, struct target_row *row,
                            int *n_asked)
{
    struct row_wish wish;
    const struct target_slices all = {slices, n_slices, VOCAB};
    arena_reset(&arena);
    CHECK_OK(target_row_wish_edited(want, &arena, &wish, &err));
    for (*n_asked = 0;; ++*n_asked) {
        struct slice_row before[SLICES_MAX];
        int n_best = wish.n_best;
        bool more;
        memcpy(before, slices, sizeof before);
        answer(&wish, n_slices);
        if (*n_asked) CHECK_OK(target_row_carry(before, slices, n_slices, &err));
        int rc = target_row_merge(&all, want, &wish, &arena, row, &more, &err);
        if (rc || !more) return rc;
        if (wish.n_best <= n_best) ck_abort_msg("%d asked for after %d", wish.n_best, n_best);
    }
}

static inline int merged(enum accept_rule rule, const struct sampling_params *params, int n_slices,
                         bool full, struct target_row *row)
{
    int n_asked;
    const struct target_want want = edited_want(rule, params, &q, full);
    CHECK_OK(try_merge(&want, n_slices, row, &n_asked));
    return n_asked;
}

/* Rows of other shapes than setup's: one token far above, two groups, ties, masks, flat. */
static inline void fill_logits(int row)
{
    for (int i = 0; i < VOCAB; i++) {
        double x = random_at(row, i), y = random_at(row, VOCAB + i);
        logits[i] = (float)(8 * (x - y));
        if (row % KINDS_OF_ROWS == 1 && i == row * 7 % VOCAB) logits[i] += 60;
        if (row % KINDS_OF_ROWS == 2) logits[i] += x < 0.01 ? 25 : 0;
        if (row % KINDS_OF_ROWS == 3) logits[i] = (float)(int)(3 * x) - 1;
        if (row % KINDS_OF_ROWS == 4) logits[i] = y < 0.95 ? -INFINITY : logits[i];
        if (row % KINDS_OF_ROWS == 5) logits[i] = (float)(0.01 * x);
    }
    logits[(row * 131 + 1) % VOCAB] = 9; /* never all masked */
}

static inline struct edit random_edit(int row, int32_t id, int kind)
{
    double x = random_at(row, 2 * VOCAB + id), y = random_at(row, 3 * VOCAB + id);
    struct edit edit = {.id = id, .divisor = 1};
    if (kind == 0 || kind == 5) edit.divisor = 1.3f;
    if (kind == 1) edit.minus = (float)(2 * x);
    if (kind == 2 || kind == 5) edit.bias = (float)(20 * x - 10);
    if (kind == 3 || (kind == 5 && y < 0.2)) edit.bias = -INFINITY;
    if (kind == 4) edit.divisor = 0.5f, edit.minus = (float)(x - 0.5);
    return edit;
}

/* Few or many edits of one kind or mixed; the highest logits are edited more often. */
static inline void fill_edits(int row)
{
    double share = row % 5 == 0 ? 0.5 : row % 5 == 1 ? 0.9 : 0.02;
    list.n = 0;
    for (int32_t id = 0; id < VOCAB; id++) {
        double top = logits[id] > 5 ? 0.7 : 0;
        if (random_at(row, 4 * VOCAB + id) >= share + top) continue;
        edits[list.n++] = random_edit(row, id, row / 7 % KINDS_OF_EDITS);
    }
}

struct reference {
    double p[VOCAB], entropy;
    float edited[VOCAB];
    int order[VOCAB], n; /* tokens that are left, best first, ties by id */
    double edge;         /* how near a cut by mass or by min_p was to falling elsewhere */
};

static inline void reference_sort(struct reference *ref)
{
    ref->n = 0;
    for (int i = 0; i < VOCAB; i++) {
        const struct edit *edit = edit_find(&list, i);
        ref->edited[i] = edit ? edit_apply(edit, logits[i]) : logits[i];
        ref->p[i] = 0;
        if (ref->edited[i] == -INFINITY) continue;
        int place = ref->n++;
        for (; place > 0 && ref->edited[ref->order[place - 1]] < ref->edited[i]; place--) {
            ref->order[place] = ref->order[place - 1];
        }
        ref->order[place] = i;
    }
}

static inline double reference_weight(const struct reference *ref, int place, double t)
{
    double best = (double)ref->edited[ref->order[0]];
    return exp(((double)ref->edited[ref->order[place]] - best) / t);
}

static inline double reference_sum(const struct reference *ref, double t)
{
    double sum = 0;
    for (int i = 0; i < ref->n; i++) {
        sum += reference_weight(ref, i, t);
    }
    return sum;
}

static inline void reference_cut(struct reference *ref, const struct sampling_params *params,
                                 double t)
{
    double sum = 0;
    if (params->top_k > 0 && params->top_k < ref->n) ref->n = params->top_k;
    double wanted = (double)params->top_p * reference_sum(ref, t);
    for (int i = 0; i < ref->n && params->top_p < 1; i++) {
        sum += reference_weight(ref, i, t);
        ref->edge = fmin(ref->edge, fabs(sum / wanted - 1));
        if (sum >= wanted) ref->n = i + 1;
    }
    for (int i = 1; i < ref->n && params->min_p > 0; i++) {
        double ratio = reference_weight(ref, i, t) / (double)params->min_p;
        ref->edge = fmin(ref->edge, fabs(ratio - 1));
        if (ratio < 1) ref->n = i;
    }
}

static inline void reference_fill(struct reference *ref, const struct sampling_params *params)
{
    double t = (double)params->temperature;
    reference_sort(ref);
    ref->edge = 1;
    ref->entropy = 0;
    if (ref->n == 0 || t == 0) return;
    if (sampling_truncates(params)) reference_cut(ref, params, t);
    double z = reference_sum(ref, t);
    for (int i = 0; i < ref->n; i++) {
        double p = reference_weight(ref, i, t) / z;
        ref->p[ref->order[i]] = p;
        ref->entropy -= p > 0 ? p * log(p) : 0;
    }
}

static inline int32_t reference_choice(const struct reference *ref, enum accept_rule rule,
                                       const struct sampling_params *params)
{
    int32_t ids[VOCAB];
    float left[VOCAB];
    if (rule != RULE_COUPLED || params->temperature == 0) return ref->order[0];
    for (int i = 0; i < ref->n; i++) {
        ids[i] = ref->order[i];
        left[i] = ref->edited[ids[i]];
    }
    return sampling_coupled_pick(ids, left, ref->n, params->temperature, at.seed, at.position);
}

/* ck_assert writes a line to a file whenever it passes: here only a difference speaks. */
static inline void expect_p(const struct target_row *row, const struct reference *ref,
                            const char *where)
{
    double sum = row->outside_mass, outside = 0;
    for (int i = 0, k = 0; i < VOCAB; i++) {
        if (k == row->n || row->ids[k] != i) {
            outside += ref->p[i];
            if (row->outside_mass == 0 && ref->p[i] > 1e-8) {
                ck_abort_msg("%s: id %d is missing, p %g", where, i, ref->p[i]);
            }
            continue;
        }
        double p = (double)row->p[k];
        if (row->logits[k++] != logits[i]) ck_abort_msg("%s: the raw logit of %d", where, i);
        sum += p;
        if (!(fabs(p - ref->p[i]) <= 2e-6 * ref->p[i] + 1e-9)) {
            ck_abort_msg("%s: p of %d is %.9g, wanted %.9g", where, i, p, ref->p[i]);
        }
    }
    if (!(fabs(row->outside_mass - outside) <= 2e-6 * outside + 1e-8)) {
        ck_abort_msg("%s: outside %.9g, wanted %.9g", where, row->outside_mass, outside);
    }
    if (!(fabs(sum - 1) < 1e-5)) ck_abort_msg("%s: the sum is %.9g", where, sum);
    int32_t drawn = row->outside_id;
    if (drawn >= 0 && row->outside_logit != logits[drawn]) ck_abort_msg("%s: raw logit", where);
    if ((drawn >= 0) != (row->outside_mass > 0)) ck_abort_msg("%s: outside %d", where, (int)drawn);
    if (drawn >= 0 && !(ref->p[drawn] > 0)) ck_abort_msg("%s: drew %d", where, (int)drawn);
    for (int i = 0; i < row->n && drawn >= 0; i++) {
        if (row->ids[i] == drawn) ck_abort_msg("%s: drew %d of the list", where, (int)drawn);
    }
}

static inline void expect_same(const struct target_row *a, const struct target_row *b,
                               const char *where)
{
    size_t n = (size_t)a->n;
    if (a->n != b->n || memcmp(a->ids, b->ids, n * sizeof *a->ids) != 0 ||
        memcmp(a->p, b->p, n * sizeof *a->p) != 0 ||
        memcmp(a->logits, b->logits, n * sizeof *a->logits) != 0 ||
        a->outside_mass != b->outside_mass || a->outside_id != b->outside_id ||
        a->entropy != b->entropy) {
        ck_abort_msg("%s: compact and full rows differ", where);
    }
}

static const struct sampling_params all_params[] = {
    {.temperature = 0, .top_p = 1},
    {.temperature = 0.02f, .top_p = 1},
    {.temperature = 0.8f, .top_p = 1},
    {.temperature = 3, .top_p = 1},
    {.temperature = 0.7f, .top_k = 9, .top_p = 1},
    {.temperature = 0.05f, .top_p = 0.95f},
    {.temperature = 1.5f, .top_p = 0.9f},
    {.temperature = 1, .top_k = 90, .top_p = 0.8f, .min_p = 0.002f},
    {.temperature = 2, .top_p = 1, .min_p = 0.05f},
    {.temperature = 1, .top_k = 100000, .top_p = 0.97f},
};
