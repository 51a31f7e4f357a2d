/* ctest: labels=quick libs=speculation timeout=60 */
/* How much the draft reads ahead: as much as makes its passes shortest, compared with a search over
 * all numbers, and what the planner learns from and expects of such passes. */
#include "speculation/planner/append.h"
#include "speculation/planner/cost.h"
#include "speculation/planner/stage.h"
#include "speculation/planner/way.h"
#include "tests/support/check_util.h"

enum { PASS_US = 1000, ROWS = 64, EVIDENCE = 9 };

/* us of a pass with so many rows. */
typedef double pass_fn(int rows);

static double flat(int rows)
{
    return PASS_US * (1 + 0.01 * rows);
}

static double proportional(int rows)
{
    return PASS_US * rows;
}

/* Half of a pass does not depend on its rows. */
static double half(int rows)
{
    return PASS_US * (0.5 + 0.5 * rows);
}

/* As on a CPU whose kernels take four rows at a time. */
static double by_fours(int rows)
{
    return PASS_US * (0.8 + 0.2 * ((rows + 3) / 4));
}

static pass_fn *const passes[] = {flat, proportional, half, by_fours};

static struct planner *planner_of(pass_fn *pass_us)
{
    static struct planner p;
    p = (struct planner){0};
    for (int rows = 1; rows <= ROWS; rows++) {
        planner_curve_set(&p.models[0].draft, rows, pass_us(rows), 100);
    }
    planner_curve_fit(&p.models[0].draft);
    return &p;
}

/* The draft agrees with this share of what is expected. */
static void teach(struct planner *p, struct planner_sequence *seq, double share, int n)
{
    double wanted = 0;
    for (int i = 0, n_equal = 0; i < n; i++) {
        wanted += share;
        bool is_equal = n_equal < (int)wanted;
        n_equal += is_equal ? 1 : 0;
        planner_observe_stage(p, seq, EVIDENCE, 1, is_equal ? 1 : 0);
    }
}

/* Time of all passes of one lane that wants k guesses and reads n tokens ahead in the first. */
static double time_of(pass_fn *pass_us, int k, int n, const float *chances)
{
    double us = pass_us(1 + n) + (k - 1) * pass_us(1);
    for (int i = 1; i <= n; i++) {
        us -= (double)chances[i] * pass_us(1);
    }
    return us;
}

START_TEST(a_lane_reads_ahead_what_makes_its_passes_shortest)
{
    static const double shares[] = {0.02, 0.09, 0.3, 0.6, 0.9, 0.99};
    pass_fn *pass_us = passes[_i];
    for (int s = 0; s < 6; s++) {
        struct planner *p = planner_of(pass_us);
        struct planner_sequence seq = {0};
        float chances[DRAFT_MAX];
        teach(p, &seq, shares[s], 400);
        planner_stage_chances(p, &seq, EVIDENCE, DRAFT_MAX - 1, chances);
        ck_assert_double_eq_tol((double)chances[1], shares[s], 0.05);
        for (int k = 1; k <= DRAFT_MAX; k++) {
            struct planner_stage_lane lane = {
                .seq = &seq, .n_wanted = k, .n_known = DRAFT_MAX - 1, .evidence = EVIDENCE};
            int best = 0;
            planner_stage(p, 0, &lane, 1);
            ck_assert_int_lt(lane.n_fed, k);
            for (int n = 1; n < k; n++) {
                if (time_of(pass_us, k, n, chances) < time_of(pass_us, k, best, chances)) best = n;
            }
            /* It must be worth 2 %. */
            double alone_us = time_of(pass_us, k, 0, chances);
            double best_us = time_of(pass_us, k, best, chances);
            double us = time_of(pass_us, k, lane.n_fed, chances);
            ck_assert_msg(us <= fmax(best_us * 1.005, fmin(alone_us, best_us * 1.03)),
                          "pass %d, share %.2f, k = %d: %d read ahead, best %d: %.0f and %.0f us",
                          _i, shares[s], k, lane.n_fed, best, us, best_us);
            ck_assert(us <= alone_us);
            if (best_us > 0.981 * alone_us) ck_assert_int_eq(lane.n_fed, 0);
            ck_assert(lane.n_fed == 0 || chances[lane.n_fed] > 0); /* others are too unlikely */
        }
    }
}
END_TEST

START_TEST(nothing_is_read_ahead_where_that_saves_nothing)
{
    struct planner *p = planner_of(proportional);
    struct planner_sequence seq = {0};
    teach(p, &seq, 0.99, 400);
    struct planner_stage_lane lane = {
        .seq = &seq, .n_wanted = 8, .n_known = 7, .evidence = EVIDENCE};
    planner_stage(p, 0, &lane, 1);
    ck_assert_int_eq(lane.n_fed, 0);
    p = planner_of(flat);
    teach(p, &seq, 0.99, 400);
    lane.n_known = 0;
    planner_stage(p, 0, &lane, 1);
    ck_assert_int_eq(lane.n_fed, 0);
    lane.n_known = 3;
    planner_stage(p, 0, &lane, 1);
    ck_assert_int_eq(lane.n_fed, 3);
    lane.n_wanted = 1;
    planner_stage(p, 0, &lane, 1);
    ck_assert_int_eq(lane.n_fed, 0);
    static struct planner unknown;
    lane.n_wanted = 8;
    planner_stage(&unknown, 0, &lane, 1);
    ck_assert_int_eq(lane.n_fed, 0);
}
END_TEST

/* Rows that were never measured are tried by half more at a time. */
START_TEST(rows_grow_by_half_beyond_what_was_measured)
{
    static struct planner p;
    struct planner_sequence seq = {0};
    int n_before = 0;
    p = (struct planner){0};
    for (int i = 0; i < 6; i++) {
        int rows = 1 + n_before;
        planner_curve_set(&p.models[0].draft, rows, flat(rows), 10);
        planner_curve_fit(&p.models[0].draft);
        teach(&p, &seq, 0.99, 100);
        struct planner_stage_lane lane = {
            .seq = &seq, .n_wanted = DRAFT_MAX, .n_known = DRAFT_MAX - 1, .evidence = EVIDENCE};
        planner_stage(&p, 0, &lane, 1);
        ck_assert_int_le(1 + lane.n_fed, planner_near(rows));
        ck_assert_int_ge(lane.n_fed, n_before);
        n_before = lane.n_fed;
    }
    ck_assert_int_eq(n_before, DRAFT_MAX - 1);
}
END_TEST

START_TEST(staging_counts_as_unused_where_nothing_is_read_ahead)
{
    struct planner *p = planner_of(proportional);
    struct planner_sequence seq = {0};
    struct planner_stage_lane lane = {
        .seq = &seq, .n_wanted = 8, .n_known = 7, .evidence = EVIDENCE};
    ck_assert(planner_stage_is_used(p));
    for (int i = 0; i < 400; i++) { /* lanes that could not read ahead say nothing */
        struct planner_stage_lane lacking[] = {lane, lane};
        lacking[0].n_known = 0;
        lacking[1].n_wanted = 1;
        planner_stage(p, 0, lacking, 2);
    }
    ck_assert(planner_stage_is_used(p));
    for (int i = 0; i < 400; i++) {
        ck_assert(i > 100 || planner_stage_is_used(p));
        planner_stage(p, 0, &lane, 1);
    }
    ck_assert(!planner_stage_is_used(p));
    for (int rows = 1; rows <= ROWS; rows++) {
        planner_curve_set(&p->models[0].draft, rows, flat(rows), 100);
    }
    planner_curve_fit(&p->models[0].draft);
    teach(p, &seq, 0.9, 100);
    for (int i = 0; i < 20; i++) {
        planner_stage(p, 0, &lane, 1);
    }
    ck_assert(planner_stage_is_used(p));
}
END_TEST

/* One lane that reads ahead saves no pass as long as another one needs it. */
START_TEST(lanes_read_ahead_together_or_not_at_all)
{
    enum { N = 4, K = 6 };
    struct planner_sequence seqs[N] = {{0}};
    struct planner_stage_lane lanes[N];
    for (int n_agreeing = 0; n_agreeing <= N; n_agreeing++) {
        struct planner *p = planner_of(flat);
        int n_fed = 0;
        for (int i = 0; i < N; i++) {
            bool agrees = i < n_agreeing;
            seqs[i] = (struct planner_sequence){0};
            lanes[i] = (struct planner_stage_lane){.seq = &seqs[i],
                                                   .n_wanted = K,
                                                   .n_known = agrees ? K - 1 : 0,
                                                   .evidence = EVIDENCE};
        }
        teach(p, &seqs[0], 0.99, 400);
        planner_stage(p, 0, lanes, N);
        for (int i = 0; i < N; i++) {
            n_fed += lanes[i].n_fed;
        }
        ck_assert_int_eq(n_fed, n_agreeing == N ? N * (K - 1) : 0);
    }
}
END_TEST

/* A text that differs from all others is noticed in it. */
START_TEST(agreement_is_learned_by_evidence_and_by_text)
{
    struct planner *p = planner_of(half);
    struct planner_sequence usual = {0}, odd = {0};
    float chances[DRAFT_MAX];
    teach(p, &usual, 0.9, 400);
    planner_stage_chances(p, &usual, EVIDENCE, 5, chances);
    ck_assert(chances[1] > 0.85f && chances[5] > 0 && chances[6] == 0);
    for (int i = 1; i < 5; i++) {
        ck_assert(chances[i + 1] <= chances[i]);
    }
    teach(p, &odd, 0, 40);
    chances[0] = 1;
    planner_stage_chances(p, &odd, EVIDENCE, 5, chances);
    ck_assert(chances[0] == 0 && chances[1] < 0.5f);
    for (int i = 1; i <= 5; i++) { /* one of 50 is the least that counts */
        ck_assert(chances[i] == 0 || chances[i] >= 0.02f);
    }
    ck_assert(chances[5] == 0);
    planner_stage_chances(p, &usual, 0, 5, chances); /* another evidence: as at the beginning */
    ck_assert(chances[1] < 0.3f);
    static const struct planner_sequence unknown;
    struct planner_sequence begun = {0};
    teach(p, &begun, 0, 15);
    ck_assert(planner_stage_is_likely(&begun)); /* too few tests */
    teach(p, &begun, 0, 1);
    ck_assert(!planner_stage_is_likely(&begun));
    ck_assert(planner_stage_is_likely(&usual) && planner_stage_is_likely(&unknown));
    ck_assert(!planner_stage_is_likely(&odd));
    /* Offers are learned apart. */
    const struct planner_offer offer = {.finder = 0, .evidence = EVIDENCE};
    struct planner_chain chain = planner_offer_chain(&p->reasons, &usual.trust[0], &offer);
    ck_assert_double_eq_tol((double)planner_chain_next(&chain), 0.65, 0.01);
}
END_TEST

/* ---- times and plans ---- */

static struct planner_round round_of(int n_passes, int n_expected, pass_fn *pass_us)
{
    struct planner_round round = {.n_rows = 9,
                                  .n_lanes = 1,
                                  .is_timed = true,
                                  .models[0].n_passes = n_passes,
                                  .step_us = 4 * PASS_US};
    for (int i = 0; i < n_passes; i++) {
        round.models[0].pass_lanes[i] = 1;
        round.models[0].pass_expected[i] = i == 0 ? n_expected : 0;
        round.models[0].pass_us[i] =
            (int64_t)pass_us(round.models[0].pass_lanes[i] + round.models[0].pass_expected[i]);
        round.models[0].draft_us += round.models[0].pass_us[i];
    }
    round.models[0].first_pass_tokens = 1;
    round.round_us = round.models[0].draft_us + round.step_us + 100;
    return round;
}

START_TEST(a_pass_that_reads_ahead_teaches_the_time_of_its_rows)
{
    static struct planner p;
    p = (struct planner){0};
    for (int i = 0; i < 300; i++) {
        const struct planner_round rounds[] = {round_of(8, 0, half), round_of(2, 7, half),
                                               round_of(3, 5, half)};
        planner_curve_fit(&p.models[0].draft);
        planner_observe_round(&p, &rounds[i % 3]);
    }
    planner_curve_fit(&p.models[0].draft);
    ck_assert_double_eq_tol(planner_curve_at(&p.models[0].draft, 1), half(1), 0.02 * half(1));
    ck_assert_double_eq_tol(planner_curve_at(&p.models[0].draft, 8), half(8), 0.02 * half(8));
    ck_assert_double_eq_tol(planner_curve_at(&p.models[0].draft, 6), half(6), 0.02 * half(6));
    ck_assert_int_eq(p.models[0].read.n, 0);
}
END_TEST

/* The second pass reads ahead, too. */
START_TEST(later_passes_teach_the_time_of_their_rows)
{
    static struct planner p;
    p = (struct planner){0};
    for (int i = 0; i < 300; i++) {
        struct planner_round round = round_of(3, 7, half);
        round.models[0].pass_expected[1] = 4;
        round.models[0].pass_us[1] = (int64_t)half(5);
        round.models[0].draft_us += round.models[0].pass_us[1] - round.models[0].pass_us[2];
        planner_curve_fit(&p.models[0].draft);
        planner_observe_round(&p, &round);
    }
    planner_curve_fit(&p.models[0].draft);
    ck_assert_double_eq_tol(planner_curve_at(&p.models[0].draft, 1), half(1), 0.02 * half(1));
    ck_assert_double_eq_tol(planner_curve_at(&p.models[0].draft, 5), half(5), 0.02 * half(5));
    ck_assert_double_eq_tol(planner_curve_at(&p.models[0].draft, 8), half(8), 0.02 * half(8));
}
END_TEST

/* A first pass that reads a long text as well as what is expected: the time of a token of the text
 * is what the pass took longer than one with so many rows. */
START_TEST(reading_is_not_charged_with_what_is_read_ahead)
{
    enum { N_READ = 1000, READ_US = 20 };
    struct planner *p = planner_of(proportional);
    struct planner_round round = round_of(2, 7, proportional);
    round.models[0].first_pass_tokens = N_READ;
    round.models[0].pass_us[0] += N_READ * READ_US;
    round.models[0].draft_us += N_READ * READ_US;
    round.round_us += N_READ * READ_US;
    planner_observe_round(p, &round);
    ck_assert_int_eq(p->models[0].read.n, 1);
    ck_assert_double_eq_tol(p->models[0].read.us, READ_US, 0.05 * READ_US);
}
END_TEST

/* Learned counts of a text fade by the tokens that are committed, and those of a reason by the
 * rounds, also where it is no finder's. */
START_TEST(learned_counts_fade)
{
    static const int sources[] = {PLANNER_STAGED, PLANNER_APPENDED};
    struct planner *p = planner_of(half);
    struct planner_sequence seq = {0};
    for (int i = 0; i < 50; i++) {
        planner_observe_stage(p, &seq, EVIDENCE, 1, 1);
        planner_observe_append(p, &seq, EVIDENCE, 1, 1);
    }
    for (int i = 0; i < 2; i++) {
        ck_assert(seq.trust[sources[i]].tested == 50);
        ck_assert(p->reasons.of[sources[i]][EVIDENCE].counts.tested[0] > 40);
    }
    for (int i = 0; i < 20000; i++) {
        const struct planner_round round = round_of(8, 0, half);
        if (i < 2000) planner_observe_lane(p, &seq, 0, 8, 4);
        planner_observe_round(p, &round);
    }
    for (int i = 0; i < 2; i++) {
        ck_assert(seq.trust[sources[i]].tested < 25);
        ck_assert(p->reasons.of[sources[i]][EVIDENCE].counts.tested[0] < 25);
    }
}
END_TEST

/* K that a lane gets whose draft agrees with what is expected with this chance, a guess. */
static int planned_k(double agreement, pass_fn *pass_us)
{
    struct planner *p = planner_of(pass_us);
    struct planner_sequence seq = {0};
    for (int rows = 1; rows <= ROWS; rows++) {
        planner_curve_set(&p->step, rows, 4 * PASS_US + 10 * rows, 100);
        planner_curve_set(&p->rest, rows, 100, 100);
    }
    p->is_calibrated = true;
    for (int i = 0; i < 400; i++) {
        planner_observe_lane(p, &seq, 0, DRAFT_MAX, i % 12);
    }
    struct planner_lane lane = {
        .seq = &seq, .models[0].k_max = DRAFT_MAX, .models[0].n_missed = 1, .n_left = 100};
    const struct planner_load load = {.n_rows_max = ROWS};
    double survival = 1;
    for (int i = 1; i < DRAFT_MAX; i++) {
        survival *= agreement;
        lane.models[0].staged[i] = (float)survival;
    }
    planner_share(p, &lane, 1, &load);
    return lane.tree.n_chain;
}

START_TEST(guesses_that_take_no_pass_are_planned_in_greater_number)
{
    int k = planned_k(0, flat);
    ck_assert_int_gt(k, 0);
    ck_assert_int_lt(k, DRAFT_MAX);
    ck_assert_int_ge(planned_k(0.99, flat), k + 3);
    ck_assert_int_ge(planned_k(0.5, flat), k);
    for (int i = 1; i < 10; i++) {
        ck_assert_int_eq(planned_k(0.1 * i, proportional), planned_k(0, proportional));
    }
    ck_assert_int_eq(planned_k(0.99, proportional), planned_k(0, proportional));
}
END_TEST

/* A guess that may be staged adds a row to the first pass, unless a pass of its own is cheaper:
 * then the first one is as it was. */
START_TEST(a_guess_has_a_pass_of_its_own_where_that_is_cheaper)
{
    for (int is_cheap = 0; is_cheap <= 1; is_cheap++) {
        struct planner *p = planner_of(is_cheap ? flat : proportional);
        const struct planner_load load = {.n_rows_max = ROWS};
        const struct planner_base base = planner_base_of(p, 1, &load);
        struct planner_sum sum = planner_sum_begin(p, &base, &load);
        struct planner_lane lane = {.models[0].k_max = DRAFT_MAX, .n_left = 100};
        for (int i = 0; i < 5; i++) {
            const struct planner_pair pair = {
                .gain = 0.1f, .survival = 0.5f, .position = (int8_t)i};
            lane.models[0].staged[i] = i > 0 ? 0.25f : 0;
            planner_sum_add(&sum, &lane, &pair);
            ck_assert_double_eq_tol(sum.passes[0][0], is_cheap ? 1 + i : 1, 1e-9);
            ck_assert_double_eq_tol(sum.passes[0][i], i == 0 || !is_cheap ? 1 : 0.75, 1e-9);
        }
        if (!is_cheap) ck_assert_double_eq_tol(sum.draft_us, 5 * PASS_US, 1);
        if (is_cheap) ck_assert_double_le(sum.draft_us, flat(5) + 4 * 0.75 * flat(1) + 1);
    }
}
END_TEST

/* The draft is nearly always right, but with a pass for each guess it is slower than what was
 * found, which is right in 4 of 5 places. */
START_TEST(the_draft_is_chosen_where_its_guesses_take_no_passes)
{
    struct planner *p = planner_of(half);
    struct planner_sequence seq = {0};
    const struct planner_load load = {.n_rows_max = ROWS};
    const struct planner_offer offer = {.finder = 0, .evidence = EVIDENCE, .k_max = DRAFT_MAX};
    struct planner_lane lane = {.seq = &seq,
                                .models[0].k_max = DRAFT_MAX,
                                .models[0].n_missed = 1,
                                .n_left = 100,
                                .offers = &offer,
                                .n_offers = 1};
    for (int rows = 1; rows <= ROWS; rows++) {
        planner_curve_set(&p->step, rows, 4 * PASS_US + 10 * rows, 100);
        planner_curve_set(&p->rest, rows, 100, 100);
    }
    planner_curve_fit(&p->step);
    planner_curve_fit(&p->rest);
    for (int i = 0; i < 400; i++) {
        planner_observe_lane(p, &seq, 0, DRAFT_MAX, DRAFT_MAX);
        planner_observe_untaken(p, &seq, &offer, 1, i % 5 ? 1 : 0);
    }
    planner_prior_of(&p->models[0].counts, PLANNER_FIRST_ALPHA, &p->models[0].prior);
    const struct planner_base base = planner_base_of(p, 2, &load);
    planner_assign(p, &base, &lane, 1, PLANNER_EACH_ITS_OWN);
    ck_assert(lane.offer == &offer);
    for (int i = 1; i < DRAFT_MAX; i++) {
        lane.models[0].staged[i] = 0.95f;
    }
    planner_assign(p, &base, &lane, 1, PLANNER_EACH_ITS_OWN);
    ck_assert(!lane.offer);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("planner_stage");
    TCase *ahead = tcase_create("reading ahead"), *plans = tcase_create("times and plans");
    tcase_add_loop_test(ahead, a_lane_reads_ahead_what_makes_its_passes_shortest, 0, 4);
    tcase_add_test(ahead, nothing_is_read_ahead_where_that_saves_nothing);
    tcase_add_test(ahead, rows_grow_by_half_beyond_what_was_measured);
    tcase_add_test(ahead, staging_counts_as_unused_where_nothing_is_read_ahead);
    tcase_add_test(ahead, lanes_read_ahead_together_or_not_at_all);
    tcase_add_test(ahead, agreement_is_learned_by_evidence_and_by_text);
    suite_add_tcase(suite, ahead);
    tcase_add_test(plans, a_pass_that_reads_ahead_teaches_the_time_of_its_rows);
    tcase_add_test(plans, later_passes_teach_the_time_of_their_rows);
    tcase_add_test(plans, reading_is_not_charged_with_what_is_read_ahead);
    tcase_add_test(plans, learned_counts_fade);
    tcase_add_test(plans, guesses_that_take_no_pass_are_planned_in_greater_number);
    tcase_add_test(plans, a_guess_has_a_pass_of_its_own_where_that_is_cheaper);
    tcase_add_test(plans, the_draft_is_chosen_where_its_guesses_take_no_passes);
    suite_add_tcase(suite, plans);
    return check_main(suite);
}
