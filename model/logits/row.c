/* Functions of wishes and of the slices of a row that all backends share. The answers:
 * model/logits/answer.c. */
#include "model/logits/row.h"

#include <math.h>

#include "model/numerics/numerics.h"

enum { SLICE_ALIGN = 64 };

void row_slice_range(int n_vocab, int n_slices, int slice, int32_t *first_id, int *n_cols)
{
    int64_t width = ((int64_t)n_vocab + n_slices - 1) / n_slices;
    width = (width + SLICE_ALIGN - 1) / SLICE_ALIGN * SLICE_ALIGN;
    int64_t first = width * slice < n_vocab ? width * slice : n_vocab;
    int64_t end = first + width < n_vocab ? first + width : n_vocab;
    *first_id = (int32_t)first;
    *n_cols = (int)(end - first);
}

double row_noisy_score(float logit, float temperature, uint32_t noise_bits)
{
    return (double)logit / (double)temperature + (double)num_gumbel(noise_bits);
}

double row_bucket(float logit, float temperature)
{
    float steps_per_unit = (float)ROW_BUCKET_SHARE * (1.0f / temperature);
    return floor((double)(logit * steps_per_unit));
}

int row_slice_failure(const struct slice_row *row, const struct row_wish *wish, struct error *err)
{
    switch (row->code) {
    case ERR_FORMAT:
        return error_set(err, ERR_FORMAT, "%d of the logits from id %d on are NaN or +inf",
                         row->n_bad, (int)row->first_id);
    case ERR_NO_MEMORY:
        return error_set(err, ERR_NO_MEMORY,
                         "there is no room for the answer of slice %d: %d best, %d ids%s",
                         row->slice, wish->n_best, wish->n_ids, wish->full ? ", all logits" : "");
    default:
        return row_wish_check(wish, err);
    }
}

static int check_temperatures(const struct row_wish *wish, struct error *err)
{
    if (wish->n_temperatures < 0 || wish->n_temperatures > ROW_TEMPERATURES_MAX) {
        return error_set(err, ERR_ARGUMENT, "a row wish for %d temperatures, at most %d",
                         wish->n_temperatures, ROW_TEMPERATURES_MAX);
    }
    for (int k = 0; k < wish->n_temperatures; k++) {
        float t = wish->temperatures[k];
        if (!(t > 0 && t < INFINITY && 1.0f / t < INFINITY)) {
            return error_set(err, ERR_ARGUMENT, "a row wish at temperature %g", (double)t);
        }
    }
    bool needs_one = wish->outside || wish->entropy || wish->noisy_best || wish->buckets;
    if (needs_one && wish->n_temperatures == 0) {
        return error_set(err, ERR_ARGUMENT,
                         "a row wish for draws, entropy or buckets names no temperature");
    }
    return 0;
}

int row_wish_check(const struct row_wish *wish, struct error *err)
{
    if (wish->n_best < 0 || wish->n_ids < 0) {
        return error_set(err, ERR_ARGUMENT, "a row wish for %d best and %d ids", wish->n_best,
                         wish->n_ids);
    }
    if (wish->has_least && !(wish->least < INFINITY)) {
        return error_set(err, ERR_ARGUMENT, "a row wish for logits of at least %g",
                         (double)wish->least);
    }
    if ((int)wish->buckets < 0 || wish->buckets >= ROW_BUCKETS_KINDS) {
        return error_set(err, ERR_ARGUMENT, "a row wish for buckets of kind %d",
                         (int)wish->buckets);
    }
    return check_temperatures(wish, err);
}
