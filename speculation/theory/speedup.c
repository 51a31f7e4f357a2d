/* The value of speculation in theory, by the formulas that the header names. */
#include "speculation/theory/speedup.h"

double speedup_tokens(double alpha, int k)
{
    double sum = 1, power = 1; /* the sum itself, because the quotient fails at alpha = 1 */
    for (int i = 0; i < k; i++) {
        power *= alpha;
        sum += power;
    }
    return sum;
}

double speedup_tokens_at(const double *alpha, int k)
{
    double sum = 1, chance = 1;
    for (int i = 0; i < k; i++) {
        chance *= alpha[i];
        sum += chance;
    }
    return sum;
}

double speedup_ideal(const struct speedup_costs *costs, int k)
{
    return speedup_tokens(costs->alpha, k) / (k * costs->c + 1);
}

double speedup_operations(const struct speedup_costs *costs, int k)
{
    return (k * costs->c_ops + k + 1) / speedup_tokens(costs->alpha, k);
}

double speedup_in_rounds(const struct speedup_costs *costs, int k)
{
    double round = k * costs->c + 1 + k * costs->row + costs->rtt;
    return speedup_tokens(costs->alpha, k) * (1 + costs->rtt) / round;
}

int speedup_best_k(const struct speedup_costs *costs, int k_max)
{
    int best = 0;
    for (int k = 1; k <= k_max; k++) {
        if (speedup_in_rounds(costs, k) > speedup_in_rounds(costs, best)) best = k;
    }
    return best;
}
