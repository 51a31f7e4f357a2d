#include "speculation/speedup.h"

double plan_tokens(double alpha, int k)
{
    double sum = 1,
           power = 1; /* 1 + alpha + ... + alpha^k: no division that alpha = 1 would break */
    for (int i = 0; i < k; i++) {
        power *= alpha;
        sum += power;
    }
    return sum;
}

double plan_tokens_at(const double *alpha, int k)
{
    double sum = 1, chance = 1;
    for (int i = 0; i < k; i++) {
        chance *= alpha[i];
        sum += chance;
    }
    return sum;
}

double plan_speedup(const struct plan_costs *costs, int k)
{
    return plan_tokens(costs->alpha, k) / (k * costs->c + 1);
}

double plan_operations(const struct plan_costs *costs, int k)
{
    return (k * costs->c_ops + k + 1) / plan_tokens(costs->alpha, k);
}

double plan_speedup_in_rounds(const struct plan_costs *costs, int k)
{
    double round = k * costs->c + 1 + k * costs->row + costs->rtt;
    return plan_tokens(costs->alpha, k) * (1 + costs->rtt) / round;
}

int plan_best_k(const struct plan_costs *costs, int k_max)
{
    int best = 0;
    for (int k = 1; k <= k_max; k++) {
        if (plan_speedup_in_rounds(costs, k) > plan_speedup_in_rounds(costs, best)) best = k;
    }
    return best;
}
