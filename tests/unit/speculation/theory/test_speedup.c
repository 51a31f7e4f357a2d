/* ctest: labels=quick libs=speculation timeout=60 */
/* The planner's formulas against the numbers that Leviathan et al. 2023 print. */
#include <math.h>

#include "speculation/theory/speedup.h"
#include "tests/support/check_util.h"

/* Table 1 of the paper: operations and speed for c = c_ops = 0. */
START_TEST(table_1_of_the_paper)
{
    static const struct {
        double alpha;
        int k;
        double operations, speed;
    } rows[] = {{0.6, 2, 1.53, 1.96}, {0.7, 3, 1.58, 2.53}, {0.8, 2, 1.23, 2.44},
                {0.8, 5, 1.63, 3.69}, {0.9, 2, 1.11, 2.71}, {0.9, 10, 1.60, 6.86}};
    const struct speedup_costs costs = {.alpha = rows[_i].alpha};
    ck_assert(fabs(speedup_operations(&costs, rows[_i].k) - rows[_i].operations) <= 0.005);
    ck_assert(fabs(speedup_ideal(&costs, rows[_i].k) - rows[_i].speed) <= 0.006);
}
END_TEST

START_TEST(extreme_alphas_and_k_0_agree_with_the_formula)
{
    ck_assert(speedup_tokens(1, 4) == 5);
    ck_assert(speedup_tokens(0, 4) == 1);
    for (int k = 0; k <= 16; k++) { /* the closed form of equation 1 */
        double alpha = 0.73;
        ck_assert(fabs(speedup_tokens(alpha, k) - (1 - pow(alpha, k + 1)) / (1 - alpha)) < 1e-12);
    }
    const struct speedup_costs costs = {.alpha = 0.8, .c = 0.1, .row = 0.02, .rtt = 0.3};
    ck_assert(speedup_ideal(&costs, 0) == 1 && speedup_in_rounds(&costs, 0) == 1);
}
END_TEST

/* Corollary 3.9: with alpha > c some K wins, and with alpha <= c none does. */
START_TEST(guessing_pays_when_alpha_exceeds_c)
{
    for (int a = 0; a <= 20; a++) {
        for (int c = 0; c <= 20; c++) {
            const struct speedup_costs costs = {.alpha = a / 20.0, .c = c / 20.0};
            int best = speedup_best_k(&costs, 16);
            ck_assert_msg((best > 0) == (a > c), "alpha %d/20, c %d/20: best K %d", a, c, best);
        }
    }
}
END_TEST

/* A round trip that plain decoding pays too makes guessing worth more, rows make it worth less. */
START_TEST(round_trips_and_rows_shift_the_best_k)
{
    const struct speedup_costs near = {.alpha = 0.8, .c = 0.1},
                               far = {.alpha = 0.8, .c = 0.1, .rtt = 2};
    const struct speedup_costs dear = {.alpha = 0.8, .c = 0.1, .row = 0.3};
    ck_assert_int_gt(speedup_best_k(&far, 16), speedup_best_k(&near, 16));
    ck_assert_int_lt(speedup_best_k(&dear, 16), speedup_best_k(&near, 16));
    ck_assert(speedup_in_rounds(&far, 4) > speedup_in_rounds(&near, 4));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plan");
    TCase *tcase = tcase_create("formulas");
    tcase_add_loop_test(tcase, table_1_of_the_paper, 0, 6);
    tcase_add_test(tcase, extreme_alphas_and_k_0_agree_with_the_formula);
    tcase_add_test(tcase, guessing_pays_when_alpha_exceeds_c);
    tcase_add_test(tcase, round_trips_and_rows_shift_the_best_k);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
