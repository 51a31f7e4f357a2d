/* ctest: labels=quick libs=speculation timeout=120 */
/* The planner where what was found may be a branch beside the draft's guesses, over simulated texts
 * of one lane or many: what it chooses is held against what it chooses where nothing may branch, in
 * true times. Seeds are fixed: a run repeats itself. */
#include <math.h>
#include <stdio.h>

#include "base/least.h"
#include "speculation/planner/planner.h"
#include "tests/support/check_util.h"
#include "tests/support/planner_noise.h"

enum { LANES_MOST = 8, N_ROUNDS = 3000, STEP_US = 20000, TEXT_TOKENS = 400, N_FOUND = 8 };

/* Times over that of a plain step. */
struct world {
    const char *name;
    int n_lanes;
    double pass, row;    /* of the draft; that each row adds to a step */
    double alpha, found; /* of the draft's guesses, and of those that are found */
    /* The chance that a text's place is one where both are right or wrong together. */
    double together;
    double least; /* tokens per time over those without branches */
};

static const struct world worlds[] = {
    {"rows are free, apart", 1, 0.02, 0.001, 0.7, 0.5, 0, 1.05},
    {"rows are free, mostly together", 1, 0.02, 0.001, 0.7, 0.5, 0.8, 0.99},
    {"rows are free, always together", 1, 0.02, 0.001, 0.7, 0.5, 1, 0.985},
    {"rows cost", 1, 0.02, 0.15, 0.7, 0.4, 0, 0.985},
    {"what is found is wrong", 1, 0.1, 0.02, 0.6, 0.02, 0, 0.985},
    {"8 lanes, rows are nearly free", 8, 0.01, 0.001, 0.6, 0.4, 0, 1.03},
    {"8 lanes, rows cost", 8, 0.02, 0.05, 0.6, 0.3, 0, 0.985},
};
enum { N_WORLDS = sizeof worlds / sizeof *worlds };

static const double noise = 0.03;
static struct coins coins = {.seed = 2029};

struct text {
    struct planner_sequence seq;
    int n_left;
};

struct sim {
    const struct world *world;
    struct planner_offer found;
    struct planner planner;
    struct text texts[LANES_MOST];
    struct planner_lane lanes[LANES_MOST];
    double us, n_tokens, n_branch;
};

static const struct planner_offer found = {
    .finder = 1, .evidence = 9, .k_max = N_FOUND, .is_fixed = true};

/* How many guesses of the draft and of what was found are right, if there were any number. */
static void play(const struct world *w, int *n_drafted, int *n_found)
{
    bool drafted = true, is_found = true;
    *n_drafted = *n_found = 0;
    for (int i = 0; i < DRAFT_MAX; i++) {
        double u = coin(&coins), v = coin(&coins) < w->together ? u : coin(&coins);
        drafted = drafted && u < w->alpha;
        is_found = is_found && v < w->found;
        *n_drafted += drafted;
        *n_found += is_found;
    }
}

/* Tokens that a lane commits: those of the longer path, and one more. */
static int play_lane(struct sim *sim, int i)
{
    struct planner_lane *lane = &sim->lanes[i];
    struct text *text = &sim->texts[i];
    int drafted, right;
    play(sim->world, &drafted, &right);
    if (lane->offer) {
        int n = least(right, lane->tree.n_chain);
        ck_assert_int_eq(guess_tree_count(&lane->tree, GUESS_BRANCH), 0);
        planner_observe_offer(&sim->planner, &text->seq, lane->offer, lane->tree.n_chain, n);
        return n + 1;
    }
    int n = least(drafted, lane->tree.n_chain),
        n_branch = least(right, guess_tree_count(&lane->tree, GUESS_BRANCH));
    int added = n_branch > n ? n_branch - n : 0, n_committed = n + added + 1;
    planner_observe_lane(&sim->planner, &text->seq, 0, lane->tree.n_chain, n);
    if (guess_tree_count(&lane->tree, GUESS_BRANCH) == 0) {
        planner_observe_untaken(&sim->planner, &text->seq, &sim->found, least(N_FOUND, n_committed),
                                least(right, n_committed));
    } else {
        ck_assert(lane->tree.n_chain > 0 &&
                  guess_tree_count(&lane->tree, GUESS_BRANCH) <= N_FOUND && sim->found.is_fixed);
        planner_observe_branch(&sim->planner, &text->seq, &lane->branch,
                               least(guess_tree_count(&lane->tree, GUESS_BRANCH), n_committed),
                               n_branch, added);
    }
    sim->n_branch += guess_tree_count(&lane->tree, GUESS_BRANCH);
    return n_committed;
}

static void run_round(struct sim *sim)
{
    const struct world *w = sim->world;
    const struct planner_load load = {.n_rows_max = 256};
    struct planner_round round = {.n_rows = w->n_lanes, .n_lanes = w->n_lanes, .is_timed = true};
    for (int i = 0; i < w->n_lanes; i++) {
        struct text *text = &sim->texts[i];
        if (text->n_left <= 0) {
            *text = (struct text){.seq.strategy = STRATEGY_PLANNED, .n_left = TEXT_TOKENS};
        }
        sim->lanes[i] = (struct planner_lane){.seq = &text->seq,
                                              .models[0].k_max = DRAFT_MAX,
                                              .offers = &sim->found,
                                              .n_offers = 1,
                                              .models[0].n_missed = 1,
                                              .n_left = text->n_left,
                                              .siblings_max = 1};
    }
    planner_share(&sim->planner, sim->lanes, w->n_lanes, &load);
    for (int i = 0; i < w->n_lanes; i++) {
        const struct planner_lane *lane = &sim->lanes[i];
        round.n_rows += lane->tree.n_chain + guess_tree_count(&lane->tree, GUESS_BRANCH);
        for (int j = 0; j < lane->tree.n_chain; j++) {
            round.models[0].pass_lanes[j] += !lane->offer;
            round.n_rows += guess_tree_siblings(&lane->tree, j);
        }
        if (!lane->offer && lane->tree.n_chain > round.models[0].n_passes)
            round.models[0].n_passes = lane->tree.n_chain;
    }
    round.models[0].first_pass_tokens = round.models[0].pass_lanes[0];
    ck_assert_int_le(round.n_rows, load.n_rows_max);
    double step_us = STEP_US * (1 + w->row * (round.n_rows - w->n_lanes));
    double draft_us = STEP_US * w->pass * round.models[0].n_passes;
    for (int j = 0; j < round.models[0].n_passes; j++) {
        round.models[0].pass_us[j] = measured_us(&coins, STEP_US * w->pass, noise);
        round.models[0].draft_us += round.models[0].pass_us[j];
    }
    round.step_us = measured_us(&coins, step_us, noise);
    round.round_us = round.models[0].draft_us + round.step_us + 200;
    sim->us += draft_us + step_us + 200;
    for (int i = 0; i < w->n_lanes; i++) {
        int n = play_lane(sim, i);
        sim->texts[i].n_left -= n;
        sim->n_tokens += n;
    }
    planner_observe_round(&sim->planner, &round);
}

/* Siblings are never accepted here. */
static double speed_of(const struct world *world, bool may_branch, double *n_branch)
{
    static struct sim sim;
    sim = (struct sim){.world = world, .found = found};
    sim.found.is_fixed = may_branch;
    coins.n = 0;
    for (int i = 0; i < 60; i++) {
        struct planner_sequence seq = {0};
        planner_observe_siblings(&sim.planner, &seq, 0, NULL, SIBLINGS_MAX, SIBLINGS_MAX);
    }
    for (int rows = 1; rows <= 256; rows *= 2) {
        double us = STEP_US * (1 + world->row * fmax(rows - world->n_lanes, 0));
        planner_calibrate_step(&sim.planner, rows, us);
        planner_calibrate_draft(&sim.planner, 0, rows, STEP_US * world->pass);
    }
    for (int i = 0; i < N_ROUNDS; i++) {
        run_round(&sim);
    }
    *n_branch = sim.n_branch / N_ROUNDS / world->n_lanes;
    return sim.n_tokens / sim.us;
}

START_TEST(branches_are_worth_it_where_they_are_made)
{
    double none, branch;
    double chain = speed_of(&worlds[_i], false, &none);
    double tree = speed_of(&worlds[_i], true, &branch);
    printf("%-32s with branches over without %.3f, %.2f guesses of them a round\n", worlds[_i].name,
           tree / chain, branch);
    fflush(stdout);
    ck_assert(none == 0 && tree / chain >= worlds[_i].least);
}
END_TEST

/* Guesses that depend on coins are no branch, because the draft's guesses depend on the same
 * ones. */
START_TEST(drawn_guesses_make_no_branch)
{
    for (int is_fixed = 0; is_fixed < 2; is_fixed++) {
        static struct planner planner;
        planner = (struct planner){0};
        struct planner_sequence seq = {.strategy = STRATEGY_PLANNED};
        struct planner_load load = {.n_rows_max = 64};
        struct planner_offer offer = found;
        offer.is_fixed = is_fixed;
        offer.evidence = 0;
        for (int rows = 1; rows <= 64; rows *= 2) {
            planner_calibrate_step(&planner, rows, STEP_US);
            planner_calibrate_draft(&planner, 0, rows, STEP_US * 0.01);
        }
        struct planner_lane lane = {.seq = &seq,
                                    .models[0].k_max = DRAFT_MAX,
                                    .n_left = TEXT_TOKENS,
                                    .siblings_max = 1,
                                    .offers = &offer,
                                    .n_offers = 1};
        planner_share(&planner, &lane, 1, &load);
        ck_assert(lane.tree.n_chain > 0 && !lane.offer);
        ck_assert_int_eq(guess_tree_count(&lane.tree, GUESS_BRANCH) > 0, is_fixed);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("planner_branch");
    TCase *tcase = tcase_create("simulated");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, branches_are_worth_it_where_they_are_made, 0, N_WORLDS);
    tcase_add_test(tcase, drawn_guesses_make_no_branch);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
