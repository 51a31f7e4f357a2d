/* A cut by mass or rank lies where the tokens above it hold top_p of the mass or are top_k in
 * number. The first question asks for few best tokens, which suffice where the mass is
 * concentrated, and for buckets, from which the second question learns how far down to ask: two
 * exchanges for any row, and bytes that grow only with the tokens that are kept. */
#include "speculation/rows/cut.h"

#include <math.h>

#include "base/limits.h"
#include "model/numerics/numerics.h"

enum {
    FIRST_BEST = 64,   /* most nuclei are smaller */
    LISTED_TOP_K = 256 /* up to here, the first question asks for top_k best and is the only one */
};

/* Share of a bucket's width: how far below the bucket's edge the next question asks, because a
 * logit on the edge may have been counted above it. */
#define EDGE_SHARE 0.02
/* Relative: masses of buckets are rounded. If they exceed what is wanted by less, one bucket
 * more is asked for. */
#define MASS_SLACK 0x1p-12

void target_row_wish_cut(const struct target_want *want, struct row_wish *wish)
{
    const struct sampling_params *params = want->params;
    if (params->top_k > 0 && params->top_k <= LISTED_TOP_K) {
        wish->n_best = params->top_k;
        return;
    }
    wish->n_best = FIRST_BEST;
    wish->buckets = params->top_k > 0   ? ROW_BUCKETS_COUNT
                    : params->top_p < 1 ? ROW_BUCKETS_MASS
                                        : ROW_BUCKETS_OFF;
}

/* Mass of the slices in the bucket of that height; heights[s] is that of a slice's max. */
static double bucket_sum(const struct target_slices *all, const double *heights, double height,
                         const double *scale)
{
    double sum = 0;
    for (int s = 0; s < all->n_slices; s++) {
        const struct slice_row *slice = &all->slices[s];
        double place = heights[s] - height;
        if (!(place >= 0 && place < slice->n_buckets)) continue;
        sum += (double)slice->buckets[(int)place] * (scale ? scale[s] : 1);
    }
    return sum;
}

/* The lower edge of the bucket in which the sum from the top reaches `wanted`. scale NULL:
 * counts. */
static float bucket_edge(const struct target_slices *all, float max, float temperature,
                         double wanted, const double *scale)
{
    double heights[SLICES_MAX], sum = 0, top = row_bucket(max, temperature);
    double step = (double)temperature / ROW_BUCKET_SHARE;
    for (int s = 0; s < all->n_slices; s++) {
        heights[s] = row_bucket(all->slices[s].max, temperature);
    }
    for (int down = 0; down < ROW_BUCKETS; down++) {
        sum += bucket_sum(all, heights, top - down, scale);
        if (!(sum >= wanted * (scale ? 1 + MASS_SLACK : 1))) continue;
        return (float)((top - down - EDGE_SHARE) * step);
    }
    return -INFINITY;
}

/* The largest logit that min-p cuts, or a little less. */
static float min_p_edge(const struct sampling_params *params, float max)
{
    if (!(params->min_p > 0)) return -INFINITY;
    double gap = (double)params->temperature * num_log((double)params->min_p);
    return (float)((double)max + gap * (1 + 1e-6) - 1e-6 * (1 + fabs((double)max)));
}

float target_row_least(const struct target_slices *all, const struct target_want *want, float max,
                       double z, const double *scale)
{
    const struct sampling_params *params = want->params;
    float t = params->temperature, edge = -INFINITY, min_p = min_p_edge(params, max);
    if (params->top_k > 0) {
        edge = bucket_edge(all, max, t, params->top_k, NULL);
        if (params->top_p < 1) return edge;
    } else if (params->top_p < 1) {
        edge = bucket_edge(all, max, t, (double)params->top_p * z, scale);
    }
    return edge > min_p ? edge : min_p;
}

bool target_row_min_p_cuts(const struct target_want *want, float max, float least, int n)
{
    const struct sampling_params *params = want->params;
    double below = ((double)least - (double)max) / (double)params->temperature;
    if (!(params->min_p > 0) || !(num_exp_double(below) < (double)params->min_p)) return false;
    return !(params->top_k > n && params->top_p < 1);
}
