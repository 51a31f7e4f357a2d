/* Temperature and cuts, the same for p and q, and draws from few tokens. Probabilities are made in
 * double from raw logits, so that every machine and both models compute them alike. */
#include "model/logits/sampling.h"

#include <math.h>

#include "model/logits/row.h"
#include "model/numerics/numerics.h"

enum { WEIGHTS_KEPT = 64 }; /* a draft's support, whose exponentials are then computed once */

int sampling_check(const struct sampling_params *params, struct error *err)
{
    float t = params->temperature;
    if (t != 0 && !(t >= SAMPLING_TEMPERATURE_MIN && t <= SAMPLING_TEMPERATURE_MAX)) {
        return error_set(err, ERR_ARGUMENT, "temperature %g is neither 0 nor within %g to %g",
                         (double)t, (double)SAMPLING_TEMPERATURE_MIN,
                         (double)SAMPLING_TEMPERATURE_MAX);
    }
    if (params->top_k < 0) {
        return error_set(err, ERR_ARGUMENT, "top_k %d is negative", params->top_k);
    }
    if (!(params->top_p > 0 && params->top_p <= 1)) {
        return error_set(err, ERR_ARGUMENT, "top_p %g is not within (0, 1]", (double)params->top_p);
    }
    if (!(params->min_p >= 0 && params->min_p <= 1)) {
        return error_set(err, ERR_ARGUMENT, "min_p %g is not within [0, 1]", (double)params->min_p);
    }
    return 0;
}

bool sampling_truncates(const struct sampling_params *params)
{
    bool has_cut = params->top_k > 0 || params->top_p < 1 || params->min_p > 0;
    return params->temperature > 0 && has_cut;
}

float sparse_prob(const struct sparse_dist *dist, int32_t id)
{
    int low = 0, high = dist->n;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (dist->ids[middle] < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < dist->n && dist->ids[low] == id ? dist->p[low] : 0;
}

int32_t sparse_draw(const struct sparse_dist *dist, double u)
{
    double total = 0, sum = 0;
    for (int i = 0; i < dist->n; i++) {
        total += (double)dist->p[i];
    }
    int chosen = 0;
    for (int i = 0; i < dist->n && !(u * total < sum); i++) {
        if (!(dist->p[i] > 0)) continue;
        sum += (double)dist->p[i];
        chosen = i;
    }
    return dist->ids[chosen];
}

/* The candidates that are left after the cuts so far. */
struct cut {
    int n;           /* candidates kept */
    bool is_certain; /* no token beyond the candidates could be among them */
    double mass;     /* of all tokens that are left, in units of the best token's */
};

static double weight(float logit, float best, float temperature)
{
    return num_exp_double(((double)logit - (double)best) / (double)temperature);
}

static void cut_top_k(struct cut *cut, const float *logits, const struct sampling_params *params)
{
    if (params->top_k == 0 || params->top_k > cut->n) return;
    cut->n = params->top_k;
    cut->is_certain = true;
    cut->mass = 0;
    for (int i = 0; i < cut->n; i++) {
        cut->mass += weight(logits[i], logits[0], params->temperature);
    }
}

/* The fewest best tokens that hold top_p of the mass. */
static void cut_top_p(struct cut *cut, const float *logits, const struct sampling_params *params)
{
    if (!(params->top_p < 1)) return;
    double wanted = (double)params->top_p * cut->mass, sum = 0;
    for (int i = 0; i < cut->n; i++) {
        sum += weight(logits[i], logits[0], params->temperature);
        if (sum >= wanted) {
            cut->n = i + 1;
            cut->is_certain = true;
            return;
        }
    }
}

static void cut_min_p(struct cut *cut, const float *logits, const struct sampling_params *params)
{
    if (!(params->min_p > 0)) return;
    for (int i = 1; i < cut->n; i++) {
        if (weight(logits[i], logits[0], params->temperature) < (double)params->min_p) {
            cut->n = i;
            cut->is_certain = true;
            return;
        }
    }
}

int sampling_truncate(const float *logits, int n, double sum_all, bool is_whole,
                      const struct sampling_params *params, float *p, bool *is_certain)
{
    *is_certain = true;
    if (params->temperature == 0) {
        p[0] = 1;
        return 1;
    }
    struct cut cut = {.n = n, .is_certain = is_whole, .mass = sum_all};
    cut_top_k(&cut, logits, params);
    /* With fewer candidates than top_k the mass that top-p is a share of is unknown. */
    bool is_short = params->top_p < 1 && params->top_k > n && !is_whole;
    cut_top_p(&cut, logits, params);
    cut_min_p(&cut, logits, params);
    *is_certain = cut.is_certain && !is_short;

    float best = logits[0]; /* p may overwrite it */
    double total = 0, weights[WEIGHTS_KEPT];
    for (int i = 0; i < cut.n; i++) {
        double w = weight(logits[i], best, params->temperature);
        if (i < WEIGHTS_KEPT) weights[i] = w;
        total += w;
    }
    for (int i = 0; i < cut.n; i++) {
        double w = i < WEIGHTS_KEPT ? weights[i] : weight(logits[i], best, params->temperature);
        p[i] = (float)(w / total);
    }
    return cut.n;
}

static void one_hot(struct sparse_dist *out, int32_t id)
{
    out->n = 1;
    out->ids[0] = id;
    out->p[0] = 1;
}

void sampling_draft_dist(const float *logits, int n_vocab, const struct sampling_params *params,
                         int support, struct select_item *scratch, struct sparse_dist *out)
{
    struct select_heap heap = {.items = scratch, .capacity = params->temperature > 0 ? support : 1};
    select_offer_logits(&heap, logits, n_vocab, false);
    select_sort_best(&heap);
    sampling_draft_best(scratch, heap.n, params, out);
}

void sampling_draft_best(struct select_item *items, int n_items,
                         const struct sampling_params *params, struct sparse_dist *out)
{
    if (n_items <= 1 || params->temperature <= 0 || items[0].score == HUGE_VAL) {
        one_hot(out, n_items ? items[0].id : 0);
        return;
    }
    double sum = 0; /* top-p alone asks for it */
    for (int i = 0; i < n_items; i++) {
        out->p[i] = (float)items[i].score;
        if (params->top_p < 1) sum += weight(out->p[i], out->p[0], params->temperature);
    }
    bool is_certain;
    int n = sampling_truncate(out->p, n_items, sum, true, params, out->p, &is_certain);
    while (n > 1 && !(out->p[n - 1] > 0)) {
        n--;
    }
    for (int i = 0; i < n; i++) {
        items[i].score = (double)out->p[i];
    }
    select_sort_ids(items, n);
    for (int i = 0; i < n; i++) {
        out->ids[i] = items[i].id;
        out->p[i] = (float)items[i].score;
    }
    out->n = n;
}

int32_t sampling_coupled_pick(const int32_t *ids, const float *logits, int n, float temperature,
                              uint64_t seed, uint32_t position)
{
    int32_t chosen = -1;
    double best = -HUGE_VAL;
    for (int i = 0; i < n; i++) {
        uint32_t noise = rng_coupled_bits(seed, position, (uint32_t)ids[i]);
        double score = row_noisy_score(logits[i], temperature, noise);
        if (chosen >= 0 && (score < best || (score == best && ids[i] > chosen))) continue;
        chosen = ids[i];
        best = score;
    }
    return chosen;
}
