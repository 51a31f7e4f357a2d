/* Answers what acceptance asks of a merged row. */
#include "speculation/rows/target_row.h"

#include <assert.h>
#include <string.h>

#include "model/numerics/numerics.h"

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

double target_row_entropy(const float *p, int n)
{
    double entropy = 0;
    for (int i = 0; i < n; i++) {
        if (p[i] > 0) entropy -= (double)p[i] * num_log((double)p[i]);
    }
    return entropy;
}

/* The n best tokens, each with its p; of equal ones the first that was offered is the better. */
struct best {
    int32_t *ids;
    double *p;
    int n, most;
};

static void offer(struct best *best, int32_t id, double p)
{
    bool is_full = best->n == best->most;
    if (!(p > 0) || (is_full && p <= best->p[best->n - 1])) return;
    int at = is_full ? best->n - 1 : best->n++;
    for (; at > 0 && best->p[at - 1] < p; at--) {
        best->ids[at] = best->ids[at - 1];
        best->p[at] = best->p[at - 1];
    }
    best->ids[at] = id;
    best->p[at] = p;
}

static int copy(int32_t *to, int most, const int32_t *from, int n)
{
    n = n < most ? n : most;
    memcpy(to, from, (size_t)n * sizeof *to);
    return n;
}

int target_row_best(const struct target_row *row, int32_t *ids, int n)
{
    double p[TARGET_ROW_BEST_MAX];
    struct best best = {ids, p, 0, n < TARGET_ROW_BEST_MAX ? n : TARGET_ROW_BEST_MAX};
    if (best.most <= 0) return 0;
    if (row->n_top > row->n_best) return copy(ids, best.most, row->top_ids, row->n_top);
    if (row->n_best > 0) return copy(ids, best.most, row->best_ids, row->n_best);
    for (int i = 0; i < row->n; i++) {
        offer(&best, row->ids[i], (double)row->p[i]);
    }
    if (row->outside_id >= 0) offer(&best, row->outside_id, row->outside_mass);
    return best.n;
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
