/* p under edits, where nothing is cut: named ids with their new mass, and the mass outside of them
 * as the slices sum it.
 *
 * A slice sums exp((logit - max) / t) with its own largest logit as max, which may be a token that
 * the edits take away. If everything else is so far below it that the sum underflows, the row's
 * answer is asked for again with the n best of each slice, until what is beyond those can hold no
 * mass that matters; then the row is a list, and nothing is outside of it. */
#include <float.h>
#include <math.h>

#include "model/numerics/exp_coefficients.h"
#include "model/numerics/numerics.h"
#include "speculation/rows/check.h"
#include "speculation/rows/edited.h"
#include "speculation/rows/rule.h"

/* LIST_FIRST is above what a caller adds to a wish for its own purposes. */
enum { LIST_FIRST = 256, LIST_FACTOR = 16 };

/* Shares of the mass that no float of p shows. */
static const double NEGLIGIBLE = 1e-9;
/* Rounding of a slice's sums of floats, and what the entropy of `typical` may be off, in nats. */
static const double SUM_ERROR = 1e-6, ENTROPY_DOUBT = 1e-3;

static double in_units(const struct merge *merge, double logit, double best)
{
    if (!(logit > -HUGE_VAL)) return 0;
    return num_exp_double((logit - best) / (double)merge->want->params->temperature);
}

/* The logit that alone would have the slice's mass outside of the list. */
static double outside_logit(const struct merge *merge, const struct slice_row *slice)
{
    if (!(slice->outside_sum > 0)) return -HUGE_VAL;
    double t = (double)merge->want->params->temperature;
    return (double)slice->max + t * num_log(slice->outside_sum);
}

static double best_logit(const struct merge *merge, const struct select_item *items, int n,
                         bool with_outside)
{
    double best = -HUGE_VAL;
    for (int i = 0; i < n; i++) {
        best = items[i].score > best ? items[i].score : best;
    }
    for (int s = 0; s < merge->n_slices && with_outside; s++) {
        double logit = outside_logit(merge, &merge->slices[s]);
        best = logit > best ? logit : best;
    }
    return best;
}

/* Columns of a slice that the wish does not name. */
static int count_outside(const struct slice_row *slice)
{
    return slice->n_cols - slice->n_ids;
}

struct edited_mass target_row_mass(const struct merge *merge, const struct select_item *items,
                                   int n, bool with_outside)
{
    struct edited_mass mass = {.best = best_logit(merge, items, n, with_outside)};
    for (int i = 0; i < n; i++) {
        mass.known += in_units(merge, items[i].score, mass.best);
    }
    for (int s = 0; s < merge->n_slices && with_outside; s++) {
        const struct slice_row *slice = &merge->slices[s];
        if (count_outside(slice) == 0 || !(slice->max > -INFINITY)) continue;
        bool is_unknown = mass.best == -HUGE_VAL;
        double scale = is_unknown ? HUGE_VAL : in_units(merge, (double)slice->max, mass.best);
        if (slice->outside_sum > 0) mass.outside += slice->outside_sum * scale;
        mass.lost += count_outside(slice) * (double)FLT_MIN * scale; /* num_exp ends at FLT_MIN */
    }
    return mass;
}

bool target_row_mass_is_good(const struct edited_mass *mass)
{
    return mass->lost <= NEGLIGIBLE * (mass->known + mass->outside);
}

double target_row_mass_unknown(const struct merge *merge, const struct edited_known *known,
                               double best)
{
    double mass = 0;
    for (int s = 0; s < merge->n_slices; s++) {
        const struct slice_row *slice = &merge->slices[s];
        if (slice->n_best == slice->n_cols) continue;
        float most = slice->best_logits[slice->n_best - 1];
        if (!(most > -INFINITY)) continue;
        double scale = best == -HUGE_VAL ? HUGE_VAL : in_units(merge, (double)most, best);
        mass += (slice->n_cols - known->n_cols[s]) * scale;
    }
    return mass;
}

bool target_row_best_counts(const struct merge *merge)
{
    int n = merge->wish->n_best, width = merge->slices[0].n_cols;
    for (int64_t step = LIST_FIRST; step < width; step *= LIST_FACTOR) {
        if (n == step) return true;
    }
    return n >= width;
}

int target_row_best_next(const struct merge *merge)
{
    int n = merge->wish->n_best, width = merge->slices[0].n_cols;
    int64_t step = LIST_FIRST;
    while (step <= n && step < width) {
        step *= LIST_FACTOR;
    }
    return step < width ? (int)step : width;
}

/* Sum of m ln m over items, m = exp((score - best) / t). */
static double known_entropy(const struct merge *merge, const struct select_item *items, int n,
                            double best)
{
    double sum = 0, t = (double)merge->want->params->temperature;
    for (int i = 0; i < n; i++) {
        double m = in_units(merge, items[i].score, best);
        if (m > 0) sum += m * ((items[i].score - best) / t);
    }
    return sum;
}

/* Sum of e ln e over the columns outside of the list, e = exp((logit - max) / t): that of all
 * columns without the listed ones, which are computed as the slice did. With the sum m of n such e
 * it is between m ln(m / n), where all are equal, and m ln m, where one has all. */
static double outside_entropy(const struct merge *merge, const struct slice_row *slice)
{
    double sum = slice->sum_exp_log, m = slice->outside_sum;
    float inverse_t = 1.0f / merge->want->params->temperature;
    for (int i = 0; i < slice->n_ids; i++) {
        float x = (slice->id_logits[i] - slice->max) * inverse_t;
        if (x >= EXP_LEAST) sum -= (double)(num_exp(x) * x);
    }
    double least = m * num_log(m / count_outside(slice));
    double most = m < 1 ? m * num_log(m) : 0;
    sum = sum < most ? sum : most;
    return sum > least ? sum : least;
}

/* Entropy of the edited row; *doubt is how far it may be off for the rounding of sums. */
static double edited_entropy(const struct merge *merge, const struct edited_known *known,
                             const struct edited_mass *mass, double *doubt)
{
    double t = (double)merge->want->params->temperature, z = mass->known + mass->outside;
    double sum = known_entropy(merge, known->items, known->n_named, mass->best);
    *doubt = 0;
    for (int s = 0; s < merge->n_slices; s++) {
        const struct slice_row *slice = &merge->slices[s];
        if (!(slice->outside_sum > 0)) continue;
        double scale = in_units(merge, (double)slice->max, mass->best);
        double log_scale = ((double)slice->max - mass->best) / t;
        sum += scale * (outside_entropy(merge, slice) + slice->outside_sum * log_scale);
        *doubt += scale * SUM_ERROR * fabs(slice->sum_exp_log) / z;
    }
    double entropy = num_log(z) - sum / z;
    return entropy > 0 ? entropy : 0;
}

/* The slices' sums have to agree with the logits that they name. */
static int check_sums(const struct merge *merge, struct error *err)
{
    float inverse_t = 1.0f / merge->want->params->temperature;
    for (int s = 0; s < merge->n_slices; s++) {
        const struct slice_row *slice = &merge->slices[s];
        double sum = slice->outside_sum, all = slice->sum_exp[0];
        if (!(slice->max > -INFINITY)) continue;
        for (int i = 0; i < slice->n_ids; i++) {
            sum += (double)num_exp((slice->id_logits[i] - slice->max) * inverse_t);
        }
        if (!(fabs(sum - all) <= TARGET_ROW_SLACK * all)) {
            return error_set(err, ERR_FORMAT, "slice %d has a mass of %g in its parts, %g in all",
                             s, sum, all);
        }
    }
    return 0;
}

/* The slice is chosen by its mass, the token was drawn by the slice's rank. */
static void choose_outside(const struct merge *merge, const struct edited_mass *mass,
                           struct target_row *row)
{
    double left = rng_uniform(&merge->wish->at, RNG_RESIDUAL, 1) * mass->outside, sum = 0;
    for (int s = 0; s < merge->n_slices && !(left < sum); s++) {
        const struct slice_row *slice = &merge->slices[s];
        if (!(slice->outside_sum > 0)) continue;
        double m = slice->outside_sum * in_units(merge, (double)slice->max, mass->best);
        if (!(m > 0)) continue;
        sum += m;
        row->outside_id = slice->outside_id;
        row->outside_logit = slice->outside_logit;
    }
}

/* Scores become p. */
static void normalise(const struct merge *merge, const struct edited_mass *mass,
                      struct select_item *items, int n)
{
    double z = mass->known + mass->outside;
    for (int i = 0; i < n; i++) {
        items[i].score = in_units(merge, items[i].score, mass->best) / z;
    }
}

/* The named ids and the mass outside. False in *is_good: the sums are not good enough. */
static int merge_named(const struct merge *merge, struct target_row *row, bool *is_good,
                       struct error *err)
{
    int rc = 0;
    double entropy = 0, doubt = 0;
    struct edited_known known;
    TRY(target_row_know(merge, false, &known, err));
    const struct edited_mass mass = target_row_mass(merge, known.items, known.n, true);
    *is_good = target_row_mass_is_good(&mass);
    if (mass.known + mass.outside == 0) { /* whether or not something was lost */
        rc = *is_good ? target_row_no_token(merge, err) : 0;
        goto out;
    }
    if (*is_good && merge->wish->entropy) {
        entropy = edited_entropy(merge, &known, &mass, &doubt);
        *is_good = doubt <= ENTROPY_DOUBT;
    }
    if (!*is_good) goto out;
    normalise(merge, &mass, known.items, known.n);
    TRY(target_row_of_items(merge->arena, &known, known.items, known.n, row, err));
    row->entropy = entropy;
    row->outside_mass = mass.outside / (mass.known + mass.outside);
    choose_outside(merge, &mass, row);
out:
    return rc;
}

/* The named ids and the best of each slice, when the rest of the row has no mass that matters. */
static int merge_listed(const struct merge *merge, struct target_row *row, bool *is_good,
                        struct error *err)
{
    int rc = 0;
    struct edited_known known;
    TRY(target_row_know(merge, true, &known, err));
    struct edited_mass mass = target_row_mass(merge, known.items, known.n, false);
    mass.lost = target_row_mass_unknown(merge, &known, mass.best);
    *is_good = target_row_mass_is_good(&mass);
    if (!*is_good) goto out;
    if (mass.known == 0) {
        rc = target_row_no_token(merge, err);
        goto out;
    }
    double sum = known_entropy(merge, known.items, known.n, mass.best);
    select_sort_ids(known.items, known.n);
    normalise(merge, &mass, known.items, known.n);
    TRY(target_row_of_items(merge->arena, &known, known.items, known.n, row, err));
    if (merge->wish->entropy) row->entropy = num_log(mass.known) - sum / mass.known;
out:
    return rc;
}

int target_row_merge_edited_p(const struct merge *merge, struct target_row *row, bool *more,
                              struct error *err)
{
    int rc = 0;
    bool is_good = false;
    TRY(check_sums(merge, err));
    TRY(merge_named(merge, row, &is_good, err));
    if (is_good) goto out;
    if (target_row_best_counts(merge)) TRY(merge_listed(merge, row, &is_good, err));
    if (is_good) goto out;
    merge->wish->n_best = target_row_best_next(merge);
    *more = true;
out:
    return rc;
}
