/* ctest: labels=quick,slow libs=speculation timeout=600 */
/* Guesses after siblings in the planner: the order's trees against Sequoia's dynamic programme,
 * the choices against those without them in simulated texts of true times, and that nothing changes
 * where they do not pay. Seeds are fixed: a run repeats itself. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/tree_layout.h"
#include "speculation/planner/order.h"
#include "speculation/planner/planner.h"
#include "tests/support/check_util.h"
#include "tests/support/draws.h"
#include "tests/support/guess_shapes.h"
#include "tests/support/planner_noise.h"
#include "tests/support/tree_shape.h"

enum { LANES_MOST = 8, STEP_US = 20000, TEXT_TOKENS = 400, MANY = 1000000 };
/* Slow builds look for wrong accesses, and compare no speeds. */
enum { N_ROUNDS = DRAWS_ARE_FEW ? 3000 : 30000 };

/* ---- the order ---- */

/* Chances: of the chain by position, then its siblings by rank. In all of them a sibling is
 * committed more seldom than the guess before it. */
static const struct {
    double first, next[SIBLINGS_MAX];
} pairs[] = {
    {0.8, {0.4, 0.25, 0.2}}, {0.5, {0.4, 0.3, 0.2}}, {0.3, {0.3, 0.3, 0.3}},
    {0.6, {0.1, 0.1, 0.1}},  {0.5, {0.4, 0.6, 0.4}}, {0.9, {0.7, 0.4, 0.3}},
};
enum { N_PAIRS = sizeof pairs / sizeof *pairs };

/* Chances that fall with the position, and that the planner knows for sure. */
static void know(struct planner *p, struct planner_sequence *seq, int pair)
{
    *p = (struct planner){0};
    *seq = (struct planner_sequence){.strategy = STRATEGY_PLANNED};
    for (int i = 0; i < DRAFT_MAX; i++) {
        double alpha = pairs[pair].first * pow(0.95, i);
        p->models[0].counts.tested[i] = seq->counts[0].tested[i] = MANY;
        p->models[0].counts.accepted[i] = seq->counts[0].accepted[i] = MANY * alpha;
    }
    for (int i = 0; i < SIBLINGS_MAX; i++) {
        p->siblings[0].tested[i] = MANY;
        p->siblings[0].accepted[i] = MANY * pairs[pair].next[i];
    }
    planner_calibrate_draft(p, 0, 1, 100);
    planner_prior_of(&p->models[0].counts, PLANNER_FIRST_ALPHA, &p->models[0].prior);
}

/* As know(), for the dynamic programme, from the planner's own numbers. */
static void know_ranks(struct planner *p, const struct planner_sequence *seq,
                       struct tree_ranks *ranks)
{
    struct planner_chain chain = planner_chain_begin(&seq->counts[0], &p->models[0].prior);
    *ranks = (struct tree_ranks){0};
    for (int d = 0; d < TREE_DEPTH_MAX; d++) {
        for (int r = 0; r < TREE_RANKS_MAX; r++) {
            double chance = 0;
            if (r == 0) chance = (double)planner_chain_next(&chain);
            if (r > 0 && r <= SIBLINGS_MAX) {
                chance =
                    (double)planner_sibling_chance(&p->siblings[0], &seq->sibling_trust[0], r - 1);
            }
            ranks->tested[d][r] = 1e12;
            ranks->kept[d][r] = 1e12 * chance;
        }
    }
}

/* The expected accepted guesses of the best tree of n guesses, by the dynamic programme. A step
 * takes no time up to so many rows. */
static double best_of_all(const struct tree_ranks *ranks, int n, int depth)
{
    double step_us[TREE_NODES_MAX + 2], speed;
    struct tree_shape shape;
    for (int i = 0; i < TREE_NODES_MAX + 2; i++) {
        step_us[i] = 1;
    }
    const struct tree_times times = {step_us, 0, 0, n, depth};
    tree_shape_best(ranks, &times, &shape, &speed);
    return speed / 1e6 - 1;
}

START_TEST(the_likeliest_guesses_are_the_best_tree)
{
    static struct planner_order order;
    static struct planner_growing growing;
    struct planner p;
    struct planner_sequence seq;
    struct tree_ranks ranks;
    int n_grown = 0;
    know(&p, &seq, _i);
    know_ranks(&p, &seq, &ranks);
    for (int depth = 1; depth <= 8; depth++) {
        const struct planner_lane lane = {.seq = &seq,
                                          .models[0].k_max = depth,
                                          .n_left = 100,
                                          .siblings_max = SIBLINGS_MAX,
                                          .nodes_max = PLANNER_NODES_MAX,
                                          .models[0].grows = true};
        planner_order_begin_growing(&p, &lane, 1, &growing, &order);
        double sum = 0, before = 1;
        const struct planner_pair *pair;
        for (int n = 1; (pair = planner_order_at(&order, n - 1)); n++) {
            ck_assert(pair->survival <= (float)before && pair->position < depth);
            before = (double)pair->survival;
            sum += before;
            n_grown += pair->rank >= PLANNER_GROWN;
            ck_assert_double_eq_tol(sum, best_of_all(&ranks, n, depth), 1e-5);
        }
        ck_assert_int_ge(order.n_pairs, 2);
    }
    printf("chance %.1f: %d guesses behind siblings\n", pairs[_i].first, n_grown);
    ck_assert_int_gt(n_grown, 0);
}
END_TEST

/* ---- what is learned where they follow q ---- */

/* Checks what planner_observe_following teaches of a plan's place, of which a share of `stays`
 * stay: the ratio of its odds to those that are expected without it, `expected` being worked out by
 * hand. */
static void check_learned(const struct growth *growth, const uint8_t *siblings, int place,
                          double expected, double stays)
{
    struct planner p;
    struct planner_sequence seq;
    struct guess_tree plan;
    know(&p, &seq, 0);
    growth_plan(2, siblings, growth, &plan);
    for (int i = 0; i < 4000; i++) {
        bool is_kept = (int)((i + 1) * stays) > (int)(i * stays);
        planner_observe_following(&p, &seq, 0, &plan, place, is_kept);
    }
    double shift = stays / (1 - stays) / (expected / (1 - expected));
    ck_assert_double_eq_tol((double)planner_trust_shift(&p.models[0].grown), shift, 0.03 * shift);
}

/* Pair 0: siblings stay with 0.4 and 0.25, the chain's guesses with 0.8, 0.8 * 0.95, ... */
START_TEST(trees_that_follow_q_are_compared_with_the_plan)
{
    static const uint8_t siblings[DRAFT_MAX] = {2};
    const double first = 0.4, second = 0.6 * 0.25, chain = 0.8 * 0.95, last = 0.8 * 0.95 * 0.95;
    const struct growth one = {.n = 1, .parents = {-1}};
    const struct growth two = {.n = 2, .parents = {-1, -2}};
    const struct growth deep = {.n = 4, .parents = {-1, -1, 0, 1}};
    /* After the first of two siblings; when the second stayed, the plan has nothing. */
    check_learned(&one, siblings, 1, first * chain / (first + second), 0.7);
    check_learned(&two, siblings, 1, chain, 0.9);
    /* A guess and its sibling at place 1, and of place 2 one after each. */
    double both = chain + (1 - chain) * 0.4;
    check_learned(&deep, siblings, 1, first * both / (first + second), 0.5);
    check_learned(&deep, siblings, 2, last, 0.8);
    struct planner p;
    struct planner_sequence seq;
    know(&p, &seq, 0);
    struct guess_tree plan;
    growth_plan(2, siblings, &one, &plan);
    planner_observe_following(&p, &seq, 0, &plan, 2, true); /* nothing is planned there */
    ck_assert(p.models[0].grown.tested == 0);
}
END_TEST

/* ---- what is handed out ---- */

/* Guesses after siblings come in the order in which they are drawn, and the whole is a tree that a
 * lane may be. */
static void check_lane(const struct planner_lane *lane)
{
    struct guess_tree tree = lane->tree;
    struct tree_layout layout;
    struct error err;
    const struct draft_view view = view_draft(&tree);
    const struct growth *growth = &view.grown;
    ck_assert(growth->n == 0 || (lane->models[0].grows && !lane->offer));
    ck_assert(growth->n == 0 || guess_tree_count(&tree, GUESS_BRANCH) == 0);
    for (int i = 0; i < growth->n; i++) {
        int parent = growth->parents[i], place = growth_place(growth, i);
        ck_assert_int_lt(parent, i);
        if (parent < 0) {
            ck_assert_int_lt(growth_guess(parent), view.n);
            ck_assert_int_lt(growth_sibling(parent), view.n_siblings[growth_guess(parent)]);
        }
        ck_assert(place < lane->models[0].k_max &&
                  (i == 0 || place >= growth_place(growth, i - 1)));
        ck_assert_int_le(i - growth_first(growth, i), lane->siblings_max);
        for (int j = 0; j < growth_first(growth, i); j++) {
            ck_assert_int_ne(growth->parents[j], parent);
        }
    }
    ck_assert_int_le(tree.n, lane->nodes_max);
    if (tree.n == 0) return;
    guess_tree_sort(&tree);
    ck_assert_int_eq(tree.n_chain, view.n);
    CHECK_OK(tree_layout_init(&layout, tree.parents, tree.n, &err));
}

/* ---- simulated texts ---- */

/* Times over that of a plain step. */
struct world {
    const char *name;
    int n_lanes;
    double pass, row, read; /* of the draft; that each row adds to a step, and to a pass */
    double alpha, grown;    /* of the chain, and after siblings */
    double sibling[SIBLINGS_MAX];
    double least; /* tokens per time over those without guesses after siblings */
    double most;
};

static const struct world worlds[] = {
    {"rows are free", 1, 0.05, 0.001, 0.0005, 0.6, 0.6, {0.4, 0.25, 0.2}, 1.05, 2},
    {"rows are free, alpha 0.8", 1, 0.05, 0.001, 0.0005, 0.8, 0.8, {0.5, 0.3, 0.2}, 1.005, 2},
    {"rows are nearly free", 1, 0.05, 0.01, 0.002, 0.6, 0.6, {0.4, 0.25, 0.2}, 1.01, 2},
    {"rows cost", 1, 0.05, 0.15, 0.01, 0.6, 0.6, {0.4, 0.25, 0.2}, 0.995, 1.005},
    {"they never stay", 1, 0.05, 0.005, 0.001, 0.6, 0.01, {0.4, 0.25, 0.2}, 0.99, 1.005},
    {"8 lanes, rows are nearly free", 8, 0.05, 0.001, 0.0005, 0.6, 0.6, {0.4, 0.2, 0.1}, 1, 2},
    {"8 lanes, rows cost", 8, 0.05, 0.05, 0.01, 0.6, 0.6, {0.4, 0.2, 0.1}, 0.99, 1.01},
};
enum { N_WORLDS = sizeof worlds / sizeof *worlds };

static const double noise = 0.03;
static struct coins coins = {.seed = 2029};

struct sim {
    const struct world *world;
    bool grows;
    struct planner planner;
    struct planner_sequence seqs[LANES_MOST];
    int left[LANES_MOST];
    struct planner_lane lanes[LANES_MOST];
    double us, n_tokens, n_grown;
};

/* Which of n guesses after a guess of a growth or a sibling is accepted. Siblings there are worse
 * by as much as the first guesses are. */
static int kept_of(const struct world *w, int n)
{
    int kept = 0;
    double ratio = w->grown / w->alpha;
    while (kept < n && coin(&coins) >= (kept ? ratio * w->sibling[kept - 1] : w->grown)) {
        kept++;
    }
    return kept;
}

/* Follows guesses after a sibling; returns how many stay. */
static int play_growth(struct sim *sim, struct planner_sequence *seq,
                       const struct planner_lane *lane, int node)
{
    const struct guess_tree *tree = &lane->tree;
    int n_kept = 0;
    for (int child; (child = guess_tree_child(tree, node)) >= 0; n_kept++) {
        int n = 0, place = guess_tree_place(tree, child);
        for (int c = child; c >= 0; c = guess_tree_sibling(tree, c)) {
            n++;
        }
        int kept = kept_of(sim->world, n);
        planner_observe_grown(&sim->planner, seq, 0, place, n, kept);
        if (kept == n) return n_kept;
        for (node = child; kept > 0; kept--) {
            node = guess_tree_sibling(tree, node);
        }
    }
    return n_kept;
}

/* The node of a sibling of the chain's guess for a place. */
static int sibling_of(const struct guess_tree *tree, int place, int sibling)
{
    int node = tree->chain[place];
    for (; sibling >= 0; sibling--) {
        node = guess_tree_sibling(tree, node);
    }
    return node;
}

/* Tokens that a lane commits. */
static int play_lane(struct sim *sim, int i)
{
    const struct planner_lane *lane = &sim->lanes[i];
    struct planner_sequence *seq = &sim->seqs[i];
    int n = 0, n_more = 0, kept = 0;
    while (n < lane->tree.n_chain && coin(&coins) < sim->world->alpha) {
        n++;
    }
    int n_siblings = n < lane->tree.n_chain ? guess_tree_siblings(&lane->tree, n) : 0;
    while (kept < n_siblings && coin(&coins) >= sim->world->sibling[kept]) {
        kept++;
    }
    if (kept < n_siblings)
        n_more = 1 + play_growth(sim, seq, lane, sibling_of(&lane->tree, n, kept));
    planner_observe_lane(&sim->planner, seq, 0, lane->tree.n_chain, n);
    planner_observe_siblings(&sim->planner, seq, 0, NULL, n_siblings, kept);
    return n + 1 + n_more;
}

/* True if pass `pass` must read a guess after which something is made in it. */
static bool is_read(const struct guess_tree *tree, int node, int pass)
{
    for (int i = node + 1; i < tree->n; i++) {
        if (!(tree->marks[i] & GUESS_GROWN) || guess_tree_place(tree, i) != pass) continue;
        for (int at = i; at >= 0; at = tree->parents[at]) {
            if (tree->parents[at] == node) return true;
        }
    }
    return false;
}

/* Rows that the draft reads more in a pass because of guesses after siblings. */
static int rows_more(const struct planner_lane *lane, int pass)
{
    const struct guess_tree *tree = &lane->tree;
    int n = 0, fork = pass;
    for (int i = 0; i < tree->n; i++) {
        int place = guess_tree_place(tree, i);
        bool is_beside = tree->marks[i] & (GUESS_SIBLING | GUESS_GROWN);
        if (!is_beside || place >= pass || !is_read(tree, i, pass)) continue;
        n++;
        if (tree->marks[i] & GUESS_SIBLING) fork = place < fork ? place : fork;
    }
    return n + pass - fork;
}

static void count_rows(struct sim *sim, struct planner_round *round)
{
    for (int i = 0; i < sim->world->n_lanes; i++) {
        const struct planner_lane *lane = &sim->lanes[i];
        check_lane(lane);
        int n_passes = lane->tree.n_chain;
        round->n_rows += lane->tree.n_chain + guess_tree_count(&lane->tree, GUESS_GROWN);
        sim->n_grown += guess_tree_count(&lane->tree, GUESS_GROWN);
        if (guess_tree_count(&lane->tree, GUESS_GROWN) > 0) {
            int last = guess_tree_place(&lane->tree, lane->tree.n - 1) + 1;
            n_passes = n_passes > last ? n_passes : last;
        }
        for (int j = 0; j < n_passes; j++) {
            round->models[0].pass_lanes[j]++;
            round->models[0].pass_expected[j] += j > 0 ? rows_more(lane, j) : 0;
            round->n_rows += j < lane->tree.n_chain ? guess_tree_siblings(&lane->tree, j) : 0;
        }
        round->models[0].n_passes =
            n_passes > round->models[0].n_passes ? n_passes : round->models[0].n_passes;
    }
    round->models[0].first_pass_tokens = round->models[0].pass_lanes[0];
}

static void run_round(struct sim *sim)
{
    const struct world *w = sim->world;
    const struct planner_load load = {.n_rows_max = 512};
    struct planner_round round = {.n_rows = w->n_lanes, .n_lanes = w->n_lanes, .is_timed = true};
    for (int i = 0; i < w->n_lanes; i++) {
        if (sim->left[i] <= 0) {
            sim->seqs[i] = (struct planner_sequence){.strategy = STRATEGY_PLANNED};
            sim->left[i] = TEXT_TOKENS;
        }
        sim->lanes[i] = (struct planner_lane){.seq = &sim->seqs[i],
                                              .models[0].k_max = DRAFT_MAX,
                                              .models[0].n_missed = 1,
                                              .n_left = sim->left[i],
                                              .siblings_max = SIBLINGS_MAX,
                                              .nodes_max = PLANNER_NODES_MAX,
                                              .models[0].grows = sim->grows};
    }
    planner_share(&sim->planner, sim->lanes, w->n_lanes, &load);
    count_rows(sim, &round);
    double step_us = STEP_US * (1 + w->row * (round.n_rows - w->n_lanes)), draft_us = 0;
    for (int j = 0; j < round.models[0].n_passes; j++) {
        int rows = round.models[0].pass_lanes[j] + round.models[0].pass_expected[j];
        double us = STEP_US * (w->pass + w->read * rows);
        round.models[0].pass_us[j] = measured_us(&coins, us, noise);
        round.models[0].draft_us += round.models[0].pass_us[j];
        draft_us += us;
    }
    round.step_us = measured_us(&coins, step_us, noise);
    round.round_us = round.models[0].draft_us + round.step_us + 200;
    sim->us += draft_us + step_us + 200;
    for (int i = 0; i < w->n_lanes; i++) {
        int n = play_lane(sim, i);
        sim->left[i] -= n;
        sim->n_tokens += n;
    }
    planner_observe_round(&sim->planner, &round);
}

static double speed_of(const struct world *world, bool grows, double *n_grown)
{
    static struct sim sim;
    sim = (struct sim){.world = world, .grows = grows};
    coins.n = 0;
    for (int rows = 1; rows <= 512; rows *= 2) {
        double us = STEP_US * (1 + world->row * fmax(rows - world->n_lanes, 0));
        planner_calibrate_step(&sim.planner, rows, us);
        planner_calibrate_draft(&sim.planner, 0, rows,
                                STEP_US * (world->pass + world->read * rows));
    }
    for (int i = 0; i < N_ROUNDS; i++) {
        run_round(&sim);
    }
    *n_grown = sim.n_grown / N_ROUNDS / world->n_lanes;
    return sim.n_tokens / sim.us;
}

START_TEST(guesses_after_siblings_pay_where_they_are_planned)
{
    double none, grown;
    double siblings_alone = speed_of(&worlds[_i], false, &none);
    double ratio = speed_of(&worlds[_i], true, &grown) / siblings_alone;
    printf("%-32s over siblings alone %.3f with %.2f guesses behind them\n", worlds[_i].name, ratio,
           grown);
    ck_assert(none == 0);
    ck_assert(DRAWS_ARE_FEW || (ratio >= worlds[_i].least && ratio <= worlds[_i].most));
}
END_TEST

/* ---- where they do not pay ---- */

/* One lane in which they never stay has the plan that it has without them, to the last bit of the
 * predicted time. */
START_TEST(plan_without_guesses_after_siblings_is_that_of_growth_off)
{
    static struct planner planners[2];
    struct planner_sequence seq;
    struct planner_lane lanes[2];
    const struct planner_load load = {.n_rows_max = 512};
    for (int way = 0; way < 2; way++) {
        know(&planners[way], &seq, _i);
        planners[way].models[0].grown = (struct planner_trust){1000, 0, 500};
        for (int rows = 1; rows <= 512; rows *= 2) {
            planner_calibrate_step(&planners[way], rows, STEP_US * (1 + 0.002 * rows));
            planner_calibrate_draft(&planners[way], 0, rows, STEP_US * 0.02 * (1 + rows));
        }
        lanes[way] = (struct planner_lane){.seq = &seq,
                                           .models[0].k_max = DRAFT_MAX,
                                           .models[0].n_missed = 1,
                                           .n_left = TEXT_TOKENS,
                                           .siblings_max = SIBLINGS_MAX,
                                           .nodes_max = PLANNER_NODES_MAX,
                                           .models[0].grows = way == 1};
        planner_share(&planners[way], &lanes[way], 1, &load);
    }
    ck_assert(lanes[0].tree.n_chain > 0 && lanes[0].tree.n_chain == lanes[1].tree.n_chain &&
              guess_tree_count(&lanes[1].tree, GUESS_GROWN) == 0);
    ck_assert_int_eq(lanes[0].tree.n, lanes[1].tree.n);
    ck_assert_int_eq(memcmp(lanes[0].tree.parents, lanes[1].tree.parents,
                            (size_t)lanes[0].tree.n * sizeof *lanes[0].tree.parents),
                     0);
    ck_assert(planners[0].planned_us == planners[1].planned_us);
}
END_TEST

/* Rounds until they are looked at again, in rounds whose step takes so long. pays: they would
 * always stay; otherwise never. */
static int wait_after(double step_us, bool pays, struct planner_lane *lane)
{
    static struct planner p;
    static struct planner_sequence seq;
    const struct planner_load load = {.n_rows_max = 512};
    know(&p, &seq, 0);
    p.models[0].grown = (struct planner_trust){1000, pays ? 990 : 0, 500};
    p.models[0].draft = (struct planner_curve){0}; /* what is known stays as it is */
    for (int rows = 1; rows <= 512; rows *= 2) {
        planner_calibrate_step(&p, rows, step_us * (1 + 0.0001 * rows));
        planner_calibrate_draft(&p, 0, rows, step_us * 0.02 * (1 + 0.001 * rows));
    }
    *lane = (struct planner_lane){.seq = &seq,
                                  .models[0].k_max = DRAFT_MAX,
                                  .models[0].n_missed = 1,
                                  .n_left = TEXT_TOKENS,
                                  .siblings_max = SIBLINGS_MAX,
                                  .nodes_max = PLANNER_NODES_MAX,
                                  .models[0].grows = true};
    planner_share(&p, lane, 1, &load);
    return p.grow_wait;
}

/* Looking takes 5 us for a lane, and 0.2 % of the time at most where nothing comes of it. */
START_TEST(looking_for_growth_takes_little_of_short_rounds)
{
    struct planner_lane lane;
    ck_assert_int_eq(wait_after(STEP_US, true, &lane), 0);
    ck_assert_int_gt(guess_tree_count(&lane.tree, GUESS_GROWN), 0);
    ck_assert_int_eq(wait_after(STEP_US, false, &lane), 0); /* five of 20,000 us */
    ck_assert_int_eq(guess_tree_count(&lane.tree, GUESS_GROWN), 0);
    int wait = wait_after(100, false, &lane);
    ck_assert(guess_tree_count(&lane.tree, GUESS_GROWN) == 0 && wait >= 12 &&
              wait <= 25);             /* five of 100 to 200 us */
    wait = wait_after(1, true, &lane); /* they take longer to find than they save */
    ck_assert(guess_tree_count(&lane.tree, GUESS_GROWN) == 0 && wait >= 1000 && wait <= 2500);
}
END_TEST

/* Guesses of finders keep their siblings, and nothing is made after those. */
START_TEST(found_guesses_do_not_grow)
{
    static struct planner p;
    struct planner_sequence seq;
    const struct planner_load load = {.n_rows_max = 512};
    const struct planner_offer found = {
        .finder = 2, .evidence = 9, .k_max = 6, .siblings = {3, 3, 3, 3, 3, 3}};
    know(&p, &seq, 1);
    p.siblings[planner_drafter_of(&found, 0)] = p.siblings[0];
    for (int rows = 1; rows <= 512; rows *= 2) {
        planner_calibrate_step(&p, rows, STEP_US * (1 + 0.0001 * rows));
    }
    struct planner_lane lane = {.seq = &seq,
                                .models[0].n_missed = 1,
                                .n_left = TEXT_TOKENS,
                                .siblings_max = SIBLINGS_MAX,
                                .nodes_max = PLANNER_NODES_MAX,
                                .models[0].grows = true,
                                .offers = &found,
                                .n_offers = 1};
    planner_share(&p, &lane, 1, &load);
    check_lane(&lane);
    ck_assert(lane.offer && guess_tree_siblings(&lane.tree, 0) > 0 &&
              guess_tree_count(&lane.tree, GUESS_GROWN) == 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("planner_grow");
    TCase *tcase = tcase_create("planner_grow");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, trees_that_follow_q_are_compared_with_the_plan);
    tcase_add_loop_test(tcase, the_likeliest_guesses_are_the_best_tree, 0, N_PAIRS);
    tcase_add_loop_test(tcase, guesses_after_siblings_pay_where_they_are_planned, 0, N_WORLDS);
    tcase_add_loop_test(tcase, plan_without_guesses_after_siblings_is_that_of_growth_off, 0,
                        N_PAIRS);
    tcase_add_test(tcase, looking_for_growth_takes_little_of_short_rounds);
    tcase_add_test(tcase, found_guesses_do_not_grow);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
