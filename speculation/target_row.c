/* What acceptance asks of a merged row. */
#include "speculation/target_row.h"

#include <assert.h>

int target_row_find(const struct target_row *row, int32_t id)
{
    int low = 0, high = row->n;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (row->ids[middle] < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < row->n && row->ids[low] == id ? low : -1;
}

float target_row_prob(const struct target_row *row, int32_t id)
{
    int at = target_row_find(row, id);
    if (at >= 0) return row->p[at];
    assert(row->outside_mass == 0); /* p of this id was not asked for */
    return 0;
}

float target_row_logprob(const struct target_row *row, int32_t id)
{
    int at = target_row_find(row, id);
    assert(at >= 0 || id == row->outside_id);
    float logit = at >= 0 ? row->logits[at] : row->outside_logit;
    return (float)((double)logit - row->log_z);
}

int32_t target_row_draw(const struct target_row *row, const struct rng_address *at)
{
    double total = row->outside_mass, sum = 0;
    for (int i = 0; i < row->n; i++) {
        total += (double)row->p[i];
    }
    double left = rng_uniform(at, RNG_RESIDUAL, 0) * total;
    int32_t last = row->outside_id;
    for (int i = 0; i < row->n; i++) {
        if (!(row->p[i] > 0)) continue;
        sum += (double)row->p[i];
        last = row->ids[i];
        if (left < sum) return last;
    }
    return row->outside_mass > 0 ? row->outside_id : last;
}
