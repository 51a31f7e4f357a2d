/* Collects what is known of a row under edits, and makes a row of it. */
#include <math.h>

#include "base/limits.h"
#include "speculation/rows/edited.h"

int target_row_no_token(const struct merge *merge, struct error *err)
{
    return error_set(err, ERR_ARGUMENT,
                     "the request's bans and biases leave no token that could follow at position "
                     "%u; ban fewer",
                     merge->want->at.position);
}

int target_row_edits_full(struct error *err)
{
    return error_set(err, ERR_NO_MEMORY, "the row arena has no room for an edited row");
}

/* The named ids, slice after slice, because both ascend. */
static void know_named(const struct merge *merge, struct edited_known *known)
{
    const struct row_wish *wish = merge->wish;
    const struct edit_list *list = merge->want->edits;
    int n = 0, k = 0;
    for (int s = 0; s < merge->n_slices; s++) {
        const struct slice_row *slice = &merge->slices[s];
        for (int i = 0; i < slice->n_ids; i++, n++) {
            int32_t id = wish->ids[n];
            float logit = slice->id_logits[i];
            while (k < list->n && list->edits[k].id < id) {
                k++;
            }
            bool is_edited = k < list->n && list->edits[k].id == id;
            known->raws[n] = (struct select_item){(double)logit, id};
            if (is_edited) logit = edit_apply(&list->edits[k], logit);
            known->items[n] = (struct select_item){(double)logit, id};
        }
        known->n_cols[s] = slice->n_ids;
    }
    for (; n < wish->n_ids; n++) {
        known->items[n] = known->raws[n] = (struct select_item){-HUGE_VAL, wish->ids[n]};
    }
    known->n = known->n_named = n;
}

bool target_row_is_named(const struct row_wish *wish, int32_t id)
{
    int low = 0, high = wish->n_ids;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (wish->ids[middle] < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < wish->n_ids && wish->ids[low] == id;
}

static void know_best(const struct merge *merge, struct edited_known *known)
{
    for (int s = 0; s < merge->n_slices; s++) {
        const struct slice_row *slice = &merge->slices[s];
        bool is_whole = slice->n_best == slice->n_cols;
        if (merge->wish->noisy_best && !is_whole) continue; /* they may hold its noisy best */
        for (int i = 0; i < slice->n_best; i++) {
            int32_t id = slice->best_ids[i];
            if (target_row_is_named(merge->wish, id)) continue;
            const struct edit *edit = edit_find(merge->want->edits, id);
            float logit = slice->best_logits[i];
            known->raws[known->n] = (struct select_item){(double)logit, id};
            if (edit) logit = edit_apply(edit, logit);
            known->items[known->n++] = (struct select_item){(double)logit, id};
            known->n_cols[s]++;
        }
    }
}

static void know_noisy(const struct merge *merge, struct edited_known *known)
{
    for (int s = 0; s < merge->n_slices; s++) {
        const struct slice_row *slice = &merge->slices[s];
        bool is_known = slice->n_cols == slice->n_best; /* among its best */
        if (is_known || slice->noisy_id < 0) continue;
        if (target_row_is_named(merge->wish, slice->noisy_id)) continue;
        known->raws[known->n] = (struct select_item){(double)slice->noisy_logit, slice->noisy_id};
        known->items[known->n] = known->raws[known->n];
        known->n++;
    }
}

int target_row_know(const struct merge *merge, bool with_best, struct edited_known *known,
                    struct error *err)
{
    size_t n = (size_t)merge->wish->n_ids;
    for (int s = 0; s < merge->n_slices && with_best; s++) {
        n += (size_t)merge->slices[s].n_best;
    }
    n += SLICES_MAX; /* the best under noise */
    *known = (struct edited_known){.items = arena_take(merge->arena, n, sizeof *known->items),
                                   .raws = arena_take(merge->arena, n, sizeof *known->raws)};
    if (!known->items || !known->raws) return target_row_edits_full(err);
    know_named(merge, known);
    if (with_best) know_best(merge, known);
    if (merge->wish->noisy_best) know_noisy(merge, known);
    return 0;
}

int target_row_of_items(struct arena *arena, const struct edited_known *known,
                        const struct select_item *items, int n, struct target_row *row,
                        struct error *err)
{
    int32_t *ids = arena_take(arena, (size_t)n, sizeof *ids);
    float *p = arena_take(arena, (size_t)n, sizeof *p);
    float *logits = arena_take(arena, (size_t)n, sizeof *logits);
    if (!ids || !p || !logits) return target_row_edits_full(err);
    if (known->n > known->n_named) select_sort_ids(known->raws, known->n);
    for (int i = 0, k = 0; i < n; i++) {
        while (known->raws[k].id < items[i].id) {
            k++;
        }
        ids[i] = items[i].id;
        p[i] = (float)items[i].score;
        logits[i] = (float)known->raws[k].score;
    }
    *row = (struct target_row){.n = n, .ids = ids, .p = p, .logits = logits, .outside_id = -1};
    return 0;
}
