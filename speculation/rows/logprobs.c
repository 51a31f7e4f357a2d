/* Sums and ranks that the numbers of scored and streamed tokens and of their alternatives are made
 * of. */
#include "speculation/rows/logprobs.h"

#include <math.h>

#include "base/limits.h"
#include "model/numerics/numerics.h"

double logprobs_normaliser(const struct slice_row *slices, int n_slices, int k)
{
    float max = -INFINITY;
    double sum = 0;
    for (int s = 0; s < n_slices; s++) {
        if (slices[s].max > max) max = slices[s].max;
    }
    for (int s = 0; s < n_slices; s++) {
        if (!(slices[s].max > -INFINITY)) continue;
        sum += slices[s].sum_exp[k] * num_exp_double((double)slices[s].max - (double)max);
    }
    return (double)max + num_log(sum);
}

int logprobs_best_slice(const struct slice_row *slices, int n_slices, const int *used)
{
    int best = -1;
    for (int s = 0; s < n_slices; s++) {
        if (used[s] == slices[s].n_best) continue;
        if (best >= 0 && !(slices[s].best_logits[used[s]] > slices[best].best_logits[used[best]])) {
            continue;
        }
        best = s;
    }
    return best;
}

int logprobs_best(const struct slice_row *slices, int n_slices, int n, double log_z, int32_t *ids,
                  float *logprobs)
{
    int used[SLICES_MAX] = {0};
    for (int made = 0; made < n; made++) {
        int s = logprobs_best_slice(slices, n_slices, used);
        if (s < 0) return made;
        ids[made] = slices[s].best_ids[used[s]];
        logprobs[made] = (float)((double)slices[s].best_logits[used[s]++] - log_z);
    }
    return n;
}
