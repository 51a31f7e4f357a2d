/* ctest: libs=base */
/* Chi-square tests for scripts: one cell per line of the input, `COUNT PROBABILITY` (fit: counts
 * against a distribution) or `COUNT COUNT` (same: two samples of one unknown distribution). Prints
 * one JSON line: cells after pooling, chi_square, p_value, detectable_tv (the total-variation
 * distance that would be found in 9 of 10 cases at p = 1e-4). */
#include <float.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/stats_util.h"

enum { CELLS_MAX = 1 << 20 };
#define ALPHA_Z 3.719 /* upper quantile of the standard normal at 1e-4 */

static int64_t first[CELLS_MAX], second[CELLS_MAX];
static double probability[CELLS_MAX];

/* Two samples as a 2 x n table; columns that expect fewer than 10 draws of either are pooled. */
static struct stats_result same(int n, double n_first, double n_second)
{
    struct stats_result result = {.p_value = 1};
    double all = n_first + n_second, pooled_first = 0, pooled_second = 0;
    double least = 10 * all / (n_first < n_second ? n_first : n_second);
    for (int i = 0; i <= n; i++) {
        double a = i < n ? (double)first[i] : pooled_first;
        double b = i < n ? (double)second[i] : pooled_second;
        if (i < n && a + b < least) {
            pooled_first += a;
            pooled_second += b;
        } else if (a + b > 0) {
            double gap = a * n_second - b * n_first;
            result.chi_square += gap * gap / (n_first * n_second * (a + b));
            result.n_cells++;
        }
    }
    if (result.n_cells > 1) {
        result.p_value = stats_gamma_q(0.5 * (result.n_cells - 1), 0.5 * result.chi_square);
    }
    return result;
}

int main(int argc, char **argv)
{
    int n = 0;
    double n_first = 0, n_second = 0;
    const char *mode = argc > 1 ? argv[1] : "";
    bool is_fit = strcmp(mode, "fit") == 0;
    if (!is_fit && strcmp(mode, "same") != 0) {
        fprintf(stderr, "usage: prog_chi_square fit|same <CELLS\n");
        return 2;
    }
    for (double value; n < CELLS_MAX && scanf("%" SCNd64 " %lf", &first[n], &value) == 2; n++) {
        probability[n] = value;
        second[n] = (int64_t)value;
        n_first += (double)first[n];
        n_second += value;
    }
    if (!feof(stdin) || n < 2 || n_first <= 0 || n_second <= 0) {
        fprintf(stderr, "prog_chi_square: the input is not a table of cells\n");
        return 1;
    }
    struct stats_result result =
        is_fit ? stats_chi_square(first, probability, n) : same(n, n_first, n_second);
    /* The difference of two samples has the variance of one of this size. */
    double n_draws = is_fit ? n_first : n_first * n_second / (n_first + n_second);
    if (!isfinite(result.chi_square)) result.chi_square = DBL_MAX; /* JSON knows no infinity */
    printf("{\"cells\":%d,\"chi_square\":%.6g,\"p_value\":%.6g,\"detectable_tv\":%.6g}\n",
           result.n_cells, result.chi_square, result.p_value,
           stats_detectable_tv(n_draws, result.n_cells, ALPHA_Z));
    return 0;
}
