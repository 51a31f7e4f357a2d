/* ctest: labels=quick,slow libs=speculation timeout=120 */
/* The planner over simulated texts of known acceptance and cost, with noise and outliers in what it
 * is shown. Its speed is held against that of the best fixed K and of plain decoding on the same
 * texts; all are counted with the true times, so that an outlier harms only a planner that is
 * misled by it. Seeds are fixed: a run repeats itself. */
#include <stdio.h>

#include "speculation/planner/planner.h"
#include "tests/support/check_util.h"
#include "tests/support/planner_noise.h"

enum { N_TEXTS = 150, N_PROMPT = 100, STEP_US = 20000 };

/* A pair of models on a machine; times over that of a plain step. */
struct world {
    const char *name;
    double alpha[2]; /* of the first half of a text and of the second */
    double fade;     /* each position stays so much more seldom than the one before */
    double c, row, rtt, read;
    int free_rows; /* beyond these each row costs `row` */
    int k_max, n_tokens;
    double noise, outliers; /* spread of a time; chance that it is 20 times as long */
    bool is_by_text;
};

static const struct world worlds[] = {
    {"alpha 0.8, cheap draft",
     {0.8, 0.8},
     1,
     0.03,
     0.01,
     0.02,
     0.002,
     6,
     16,
     400,
     0.05,
     0.01,
     false},
    {"alpha 0.8", {0.8, 0.8}, 1, 0.1, 0.02, 0.02, 0.005, 6, 16, 400, 0.05, 0.01, false},
    {"alpha 0.9", {0.9, 0.9}, 1, 0.1, 0.02, 0.02, 0.005, 6, 16, 400, 0.05, 0.01, false},
    {"alpha 0.6", {0.6, 0.6}, 1, 0.1, 0.02, 0.02, 0.005, 6, 16, 400, 0.05, 0.01, false},
    {"alpha 0.3", {0.3, 0.3}, 1, 0.1, 0.02, 0.02, 0.005, 6, 16, 400, 0.05, 0.01, false},
    {"alpha 0.6, dear draft", {0.6, 0.6}, 1, 0.4, 0.02, 0.02, 0.02, 6, 16, 400, 0.05, 0.01, false},
    {"alpha 0.95, rows cost",
     {0.95, 0.95},
     1,
     0.05,
     0.1,
     0.05,
     0.005,
     1,
     16,
     400,
     0.1,
     0.02,
     false},
    {"long way", {0.7, 0.7}, 1, 0.1, 0.02, 2, 0.005, 6, 16, 400, 0.1, 0.02, false},
    {"a step of rows", {0.85, 0.85}, 1, 0.05, 0.3, 0.02, 0.005, 8, 16, 400, 0.05, 0.01, false},
    {"small models", {0.58, 0.58}, 1, 0.22, 0.1, 0.35, 0.03, 1, 16, 300, 0.1, 0.02, false},
    {"busy machine", {0.6, 0.6}, 1, 0.2, 0.05, 1, 0.03, 1, 16, 200, 0.5, 0.05, false},
    {"K is 1 at most", {0.8, 0.8}, 1, 0.1, 0.02, 0.02, 0.005, 6, 1, 400, 0.05, 0.01, false},
    {"fades with position", {0.9, 0.9}, 0.8, 0.1, 0.02, 0.02, 0.005, 6, 16, 400, 0.05, 0.01, false},
    {"turns hard", {0.9, 0.05}, 1, 0.15, 0.02, 0.02, 0.005, 6, 16, 800, 0.05, 0.01, false},
    {"turns easy", {0.05, 0.9}, 1, 0.15, 0.02, 0.02, 0.005, 6, 16, 800, 0.05, 0.01, false},
    {"texts differ", {0.9, 0.1}, 1, 0.15, 0.02, 0.02, 0.005, 6, 16, 400, 0.05, 0.01, true},
    {"alpha 0", {0, 0}, 1, 0.1, 0.02, 0.02, 0.005, 6, 16, 400, 0.05, 0.01, false},
    {"alpha 0, cheap draft", {0, 0}, 1, 0.02, 0.01, 0.02, 0.001, 6, 16, 400, 0.05, 0.01, false},
    {"alpha 0, dear draft", {0, 0}, 1, 0.5, 0.05, 0.02, 0.05, 1, 16, 400, 0.1, 0.02, false},
    {"alpha 0.05", {0.05, 0.05}, 1, 0.1, 0.02, 0.02, 0.005, 6, 16, 400, 0.05, 0.01, false},
    {"alpha as c", {0.2, 0.2}, 1, 0.2, 0.02, 0.02, 0.005, 6, 16, 400, 0.05, 0.01, false},
};
enum { N_WORLDS = sizeof worlds / sizeof *worlds };

static struct coins coins = {.seed = 2026};
static int n_texts;

/* Sums over a text, in true times. */
struct tally {
    double us;
    double n_tokens, n_rounds, n_guesses;
};

static int accepted(const struct world *w, double progress, int k)
{
    double alpha = w->alpha[w->is_by_text ? n_texts % 2 : progress >= 0.5];
    int n = 0;
    while (n < k && coin(&coins) < alpha) {
        n++;
        alpha *= w->fade;
    }
    return n;
}

static double step_us(const struct world *w, int rows)
{
    return STEP_US * (1 + w->row * (rows > w->free_rows ? rows - w->free_rows : 0));
}

/* Arguments that a choice for a single stream depends on. */
struct ask {
    int k_max, n_missed, n_left;
};

static int choose(struct planner *p, const struct planner_sequence *seq, const struct ask *ask)
{
    const struct planner_load load = {.n_rows_max = 64};
    struct planner_lane lane = {.seq = seq,
                                .models[0].k_max = ask->k_max,
                                .models[0].n_missed = ask->n_missed,
                                .n_left = ask->n_left,
                                .tree = {.n = 5, .n_chain = 5}};
    planner_share(p, &lane, 1, &load);
    return lane.tree.n_chain;
}

/* A round of a single stream of k guesses, of which n stayed; the draft had missed n_missed
 * tokens. Its first pass reads them, and each pass takes pass_us otherwise. */
struct seen {
    int k, n, n_missed;
    bool has_prompt;
    int64_t read_us, pass_us, step_us, rest_us;
};

static void observe(struct planner *p, struct planner_sequence *seq, const struct seen *seen)
{
    struct planner_round round = {.n_rows = seen->has_prompt ? N_PROMPT + seen->k : seen->k + 1,
                                  .n_lanes = 1,
                                  .is_timed = true,
                                  .has_prompt = seen->has_prompt,
                                  .models[0].n_passes = seen->k,
                                  .models[0].first_pass_tokens = seen->n_missed,
                                  .models[0].draft_us = seen->k ? seen->read_us : 0,
                                  .step_us = seen->step_us};
    for (int i = 0; i < seen->k; i++) {
        round.models[0].pass_lanes[i] = 1;
        round.models[0].pass_us[i] = seen->pass_us + (i ? 0 : seen->read_us);
        round.models[0].draft_us += seen->pass_us;
    }
    round.round_us = round.models[0].draft_us + round.step_us + seen->rest_us;
    planner_observe_round(p, &round);
    planner_observe_lane(p, seq, 0, seen->k, seen->n);
}

/* One text; the planner sees noisy times. p NULL: K is k_fixed. */
static void run_text(const struct world *w, struct planner *p, int k_fixed, struct tally *tally)
{
    struct planner_sequence seq = {.strategy = STRATEGY_PLANNED};
    int n_tokens = N_PROMPT, end = N_PROMPT + w->n_tokens, n_draft_kv = 0;
    while (n_tokens < end) {
        int room = end - n_tokens - 1, missed = n_tokens - n_draft_kv;
        const struct ask ask = {w->k_max < room ? w->k_max : room, missed, end - n_tokens};
        int k = p ? choose(p, &seq, &ask) : k_fixed < room ? k_fixed : room;
        int n = accepted(w, (double)(n_tokens - N_PROMPT) / w->n_tokens, k);
        double read = k && missed > 2 ? (missed - 2) * w->read : 0;
        double rest = STEP_US * w->rtt;
        double step = step_us(w, n_tokens == N_PROMPT ? N_PROMPT + k : k + 1);
        const struct seen seen = {
            .k = k,
            .n = n,
            .n_missed = missed,
            .has_prompt = n_tokens == N_PROMPT,
            .read_us = measured_us_or_outlier(&coins, STEP_US * read, w->noise, w->outliers),
            .pass_us = measured_us_or_outlier(&coins, STEP_US * w->c, w->noise, w->outliers),
            .step_us = measured_us_or_outlier(&coins, step, w->noise, w->outliers),
            .rest_us = measured_us_or_outlier(&coins, rest, w->noise, w->outliers)};
        if (p) observe(p, &seq, &seen);
        if (k) n_draft_kv = n < k ? n_tokens + n : n_tokens + k - 1;
        n_tokens += n + 1;
        tally->us += STEP_US * (k * w->c + read) + step_us(w, k + 1) + rest;
        tally->n_rounds++;
        tally->n_guesses += k;
    }
    tally->n_tokens += w->n_tokens;
    n_texts++;
}

static double speed(const struct tally *tally)
{
    return tally->n_tokens / tally->us;
}

static double fixed_speed(const struct world *w, int k)
{
    struct tally tally = {0};
    for (int i = 0; i < N_TEXTS; i++) {
        run_text(w, NULL, k, &tally);
    }
    return speed(&tally);
}

static double best_fixed_speed(const struct world *w, int *best)
{
    double most = 0;
    for (int k = 0; k <= w->k_max; k++) {
        double now = fixed_speed(w, k);
        if (now > most) {
            most = now;
            *best = k;
        }
    }
    return most;
}

START_TEST(planned_is_nearly_the_best_fixed_k_and_never_slower_than_plain)
{
    const struct world *w = &worlds[_i];
    struct planner planner = {0};
    struct tally first = {0}, later = {0}, fresh = {0};
    int best = 0;
    double most = best_fixed_speed(w, &best), plain = fixed_speed(w, 0);
    run_text(w, &planner, 0, &first);
    for (int i = 0; i < N_TEXTS; i++) {
        run_text(w, &planner, 0, &later);
    }
    for (int i = 0; i < N_TEXTS; i++) {
        struct planner unknowing = {0};
        run_text(w, &unknowing, 0, &fresh);
    }
    double of_best = speed(&later) / most, of_plain = speed(&later) / plain,
           fresh_of_plain = speed(&fresh) / plain, fresh_of_best = speed(&fresh) / most;
    printf(
        "%-24s best fixed K %2d is %.2f of plain; planned %.3f of the best (mean K %.2f), %.3f of "
        "plain; new coordinator %.3f of the best, %.3f of plain\n",
        w->name, best, most / plain, of_best, later.n_guesses / later.n_rounds, of_plain,
        fresh_of_best, fresh_of_plain);
    fflush(stdout);
    double least = w->noise < 0.2 ? 0.97 : 0.95;
    ck_assert_msg(of_best >= least, "%s: %.3f of the best fixed K", w->name, of_best);
    ck_assert_msg(of_plain >= 0.98, "%s: %.3f of plain", w->name, of_plain);
    ck_assert_msg(fresh_of_best >= 0.9, "%s: %.3f of the best, new", w->name, fresh_of_best);
    ck_assert_msg(fresh_of_plain >= 0.98, "%s: %.3f of plain, new", w->name, fresh_of_plain);
}
END_TEST

/* A planner that has seen texts of this world. */
static struct planner taught(const struct world *w)
{
    struct planner planner = {0};
    struct tally tally = {0};
    for (int i = 0; i < 5; i++) {
        run_text(w, &planner, 0, &tally);
    }
    return planner;
}

static const struct world good = {"good", {0.8, 0.8}, 1,   0.1, 0.02, 0.02, 0.01,
                                  6,      16,         400, 0,   0,    false};
static const struct world hopeless = {"hopeless", {0, 0}, 1,   0.1, 0.02, 0.02, 0.01,
                                      6,          16,     400, 0,   0,    false};

/* A text of a request that fixes K; the planner learns from it. */
static void watch_text(const struct world *w, struct planner *p, int k)
{
    struct planner_sequence seq = {.strategy = STRATEGY_FIXED};
    for (int i = 0; i < w->n_tokens; i++) {
        const struct seen seen = {.k = k,
                                  .n = accepted(w, 0, k),
                                  .n_missed = 1,
                                  .pass_us = (int64_t)(STEP_US * w->c),
                                  .step_us = (int64_t)step_us(w, k + 1),
                                  .rest_us = (int64_t)(STEP_US * w->rtt)};
        observe(p, &seq, &seen);
    }
}

/* _i texts of fixed K between the planned ones must not raise what the planned ones spend. */
START_TEST(probes_spend_one_percent_at_most)
{
    struct planner planner = taught(&hopeless);
    struct tally planned = {0};
    for (int i = 0; i < N_TEXTS; i++) {
        for (int k = 0; k < _i; k++) {
            watch_text(&hopeless, &planner, k);
        }
        run_text(&hopeless, &planner, 0, &planned);
    }
    double spent = fixed_speed(&hopeless, 0) / speed(&planned) - 1;
    printf("spent on probes: %.4f of the time, %.4f guesses a round\n", spent,
           planned.n_guesses / planned.n_rounds);
    ck_assert(planned.n_guesses > 0 && spent <= 0.0105);
}
END_TEST

/* No credit: what is planned, not a probe. */
static int planned_k(const struct planner *p, const struct ask *ask)
{
    const struct planner_sequence seq = {.strategy = STRATEGY_PLANNED};
    struct planner copy = *p;
    copy.credit_us = 0;
    return choose(&copy, &seq, ask);
}

START_TEST(one_outlier_does_not_move_k)
{
    const struct ask ask = {16, 1, 400};
    struct planner planner = taught(&good);
    struct planner_sequence seq = {.strategy = STRATEGY_PLANNED};
    int k = planned_k(&planner, &ask);
    ck_assert_int_ge(k, 4);
    for (int other = 0; other <= 16; other++) {
        struct planner shaken = planner;
        const struct seen seen = {.k = other,
                                  .n = other,
                                  .n_missed = 1,
                                  .pass_us = 100 * STEP_US,
                                  .step_us = 100 * STEP_US,
                                  .rest_us = 200 * STEP_US};
        observe(&shaken, &seq, &seen);
        int now = planned_k(&shaken, &ask);
        ck_assert_msg(abs(now - k) <= 1, "an outlier at K = %d: %d, before %d", other, now, k);
    }
}
END_TEST

/* Leaving K = 0 costs the reading of a prompt, which a text that is about to end does not pay
 * back. */
START_TEST(catching_up_is_charged)
{
    struct planner planner = taught(&good);
    const struct ask near = {16, 1, 10}, far = {16, 2000, 10}, long_text = {16, 2000, 1000};
    ck_assert_int_gt(planned_k(&planner, &near), 0);
    ck_assert_int_eq(planned_k(&planner, &far), 0);
    ck_assert_int_gt(planned_k(&planner, &long_text), 0);
}
END_TEST

/* A bypass: with a draft that is known to be of no use a prompt is not read. */
START_TEST(a_useless_draft_reads_no_prompt)
{
    struct planner planner = taught(&hopeless);
    const struct planner_sequence seq = {.strategy = STRATEGY_PLANNED};
    const struct ask ask = {16, 5000, 400};
    ck_assert_int_eq(choose(&planner, &seq, &ask), 0);
}
END_TEST

START_TEST(heuristic_is_that_of_transformers)
{
    static const int accepted_of[] = {5, 7, 0, 9, 11, 13, 15, 16, 16, 3};
    static const int wanted[] = {5, 7, 9, 8, 10, 12, 14, 16, 16, 16};
    struct planner planner = {0};
    struct planner_sequence seq = {.strategy = STRATEGY_HEURISTIC};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        int k = planner_own_k(&seq, 16);
        ck_assert_msg(k == wanted[i], "round %zu: K = %d, wanted %d", i, k, wanted[i]);
        planner_observe_lane(&planner, &seq, 0, k, accepted_of[i] < k ? accepted_of[i] : k);
    }
    ck_assert_int_eq(planner_own_k(&seq, 3), 3);
    for (int i = 0; i < 30; i++) {
        planner_observe_lane(&planner, &seq, 0, planner_own_k(&seq, 16), 0);
    }
    ck_assert_int_eq(planner_own_k(&seq, 16), 1);
}
END_TEST

START_TEST(fixed_and_threshold_take_what_is_allowed)
{
    for (int s = STRATEGY_FIXED; s < N_STRATEGIES; s++) {
        const struct planner_sequence seq = {.strategy = (enum strategy)s};
        if (s != STRATEGY_HEURISTIC) ck_assert_int_eq(planner_own_k(&seq, 7), 7);
        ck_assert_int_eq(planner_own_k(&seq, 0), 0);
        ck_assert_int_eq(planner_own_k(&seq, -3), 0);
    }
}
END_TEST

/* Clocks that stand still or jump, rounds of any kind: K stays in range, estimates stay numbers. */
START_TEST(nonsense_does_no_harm)
{
    struct planner planner = {0};
    struct planner_sequence seq = {.strategy = STRATEGY_PLANNED};
    for (int i = 0; i < 20000; i++) {
        int k = (int)(17 * coin(&coins));
        const int64_t times[] = {0, 1, -5, INT64_C(1) << 40, (int64_t)(1e6 * coin(&coins))};
        struct planner_round round = {.n_rows = (int)(3000 * coin(&coins) * coin(&coins)) - 1,
                                      .n_lanes = (int)(70 * coin(&coins)),
                                      .is_timed = coin(&coins) < 0.8,
                                      .has_prompt = coin(&coins) < 0.2,
                                      .models[0].n_passes = k,
                                      .models[0].first_pass_tokens =
                                          (int)(300 * coin(&coins) * coin(&coins)),
                                      .models[0].n_read = (int)(100 * coin(&coins)),
                                      .models[0].read_us = times[(int)(5 * coin(&coins))],
                                      .models[0].draft_us = times[(int)(5 * coin(&coins))],
                                      .step_us = times[(int)(5 * coin(&coins))],
                                      .round_us = times[(int)(5 * coin(&coins))]};
        for (int j = 0; j < k; j++) {
            round.models[0].pass_lanes[j] = (int)(70 * coin(&coins));
            round.models[0].pass_us[j] = times[(int)(5 * coin(&coins))];
        }
        planner_observe_round(&planner, &round);
        planner_observe_lane(&planner, &seq, 0, k, (int)((k + 1) * coin(&coins)));
        const struct ask ask = {(int)(18 * coin(&coins)) - 1,
                                (int)(300 * coin(&coins) * coin(&coins)),
                                (int)(100 * coin(&coins))};
        int next = choose(&planner, &seq, &ask);
        ck_assert(next >= 0 && next <= (ask.k_max > 0 ? ask.k_max : 0));
        const struct estimates e = planner_estimates(&planner, i % 2 ? &seq : NULL);
        ck_assert(e.draft_us >= 0 && e.read_us >= 0 && e.step_us >= 0 && e.row_us >= 0 &&
                  e.rtt_us >= 0 && e.alpha >= 0 && e.alpha <= 1);
        for (int j = 0; j < e.n_positions; j++) {
            ck_assert(e.alpha_at[j] >= 0 && e.alpha_at[j] <= 1);
        }
    }
}
END_TEST

/* A coordinator was calibrated with rows that are all asked about. Prompts are cheaper, the first
 * ones dearer: they touch memory. */
START_TEST(prompts_are_predicted_as_they_are_seen)
{
    struct planner p = {0};
    struct planner_sequence seq = {.strategy = STRATEGY_PLANNED};
    for (int rows = 1; rows <= 64; rows *= 2) {
        planner_calibrate_step(&p, rows, 30000 + 1000 * rows);
        planner_calibrate_draft(&p, 0, rows, 1000 + 100 * rows);
    }
    planner_observe_round(
        &p, &(struct planner_round){
                .n_rows = 1, .n_lanes = 1, .is_timed = true, .step_us = 31000, .round_us = 31000});
    for (int i = 0; i < 40; i++) {
        int n_prompt = 31 * (1 + i % 2), n_lanes = 2 + 2 * (i / 4);
        struct planner_lane lanes[32];
        for (int lane = 0; lane < n_lanes; lane++) {
            lanes[lane] = (struct planner_lane){.seq = &seq, .n_left = 100};
        }
        planner_share(
            &p, lanes, n_lanes,
            &(struct planner_load){.n_rows = n_prompt, .n_prompt = n_prompt, .n_rows_max = 256});
        double us = 30000 + 1000 * n_lanes + (i < 4 ? 1200 : 700) * n_prompt;
        double predicted_us = planner_round_us(&p, 0);
        ck_assert(i < 16 || (predicted_us > 0.95 * us && predicted_us < 1.05 * us));
        planner_observe_round(&p, &(struct planner_round){.n_rows = n_prompt + n_lanes,
                                                          .n_lanes = n_lanes,
                                                          .n_prompt = n_prompt,
                                                          .is_timed = true,
                                                          .has_prompt = true,
                                                          .step_us = (int64_t)us,
                                                          .round_us = (int64_t)us});
    }
}
END_TEST

START_TEST(estimates_are_those_of_the_world)
{
    struct planner planner = taught(&good);
    const struct estimates e = planner_estimates(&planner, NULL);
    ck_assert_double_eq_tol((double)e.draft_us, 0.1 * STEP_US, 0.001 * STEP_US);
    ck_assert_double_eq_tol((double)e.step_us, STEP_US, 0.02 * STEP_US);
    ck_assert_double_eq_tol((double)e.rtt_us, 0.02 * STEP_US, 0.001 * STEP_US);
    ck_assert_double_eq_tol((double)e.read_us, 0.01 * STEP_US, 0.002 * STEP_US);
    ck_assert_double_eq_tol((double)e.alpha, 0.8, 0.04);
    ck_assert_int_gt(e.n_rounds, 100);
    const struct planner nothing = {0};
    const struct estimates none = planner_estimates(&nothing, NULL);
    ck_assert(none.n_rounds == 0 && none.step_us == 0 && none.alpha == 0 && none.n_positions == 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("planner");
    TCase *tcase = tcase_create("simulated");
    tcase_set_timeout(tcase, 280);
    tcase_add_loop_test(tcase, planned_is_nearly_the_best_fixed_k_and_never_slower_than_plain, 0,
                        N_WORLDS);
    tcase_add_loop_test(tcase, probes_spend_one_percent_at_most, 0, 6);
    tcase_add_test(tcase, one_outlier_does_not_move_k);
    tcase_add_test(tcase, catching_up_is_charged);
    tcase_add_test(tcase, a_useless_draft_reads_no_prompt);
    tcase_add_test(tcase, heuristic_is_that_of_transformers);
    tcase_add_test(tcase, fixed_and_threshold_take_what_is_allowed);
    tcase_add_test(tcase, nonsense_does_no_harm);
    tcase_add_test(tcase, prompts_are_predicted_as_they_are_seen);
    tcase_add_test(tcase, estimates_are_those_of_the_world);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
