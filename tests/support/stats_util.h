/* Pearson's chi-square test for the statistics tests. */
#pragma once

#include <math.h>
#include <stdint.h>

/* Upper regularized incomplete gamma function Q(a, x), a > 0, x >= 0: a series for the lower part
 * below a + 1, Lentz's continued fraction for the upper part above (Numerical Recipes 6.2). */
static inline double stats_gamma_q(double a, double x)
{
    if (x <= 0) return 1;
    double front = exp(-x + a * log(x) - lgamma(a));
    if (x < a + 1) {
        double term = 1 / a, sum = term;
        for (int n = 1; n < 100000 && term > sum * 1e-16; n++) {
            term *= x / (a + n);
            sum += term;
        }
        return 1 - sum * front;
    }
    double b = x + 1 - a, c = 1e300, d = 1 / b, h = d;
    for (int i = 1; i < 100000; i++) {
        double an = -i * (i - a);
        b += 2;
        d = 1 / (an * d + b);
        c = b + an / c;
        h *= d * c;
        if (fabs(d * c - 1) < 1e-15) break;
    }
    return front * h;
}

struct stats_result {
    int n_cells; /* after pooling */
    double chi_square;
    double p_value;
};

/* Tests observed counts against expected probabilities (which sum to 1). Cells that expect fewer
 * than 10 draws are pooled into one; a draw in a cell of probability 0 gives p_value 0. */
static inline struct stats_result stats_chi_square(const int64_t *observed, const double *expected,
                                                   int n)
{
    struct stats_result result = {.p_value = 1};
    double total = 0, pooled_seen = 0, pooled_wanted = 0;
    for (int i = 0; i < n; i++) {
        total += (double)observed[i];
    }
    for (int i = 0; i < n; i++) {
        double wanted = expected[i] * total, seen = (double)observed[i];
        if (expected[i] <= 0) {
            if (observed[i] > 0) return (struct stats_result){.chi_square = HUGE_VAL};
        } else if (wanted < 10) {
            pooled_seen += seen;
            pooled_wanted += wanted;
        } else {
            result.chi_square += (seen - wanted) * (seen - wanted) / wanted;
            result.n_cells++;
        }
    }
    if (pooled_wanted > 0) {
        double gap = pooled_seen - pooled_wanted;
        result.chi_square += gap * gap / (pooled_wanted > 1 ? pooled_wanted : 1);
        result.n_cells++;
    }
    if (result.n_cells > 1) {
        result.p_value = stats_gamma_q(0.5 * (result.n_cells - 1), 0.5 * result.chi_square);
    }
    return result;
}

/* The total-variation distance that such a test finds with about 90 % probability at significance
 * `alpha_z` standard normal deviations, from the normal approximation of the noncentral chi-square:
 * noncentrality = n_draws * sum (gap^2 / p) >= n_draws * (2 tv)^2. */
static inline double stats_detectable_tv(double n_draws, int n_cells, double alpha_z)
{
    double df = n_cells - 1;
    double lambda = (alpha_z + 1.2816) * sqrt(2 * df);
    for (int i = 0; i < 20; i++) { /* power: mean df + lambda, variance 2 (df + 2 lambda) */
        lambda = alpha_z * sqrt(2 * df) + 1.2816 * sqrt(2 * (df + 2 * lambda));
    }
    return 0.5 * sqrt(lambda / n_draws);
}
