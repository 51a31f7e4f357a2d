/* ctest: labels=quick libs=speculation timeout=120 */
/* The planner between two draft models, over simulated texts of one lane or many: what it chooses
 * is held, in true times, against each of the models alone and against plain decoding. A model
 * reads what the other one has guessed before it guesses again, and that takes time, too. Seeds are
 * fixed: a run repeats itself. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "speculation/planner/cost.h"
#include "speculation/planner/planner.h"
#include "tests/support/check_util.h"
#include "tests/support/planner_noise.h"

enum { LANES_MOST = 8, N_ROUNDS = 6000, STEP_US = 20000, TEXT_TOKENS = 400, N_PROMPT = 100 };
enum { CAUGHT_UP = 64 }; /* tokens that a model may have missed when it guesses */

/* Times over that of a plain step, and how often guesses stay, in every other text. */
struct drafting {
    double pass, read;
    double alpha[2];
};

struct world {
    const char *name;
    int n_lanes;
    double row; /* that each row adds to a step */
    struct drafting models[2];
    double least_over_plain, least_over_best; /* best: of the models alone */
    double feature; /* a token whose features are sent for the second model */
};

static const struct world worlds[] = {
    {"one better, one cheaper",
     1,
     0.02,
     {{0.3, 0.01, {0.9, 0.9}}, {0.03, 0.001, {0.6, 0.6}}},
     1.5,
     0.97,
     0},
    {"the cheaper one is better",
     1,
     0.02,
     {{0.3, 0.01, {0.7, 0.7}}, {0.03, 0.001, {0.8, 0.8}}},
     2,
     0.97,
     0},
    {"the dear one pays",
     1,
     0.02,
     {{0.1, 0.003, {0.95, 0.95}}, {0.02, 0.001, {0.3, 0.3}}},
     2,
     0.97,
     0},
    {"the second is useless",
     1,
     0.05,
     {{0.1, 0.003, {0.8, 0.8}}, {0.1, 0.003, {0, 0}}},
     1.5,
     0.97,
     0},
    {"the first is useless",
     1,
     0.05,
     {{0.2, 0.01, {0, 0}}, {0.05, 0.002, {0.7, 0.7}}},
     1.5,
     0.97,
     0},
    {"both are useless", 1, 0.3, {{0.3, 0.01, {0, 0}}, {0.1, 0.003, {0.05, 0.05}}}, 0.98, 0.98, 0},
    {"each is for other texts",
     1,
     0.02,
     {{0.1, 0.002, {0.9, 0.1}}, {0.1, 0.002, {0.1, 0.9}}},
     2,
     1.15,
     0},
    {"many lanes, each for others",
     8,
     0.05,
     {{0.1, 0.002, {0.9, 0.1}}, {0.1, 0.002, {0.1, 0.9}}},
     1.3,
     1.05,
     0},
    {"many lanes, one useless",
     8,
     0.05,
     {{0.1, 0.002, {0.8, 0.8}}, {0.2, 0.005, {0, 0}}},
     1.3,
     0.97,
     0},
    {"many lanes, rows are dear",
     8,
     0.4,
     {{0.3, 0.01, {0.5, 0.5}}, {0.05, 0.002, {0.3, 0.3}}},
     0.98,
     0.97,
     0},
};
enum { N_WORLDS = sizeof worlds / sizeof *worlds };

static const double noise = 0.05;
static struct coins coins = {.seed = 2031};

struct text {
    struct planner_sequence seq;
    int n_left, number, n_missed[2];
    bool has_features;
};

struct sim {
    const struct world *world;
    bool has[2]; /* models */
    struct planner planner;
    struct text texts[LANES_MOST];
    struct planner_lane lanes[LANES_MOST];
    struct planner_round round;
    int n_texts;
    double us, n_tokens;
    int n_guesses[2];
    double n_features;
};

/* The second model needs features, where there are any. */
static bool may_guess(const struct sim *sim, const struct text *text, int m)
{
    return sim->has[m] && (m == 0 || sim->world->feature <= 0 || text->has_features);
}

static void begin_text(struct sim *sim, struct text *text)
{
    *text = (struct text){
        .seq.strategy = STRATEGY_PLANNED, .n_left = TEXT_TOKENS, .n_missed = {N_PROMPT, N_PROMPT}};
    text->number = sim->n_texts++;
    text->has_features = sim->has[1] && sim->world->feature > 0;
}

static struct planner_missed missed_of(const struct sim *sim, const struct text *text, int m)
{
    struct planner_missed missed = {
        .model = m, .n_left = text->n_left, .n_lanes = sim->world->n_lanes};
    for (int i = 0; i < 2; i++) {
        missed.n_missed[i] = text->n_missed[i];
        missed.may_guess[i] = may_guess(sim, text, i);
    }
    return missed;
}

/* Features of the prompt are sent when the text begins, as long as they are wanted. */
static void ask_for_features(struct sim *sim, struct text *text)
{
    const struct planner_missed missed = missed_of(sim, text, 1);
    if (!text->has_features) return;
    text->has_features = planner_wants_features(&sim->planner, &text->seq, &missed);
    if (text->has_features && text->n_left == TEXT_TOKENS) sim->round.n_features += N_PROMPT;
}

/* A model of a lane: it reads first, where that pays. */
static void look(struct sim *sim, struct text *text, struct planner_lane *lane, int m)
{
    const struct planner_missed missed = missed_of(sim, text, m);
    if (!may_guess(sim, text, m)) return;
    if (text->n_missed[m] > CAUGHT_UP &&
        planner_wants_reading(&sim->planner, &text->seq, &missed)) {
        double us = STEP_US * sim->world->models[m].read * text->n_missed[m];
        sim->round.models[m].n_read += text->n_missed[m] - 1;
        sim->round.models[m].read_us += (int64_t)us;
        text->n_missed[m] = 1;
    }
    int room = text->n_left - 1 < DRAFT_MAX ? text->n_left - 1 : DRAFT_MAX;
    lane->models[m] = (struct planner_drafting){.k_max = text->n_missed[m] > CAUGHT_UP ? 0 : room,
                                                .n_missed = text->n_missed[m]};
}

/* The passes of a model in this round, in true time. */
static double draft(struct sim *sim, int m)
{
    const struct drafting *model = &sim->world->models[m];
    struct planner_drafted *drafted = &sim->round.models[m];
    double all_us = (double)drafted->read_us;
    for (int i = 0; i < sim->world->n_lanes; i++) {
        const struct planner_lane *lane = &sim->lanes[i];
        if (lane->tree.n_chain == 0 || lane->model != m) continue;
        drafted->first_pass_tokens += lane->models[m].n_missed;
        for (int j = 0; j < lane->tree.n_chain; j++) {
            drafted->pass_lanes[j]++;
            if (j >= drafted->n_passes) drafted->n_passes = j + 1;
        }
    }
    for (int j = 0; j < drafted->n_passes; j++) {
        int lanes = drafted->pass_lanes[j], more = drafted->first_pass_tokens - 2 * lanes;
        double us = STEP_US * model->pass * (1 + sim->world->row * (lanes - 1));
        if (j == 0 && more > 0) us += STEP_US * model->read * more;
        drafted->pass_us[j] = measured_us(&coins, us, noise);
        drafted->draft_us += drafted->pass_us[j];
        all_us += us;
    }
    return all_us;
}

static void commit(struct sim *sim, int i)
{
    struct text *text = &sim->texts[i];
    const struct planner_lane *lane = &sim->lanes[i];
    const struct drafting *model = &sim->world->models[lane->model];
    int k = lane->tree.n_chain, n = 0;
    while (n < k && coin(&coins) < model->alpha[text->number % 2]) {
        n++;
    }
    planner_observe_lane(&sim->planner, &text->seq, lane->model, k, n);
    for (int m = 0; m < 2; m++) {
        bool has_guessed = k > 0 && m == lane->model;
        text->n_missed[m] = has_guessed ? (n < k ? 1 : 2) : text->n_missed[m] + n + 1;
    }
    sim->n_guesses[lane->model] += k;
    sim->n_tokens += n + 1;
    text->n_left -= n + 1;
    if (text->n_left <= 0) begin_text(sim, text);
}

static void run_round(struct sim *sim)
{
    const struct world *w = sim->world;
    struct planner_load load = {.n_rows_max = 512};
    sim->round =
        (struct planner_round){.n_rows = w->n_lanes, .n_lanes = w->n_lanes, .is_timed = true};
    struct planner_round *round = &sim->round;
    for (int i = 0; i < w->n_lanes; i++) {
        struct text *text = &sim->texts[i];
        ask_for_features(sim, text);
        sim->lanes[i] = (struct planner_lane){
            .seq = &text->seq, .n_left = text->n_left, .has_features = text->has_features};
        load.n_features += text->has_features ? 1 : 0;
        look(sim, text, &sim->lanes[i], 0);
        look(sim, text, &sim->lanes[i], 1);
    }
    planner_share(&sim->planner, sim->lanes, w->n_lanes, &load);
    double draft_us = 0;
    for (int i = 0; i < w->n_lanes; i++) {
        const struct planner_lane *lane = &sim->lanes[i];
        ck_assert_int_le(lane->tree.n_chain, lane->models[lane->model].k_max);
        round->n_rows += lane->tree.n_chain;
        if (sim->texts[i].has_features) round->n_features += 1 + lane->tree.n_chain;
    }
    for (int m = 0; m < 2; m++) {
        draft_us += draft(sim, m);
        round->round_us += round->models[m].draft_us + round->models[m].read_us;
    }
    double step_us = STEP_US * (1 + w->row * (round->n_rows - 1));
    double features_us = STEP_US * w->feature * round->n_features;
    round->features_step_us = round->features_wire_us = (int64_t)features_us / 2;
    round->step_us = measured_us(&coins, step_us, noise) + round->features_step_us;
    round->round_us += round->step_us + round->features_wire_us + 300;
    sim->us += draft_us + step_us + features_us + 300;
    sim->n_features += round->n_features;
    planner_observe_round(&sim->planner, round);
    for (int i = 0; i < w->n_lanes; i++) {
        commit(sim, i);
    }
}

static struct sim sim;

/* Tokens per second of true time. */
static double rate_of(const struct world *world, bool has_first, bool has_second)
{
    sim = (struct sim){.world = world, .has = {has_first, has_second}};
    for (int rows = 1; rows <= 2 * world->n_lanes; rows++) {
        planner_calibrate_step(&sim.planner, rows, STEP_US * (1 + world->row * (rows - 1)));
    }
    for (int m = 0; m < 2; m++) {
        if (!sim.has[m]) continue;
        planner_calibrate_draft(&sim.planner, m, 1, STEP_US * world->models[m].pass);
    }
    for (int i = 0; i < world->n_lanes; i++) {
        begin_text(&sim, &sim.texts[i]);
    }
    for (int i = 0; i < N_ROUNDS; i++) {
        run_round(&sim);
    }
    return 1e6 * sim.n_tokens / sim.us;
}

START_TEST(each_text_has_the_model_that_pays)
{
    const struct world *w = &worlds[_i];
    double plain = rate_of(w, false, false), first = rate_of(w, true, false);
    double second = rate_of(w, false, true), both = rate_of(w, true, true);
    printf("%-28s over plain %.3f, over the models alone %.3f and %.3f; %d and %d guesses\n",
           w->name, both / plain, both / first, both / second, sim.n_guesses[0], sim.n_guesses[1]);
    fflush(stdout);
    ck_assert_double_ge(both / plain, w->least_over_plain);
    ck_assert_double_ge(both / fmax(first, second), w->least_over_best);
    ck_assert(sim.n_guesses[0] > 0 && sim.n_guesses[1] > 0); /* each is tried */
}
END_TEST

static const struct world reading[] = {
    {"a head that pays",
     1,
     0.02,
     {{0.1, 0.003, {0.5, 0.5}}, {0.05, 0.002, {0.8, 0.8}}},
     2,
     1.1,
     0.02},
    {"a useless head", 1, 0.05, {{0.1, 0.003, {0.6, 0.6}}, {0.1, 0.003, {0, 0}}}, 1.2, 0.97, 0.1},
    {"a head of less use",
     1,
     0.02,
     {{0.05, 0.002, {0.9, 0.9}}, {0.05, 0.002, {0.4, 0.4}}},
     2,
     0.97,
     0.05},
    {"a head for other texts",
     1,
     0.02,
     {{0.1, 0.002, {0.1, 0.1}}, {0.05, 0.002, {0.9, 0.1}}},
     1.4,
     0.97,
     0.05},
    {"many lanes, a useless head",
     8,
     0.05,
     {{0.1, 0.003, {0.6, 0.6}}, {0.1, 0.003, {0, 0}}},
     1.1,
     0.97,
     0.1},
};
enum { N_READING = sizeof reading / sizeof *reading };

/* Features that cost more than the model is worth are sent for few tokens, with another model and
 * without one; where it pays, for all. */
START_TEST(features_are_sent_where_they_pay)
{
    const struct world *w = &reading[_i];
    double plain = rate_of(w, false, false), first = rate_of(w, true, false);
    double second = rate_of(w, false, true), share_alone = sim.n_features / sim.n_tokens;
    double both = rate_of(w, true, true), share = sim.n_features / sim.n_tokens;
    printf("%-28s over plain %.3f, alone %.3f; over the models alone %.3f and %.3f; features for "
           "%.3f of the tokens, alone %.3f\n",
           w->name, both / plain, second / plain, both / first, both / second, share, share_alone);
    fflush(stdout);
    ck_assert_double_ge(both / plain, w->least_over_plain);
    ck_assert_double_ge(both / first, w->least_over_best);
    ck_assert_double_ge(second / plain, 0.97);
    bool pays = w->models[1].alpha[0] > w->models[0].alpha[0];
    ck_assert(pays ? share > 1 : share < 0.1);
    ck_assert(w->models[1].alpha[0] > 0 ? share_alone > 1 : share_alone < 0.1);
}
END_TEST

/* ---- single choices ---- */

enum { MANY = 1000 };

/* A planner that knows two models well: the first is dear and right, the second cheap. */
static struct planner *know(double second_alpha)
{
    static struct planner p;
    p = (struct planner){0};
    for (int rows = 1; rows <= 64; rows *= 2) {
        planner_calibrate_step(&p, rows, STEP_US * (1 + 0.01 * rows));
        planner_calibrate_draft(&p, 0, rows, 0.2 * STEP_US);
        planner_calibrate_draft(&p, 1, rows, 0.02 * STEP_US);
    }
    for (int i = 0; i < DRAFT_MAX; i++) {
        p.models[0].counts.tested[i] = p.models[1].counts.tested[i] = MANY;
        p.models[0].counts.accepted[i] = 0.9 * MANY;
        p.models[1].counts.accepted[i] = second_alpha * MANY;
    }
    return &p;
}

static const struct planner_load alone = {.n_rows_max = 512};

static struct planner_lane lane_of(const struct planner_sequence *seq)
{
    return (struct planner_lane){
        .seq = seq,
        .models = {{.k_max = 8, .n_missed = 1}, {.k_max = 8, .n_missed = 1}},
        .n_left = 1000};
}

/* A lane's own tests decide, and lanes of one round may have different models. */
START_TEST(lanes_of_a_round_have_models_of_their_own)
{
    struct planner *p = know(0.5);
    struct planner_sequence seqs[2] = {{.strategy = STRATEGY_PLANNED},
                                       {.strategy = STRATEGY_PLANNED}};
    for (int i = 0; i < 100; i++) {
        planner_counts_add(&seqs[0].counts[0], 2, 0, 1);
        planner_counts_add(&seqs[0].counts[1], 4, 4, 1);
        planner_counts_add(&seqs[1].counts[0], 8, 8, 1);
        planner_counts_add(&seqs[1].counts[1], 2, 0, 1);
    }
    struct planner_lane lanes[2] = {lane_of(&seqs[0]), lane_of(&seqs[1])};
    planner_share(p, lanes, 2, &alone);
    ck_assert(lanes[0].tree.n_chain > 0 && lanes[0].model == 1);
    ck_assert(lanes[1].tree.n_chain > 0 && lanes[1].model == 0);
}
END_TEST

/* A model that may not guess now is none to choose, and passes of a lane with a K of its own are
 * those of its model. */
START_TEST(only_models_that_may_guess_are_chosen)
{
    struct planner *p = know(0.9);
    struct planner_sequence seq = {.strategy = STRATEGY_PLANNED};
    struct planner_lane lane = lane_of(&seq);
    planner_share(p, &lane, 1, &alone);
    ck_assert(lane.model == 1 && lane.tree.n_chain > 0);
    lane.models[1].k_max = 0;
    planner_share(p, &lane, 1, &alone);
    ck_assert(lane.model == 0 && lane.tree.n_chain > 0);
    lane.models[0].k_max = 0;
    planner_share(p, &lane, 1, &alone);
    ck_assert_int_eq(lane.tree.n, 0);
    for (int m = 0; m < 2; m++) {
        struct planner_load load = {.n_rows_max = 512, .n_rows = 5, .n_decoding = 1};
        load.n_guessing[m][0] = load.n_guessing[m][1] = 1;
        planner_share(p, &lane, 1, &load);
        double plain_us = STEP_US * (1 + 0.01 * 6), pass_us = STEP_US * (m ? 0.02 : 0.2);
        ck_assert_double_eq_tol(planner_round_us(p, NULL), 0, 1e-9); /* rests are not known */
        ck_assert_double_eq_tol(p->planned_us, plain_us + 2 * pass_us, 0.02 * plain_us);
    }
}
END_TEST

/* There is no second model, whose times are never known. */
START_TEST(a_lane_never_has_a_model_that_is_not_there)
{
    struct planner *p = know(0.9);
    struct planner_sequence seq = {.strategy = STRATEGY_PLANNED};
    struct planner_lane lanes[2] = {lane_of(&seq), lane_of(&seq)};
    p->models[1] = (struct planner_model){0};
    lanes[0].models[1] = lanes[1].models[0] = lanes[1].models[1] = (struct planner_drafting){0};
    planner_share(p, lanes, 2, &alone);
    ck_assert(lanes[0].model == 0 && lanes[0].tree.n_chain > 0);
    ck_assert(lanes[1].model == 0 && lanes[1].tree.n == 0);
}
END_TEST

/* The better model reads, the other one does not, however little it would cost; when the credit
 * pays, it does, and then it guesses once, whatever that costs. */
START_TEST(a_model_of_less_use_reads_to_be_tried)
{
    struct planner *p = know(0.9);
    struct planner_sequence seq = {.strategy = STRATEGY_PLANNED};
    struct planner_missed missed = {.model = 1,
                                    .n_left = 1000,
                                    .n_lanes = 1,
                                    .n_missed = {200, 200},
                                    .may_guess = {true, true}};
    ck_assert(planner_wants_reading(p, &seq, &missed));
    missed.model = 0;
    ck_assert(!planner_wants_reading(p, &seq, &missed) && !seq.is_on_trial[0]);
    missed.may_guess[1] = false;
    seq.asked_at[0] = 0;
    ck_assert(planner_wants_reading(p, &seq, &missed) && !seq.is_on_trial[0]);
    missed.may_guess[1] = true;
    seq.asked_at[0] = 0;
    seq.wants_reading[0] = false;
    p->credit_us = planner_catch_up_us(p, 0, 200);
    ck_assert(planner_wants_reading(p, &seq, &missed) && seq.is_on_trial[0]);
    ck_assert_double_eq_tol(p->credit_us, 0, 1e-6);
    struct planner_lane lane = lane_of(&seq);
    planner_share(p, &lane, 1, &alone);
    ck_assert(lane.model == 0 && lane.tree.n_chain == 2 && !lane.offer);
    ck_assert_double_lt(p->credit_us, 0);
    planner_observe_lane(p, &seq, 0, 2, 1);
    planner_share(p, &lane, 1, &alone);
    ck_assert(!seq.is_on_trial[0] && lane.model == 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("planner_models");
    TCase *tests = tcase_create("planner_models");
    tcase_add_loop_test(tests, each_text_has_the_model_that_pays, 0, N_WORLDS);
    tcase_add_loop_test(tests, features_are_sent_where_they_pay, 0, N_READING);
    tcase_add_test(tests, lanes_of_a_round_have_models_of_their_own);
    tcase_add_test(tests, only_models_that_may_guess_are_chosen);
    tcase_add_test(tests, a_lane_never_has_a_model_that_is_not_there);
    tcase_add_test(tests, a_model_of_less_use_reads_to_be_tried);
    suite_add_tcase(suite, tests);
    return check_main(suite);
}
