/* Checks of slices that come from peers, before any of their numbers is used. */
#include "speculation/rows/check.h"

#include <math.h>

#include "base/limits.h"

static int check_best(const struct slice_row *slice, const struct row_wish *wish, struct error *err)
{
    int n_wanted = wish->n_best < slice->n_cols ? wish->n_best : slice->n_cols;
    bool is_short = wish->has_least && slice->n_best < n_wanted;
    if (slice->n_best != n_wanted && !is_short) {
        return error_set(err, ERR_FORMAT, "slice %d has %d best logits instead of %d", slice->slice,
                         slice->n_best, n_wanted);
    }
    float before = INFINITY;
    for (int i = 0; i < slice->n_best; i++) {
        int32_t id = slice->best_ids[i];
        float logit = slice->best_logits[i];
        if (id < slice->first_id || id - slice->first_id >= slice->n_cols) {
            return error_set(err, ERR_FORMAT, "slice %d has foreign id %d among its best",
                             slice->slice, (int)id);
        }
        if (!(logit <= slice->max) || (wish->has_least && logit < wish->least)) {
            return error_set(err, ERR_FORMAT, "slice %d has logit %g among its best, its max is %g",
                             slice->slice, (double)logit, (double)slice->max);
        }
        if (i == 0 && logit < slice->max) {
            return error_set(err, ERR_FORMAT, "slice %d has a best logit of %g below its max %g",
                             slice->slice, (double)logit, (double)slice->max);
        }
        if (logit > before || (logit == before && i > 0 && id <= slice->best_ids[i - 1])) {
            return error_set(err, ERR_FORMAT, "slice %d has its best out of order at id %d",
                             slice->slice, (int)id);
        }
        before = logit;
    }
    if (is_short && slice->n_best == 0 && n_wanted > 0 && slice->max >= wish->least) {
        return error_set(err, ERR_FORMAT, "slice %d leaves out its max %g of at least %g",
                         slice->slice, (double)slice->max, (double)wish->least);
    }
    return 0;
}

static int check_noisy(const struct slice_row *slice, const struct row_wish *wish,
                       struct error *err)
{
    int64_t column = (int64_t)slice->noisy_id - slice->first_id;
    if (!wish->noisy_best || slice->n_cols == 0) return 0;
    /* All of it may be on the list, or masked. */
    if (slice->noisy_id == -1 && (wish->n_ids > 0 || slice->max == -INFINITY)) return 0;
    for (int i = 0; i < wish->n_ids; i++) {
        if (wish->ids[i] != slice->noisy_id) continue;
        return error_set(err, ERR_FORMAT,
                         "slice %d has id %d as its best under noise, which is on "
                         "the list",
                         slice->slice, (int)slice->noisy_id);
    }
    if (column < 0 || column >= slice->n_cols) {
        return error_set(err, ERR_FORMAT, "slice %d has foreign id %d as its best under noise",
                         slice->slice, (int)slice->noisy_id);
    }
    if (!(slice->noisy_logit <= slice->max)) {
        return error_set(err, ERR_FORMAT, "slice %d has logit %g under noise, its max is %g",
                         slice->slice, (double)slice->noisy_logit, (double)slice->max);
    }
    return 0;
}

static int check_ids(const struct slice_row *slice, const struct row_wish *wish, struct error *err)
{
    int n_wanted = 0;
    for (int i = 0; i < wish->n_ids; i++) {
        int64_t column = (int64_t)wish->ids[i] - slice->first_id;
        if (column >= 0 && column < slice->n_cols) n_wanted++;
        if (wish->outside && wish->ids[i] == slice->outside_id) {
            return error_set(err, ERR_FORMAT, "slice %d drew id %d, which is on the list",
                             slice->slice, (int)slice->outside_id);
        }
    }
    if (slice->n_ids != n_wanted) {
        return error_set(err, ERR_FORMAT, "slice %d has %d logits of the list instead of %d",
                         slice->slice, slice->n_ids, n_wanted);
    }
    for (int i = 0; i < slice->n_ids; i++) {
        if (!(slice->id_logits[i] <= slice->max)) {
            return error_set(err, ERR_FORMAT, "slice %d has logit %g on the list, its max is %g",
                             slice->slice, (double)slice->id_logits[i], (double)slice->max);
        }
    }
    return 0;
}

static bool is_within(double x, double low, double high)
{
    return x >= low && x <= high; /* NaN is not */
}

static int check_sums(const struct slice_row *slice, const struct row_wish *wish, struct error *err)
{
    bool has_mass = slice->max > -INFINITY;
    double most = has_mass ? slice->n_cols * (1 + TARGET_ROW_SLACK) : 0;
    for (int k = 0; k < wish->n_temperatures; k++) {
        if (!is_within(slice->sum_exp[k], has_mass ? 1 - TARGET_ROW_SLACK : 0, most)) {
            return error_set(err, ERR_FORMAT, "slice %d has a sum of %g over %d columns",
                             slice->slice, slice->sum_exp[k], slice->n_cols);
        }
    }
    /* e ln e >= -1 / E */
    if (wish->entropy && !is_within(slice->sum_exp_log, -0.3679 * most, 0)) {
        return error_set(err, ERR_FORMAT, "slice %d has an entropy sum of %g", slice->slice,
                         slice->sum_exp_log);
    }
    if (!wish->outside) return 0;
    if (!is_within(slice->outside_sum, 0, slice->sum_exp[0] * (1 + TARGET_ROW_SLACK))) {
        return error_set(err, ERR_FORMAT, "slice %d has a mass of %g outside, %g in all",
                         slice->slice, slice->outside_sum, slice->sum_exp[0]);
    }
    int64_t column = (int64_t)slice->outside_id - slice->first_id;
    bool is_inside = column >= 0 && column < slice->n_cols;
    if (slice->outside_sum > 0 ? !is_inside : slice->outside_id != -1) {
        return error_set(err, ERR_FORMAT, "slice %d drew foreign id %d", slice->slice,
                         (int)slice->outside_id);
    }
    if (slice->outside_sum > 0 && !(slice->outside_logit <= slice->max)) {
        return error_set(err, ERR_FORMAT, "slice %d drew logit %g, its max is %g", slice->slice,
                         (double)slice->outside_logit, (double)slice->max);
    }
    return 0;
}

int target_row_check_shape(const struct slice_row *slices, int n_slices, int n_vocab,
                           struct error *err)
{
    if (n_slices < 1 || n_slices > SLICES_MAX) {
        return error_set(err, ERR_FORMAT, "a row of %d slices, not 1 to %d", n_slices, SLICES_MAX);
    }
    for (int s = 0; s < n_slices; s++) {
        const struct slice_row *slice = &slices[s];
        int32_t first_id;
        int n_cols;
        row_slice_range(n_vocab, n_slices, s, &first_id, &n_cols);
        if (slice->slice != s || slice->first_id != first_id || slice->n_cols != n_cols) {
            return error_set(
                err, ERR_FORMAT,
                "slice %d with %d columns from %d in place of slice %d with %d from %d",
                slice->slice, slice->n_cols, (int)slice->first_id, s, n_cols, (int)first_id);
        }
    }
    return 0;
}

int target_row_check_slices(const struct slice_row *slices, int n_slices,
                            const struct row_wish *wish, struct error *err)
{
    int rc = 0;
    float max = -INFINITY;
    for (int s = 0; s < n_slices; s++) {
        const struct slice_row *slice = &slices[s];
        if (!(slice->max < INFINITY) || (slice->n_cols == 0 && slice->max > -INFINITY)) {
            return error_set(err, ERR_FORMAT, "slice %d has a largest logit of %g", s,
                             (double)slice->max);
        }
        TRY(check_best(slice, wish, err));
        TRY(check_noisy(slice, wish, err));
        TRY(check_ids(slice, wish, err));
        TRY(check_sums(slice, wish, err));
        max = slice->max > max ? slice->max : max;
    }
    if (!(max > -INFINITY)) {
        rc = error_set(err, ERR_FORMAT, "every logit of the row is masked");
    }
out:
    return rc;
}
