/* ctest: labels=quick libs=speculation timeout=120 */
/* The planner where guesses are found as well as drafted, over simulated texts of one lane or
 * many. What it chooses is held against plain decoding, against drafting alone, and against taking
 * a fixed number of what is offered, in true times. Seeds are fixed: a run repeats itself. */
#include <math.h>
#include <stdio.h>

#include "speculation/planner/planner.h"
#include "tests/support/check_util.h"
#include "tests/support/planner_noise.h"

enum { LANES_MOST = 16, N_ROUNDS = 4000, STEP_US = 20000, TEXT_TOKENS = 400, K_FOUND = 8 };
enum { WEAK = 1, STRONG = 12 }; /* evidence */

/* Times over that of a plain step. */
struct world {
    const char *name;
    int n_lanes;
    double pass;       /* of the draft; 0 = there is none */
    double row;        /* that each row adds to a step */
    double alpha;      /* of the draft's guesses */
    double found[2];   /* of what is found for weak and for strong reasons */
    double offered[2]; /* share of the rounds in which it is */
    double text_bonus; /* every other text: so much is added to `found` */
    double least_over_plain, least_over_drafted; /* what must be reached */
};

static const struct world worlds[] = {
    {"copies, no draft", 1, 0, 0.02, 0, {0.3, 0.95}, {0.3, 0.7}, 0, 2.5, 0},
    {"copies, and a draft", 1, 0.1, 0.02, 0.7, {0.3, 0.95}, {0.3, 0.7}, 0, 2.5, 1.25},
    {"nothing repeats, no draft", 1, 0, 0.1, 0, {0.02, 0.02}, {0.8, 0.2}, 0, 0.99, 0},
    {"nothing repeats, and a draft", 1, 0.1, 0.1, 0.7, {0.02, 0.02}, {0.8, 0.2}, 0, 1, 0.985},
    {"weak reasons do not pay", 1, 0, 0.3, 0, {0.05, 0.9}, {0.9, 0.1}, 0, 1, 0},
    {"rows cost", 16, 0, 0.3, 0, {0.2, 0.6}, {0.5, 0.5}, 0, 0.99, 0},
    {"many lanes, copies", 16, 0, 0.03, 0, {0.3, 0.9}, {0.3, 0.7}, 0, 1.5, 0},
    {"many lanes, copies and a draft", 16, 0.1, 0.03, 0.6, {0.3, 0.9}, {0.3, 0.7}, 0, 1.5, 1.15},
    {"a draft that is better", 8, 0.02, 0.02, 0.9, {0.1, 0.3}, {0.5, 0.5}, 0, 2, 0.99},
    {"some texts copy", 8, 0, 0.05, 0, {0.05, 0.1}, {0.5, 0.5}, 0.8, 1.2, 0},
    {"a draft that never stays", 4, 0.3, 0.05, 0, {0.3, 0.9}, {0.2, 0.5}, 0, 1.4, 1.4},
};
enum { N_WORLDS = sizeof worlds / sizeof *worlds };

static const double noise = 0.05;
static struct coins coins = {.seed = 2027};

enum arm { PLAIN, DRAFTED, TAKEN, PLANNED };

struct text {
    struct planner_sequence seq;
    struct planner_offer offer;
    int n_left, number;
};

struct sim {
    const struct world *world;
    enum arm arm;
    int k;           /* of TAKEN */
    bool takes_weak; /* too */
    struct planner planner;
    struct text texts[LANES_MOST];
    struct planner_lane lanes[LANES_MOST];
    int n_texts;
    double us, n_tokens, n_found;
};

static void begin_text(struct sim *sim, struct text *text)
{
    *text = (struct text){.seq.strategy = STRATEGY_PLANNED, .n_left = TEXT_TOKENS};
    text->number = sim->n_texts++;
}

static void look(struct sim *sim, int i)
{
    struct text *text = &sim->texts[i];
    double u = coin(&coins);
    bool is_weak = u < sim->world->offered[0];
    bool is_there = u < sim->world->offered[0] + sim->world->offered[1];
    text->offer = (struct planner_offer){.evidence = is_weak ? WEAK : STRONG, .k_max = K_FOUND};
    sim->lanes[i] = (struct planner_lane){.seq = &text->seq,
                                          .models[0].k_max = sim->world->pass > 0 ? DRAFT_MAX : 0,
                                          .models[0].n_missed = 1,
                                          .n_left = text->n_left,
                                          .offers = &text->offer,
                                          .n_offers = is_there && sim->arm != DRAFTED ? 1 : 0};
}

static void choose(struct sim *sim)
{
    const struct planner_load load = {.n_rows_max = 512};
    if (sim->arm == DRAFTED || sim->arm == PLANNED) {
        planner_share(&sim->planner, sim->lanes, sim->world->n_lanes, &load);
        return;
    }
    for (int i = 0; i < sim->world->n_lanes; i++) {
        struct planner_lane *lane = &sim->lanes[i];
        bool takes = sim->arm == TAKEN && lane->n_offers > 0 &&
                     (sim->takes_weak || lane->offers->evidence == STRONG);
        guess_tree_begin(&lane->tree, 0);
        guess_tree_plan(&lane->tree, takes ? sim->k : 0, GUESS_CHAIN);
        lane->offer = takes ? lane->offers : NULL;
    }
}

static double alpha_of(const struct sim *sim, const struct text *text,
                       const struct planner_lane *lane)
{
    if (!lane->offer) return sim->world->alpha;
    double found = sim->world->found[lane->offer->evidence == STRONG];
    return text->number % 2 ? found : fmin(found + sim->world->text_bonus, 0.98);
}

static void run_round(struct sim *sim)
{
    const struct world *w = sim->world;
    struct planner_round round = {.n_rows = w->n_lanes, .n_lanes = w->n_lanes, .is_timed = true};
    double draft_us = 0, step_us;
    for (int i = 0; i < w->n_lanes; i++) {
        look(sim, i);
    }
    choose(sim);
    for (int i = 0; i < w->n_lanes; i++) {
        const struct planner_lane *lane = &sim->lanes[i];
        round.n_rows += lane->tree.n_chain;
        sim->n_found += lane->offer ? lane->tree.n_chain : 0;
        for (int j = 0; j < lane->tree.n_chain && !lane->offer; j++) {
            round.models[0].pass_lanes[j]++;
            if (j >= round.models[0].n_passes) round.models[0].n_passes = j + 1;
        }
    }
    for (int j = 0; j < round.models[0].n_passes; j++) {
        double us = STEP_US * w->pass * (1 + w->row * (round.models[0].pass_lanes[j] - 1));
        round.models[0].pass_us[j] = measured_us(&coins, us, noise);
        round.models[0].draft_us += round.models[0].pass_us[j];
        draft_us += us;
    }
    round.models[0].first_pass_tokens = round.models[0].pass_lanes[0];
    step_us = STEP_US * (1 + w->row * (round.n_rows - 1));
    round.step_us = measured_us(&coins, step_us, noise);
    round.round_us = round.models[0].draft_us + round.step_us + 300;
    sim->us += draft_us + step_us + 300;
    planner_observe_round(&sim->planner, &round);
    for (int i = 0; i < w->n_lanes; i++) {
        struct text *text = &sim->texts[i];
        const struct planner_lane *lane = &sim->lanes[i];
        int n = 0;
        while (n < lane->tree.n_chain && coin(&coins) < alpha_of(sim, text, lane)) {
            n++;
        }
        if (lane->offer) {
            planner_observe_offer(&sim->planner, &text->seq, lane->offer, lane->tree.n_chain, n);
        } else {
            planner_observe_lane(&sim->planner, &text->seq, 0, lane->tree.n_chain, n);
        }
        sim->n_tokens += n + 1;
        text->n_left -= n + 1;
        if (text->n_left <= 0) begin_text(sim, text);
    }
}

/* Tokens per second of true time. */
static double rate_of(const struct world *world, enum arm arm, int k, bool takes_weak)
{
    static struct sim sim;
    sim = (struct sim){.world = world, .arm = arm, .k = k, .takes_weak = takes_weak};
    for (int rows = 1; rows <= 2 * world->n_lanes; rows++) {
        planner_calibrate_step(&sim.planner, rows, STEP_US * (1 + world->row * (rows - 1)));
    }
    if (world->pass > 0) planner_calibrate_draft(&sim.planner, 0, 1, STEP_US * world->pass);
    for (int i = 0; i < world->n_lanes; i++) {
        begin_text(&sim, &sim.texts[i]);
    }
    for (int i = 0; i < N_ROUNDS; i++) {
        run_round(&sim);
    }
    return 1e6 * sim.n_tokens / sim.us;
}

/* The best fixed number of guesses, of all offers or of the strong ones. */
static double best_taken(const struct world *world)
{
    double best = 0;
    for (int k = 1; k <= K_FOUND; k++) {
        best = fmax(best, rate_of(world, TAKEN, k, false));
        best = fmax(best, rate_of(world, TAKEN, k, true));
    }
    return best;
}

START_TEST(offers_are_taken_where_they_pay)
{
    const struct world *w = &worlds[_i];
    double plain = rate_of(w, PLAIN, 0, false), drafted = rate_of(w, DRAFTED, 0, false);
    double taken = best_taken(w), planned = rate_of(w, PLANNED, 0, false);
    printf("%-32s planned over plain %.3f, over drafting %.3f, over the best fixed number %.3f\n",
           w->name, planned / plain, planned / drafted, planned / taken);
    fflush(stdout);
    ck_assert_double_ge(planned / plain, w->least_over_plain);
    ck_assert_double_ge(planned / drafted, w->least_over_drafted);
    ck_assert_double_ge(planned / taken, 0.92);
}
END_TEST

static struct planner_offer new_offer(void)
{
    struct planner_offer offer = {.finder = (int)(PLANNER_FINDERS * coin(&coins)),
                                  .evidence = (int)(PLANNER_EVIDENCE * coin(&coins)),
                                  .k_max = (int)((DRAFT_MAX + 1) * coin(&coins))};
    for (int i = 0; i < DRAFT_MAX; i++) {
        offer.siblings[i] = (uint8_t)((SIBLINGS_MAX + 1) * coin(&coins));
    }
    return offer;
}

/* Returns the siblings. */
static int check_siblings(const struct planner_lane *lane)
{
    int n = 0;
    for (int i = 0; i < DRAFT_MAX; i++) {
        ck_assert_int_le(guess_tree_siblings(&lane->tree, i),
                         i < lane->tree.n_chain ? lane->siblings_max : 0);
        if (lane->offer)
            ck_assert_int_le(guess_tree_siblings(&lane->tree, i), lane->offer->siblings[i]);
        n += guess_tree_siblings(&lane->tree, i);
    }
    return n;
}

START_TEST(nothing_is_chosen_that_was_not_offered)
{
    static struct planner planner;
    int n_siblings = 0;
    planner = (struct planner){0};
    for (int turn = 0; turn < 3000; turn++) {
        struct planner_sequence seqs[LANES_MOST] = {0};
        struct planner_offer offers[LANES_MOST][2];
        struct planner_lane lanes[LANES_MOST];
        int n = (int)(LANES_MOST * coin(&coins));
        struct planner_load load = {.n_rows_max = n + (int)(30 * coin(&coins))};
        for (int i = 0; i < n; i++) {
            for (int o = 0; o < 2; o++) {
                offers[i][o] = new_offer();
            }
            lanes[i] =
                (struct planner_lane){.seq = &seqs[i],
                                      .models[0].k_max = turn % 2 ? (int)(9 * coin(&coins)) : 0,
                                      .models[0].n_missed = (int)(90 * coin(&coins)),
                                      .n_left = 1 + (int)(99 * coin(&coins)),
                                      .siblings_max = turn % (SIBLINGS_MAX + 1),
                                      .offers = offers[i],
                                      .n_offers = (int)(3 * coin(&coins))};
        }
        planner_share(&planner, lanes, n, &load);
        struct planner_round round = {
            .n_rows = n + 1, .n_lanes = n, .is_timed = true, .step_us = 1000, .round_us = 1100};
        planner_observe_round(&planner, &round);
        for (int i = 0; i < n; i++) {
            const struct planner_lane *lane = &lanes[i];
            bool is_own = lane->offer == NULL;
            for (int o = 0; o < lane->n_offers; o++) {
                is_own |= lane->offer == &offers[i][o];
            }
            ck_assert(is_own);
            ck_assert_int_ge(lane->tree.n_chain, 0);
            ck_assert_int_le(lane->tree.n_chain,
                             lane->offer ? lane->offer->k_max : lane->models[0].k_max);
            if (lane->offer) {
                n_siblings += check_siblings(lane);
                planner_observe_siblings(
                    &planner, &seqs[i], 0, lane->offer, guess_tree_siblings(&lane->tree, 0),
                    (int)((guess_tree_siblings(&lane->tree, 0) + 1) * coin(&coins)));
                planner_observe_offer(&planner, &seqs[i], lane->offer, lane->tree.n_chain,
                                      (int)((lane->tree.n_chain + 1) * coin(&coins)));
            }
        }
    }
    ck_assert_int_gt(n_siblings, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("planner_offers");
    TCase *tests = tcase_create("planner_offers");
    tcase_add_loop_test(tests, offers_are_taken_where_they_pay, 0, N_WORLDS);
    tcase_add_test(tests, nothing_is_chosen_that_was_not_offered);
    suite_add_tcase(suite, tests);
    return check_main(suite);
}
