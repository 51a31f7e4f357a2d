/* ctest: labels=full libs=speculation timeout=600 */
/* The planner with many lanes, over simulated machines: steps that cost the same up to some number
 * of rows and rise then, in the shapes that CPUs and GPUs have. 1 to 64 lanes write texts of known
 * acceptance one after the other; the planner sees noisy times with outliers, and true times and
 * expected tokens are counted. Seeds are fixed: a run repeats itself. */
#include <math.h>
#include <stdio.h>

#include "speculation/planner/planner.h"
#include "tests/support/check_util.h"
#include "tests/support/planner_noise.h"

enum {
    N_PROMPT = 40,
    LANES_MOST = 64,
    K_MOST = 16,
    FIXED_MOST = 8,
    TEXT_TOKENS = 200,  /* on average */
    FRESH_TOKENS = 400, /* of each lane */
    WARM_TOKENS = 20000,
    PLANNED_TOKENS = 60000,
    FIXED_TOKENS = 40000,
    STEP_US = 20000 /* of one row */
};

static const double noise = 0.05, outliers = 0.01;
/* Its multiples, modulo 1, are spread evenly. */
static const double golden = 0.6180339887498949;

/* Times over that of a step of one row. */
struct machine {
    const char *name;
    double flat, slope;             /* rows that a step takes for nothing; of each row besides */
    double draft, draft_flat, read; /* a pass of the draft, its rows for nothing; reading a token */
    double rest, merge;             /* the rest of a round, and of each row */
};

static const struct machine machines[] = {
    {"flat to 24 rows", 24, 0.004, 0.1, 24, 0.008, 0.02, 0.001},
    {"flat to 6 rows", 6, 0.01, 0.08, 6, 0.01, 0.02, 0.001},
    {"GPU", 256, 0.0005, 0.1, 256, 0.001, 0.1, 0.001},
    {"steep", 2, 0.02, 0.1, 2, 0.02, 0.05, 0.002},
    {"every row costs", 1024, 0.13, 0.12, 1024, 0.012, 0.01, 0.0003},
};
enum { N_MACHINES = sizeof machines / sizeof *machines };

/* The acceptance of a text: one of two. */
static const struct {
    const char *name;
    double alpha[2];
} workloads[] = {
    {"alpha 0", {0, 0}},
    {"alpha 0.5", {0.5, 0.5}},
    {"alpha 0.8", {0.8, 0.8}},
    {"mixed", {0.1, 0.9}},
};
enum { N_WORKLOADS = sizeof workloads / sizeof *workloads };

static const int lane_counts[] = {1, 2, 4, 8, 16, 32, 64};
enum { N_COUNTS = sizeof lane_counts / sizeof *lane_counts };

static struct coins coins = {.seed = 2027};

/* ---- the machine ---- */

static double step_us(const struct machine *m, int rows)
{
    double flat = m->flat > 1 ? m->flat : 1;
    return STEP_US * (fmax(1, rows / flat) + m->slope * (rows - 1));
}

static double pass_us(const struct machine *m, int rows)
{
    return rows ? STEP_US * m->draft * (fmax(1, rows / m->draft_flat) + m->slope * rows) : 0;
}

/* A text that is being written. */
struct text {
    struct planner_sequence seq;
    double alpha;
    int n_left, n_missed;
    bool is_prompt; /* its prompt is fed in the next round */
    int k;
};

/* Some lanes, and what they have taken in all. */
struct sim {
    const struct machine *machine;
    const double *alphas;
    int n_lanes, n_prompt, text_tokens;
    int n_read;              /* tokens of long prompts in this round */
    struct planner *planner; /* NULL: K is k_fixed */
    int k_fixed;
    struct text texts[LANES_MOST];
    uint64_t n_texts;
    double tokens, us; /* expected and true */
    double guesses, rounds;
};

static void begin_text(struct sim *sim, struct text *text)
{
    *text = (struct text){
        .seq = {.strategy = STRATEGY_PLANNED},
        .alpha = sim->alphas[sim->n_texts % 2],
        .n_left = 1 + (int)(2 * sim->text_tokens * fmod((double)sim->n_texts * golden, 1)),
        .n_missed = sim->n_prompt,
        .is_prompt = true,
    };
    sim->n_texts++;
}

static struct sim *sim_begin(struct sim *sim, const struct machine *machine, const double *alphas,
                             int n_lanes)
{
    *sim = (struct sim){.machine = machine,
                        .alphas = alphas,
                        .n_lanes = n_lanes,
                        .n_prompt = N_PROMPT,
                        .text_tokens = TEXT_TOKENS};
    for (int i = 0; i < n_lanes; i++) {
        begin_text(sim, &sim->texts[i]);
    }
    return sim;
}

static int room(const struct text *text)
{
    return text->n_left - 1 < K_MOST ? text->n_left - 1 : K_MOST;
}

/* True if the lane may guess: the draft reads a long prompt only if that pays. */
static bool read_prompt(struct sim *sim, struct text *text)
{
    if (text->n_missed <= PLANNER_LEARN_MISSED) return true;
    if (!planner_wants_reading(sim->planner, &text->seq,
                               &(struct planner_missed){.n_missed = {text->n_missed},
                                                        .n_left = text->n_left,
                                                        .n_lanes = sim->n_lanes})) {
        return false;
    }
    sim->n_read += text->n_missed - 1;
    text->n_missed = 1;
    return true;
}

/* The planner's lanes of this round, in the order of the texts that decode. */
static void plan(struct sim *sim, const struct planner_load *load)
{
    struct planner_lane lanes[LANES_MOST];
    int n = 0;
    for (int i = 0; i < sim->n_lanes; i++) {
        struct text *text = &sim->texts[i];
        if (text->is_prompt) continue;
        bool may = read_prompt(sim, text);
        lanes[n++] = (struct planner_lane){.seq = &text->seq,
                                           .models[0].k_max = may ? room(text) : 0,
                                           .models[0].n_missed = text->n_missed,
                                           .n_left = text->n_left};
    }
    planner_share(sim->planner, lanes, n, load);
    n = 0;
    for (int i = 0; i < sim->n_lanes; i++) {
        if (!sim->texts[i].is_prompt) sim->texts[i].k = lanes[n++].tree.n_chain;
    }
}

static void choose(struct sim *sim, struct planner_load *load)
{
    load->n_rows_max = 2048;
    for (int i = 0; i < sim->n_lanes; i++) {
        struct text *text = &sim->texts[i];
        text->k = text->is_prompt ? 0 : sim->k_fixed < room(text) ? sim->k_fixed : room(text);
        load->n_rows += text->is_prompt ? sim->n_prompt : 0;
        load->n_prompt += text->is_prompt ? sim->n_prompt - 1 : 0;
        load->n_decoding += text->is_prompt ? 1 : 0;
    }
    if (sim->planner) plan(sim, load);
}

/* The true times of the draft; fills the passes of the round with measured ones. */
static double draft(const struct sim *sim, struct planner_round *round)
{
    double all_us = 0, read_us = 0;
    for (int i = 0; i < sim->n_lanes; i++) {
        const struct text *text = &sim->texts[i];
        if (text->k == 0) continue;
        for (int j = 0; j < text->k; j++) {
            round->models[0].pass_lanes[j]++;
        }
        round->models[0].first_pass_tokens += text->n_missed;
        round->models[0].n_passes =
            text->k > round->models[0].n_passes ? text->k : round->models[0].n_passes;
        if (text->n_missed > 2) read_us += STEP_US * sim->machine->read * (text->n_missed - 2);
    }
    for (int j = 0; j < round->models[0].n_passes; j++) {
        double us = pass_us(sim->machine, round->models[0].pass_lanes[j]) + (j ? 0 : read_us);
        round->models[0].pass_us[j] = measured_us_or_outlier(&coins, us, noise, outliers);
        round->models[0].draft_us += round->models[0].pass_us[j];
        all_us += us;
    }
    return all_us;
}

/* Commits the tokens of a text's round; the text begins anew when it has ended. */
static void commit(struct sim *sim, struct text *text)
{
    double survival = 1;
    int n = 0;
    for (int i = 0; i < text->k; i++) {
        survival *= text->alpha;
        sim->tokens += survival;
    }
    while (n < text->k && coin(&coins) < text->alpha) {
        n++;
    }
    sim->tokens++;
    sim->guesses += text->k;
    if (sim->planner) planner_observe_lane(sim->planner, &text->seq, 0, text->k, n);
    text->n_missed = text->k == 0 ? text->n_missed + 1 : n < text->k ? 1 : 2;
    text->is_prompt = false;
    text->n_left -= n + 1;
    if (text->n_left <= 0) begin_text(sim, text);
}

static void run_round(struct sim *sim)
{
    struct planner_load load = {0};
    sim->n_read = 0;
    struct planner_round round = {.n_lanes = sim->n_lanes, .is_timed = true};
    choose(sim, &load);
    round.n_rows = load.n_rows + sim->n_lanes - load.n_decoding;
    round.n_prompt = load.n_prompt;
    round.has_prompt = load.n_prompt > 0;
    for (int i = 0; i < sim->n_lanes; i++) {
        round.n_rows += sim->texts[i].k;
    }
    int wanted = round.n_rows - round.n_prompt;
    double draft_us = draft(sim, &round), step = step_us(sim->machine, round.n_rows);
    double rest = STEP_US * (sim->machine->rest + sim->machine->merge * wanted);
    round.step_us = measured_us_or_outlier(&coins, step, noise, outliers);
    double read_us = STEP_US * sim->machine->read * sim->n_read;
    round.models[0].n_read = sim->n_read;
    round.models[0].read_us = measured_us_or_outlier(&coins, read_us, noise, outliers);
    round.round_us = round.models[0].draft_us + round.models[0].read_us + round.step_us +
                     measured_us_or_outlier(&coins, rest, noise, outliers);
    if (sim->planner) planner_observe_round(sim->planner, &round);
    for (int i = 0; i < sim->n_lanes; i++) {
        commit(sim, &sim->texts[i]);
    }
    sim->us += draft_us + read_us + step + rest;
    sim->rounds++;
}

/* Tokens a second, from now on until so many are committed. */
static double speed(struct sim *sim, double n_tokens)
{
    sim->tokens = sim->us = sim->guesses = sim->rounds = 0;
    while (sim->tokens < n_tokens) {
        run_round(sim);
    }
    return 1e6 * sim->tokens / sim->us;
}

static double fixed_speed(const struct machine *machine, const double *alphas, int n_lanes, int k)
{
    static struct sim sim;
    sim_begin(&sim, machine, alphas, n_lanes)->k_fixed = k;
    speed(&sim, WARM_TOKENS);
    return speed(&sim, FIXED_TOKENS);
}

/* ---- tests ---- */

/* Result of one machine, one workload and one number of lanes. */
struct result {
    double plain, best, warm, fresh_of_best, fresh_of_plain, mean_k;
    int best_k;
};

static struct result compare(const struct machine *machine, const double *alphas, int n_lanes)
{
    static struct planner planner;
    static struct sim sim;
    struct result r = {0};
    for (int k = 0; k <= FIXED_MOST; k++) {
        double now = fixed_speed(machine, alphas, n_lanes, k);
        if (k == 0) r.plain = now;
        if (now <= r.best) continue;
        r.best = now;
        r.best_k = k;
    }
    sim_begin(&sim, machine, alphas, n_lanes)->k_fixed = r.best_k;
    double fresh_best = speed(&sim, FRESH_TOKENS * n_lanes);
    sim_begin(&sim, machine, alphas, n_lanes)->k_fixed = 0;
    double fresh_plain = speed(&sim, FRESH_TOKENS * n_lanes);
    planner = (struct planner){0};
    sim_begin(&sim, machine, alphas, n_lanes)->planner = &planner;
    double fresh = speed(&sim, FRESH_TOKENS * n_lanes);
    r.fresh_of_best = fresh / fresh_best;
    r.fresh_of_plain = fresh / fresh_plain;
    speed(&sim, WARM_TOKENS);
    r.warm = speed(&sim, PLANNED_TOKENS);
    r.mean_k = sim.guesses / sim.rounds / n_lanes;
    return r;
}

START_TEST(planned_is_nearly_the_best_fixed_k_at_every_load)
{
    const struct machine *machine = &machines[_i / N_WORKLOADS];
    const double *alphas = workloads[_i % N_WORKLOADS].alpha;
    const char *name = workloads[_i % N_WORKLOADS].name;
    for (int i = 0; i < N_COUNTS; i++) {
        int n = lane_counts[i];
        struct result r = compare(machine, alphas, n);
        printf("%-16s %-9s %2d lanes: best fixed K %d is %.2f of plain; planned %.3f of the best "
               "(mean K %.2f), %.3f of plain; new coordinator %.3f of the best, %.3f of plain\n",
               machine->name, name, n, r.best_k, r.best / r.plain, r.warm / r.best, r.mean_k,
               r.warm / r.plain, r.fresh_of_best, r.fresh_of_plain);
        fflush(stdout);
        bool is_mixed = alphas[0] < alphas[1] && r.best_k > 0;
        ck_assert_msg(r.warm >= (is_mixed ? 0.99 : 0.97) * r.best, "%d lanes: %.3f of the best", n,
                      r.warm / r.best);
        ck_assert_msg(r.warm >= 0.985 * r.plain, "%d lanes: %.3f of plain", n, r.warm / r.plain);
        ck_assert_msg(r.fresh_of_plain >= 0.9, "%d lanes: %.3f, new", n, r.fresh_of_plain);
    }
}
END_TEST

/* Teaches the planner the measurements of a calibration at the start. */
static void calibrate(struct planner *p, const struct machine *machine)
{
    for (int rows = 1; rows <= 512; rows = rows < 8 ? rows + 1 : rows * 5 / 4) {
        planner_calibrate_step(p, rows, step_us(machine, rows));
        if (rows <= LANES_MOST) planner_calibrate_draft(p, 0, rows, pass_us(machine, rows));
    }
}

/* A coordinator that begins with measured times has alpha to learn and nothing else. */
START_TEST(a_calibrated_planner_loses_little_at_first)
{
    static struct sim sim;
    static struct planner planner;
    const struct machine *machine = &machines[_i];
    for (int w = 0; w < N_WORKLOADS; w++) {
        for (int i = 0; i < N_COUNTS; i++) {
            int n = lane_counts[i];
            double n_tokens = FRESH_TOKENS * n;
            double plain = speed(sim_begin(&sim, machine, workloads[w].alpha, n), n_tokens);
            planner = (struct planner){0};
            calibrate(&planner, machine);
            sim_begin(&sim, machine, workloads[w].alpha, n)->planner = &planner;
            double now = speed(&sim, n_tokens) / plain;
            printf("%-16s %-9s %2d lanes: %.3f of plain, mean K %.2f\n", machine->name,
                   workloads[w].name, n, now, sim.guesses / sim.rounds / n);
            ck_assert_msg(now >= 0.97, "%d lanes: %.3f of plain", n, now);
        }
    }
}
END_TEST

/* Teaches the planner what the coordinator measures before it serves: powers of two, and no more
 * than 64 rows. */
static void calibrate_as_served(struct planner *p, const struct machine *machine)
{
    *p = (struct planner){0};
    for (int rows = 1; rows <= LANES_MOST; rows *= 2) {
        planner_calibrate_step(p, rows, step_us(machine, rows));
        planner_calibrate_draft(p, 0, rows, pass_us(machine, rows));
    }
}

/* Numbers of lanes, one after the other. */
static const int orders[][6] = {
    {1, 8, 32, 8, 64, 1}, {8, 8, 8, 8, 8, 8}, {32, 32, 1, 8, 8, 32}, {64, 64, 64, 1, 1, 8}};
enum { N_ORDERS = sizeof orders / sizeof *orders, N_SLICES = 6 };
enum { SLICE_TOKENS = 1536, SLICE_PROMPT = 32, SLICE_TEXT = 48, SLICE_REPETITIONS = 6 };

/* Tokens a second of each slice of an order of loads, added to speeds[N_SLICES] as times; the
 * planner knows what it learned in those before. */
static void add_slices(const struct machine *machine, const double *alphas, const int *lanes,
                       struct planner *planner, double *seconds)
{
    static struct sim sim;
    for (int i = 0; i < N_SLICES; i++) {
        sim_begin(&sim, machine, alphas, lanes[i])->planner = planner;
        sim.n_prompt = SLICE_PROMPT;
        sim.text_tokens = SLICE_TEXT;
        for (int t = 0; t < lanes[i]; t++) {
            begin_text(&sim, &sim.texts[t]);
        }
        seconds[i] += SLICE_TOKENS / speed(&sim, SLICE_TOKENS);
    }
}

/* A load that is new is served no slower than without guesses from its first tokens on, whatever
 * loads were before. */
START_TEST(new_load_is_served_no_slower_than_without_guesses)
{
    static struct planner planner;
    const struct machine *machine = &machines[_i];
    double worst = 1;
    for (int w = 0; w < N_WORKLOADS; w++) {
        for (int o = 0; o < N_ORDERS; o++) {
            double plain[N_SLICES] = {0}, planned[N_SLICES] = {0};
            for (int r = 0; r < SLICE_REPETITIONS; r++) {
                add_slices(machine, workloads[w].alpha, orders[o], NULL, plain);
                calibrate_as_served(&planner, machine);
                add_slices(machine, workloads[w].alpha, orders[o], &planner, planned);
            }
            for (int i = 0; i < N_SLICES; i++) {
                double ratio = plain[i] / planned[i];
                worst = ratio < worst ? ratio : worst;
                ck_assert_msg(ratio >= 0.98, "%s, order %d, slice %d of %d lanes: %.3f of plain",
                              workloads[w].name, o, i, orders[o][i], ratio);
            }
        }
    }
    printf("%-16s slices of %d tokens: at least %.3f of plain\n", machine->name, SLICE_TOKENS,
           worst);
}
END_TEST

/* Tokens a second in the first FIRST_TOKENS tokens of one stream, the mean of some coordinators: of
 * new ones whose planner chooses, where k_fixed is -1. */
static double first_speed(const struct machine *machine, const double *alphas, int k_fixed)
{
    enum { FIRST_TOKENS = 2000, FIRST_TEXT = 64, REPETITIONS = 20 };
    static struct sim sim;
    static struct planner planner;
    double seconds = 0;
    for (int r = 0; r < REPETITIONS; r++) {
        calibrate_as_served(&planner, machine);
        sim_begin(&sim, machine, alphas, 1)->k_fixed = k_fixed;
        sim.text_tokens = FIRST_TEXT;
        if (k_fixed < 0) sim.planner = &planner;
        seconds += 1 / speed(&sim, FIRST_TOKENS);
    }
    return REPETITIONS / seconds;
}

START_TEST(a_new_coordinator_is_soon_near_the_best_k)
{
    static const double alphas[][2] = {{0.3, 0.3}, {0.5, 0.5}, {0.8, 0.8}};
    const struct machine *machine = &machines[_i];
    for (int a = 0; a < 3; a++) {
        double best = 0, planned = first_speed(machine, alphas[a], -1);
        for (int k = 0; k <= FIXED_MOST; k++) {
            best = fmax(best, first_speed(machine, alphas[a], k));
        }
        printf("%-16s alpha %.1f, the first tokens: %.3f of the best fixed K\n", machine->name,
               alphas[a][0], planned / best);
        ck_assert_msg(planned >= 0.97 * best, "alpha %.1f: %.3f of the best", alphas[a][0],
                      planned / best);
    }
}
END_TEST

/* Guesses that one lane would make beside so many texts that wait for their first token. */
static int guesses_beside(const struct machine *machine, int n_waiting)
{
    enum { N_LANES = 1 };
    static struct planner planner;
    struct planner_sequence seqs[N_LANES] = {{0}};
    struct planner_lane lanes[N_LANES];
    const struct planner_load load = {.n_rows_max = 2048, .n_waiting = n_waiting};
    int n = 0;
    calibrate_as_served(&planner, machine);
    for (int i = 0; i < 100; i++) {
        seqs[i % N_LANES].strategy = STRATEGY_PLANNED;
        planner_observe_lane(&planner, &seqs[i % N_LANES], 0, 4, i % 5 == 0 ? 0 : 4);
    }
    for (int i = 0; i < N_LANES; i++) {
        lanes[i] = (struct planner_lane){
            .seq = &seqs[i], .models[0].k_max = 8, .models[0].n_missed = 1, .n_left = 99};
    }
    planner_share(&planner, lanes, N_LANES, &load);
    for (int i = 0; i < N_LANES; i++) {
        n += lanes[i].tree.n_chain;
    }
    return n;
}

/* A round that is longer by guesses delays them too, and they gain nothing. */
START_TEST(texts_that_wait_for_their_first_token_count)
{
    const struct machine *machine = &machines[_i];
    int n_alone = guesses_beside(machine, 0), n_few = guesses_beside(machine, 4);
    ck_assert_int_gt(n_alone, 0);
    ck_assert_int_lt(n_few, n_alone);
    ck_assert_int_eq(guesses_beside(machine, 60), 0);
}
END_TEST

/* The prompts of short texts are in nearly every step. */
START_TEST(prompts_in_every_step_do_no_harm)
{
    static struct sim sim;
    static struct planner planner;
    const struct machine *machine = &machines[_i];
    for (int w = 0; w < N_WORKLOADS; w++) {
        double plain = 0, now = 0;
        for (int is_planned = 0; is_planned < 2; is_planned++) {
            planner = (struct planner){0};
            sim_begin(&sim, machine, workloads[w].alpha, 32)->text_tokens = 20;
            if (is_planned) sim.planner = &planner;
            speed(&sim, WARM_TOKENS);
            now = speed(&sim, FIXED_TOKENS);
            if (!is_planned) plain = now;
        }
        printf("%-16s %-9s 32 lanes, short texts: %.3f of plain, mean K %.2f\n", machine->name,
               workloads[w].name, now / plain, sim.guesses / sim.rounds / 32);
        ck_assert_msg(now >= 0.98 * plain, "%.3f of plain", now / plain);
    }
}
END_TEST

/* A new pair whose first text has a long prompt: what the draft has missed is not read in order to
 * learn, which would take longer than the text. Later the credit pays for reading one. */
START_TEST(a_new_pair_does_not_read_a_long_prompt)
{
    static struct sim sim;
    static struct planner planner;
    const double alphas[] = {0.9, 0.9};
    const struct machine *machine = &machines[0];
    sim_begin(&sim, machine, alphas, 1)->n_prompt = 3000;
    sim.texts[0].n_missed = 3000;
    sim.texts[0].n_left = 400;
    sim.text_tokens = 400;
    planner = (struct planner){0};
    sim.planner = &planner;
    speed(&sim, 390);
    ck_assert_double_eq(sim.guesses, 0);
    double guesses = 0;
    for (int i = 0; i < 200 && guesses == 0; i++) {
        speed(&sim, 200);
        guesses = sim.guesses;
    }
    printf("a draft that only long prompts would teach made its first guesses after %d rounds\n",
           (int)planner.n_rounds);
    ck_assert_double_gt(guesses, 0);
}
END_TEST

/* Any lanes, limits and loads: nobody guesses more than allowed, and the step is not too large. */
START_TEST(limits_are_kept)
{
    static struct planner planner;
    static struct planner_sequence seqs[300];
    planner = (struct planner){0};
    if (_i > 0) calibrate(&planner, &machines[_i % N_MACHINES]);
    for (int turn = 0; turn < 3000; turn++) {
        struct planner_lane lanes[300];
        int n = (int)(300 * coin(&coins) * coin(&coins)), n_all = 0;
        struct planner_load load = {.n_rows = (int)(200 * coin(&coins))};
        load.n_prompt = (int)(load.n_rows * coin(&coins));
        load.n_decoding = (int)(5 * coin(&coins));
        load.n_rows_max = load.n_rows + n + (int)(500 * coin(&coins) * coin(&coins));
        load.n_guessing[0][0] = (int)(4 * coin(&coins));
        for (int i = 0; i < n; i++) {
            seqs[i].strategy = STRATEGY_PLANNED;
            planner_observe_lane(&planner, &seqs[i], 0, (int)(6 * coin(&coins)),
                                 (int)(6 * coin(&coins)));
            lanes[i] = (struct planner_lane){.seq = &seqs[i],
                                             .models[0].k_max = (int)(19 * coin(&coins)) - 2,
                                             .models[0].n_missed =
                                                 (int)(300 * coin(&coins) * coin(&coins)),
                                             .n_left = (int)(99 * coin(&coins)),
                                             .tree = {.n = 17, .n_chain = 17}};
        }
        planner_share(&planner, lanes, n, &load);
        for (int i = 0; i < n; i++) {
            int most = lanes[i].models[0].k_max < 0 ? 0 : lanes[i].models[0].k_max;
            ck_assert_msg(lanes[i].tree.n_chain >= 0 && lanes[i].tree.n_chain <= most &&
                              lanes[i].tree.n_chain <= DRAFT_MAX,
                          "lane %d of %d: K = %d of %d", i, n, lanes[i].tree.n_chain, most);
            n_all += lanes[i].tree.n_chain;
        }
        ck_assert_int_le(load.n_rows + n + n_all, load.n_rows_max);
        struct planner_round round = {.n_rows = load.n_rows + n + n_all,
                                      .n_lanes = n,
                                      .is_timed = true,
                                      .models[0].n_passes = n_all > 0,
                                      .models[0].pass_lanes = {n_all > n ? n : n_all},
                                      .models[0].first_pass_tokens = n_all > n ? n : n_all,
                                      .models[0].pass_us = {(int64_t)(3000 * coin(&coins))},
                                      .step_us = (int64_t)(1e5 * coin(&coins))};
        round.round_us = round.step_us + round.models[0].pass_us[0];
        planner_observe_round(&planner, &round);
    }
}
END_TEST

/* Six rows took as long as one, and now they take longer, as when another program stops using the
 * memory. Guesses that paid with four lanes do not pay any more, but nearly all rounds have the
 * same number of rows, so it looks as if there were only more load. */
START_TEST(a_changed_shape_is_learned)
{
    static const struct machine before = {"before", 7, 0.002, 0.14, 8, 0.02, 0.006, 0.0003};
    static const struct machine after = {"after", 5, 0.002, 0.14, 8, 0.02, 0.006, 0.0003};
    enum { N_LANES = 4, N_REPETITIONS = 8 };
    static struct planner planner;
    static struct sim sim;
    const double *alphas = workloads[1].alpha;
    double plain = fixed_speed(&after, alphas, N_LANES, 0), first = 0, later = 0, k = 0;
    for (int i = 0; i < N_REPETITIONS; i++) {
        planner = (struct planner){0};
        sim_begin(&sim, &before, alphas, N_LANES)->planner = &planner;
        speed(&sim, 10 * FRESH_TOKENS * N_LANES);
        k += sim.guesses / sim.rounds / N_LANES / N_REPETITIONS;
        sim.machine = &after;
        first += speed(&sim, 2 * FRESH_TOKENS * N_LANES) / plain / N_REPETITIONS;
        later += speed(&sim, 2 * FRESH_TOKENS * N_LANES) / plain / N_REPETITIONS;
    }
    printf("mean K %.2f before; %.3f of plain at first, then %.3f\n", k, first, later);
    ck_assert(k > 0.5);
    ck_assert(later > 0.97);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("planner_load");
    TCase *tcase = tcase_create("simulated");
    tcase_set_timeout(tcase, 280);
    tcase_add_loop_test(tcase, planned_is_nearly_the_best_fixed_k_at_every_load, 0,
                        N_MACHINES * N_WORKLOADS);
    tcase_add_loop_test(tcase, a_calibrated_planner_loses_little_at_first, 0, N_MACHINES);
    tcase_add_loop_test(tcase, new_load_is_served_no_slower_than_without_guesses, 0, N_MACHINES);
    tcase_add_loop_test(tcase, a_new_coordinator_is_soon_near_the_best_k, 0, N_MACHINES);
    tcase_add_loop_test(tcase, texts_that_wait_for_their_first_token_count, 0, N_MACHINES);
    tcase_add_loop_test(tcase, prompts_in_every_step_do_no_harm, 0, N_MACHINES);
    tcase_add_test(tcase, a_changed_shape_is_learned);
    tcase_add_test(tcase, a_new_pair_does_not_read_a_long_prompt);
    tcase_add_loop_test(tcase, limits_are_kept, 0, 3);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
