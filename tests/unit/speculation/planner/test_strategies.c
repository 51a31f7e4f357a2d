/* ctest: labels=full,statistics libs=speculation timeout=900 long=1800 */
/* Whatever decides K, the text has the target's distribution: rounds whose K comes from the
 * planner, the heuristic or a threshold, under `rejection` and `block`, over several rounds,
 * counted jointly and held against p by chi-square. One sequence's state goes on from text to text,
 * so K depends on all that was accepted before. A threshold that looks at a guess and then does not
 * send it must be found. Rows go the whole compact way from logits. Seeds are fixed: a run repeats
 * itself. */
#include <stdio.h>

#include "speculation/planner/planner.h"
#include "tests/support/accept_world_list.h"
#include "tests/support/draws.h"
#include "tests/support/stats_util.h"

enum { DEPTH = 3, K_MOST = WORLD_DRAFT_MAX, SMALL = 0, NARROW = 1, THREE = 4, CELLS_MAX = 216 };

#define N_TESTS   60.0 /* at most; the Bonferroni factor */
#define P_LEAST   (1e-4 / N_TESTS)
#define P_LEAST_Z 4.65 /* its one-sided normal deviate */
#define THRESHOLD 0.4

/* How K comes about, with the state that goes on, and how often each K came. */
struct way {
    enum strategy strategy;
    bool drops_the_last; /* wrong: what the threshold stopped at is not sent */
    struct planner planner;
    struct planner_sequence seq;
    int64_t n_rounds[K_MOST + 1];
};

/* Guesses up to the first that q gave less than the threshold. The guesses of a round do not depend
 * on how many there are: their coins have addresses. */
static int stop_at_threshold(struct world *world, enum accept_rule rule, int context,
                             const struct rng_address *at, const struct way *way)
{
    struct world_round round;
    world->n_draft = K_MOST;
    world_round(world, rule, context, at, false, &round);
    for (int i = 0; i < K_MOST; i++) {
        double chance = (double)sparse_prob(&round.q[i], round.draft[i]);
        if (chance < THRESHOLD) return way->drops_the_last ? i : i + 1;
    }
    return K_MOST;
}

/* Times at which several K are about equally fast, so that the best K changes. */
static void observe(struct way *way, int k, int n_accepted, const struct rng_address *at)
{
    double noise = rng_uniform(at, RNG_WEIGHT, 0);
    int64_t draft_us = (int64_t)(k * (15 + 20 * noise)),
            step_us = (int64_t)(90 + 20 * noise) + 4 * k;
    struct planner_round round = {.n_rows = k + 1,
                                  .n_lanes = 1,
                                  .is_timed = true,
                                  .models[0].n_passes = k,
                                  .models[0].first_pass_tokens = 1,
                                  .models[0].draft_us = draft_us,
                                  .step_us = step_us,
                                  .round_us = draft_us + step_us + 10};
    for (int i = 0; i < k; i++) {
        round.models[0].pass_lanes[i] = 1;
        round.models[0].pass_us[i] = draft_us / k;
    }
    planner_observe_round(&way->planner, &round);
    planner_observe_lane(&way->planner, &way->seq, 0, k, n_accepted);
    way->n_rounds[k]++;
}

static int choose_k(struct way *way)
{
    const struct planner_load load = {.n_rows_max = K_MOST + 1};
    struct planner_lane lane = {
        .seq = &way->seq, .models[0].k_max = K_MOST, .models[0].n_missed = 1, .n_left = 100};
    if (way->strategy != STRATEGY_PLANNED) return planner_own_k(&way->seq, K_MOST);
    planner_share(&way->planner, &lane, 1, &load);
    return lane.tree.n_chain;
}

/* Rounds until DEPTH tokens are committed; the cell that they are counted in. */
static int commit_tokens(struct world *world, enum accept_rule rule, struct way *way, uint64_t seed)
{
    int n = 0, cell = 0, context = world_start(world);
    while (n < DEPTH) {
        const struct rng_address at = {seed, 10 + (uint32_t)n, 10 + (uint32_t)n};
        int k = choose_k(way);
        if (way->strategy == STRATEGY_THRESHOLD) {
            k = stop_at_threshold(world, rule, context, &at, way);
        }
        struct world_round round;
        world->n_draft = k;
        world_round(world, rule, context, &at, false, &round);
        struct accept_result result =
            accept_rules[rule].accept(round.rows, round.q, round.draft, k, &at);
        observe(way, k, result.n_accepted, &at);
        for (int i = 0; i <= result.n_accepted && n < DEPTH; i++, n++) {
            context = i < result.n_accepted ? round.draft[i] : result.next;
            cell = cell * world->n_vocab + context;
        }
    }
    return cell;
}

static void expect(const struct world *world, double *wanted)
{
    int v = world->n_vocab;
    for (int cell = 0; cell < v * v * v; cell++) {
        const int a = cell / (v * v), b = cell / v % v, c = cell % v;
        wanted[cell] = world->p[world_start(world)][a] * world->p[a][b] * world->p[b][c];
    }
}

static int n_draws_of(const struct way *way)
{
    return way->drops_the_last ? draws_all(250000, 20000) : draws_part(250000, 20000);
}

static double p_value(struct world *world, enum accept_rule rule, struct way *way)
{
    static int64_t seen[CELLS_MAX];
    static double wanted[CELLS_MAX];
    int n_cells = world->n_vocab * world->n_vocab * world->n_vocab;
    memset(seen, 0, sizeof seen);
    way->seq = (struct planner_sequence){.strategy = way->strategy};
    world_open(world);
    int n_draws = n_draws_of(way);
    for (int d = 0; d < n_draws; d++) {
        seen[commit_tokens(world, rule, way, (uint64_t)d * 0x9E3779B97F4A7C15u + 1)]++;
    }
    expect(world, wanted);
    world_close(world);
    struct stats_result result = stats_chi_square(seen, wanted, n_cells);
    printf("%-14s %-9s %-9s%s K", world->name, accept_rules[rule].name,
           strategy_names[way->strategy], way->drops_the_last ? " (wrong)" : "");
    for (int k = 0; k <= K_MOST; k++) {
        printf(" %d:%lld", k, (long long)way->n_rounds[k]);
    }
    printf(", %d cells chi2 %.1f p %.2e finds TV %.4f\n", result.n_cells, result.chi_square,
           result.p_value, stats_detectable_tv(n_draws, result.n_cells, P_LEAST_Z));
    fflush(stdout);
    return result.p_value;
}

static const int world_of[] = {SMALL, NARROW, THREE};
static const enum accept_rule rule_of[] = {RULE_REJECTION, RULE_BLOCK};

static void check_strategy(enum strategy strategy)
{
    for (size_t w = 0; w < sizeof world_of / sizeof *world_of; w++) {
        for (size_t r = 0; r < sizeof rule_of / sizeof *rule_of; r++) {
            struct way way = {.strategy = strategy};
            double p = p_value(&worlds[world_of[w]], rule_of[r], &way);
            ck_assert_msg(p > P_LEAST, "%s: p = %.2e", strategy_names[strategy], p);
            int n_kinds = 0;
            for (int k = 0; k <= K_MOST; k++) {
                n_kinds += way.n_rounds[k] > n_draws_of(&way) / 1000 ? 1 : 0;
            }
            ck_assert_msg(n_kinds >= 2, "K hardly moved");
        }
    }
}

START_TEST(planned_has_the_distribution_of_the_target)
{
    check_strategy(STRATEGY_PLANNED);
}
END_TEST

START_TEST(heuristic_has_the_distribution_of_the_target)
{
    check_strategy(STRATEGY_HEURISTIC);
}
END_TEST

START_TEST(threshold_has_the_distribution_of_the_target)
{
    check_strategy(STRATEGY_THRESHOLD);
}
END_TEST

START_TEST(a_threshold_that_drops_what_it_looked_at_is_found)
{
    for (size_t r = 0; r < sizeof rule_of / sizeof *rule_of; r++) {
        struct way way = {.strategy = STRATEGY_THRESHOLD, .drops_the_last = true};
        double p = p_value(&worlds[SMALL], rule_of[r], &way);
        ck_assert_msg(p < P_LEAST, "%s: p = %.2e", accept_rules[rule_of[r]].name, p);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("strategies");
    TCase *tcase = tcase_create("statistics");
    tcase_add_test(tcase, planned_has_the_distribution_of_the_target);
    tcase_add_test(tcase, heuristic_has_the_distribution_of_the_target);
    tcase_add_test(tcase, threshold_has_the_distribution_of_the_target);
    tcase_add_test(tcase, a_threshold_that_drops_what_it_looked_at_is_found);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
