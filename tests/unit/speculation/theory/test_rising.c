/* ctest: labels=quick libs=speculation timeout=30 */
/* Times that never fall: the least squares of what was measured. */
#include "speculation/theory/rising.h"

#include "tests/support/check_util.h"

static void check_fit(const double *values, const double *wanted, int n)
{
    double fitted[8];
    for (int i = 0; i < n; i++)
        fitted[i] = values[i];
    rising_fit(fitted, n);
    for (int i = 0; i < n; i++)
        ck_assert_double_eq_tol(fitted[i], wanted[i], 1e-9);
}

START_TEST(times_that_rise_stay)
{
    const double rising[] = {1, 1, 2, 5};
    check_fit(rising, rising, 4);
    check_fit(rising, rising, 1);
    check_fit(rising, rising, 0);
}
END_TEST

START_TEST(neighbours_that_fall_get_their_mean)
{
    check_fit((const double[]){14, 8, 15}, (const double[]){11, 11, 15}, 3);
    check_fit((const double[]){3, 2, 1}, (const double[]){2, 2, 2}, 3);
    /* The last one reaches back over two runs. */
    check_fit((const double[]){1, 6, 4, 8, 0, 9}, (const double[]){1, 4.5, 4.5, 4.5, 4.5, 9}, 6);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rising");
    TCase *cases = tcase_create("rising");
    tcase_add_test(cases, times_that_rise_stay);
    tcase_add_test(cases, neighbours_that_fall_get_their_mean);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
