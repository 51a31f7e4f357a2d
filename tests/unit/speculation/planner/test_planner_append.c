/* ctest: labels=quick libs=speculation timeout=60 */
/* How many found guesses go after those of the draft: as many as give the most, compared with a
 * search over all numbers. */
#include <math.h>

#include "speculation/planner/append.h"
#include "tests/support/check_util.h"

enum { STEP_US = 4000, ROWS = 64, EVIDENCE = 9, K = 4 };

/* A step whose time grows by this share with every row. */
static struct planner *planner_of(double row)
{
    static struct planner p;
    p = (struct planner){0};
    for (int rows = 1; rows <= ROWS; rows++) {
        planner_curve_set(&p.step, rows, STEP_US * (1 + row * (rows - 1)), 100);
        planner_curve_set(&p.rest, rows, 100, 100);
    }
    planner_curve_fit(&p.step);
    planner_curve_fit(&p.rest);
    return &p;
}

/* The draft's guesses stay with 4 of 5, and those after them with this share. */
static void teach(struct planner *p, struct planner_sequence *seq, double share)
{
    double wanted = 0;
    for (int i = 0, n_kept = 0; i < 400; i++) {
        for (int j = 0; j < K; j++) {
            p->models[0].counts.tested[j] += 1;
            p->models[0].counts.accepted[j] += 0.8;
        }
        wanted += share;
        bool is_kept = n_kept < (int)wanted;
        n_kept += is_kept ? 1 : 0;
        planner_observe_append(p, seq, EVIDENCE, 1, is_kept ? 1 : 0);
    }
    planner_prior_of(&p->models[0].counts, PLANNER_FIRST_ALPHA, &p->models[0].prior);
}

static struct planner_append_lane lane_of(const struct planner_sequence *seq, int n_known)
{
    return (struct planner_append_lane){
        .seq = seq, .k = K, .n_known = n_known, .evidence = EVIDENCE};
}

static const struct planner_append_load alone = {
    .n_rows = 1 + K, .n_wanted = 1 + K, .n_lanes = 1, .draft_us = 4 * 400};

/* Expected tokens in a second, of n guesses after the draft's. */
static double speed_of(double row, double share, int n)
{
    double survival = 1, tokens = 1;
    for (int i = 0; i < K + n; i++) {
        survival *= i < K ? 0.8 : share;
        tokens += survival;
    }
    return tokens / (alone.draft_us + STEP_US * (1 + row * (K + n)) + 100);
}

START_TEST(as_many_are_added_as_are_worth_most)
{
    static const double rows[] = {0, 0.01, 0.03, 0.1}, shares[] = {0.05, 0.3, 0.6, 0.9, 0.98};
    for (int r = 0; r < 4; r++) {
        for (int s = 0; s < 5; s++) {
            struct planner *p = planner_of(rows[r]);
            struct planner_sequence seq = {0};
            teach(p, &seq, shares[s]);
            struct planner_append_lane lane = lane_of(&seq, PLANNER_APPEND_MAX);
            planner_append(p, &lane, 1, &alone);
            double best = 0;
            for (int n = 0; n <= PLANNER_APPEND_MAX; n++) {
                best = fmax(best, speed_of(rows[r], shares[s], n));
            }
            double speed = speed_of(rows[r], shares[s], lane.n);
            ck_assert_msg(speed >= 0.99 * best, "row %.2f, share %.2f: %d added, %.4f of the best",
                          rows[r], shares[s], lane.n, speed / best);
            if (rows[r] == 0 && shares[s] > 0.8) ck_assert_int_eq(lane.n, PLANNER_APPEND_MAX);
            if (rows[r] > 0.09 && shares[s] < 0.1) ck_assert_int_eq(lane.n, 0);
        }
    }
}
END_TEST

START_TEST(no_more_are_added_than_are_known_and_near)
{
    struct planner *p = planner_of(0);
    struct planner_sequence seq = {0};
    teach(p, &seq, 0.98);
    for (int n = 0; n <= PLANNER_APPEND_MAX; n++) {
        struct planner_append_lane lane = lane_of(&seq, n);
        planner_append(p, &lane, 1, &alone);
        ck_assert_int_eq(lane.n, n);
    }
    /* Steps of 5 rows were measured, so 8 are near. */
    static struct planner few;
    few = (struct planner){0};
    planner_curve_set(&few.step, 5, STEP_US, 100);
    planner_curve_set(&few.rest, 5, 100, 100);
    planner_curve_fit(&few.step);
    planner_curve_fit(&few.rest);
    teach(&few, &seq, 0.98);
    struct planner_append_lane lane = lane_of(&seq, PLANNER_APPEND_MAX);
    planner_append(&few, &lane, 1, &alone);
    ck_assert(lane.n > 0 && lane.n <= 3);
    lane = lane_of(&seq, PLANNER_APPEND_MAX + 1);
    planner_append(p, &lane, 1, &alone);
    ck_assert_int_eq(lane.n, PLANNER_APPEND_MAX);
    static struct planner unknown; /* is how long a step takes */
    teach(&unknown, &seq, 0.98);
    planner_append(&unknown, &lane, 1, &alone);
    ck_assert_int_eq(lane.n, 0);
}
END_TEST

/* The time of the step is that of all lanes: equal ones get together what is worth most to each. */
START_TEST(more_lanes_share_the_time_of_a_row)
{
    enum { N = 8 };
    static const double row = 0.005, share = 0.6;
    struct planner *p = planner_of(row);
    struct planner_sequence seq = {0};
    struct planner_append_lane lanes[N];
    const struct planner_append_load load = {
        .n_rows = N * (1 + K), .n_wanted = N * (1 + K), .n_lanes = N, .draft_us = 1600};
    double best = 0, speeds[PLANNER_APPEND_MAX + 1], survival = pow(0.8, K), tokens = 1;
    int n_added = 0;
    teach(p, &seq, share);
    for (int i = 0; i < N; i++) {
        lanes[i] = lane_of(&seq, PLANNER_APPEND_MAX);
    }
    planner_append(p, lanes, N, &load);
    for (int i = 0; i < N; i++) {
        n_added += lanes[i].n;
    }
    for (int i = 1; i <= K; i++) {
        tokens += pow(0.8, i);
    }
    for (int n = 0; n <= PLANNER_APPEND_MAX; n++) {
        speeds[n] = tokens / (1700 + STEP_US * (1 + row * (N * (1 + K + n) - 1)));
        best = fmax(best, speeds[n]);
        survival *= share;
        tokens += survival;
    }
    ck_assert_int_eq(n_added % N, 0);
    ck_assert_msg(speeds[n_added / N] >= 0.99 * best, "%d added: %.4f of the best", n_added / N,
                  speeds[n_added / N] / best);
    ck_assert(0.98 * best > speeds[0] && 0.98 * best > speeds[PLANNER_APPEND_MAX]);
}
END_TEST

/* The rest of the round takes time for a row, too. */
START_TEST(rows_cost_more_than_the_step)
{
    struct planner *p = planner_of(0);
    struct planner_sequence seq = {0};
    struct planner_append_lane lane = lane_of(&seq, PLANNER_APPEND_MAX);
    for (int rows = 1; rows <= ROWS; rows++) {
        planner_curve_set(&p->rest, rows, 1000 * rows, 100);
    }
    planner_curve_fit(&p->rest);
    teach(p, &seq, 0.6);
    planner_append(p, &lane, 1, &alone);
    ck_assert_int_eq(lane.n, 0);
}
END_TEST

/* A gain of less than 3 in 1000 is not worth a row. */
START_TEST(nothing_is_added_for_next_to_nothing)
{
    static const double rows[] = {0, 0.002, 0.006, 0.007};
    for (int r = 0; r < 4; r++) {
        struct planner *p = planner_of(rows[r]);
        struct planner_sequence seq = {0};
        struct planner_append_lane lane = lane_of(&seq, 1);
        teach(p, &seq, 0.05);
        planner_append(p, &lane, 1, &alone);
        double gain = log(speed_of(rows[r], 0.05, 1) / speed_of(rows[r], 0.05, 0));
        ck_assert_msg(lane.n == (gain > 0.003), "row %.4f: %d added for %.4f", rows[r], lane.n,
                      gain);
    }
}
END_TEST

/* One of two reasons was right and one was wrong, in other texts. */
START_TEST(guesses_are_trusted_by_their_evidence)
{
    struct planner *p = planner_of(0.02);
    struct planner_sequence other = {0}, seq = {0};
    teach(p, &other, 0.95);
    for (int i = 0; i < 400; i++) {
        planner_observe_append(p, &(struct planner_sequence){0}, 0, 1, 0);
    }
    struct planner_append_lane right = lane_of(&seq, PLANNER_APPEND_MAX), wrong = right;
    wrong.evidence = 0;
    planner_append(p, &right, 1, &alone);
    planner_append(p, &wrong, 1, &alone);
    ck_assert(right.n > 0 && wrong.n == 0);
}
END_TEST

/* Rows go to the lane whose guesses are likelier to stay. */
START_TEST(lanes_share_rows_by_what_they_gain)
{
    struct planner *p = planner_of(0.02);
    struct planner_sequence good = {0}, bad = {0};
    teach(p, &good, 0.95);
    for (int i = 0; i < 60; i++) {
        planner_observe_append(p, &bad, EVIDENCE, 1, 0);
    }
    struct planner_append_lane lanes[] = {lane_of(&bad, PLANNER_APPEND_MAX),
                                          lane_of(&good, PLANNER_APPEND_MAX)};
    const struct planner_append_load load = {
        .n_rows = 2 * (1 + K), .n_wanted = 2 * (1 + K), .n_lanes = 2, .draft_us = 1600};
    planner_append(p, lanes, 2, &load);
    ck_assert_int_gt(lanes[1].n, 0);
    ck_assert_int_lt(lanes[0].n, lanes[1].n);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("planner_append");
    TCase *tcase = tcase_create("append");
    tcase_add_test(tcase, as_many_are_added_as_are_worth_most);
    tcase_add_test(tcase, no_more_are_added_than_are_known_and_near);
    tcase_add_test(tcase, more_lanes_share_the_time_of_a_row);
    tcase_add_test(tcase, rows_cost_more_than_the_step);
    tcase_add_test(tcase, nothing_is_added_for_next_to_nothing);
    tcase_add_test(tcase, guesses_are_trusted_by_their_evidence);
    tcase_add_test(tcase, lanes_share_rows_by_what_they_gain);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
