/* ctest: labels=quick libs=speculation timeout=60 */
/* A draft that makes all guesses of a lane in one pass: a guess costs a row of it and not a pass.
 * The planner's predictions are compared with sums made here, and its choices with a search over
 * all numbers of guesses. */
#include <math.h>

#include "speculation/planner/cost.h"
#include "speculation/planner/planner.h"
#include "tests/support/check_util.h"

enum { ROWS = 64, STEP_US = 10000, REST_US = 200, MANY = 1000000 };

/* us of a pass of the draft, and of a step. */
static double pass_us(int rows)
{
    return 2000 + 50 * rows;
}

static double step_us(int rows)
{
    return STEP_US + 400 * rows;
}

/* All times are known, and guesses stay with this chance. */
static struct planner *planner_of(bool is_parallel, double alpha)
{
    static struct planner p;
    p = (struct planner){.models[0].is_parallel = is_parallel};
    for (int rows = 1; rows <= ROWS; rows++) {
        planner_curve_set(&p.models[0].draft, rows, pass_us(rows), MANY);
        planner_curve_set(&p.step, rows, step_us(rows), MANY);
        planner_curve_set(&p.rest, rows, REST_US, MANY);
    }
    p.is_calibrated = true;
    for (int i = 0; i < DRAFT_MAX; i++) {
        p.models[0].counts.tested[i] = MANY;
        p.models[0].counts.accepted[i] = MANY * alpha;
    }
    return &p;
}

static struct planner_sequence sequence_of(double alpha)
{
    struct planner_sequence seq = {.strategy = STRATEGY_PLANNED};
    for (int i = 0; i < DRAFT_MAX; i++) {
        seq.counts[0].tested[i] = MANY;
        seq.counts[0].accepted[i] = MANY * alpha;
    }
    return seq;
}

/* A round of n lanes with k guesses each, whose drafts have `n_missed` tokens to read. */
static double round_us(bool is_parallel, int n, int k, int n_missed)
{
    double us = step_us(n * (k + 1)) + REST_US;
    if (k == 0) return us;
    if (is_parallel) return us + pass_us(n * (n_missed + k - 1));
    return us + pass_us(n * n_missed) + (k - 1) * pass_us(n);
}

/* The number of guesses of each of n lanes that gives the most tokens in the time. */
static int best_k(bool is_parallel, double alpha, int n, int n_missed)
{
    double best = 0, tokens = 1, survival = 1;
    int found = 0;
    for (int k = 0; k <= DRAFT_MAX; k++) {
        double speed = tokens / round_us(is_parallel, n, k, n_missed);
        if (speed > best) {
            best = speed;
            found = k;
        }
        survival *= alpha;
        tokens += survival;
    }
    return found;
}

static int planned_k(struct planner *p, double alpha, int n, int n_missed)
{
    struct planner_lane lanes[4] = {0};
    struct planner_sequence seq = sequence_of(alpha);
    const struct planner_load load = {.n_rows_max = 512};
    for (int i = 0; i < n; i++) {
        lanes[i] = (struct planner_lane){.seq = &seq,
                                         .models[0].k_max = DRAFT_MAX,
                                         .models[0].n_missed = n_missed,
                                         .n_left = 1000};
    }
    planner_share(p, lanes, n, &load);
    for (int i = 1; i < n; i++) {
        ck_assert_int_le(abs(lanes[i].tree.n_chain - lanes[0].tree.n_chain), 1);
    }
    return lanes[0].tree.n_chain;
}

START_TEST(number_of_guesses_is_the_best_for_the_passes_that_they_take)
{
    static const double alphas[] = {0.3, 0.5, 0.7, 0.9};
    bool is_parallel = _i % 2;
    int n = _i < 2 ? 1 : 2, n_more = 0;
    for (int a = 0; a < 4; a++) {
        struct planner *p = planner_of(is_parallel, alphas[a]);
        int k = planned_k(p, alphas[a], n, 1), wanted = best_k(is_parallel, alphas[a], n, 1);
        double tokens = 1, survival = 1, wanted_tokens = 1;
        for (int i = 0; i < k || i < wanted; i++) {
            survival *= alphas[a];
            tokens += i < k ? survival : 0;
            wanted_tokens += i < wanted ? survival : 0;
        }
        double us = round_us(is_parallel, n, k, 1);
        double wanted_us = round_us(is_parallel, n, wanted, 1);
        /* Where guesses gain less than 2 %, there may be none. */
        ck_assert_msg(us / tokens <= 1.025 * wanted_us / wanted_tokens,
                      "alpha %.1f: %d guesses and not %d", alphas[a], k, wanted);
        if (k > 0) ck_assert_double_eq_tol(planner_round_us(p, 0), us, 0.02 * us);
        n_more += wanted > best_k(false, alphas[a], n, 1);
    }
    ck_assert_int_eq(n_more > 0, is_parallel);
}
END_TEST

/* The guesses of the last round that stayed are read in the same pass: each is a row of it, and
 * none is the reading of a text. */
START_TEST(guesses_that_stayed_cost_a_row_each)
{
    struct planner *p = planner_of(true, 0.9);
    int k = planned_k(p, 0.9, 1, 9);
    ck_assert_int_gt(k, 0);
    ck_assert_double_eq_tol(planner_round_us(p, 0), round_us(true, 1, k, 9), 100);
    ck_assert_double_eq(planner_catch_up_us(p, 0, 1 + DRAFT_MAX), 0);
    ck_assert(planner_catch_up_us(p, 0, 2 + DRAFT_MAX) > 0);
    struct planner_sequence seq = sequence_of(0.9);
    ck_assert(planner_wants_reading(
        p, &seq, &(struct planner_missed){.n_missed = {1 + DRAFT_MAX}, .n_left = 1, .n_lanes = 1}));
    p = planner_of(false, 0.9);
    planner_refresh(p);
    ck_assert(planner_catch_up_us(p, 0, 3) > 0);
}
END_TEST

/* A pass teaches the time of all its rows: unread tokens and masks. */
START_TEST(pass_is_timed_by_its_tokens_and_masks)
{
    for (int is_parallel = 0; is_parallel < 2; is_parallel++) {
        struct planner p = {.models[0].is_parallel = is_parallel};
        const struct planner_round round = {.n_rows = 16,
                                            .n_lanes = 2,
                                            .is_timed = true,
                                            .models[0].n_passes = 1,
                                            .models[0].pass_lanes = {2},
                                            .models[0].pass_expected = {14},
                                            .models[0].first_pass_tokens = 9,
                                            .models[0].pass_us = {3000},
                                            .models[0].draft_us = 3000,
                                            .step_us = 10000,
                                            .round_us = 14000};
        struct planner_tables tables;
        planner_observe_round(&p, &round);
        planner_tables_get(&p, &tables);
        /* An ordinary draft has missed more than it reads anyway. */
        ck_assert_int_eq(tables.draft[0][0].n, is_parallel);
        if (!is_parallel) continue;
        ck_assert_double_eq_tol(tables.draft[0][0].rows, 23, 1e-9);
        ck_assert_double_eq_tol(tables.draft[0][0].us, 3000, 1e-6);
    }
}
END_TEST

/* A head makes each guess in a pass of its own, but its first pass reads with the target's features
 * what it has read as guesses: this is no text that it has missed, and teaches what passes cost. */
START_TEST(a_head_reads_again_what_stayed)
{
    struct planner *p = planner_of(false, 0.9);
    p->models[0].rereads = true;
    int k = planned_k(p, 0.9, 1, 9);
    ck_assert_int_gt(k, 0);
    ck_assert_double_eq_tol(planner_round_us(p, 0), round_us(false, 1, k, 9), 100);
    ck_assert_double_eq(planner_catch_up_us(p, 0, 1 + DRAFT_MAX), 0);
    ck_assert(planner_catch_up_us(p, 0, 2 + DRAFT_MAX) > 0);
    struct planner head = {.models[0].rereads = true};
    struct planner_tables tables;
    const struct planner_round round = {.n_rows = 10,
                                        .n_lanes = 2,
                                        .is_timed = true,
                                        .models[0].n_passes = 2,
                                        .models[0].pass_lanes = {2, 2},
                                        .models[0].first_pass_tokens = 9,
                                        .models[0].pass_us = {3000, 2000},
                                        .models[0].draft_us = 5000,
                                        .step_us = 10000,
                                        .round_us = 16000};
    planner_observe_round(&head, &round);
    planner_tables_get(&head, &tables);
    ck_assert_int_eq(tables.draft[0][0].n, 1);
    ck_assert_double_eq_tol(tables.draft[0][0].rows, 2, 1e-9);
    ck_assert_double_eq_tol(tables.draft[0][1].rows, 9, 1e-9);
    ck_assert_double_eq_tol(tables.draft[0][1].us, 3000, 1e-6);
}
END_TEST

/* Lanes with a K of their own are in the same pass. */
START_TEST(other_lanes_share_the_pass)
{
    for (int is_parallel = 0; is_parallel < 2; is_parallel++) {
        struct planner *p = planner_of(is_parallel, 0);
        struct planner_sequence seq = sequence_of(0);
        struct planner_lane lane = {
            .seq = &seq, .models[0].k_max = DRAFT_MAX, .models[0].n_missed = 1, .n_left = 1000};
        const struct planner_load load = {
            .n_rows = 10, .n_decoding = 2, .n_rows_max = 512, .n_guessing[0] = {2, 2, 2, 2}};
        planner_share(p, &lane, 1, &load);
        ck_assert_int_eq(lane.tree.n, 0);
        double passes_us = is_parallel ? pass_us(8) : 4 * pass_us(2);
        ck_assert_double_eq_tol(planner_round_us(p, 0), step_us(11) + REST_US + passes_us, 1);
    }
}
END_TEST

/* A guess after a sibling takes no row where its place has one. */
START_TEST(guesses_after_siblings_take_no_pass)
{
    struct planner *p = planner_of(true, 0.45);
    struct planner_sequence seq = sequence_of(0.45);
    const struct planner_load load = {.n_rows_max = 512};
    for (int i = 0; i < SIBLINGS_MAX; i++) {
        p->siblings[0].tested[i] = MANY;
        p->siblings[0].accepted[i] = MANY * 0.6;
    }
    for (int rows = 1; rows <= ROWS; rows++) { /* rows of a step cost next to nothing */
        planner_curve_set(&p->step, rows, STEP_US + rows, MANY);
    }
    struct planner_lane lane = {.seq = &seq,
                                .models[0].k_max = DRAFT_MAX,
                                .models[0].n_missed = 1,
                                .n_left = 1000,
                                .siblings_max = SIBLINGS_MAX,
                                .nodes_max = TREE_PATHS_MAX - 1,
                                .models[0].grows = true};
    planner_share(p, &lane, 1, &load);
    int n_grown = guess_tree_count(&lane.tree, GUESS_GROWN), n_places = 0;
    ck_assert_int_gt(n_grown, 4);
    for (int i = 0; i < lane.tree.n; i++) {
        int place = guess_tree_place(&lane.tree, i);
        if (place >= n_places) n_places = place + 1;
    }
    double us = STEP_US + (1 + lane.tree.n) + REST_US + pass_us(n_places);
    ck_assert_double_eq_tol(planner_round_us(p, 0), us, 100);
}
END_TEST

/* The rows of a block are in the pass whatever a lane guesses: they are in the price of its first
 * guess, in passes that others begin, and in what a calibration with one guess each has
 * measured. */
START_TEST(a_block_has_rows_for_each_lane)
{
    enum { BLOCK = 10, MISSED = 3 };
    struct planner *p = planner_of(true, 0.9);
    p->models[0].lane_rows = BLOCK;
    for (int n = 1; n <= 2; n++) {
        int k = planned_k(p, 0.9, n, MISSED);
        ck_assert_int_gt(k, 1);
        double us = step_us(n * (k + 1)) + REST_US + pass_us(n * (BLOCK + MISSED + k - 1));
        ck_assert_double_eq_tol(planner_round_us(p, 0), us, 0.02 * us);
        ck_assert_double_eq_tol(planner_guesses_us(&p->models[0], n, 4), pass_us(n * (BLOCK + 4)),
                                1);
    }
    p = planner_of(true, 0);
    p->models[0].lane_rows = BLOCK;
    struct planner_sequence seq = sequence_of(0);
    struct planner_lane lane = {
        .seq = &seq, .models[0].k_max = DRAFT_MAX, .models[0].n_missed = 1, .n_left = 1000};
    const struct planner_load load = {
        .n_rows = 10, .n_decoding = 2, .n_rows_max = 512, .n_guessing[0] = {2, 2, 2, 2}};
    planner_share(p, &lane, 1, &load);
    ck_assert_int_eq(lane.tree.n, 0);
    ck_assert_double_eq_tol(planner_round_us(p, 0),
                            step_us(11) + REST_US + pass_us(2 * (BLOCK + 4)), 1);
    struct planner_tables tables;
    struct planner calibrated = {.models[0] = {.is_parallel = true, .lane_rows = BLOCK}};
    planner_calibrate_draft(&calibrated, 0, 3, 4000);
    planner_tables_get(&calibrated, &tables);
    ck_assert_int_eq(tables.draft[0][0].n > 0, 1);
    ck_assert_double_eq_tol(tables.draft[0][0].rows, 3 * (BLOCK + 1), 1e-9);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("planner_parallel");
    TCase *tcase = tcase_create("passes");
    tcase_add_loop_test(tcase, number_of_guesses_is_the_best_for_the_passes_that_they_take, 0, 4);
    tcase_add_test(tcase, guesses_that_stayed_cost_a_row_each);
    tcase_add_test(tcase, pass_is_timed_by_its_tokens_and_masks);
    tcase_add_test(tcase, a_head_reads_again_what_stayed);
    tcase_add_test(tcase, other_lanes_share_the_pass);
    tcase_add_test(tcase, guesses_after_siblings_take_no_pass);
    tcase_add_test(tcase, a_block_has_rows_for_each_lane);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
