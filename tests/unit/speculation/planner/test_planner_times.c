/* ctest: labels=quick libs=speculation timeout=60 */
/* The tables of times: knots, fits, drift, and tables that are kept. */
#include <math.h>
#include <stdio.h>

#include "speculation/planner/planner.h"
#include "tests/support/check_util.h"
#include "tests/support/planner_noise.h"

static struct coins coins = {.seed = 2028};

START_TEST(knots_are_exact_and_grow_apart)
{
    int last = -1;
    for (int rows = 1; rows <= PLANNER_ROWS_MAX; rows++) {
        int knot = planner_knot_of(rows);
        ck_assert_msg(knot == last || knot == last + 1, "%d rows: knot %d after %d", rows, knot,
                      last);
        if (rows <= PLANNER_ROWS_EXACT) ck_assert_int_eq(knot, rows - 1);
        last = knot;
    }
    ck_assert_int_eq(last, PLANNER_KNOTS - 1);
    ck_assert_int_eq(planner_knot_of(1 << 20), PLANNER_KNOTS - 1);
    ck_assert_int_eq(planner_knot_of(-3), 0);
}
END_TEST

/* Flat to 20 rows, then linear. */
static double true_us(int rows)
{
    return 1000 * fmax(1, rows / 20.) + rows;
}

START_TEST(a_fit_never_falls_and_is_right_where_it_was_measured)
{
    static struct planner_curve curve;
    static const int rows[] = {1, 2, 3, 5, 8, 13, 20, 25, 32, 40, 64, 100, 128, 200, 400, 1000};
    enum { N_ROWS = sizeof rows / sizeof *rows };
    curve = (struct planner_curve){0};
    for (int turn = 1; turn <= 40 * N_ROWS; turn++) {
        int r = rows[turn % N_ROWS];
        double us = true_us(r) * (0.9 + 0.2 * coin(&coins)) * (coin(&coins) < 0.01 ? 20 : 1);
        planner_curve_add(&curve, r, us, (uint64_t)turn);
    }
    planner_curve_fit(&curve);
    for (int r = 1; r <= PLANNER_ROWS_MAX; r++) {
        ck_assert_msg(planner_curve_at(&curve, r) >= planner_curve_at(&curve, r - 1), "%d rows", r);
    }
    for (int i = 0; i < N_ROWS; i++) {
        double ratio = planner_curve_at(&curve, rows[i]) / true_us(rows[i]);
        ck_assert_msg(fabs(ratio - 1) < 0.1, "%d rows: %.3f of the truth", rows[i], ratio);
    }
    double jump = planner_curve_at(&curve, 2048) / planner_curve_at(&curve, 1000);
    ck_assert_msg(jump > 1.5 && jump < 2.5, "2048 rows: %.2f times 1000", jump);
}
END_TEST

/* A knot that is used all the time takes the noise of the scale into its shape: the two drifted
 * apart without end, and what was not used with them. */
START_TEST(times_that_are_not_used_do_not_drift)
{
    static struct planner_curve curve;
    curve = (struct planner_curve){0};
    uint64_t at = 1;
    for (int i = 0; i < 40; i++) {
        for (int rows = 1; rows <= 4; rows++) {
            planner_curve_add(&curve, rows, true_us(rows), at++);
        }
    }
    for (int i = 0; i < 100000; i++) {
        double us = true_us(2) * (0.5 + coin(&coins)) * (coin(&coins) < 0.05 ? 20 : 1);
        planner_curve_add(&curve, 2, us, at++);
    }
    double ratio = curve.knots[3].shape.us / curve.knots[1].shape.us;
    ck_assert_msg(ratio > 0.8 && ratio < 1.25, "the unused knot is %.3f of the used one", ratio);
    ck_assert(curve.scale_us > 100 && curve.scale_us < 10000);
}
END_TEST

/* Twice the load makes all rows dearer, also those that are not used. */
START_TEST(the_scale_follows_the_load)
{
    static struct planner_curve curve;
    curve = (struct planner_curve){0};
    uint64_t at = 1;
    for (int i = 0; i < 200; i++) {
        planner_curve_add(&curve, 1 + i % 4, true_us(1 + i % 4), at++);
    }
    for (int i = 0; i < 60; i++) {
        planner_curve_add(&curve, 2, 2 * true_us(2), at++);
    }
    planner_curve_fit(&curve);
    for (int rows = 1; rows <= 4; rows++) {
        double ratio = planner_curve_at(&curve, rows) / (2 * true_us(rows));
        ck_assert_msg(fabs(ratio - 1) < 0.1, "%d rows: %.3f of the truth", rows, ratio);
    }
}
END_TEST

static void calibrate(struct planner *p)
{
    *p = (struct planner){0};
    for (int rows = 1; rows <= 256; rows *= 2) {
        planner_calibrate_step(p, rows, true_us(rows));
        planner_calibrate_draft(p, 0, rows, true_us(rows) / 10);
    }
}

START_TEST(a_step_grows_as_far_as_it_is_known)
{
    static struct planner p;
    calibrate(&p);
    int within = planner_rows_within(&p, 8, 2, 1, 2048);
    ck_assert_msg(true_us(within) <= 2.2 * true_us(8) && true_us(within + 3) > 1.9 * true_us(8),
                  "%d rows within twice the time of 8", within);
    ck_assert_int_eq(planner_rows_within(&p, 8, 2, 64, 2048), 64);
    ck_assert_int_eq(planner_rows_within(&p, 8, 2, 1, 20), 20);
    ck_assert_int_eq(planner_rows_within(&p, 256, 2, 1, 4096), 512);
    within = planner_rows_alone(&p, 4, 1, 2048);
    ck_assert_int_eq(within, planner_rows_within(&p, 1, 4, 1, 2048));
    planner_curve_add(&p.rest, 1, 10 * true_us(1), 1);
    ck_assert_int_eq(planner_rows_alone(&p, 4, 1, 2048), within);
    ck_assert_int_gt(planner_rows_within(&p, 1, 4, 1, 2048), within);
    p = (struct planner){0};
    ck_assert_int_eq(planner_rows_alone(&p, 4, 64, 2048), 64);
    ck_assert_int_eq(planner_rows_within(&p, 8, 2, 64, 2048), 64);
    ck_assert_int_eq(planner_rows_within(&p, 8, 2, 64, 32), 32);
}
END_TEST

START_TEST(reading_has_its_share_of_a_step)
{
    static struct planner p;
    p = (struct planner){0};
    ck_assert_int_eq(planner_reading_within(&p, 0, 8, 0.5, 64, 512), 64);
    p.models[0].read = (struct planner_time){10, 8};
    ck_assert_int_eq(planner_reading_within(&p, 0, 8, 0.5, 64, 512), 64);
    calibrate(&p);
    ck_assert_int_eq(planner_reading_within(&p, 0, 8, 0.5, 64, 512), 64);
    p.models[0].read =
        (struct planner_time){0.5 * true_us(8) / 200, 8}; /* 200 tokens in that time */
    int tokens = planner_reading_within(&p, 0, 8, 0.5, 64, 512);
    ck_assert_msg(tokens > 180 && tokens < 220, "%d tokens", tokens);
    ck_assert_int_eq(planner_reading_within(&p, 0, 8, 0.5, 300, 512), 300);
    ck_assert_int_eq(planner_reading_within(&p, 0, 8, 0.5, 64, 100), 100);
    ck_assert_int_gt(planner_reading_within(&p, 0, 64, 0.5, 64, 2048), tokens);
}
END_TEST

START_TEST(kept_tables_come_back)
{
    static struct planner p, again;
    static struct planner_tables tables, copy;
    calibrate(&p);
    planner_tables_get(&p, &tables);
    again = (struct planner){0};
    planner_tables_set(&again, &tables);
    ck_assert(again.is_calibrated);
    planner_tables_get(&again, &copy);
    for (int i = 0; i < PLANNER_KNOTS; i++) {
        ck_assert_double_eq_tol(copy.step[i].rows, tables.step[i].rows, 1e-9);
        ck_assert_double_eq_tol(copy.step[i].us, tables.step[i].us, 1e-6);
        ck_assert_double_eq_tol(copy.draft[0][i].us, tables.draft[0][i].us, 1e-6);
    }
    ck_assert_int_eq(planner_rows_within(&again, 8, 2, 1, 2048),
                     planner_rows_within(&p, 8, 2, 1, 2048));
}
END_TEST

/* A calibration that ends late, after requests were served. */
START_TEST(calibration_leaves_what_rounds_have_measured_often)
{
    static struct planner p;
    p = (struct planner){0};
    for (uint64_t at = 1; at <= 5000; at++) {
        planner_curve_add(&p.step, 4, true_us(4), at);
        planner_curve_add(&p.models[0].draft, 4, true_us(4) / 10, at);
        if (at <= 3) planner_curve_add(&p.step, 9, 2 * true_us(9), at);
    }
    struct planner_knot step = p.step.knots[planner_knot_of(4)];
    struct planner_knot draft = p.models[0].draft.knots[planner_knot_of(4)];
    for (int rows = 1; rows <= 16; rows++) {
        planner_calibrate_step(&p, rows, (rows == 4 ? 3 : 1) * true_us(rows));
        planner_calibrate_draft(&p, 0, rows, (rows == 4 ? 3 : 1) * true_us(rows) / 10);
    }
    ck_assert_mem_eq(&step, &p.step.knots[planner_knot_of(4)], sizeof step);
    ck_assert_mem_eq(&draft, &p.models[0].draft.knots[planner_knot_of(4)], sizeof draft);
    planner_curve_fit(&p.step);
    for (int rows = 1; rows <= 16; rows++) { /* as new as what the last rounds have measured */
        double ratio = planner_curve_at(&p.step, rows) / true_us(rows);
        ck_assert_msg(fabs(ratio - 1) < 0.05, "%d rows: %.3f of the truth", rows, ratio);
        ck_assert_uint_eq(p.step.knots[planner_knot_of(rows)].at, 5000);
    }
}
END_TEST

START_TEST(pair_is_calibrated_when_draft_and_step_are)
{
    static struct planner p;
    p = (struct planner){0};
    planner_curve_add(&p.step, 3, true_us(3), 1); /* a round was served before */
    planner_calibrate_draft(&p, 0, 1, true_us(1) / 10);
    planner_calibrate_draft(&p, 0, 2, true_us(2) / 10);
    ck_assert(!p.is_calibrated);
    planner_calibrate_step(&p, 1, true_us(1));
    ck_assert(!p.is_calibrated);
    planner_calibrate_step(&p, 2, true_us(2));
    ck_assert(p.is_calibrated);
}
END_TEST

START_TEST(nonsense_in_tables_is_left_out)
{
    static struct planner p;
    static struct planner_tables tables;
    const struct planner_point bad[] = {
        {(double)NAN, 100, 1}, {3, (double)NAN, 1},      {3, -1, 1},   {0, 100, 1}, {1e9, 100, 1},
        {3, 1e30, 1},          {3, (double)INFINITY, 1}, {3, 100, -1},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tables.step[i] = tables.draft[0][i] = tables.rest[i] = bad[i];
    }
    tables.step[20] = (struct planner_point){7, 500, 3};
    tables.read_us[0] = (double)NAN;
    p = (struct planner){0};
    planner_tables_set(&p, &tables);
    ck_assert(p.step.largest == 7 && p.models[0].draft.largest == 0 && p.models[0].read.n == 0 &&
              !p.is_calibrated);
    planner_curve_fit(&p.step);
    ck_assert_double_eq_tol(planner_curve_at(&p.step, 7), 500, 1e-3);
}
END_TEST

/* With a useless draft nobody reads a long prompt; with a good one it depends on what is left. */
START_TEST(reading_must_pay)
{
    static struct planner p;
    struct planner_sequence seq = {.strategy = STRATEGY_PLANNED};
    calibrate(&p);
    p.models[0].read = (struct planner_time){10, 8};
    ck_assert(planner_wants_reading(
        &p, &seq, &(struct planner_missed){.n_missed = {2}, .n_left = 100, .n_lanes = 1}));
    ck_assert(planner_wants_reading(
        &p, &seq, &(struct planner_missed){.n_missed = {3000}, .n_left = 200, .n_lanes = 1}));
    ck_assert(planner_wants_reading(&p, &seq,
                                    &(struct planner_missed){.n_missed = {1500},
                                                             .n_left = 1,
                                                             .n_lanes = 1})); /* it has begun */
    ck_assert(planner_wants_reading(
        &p, &seq, &(struct planner_missed){.n_missed = {1}, .n_left = 1, .n_lanes = 1}));
    ck_assert(!planner_wants_reading(
        &p, &seq, &(struct planner_missed){.n_missed = {3000}, .n_left = 10, .n_lanes = 1}));
    struct planner_sequence other = {.strategy = STRATEGY_PLANNED};
    for (int i = 0; i < 500; i++) {
        planner_observe_lane(&p, &other, 0, 2, 0);
    }
    other.asked_at[0] = seq.asked_at[0] = 0;
    ck_assert(!planner_wants_reading(
        &p, &other, &(struct planner_missed){.n_missed = {3000}, .n_left = 200, .n_lanes = 1}));
    p.credit_us = 1e6; /* a probe is paid */
    other.asked_at[0] = 0;
    ck_assert(planner_wants_reading(
        &p, &other, &(struct planner_missed){.n_missed = {3000}, .n_left = 1000, .n_lanes = 1}));
    ck_assert_double_lt(p.credit_us, 1e6);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("planner_times");
    TCase *tcase = tcase_create("tables");
    tcase_add_test(tcase, knots_are_exact_and_grow_apart);
    tcase_add_test(tcase, a_fit_never_falls_and_is_right_where_it_was_measured);
    tcase_add_test(tcase, times_that_are_not_used_do_not_drift);
    tcase_add_test(tcase, the_scale_follows_the_load);
    tcase_add_test(tcase, a_step_grows_as_far_as_it_is_known);
    tcase_add_test(tcase, reading_has_its_share_of_a_step);
    tcase_add_test(tcase, kept_tables_come_back);
    tcase_add_test(tcase, calibration_leaves_what_rounds_have_measured_often);
    tcase_add_test(tcase, pair_is_calibrated_when_draft_and_step_are);
    tcase_add_test(tcase, nonsense_in_tables_is_left_out);
    tcase_add_test(tcase, reading_must_pay);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
