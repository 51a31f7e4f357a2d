/* Choosing: how many guesses each lane makes. Learning is in speculation/planner/learn.c. The
 * constants are choices and not measurements; tests/unit/speculation/planner/test_planner.c and
 * test_planner_load.c compare the planner that they make with the best fixed K and with plain
 * decoding over simulated texts. */
#include <math.h>
#include <stddef.h>

#include "base/least.h"
#include "speculation/planner/branch.h"
#include "speculation/planner/cost.h"
#include "speculation/planner/probe.h"
#include "speculation/planner/way.h"

/* Counts. Each comment begins with the unit. */
enum {
    /* Guesses of a lane in a round that is spent on learning. Two tell more than one of what a
     * guess costs, and lose little where guesses do not stay. */
    LEARN_K = 2,
    /* Lanes that guess in such a round. */
    LEARN_LANES = 4,
    /* Timed rounds that a new pair of models needs without guesses, and as many with guesses. The
     * round that reads a prompt is not among them. Of the first two times of a kind the shorter
     * counts, so a single slow round does no harm. */
    LEARN_ROUNDS = 2,
    /* Rounds after which learning ends in any case: under load all of them may have read
     * prompts. */
    LEARN_ALL = 32,
    /* Tests of first guesses, over all texts, before more than LEARN_LANES lanes guess: of a draft
     * about which nothing is known a round of many lanes would tell no more than is needed, at the
     * price of all. */
    FIRST_TESTS = 8,
    /* Guesses of each lane that are looked at beyond one that does not pay: together with it they
     * might. */
    LEFT_DEPTHS = 4
};

/* Ratio of predicted times per token: guesses must promise this much to be made at all, because
 * smaller differences are mostly noise, and plain decoding is the safer one of two. */
static const double worth_ratio = 1.02;
/* Logarithm of predicted tokens over time, for each lane: guesses after siblings must promise this
 * much, because where less was promised they were up to 2 % slower than siblings alone
 * (docs/journal/trees.md). */
static const double grow_value = 0.02;
/* Us, for each lane: what looking for them takes, about. */
static const double grow_us = 5;
/* Share of the time of rounds that looking may take where they promise too little. */
static const double grow_share = 0.002;
/* Depths that are tried where several lanes guess, or guesses have siblings. One lane that is surer
 * than all others would otherwise have all its guesses, at one pass each, before the others have
 * their first; and a guess that is likely would come before siblings, which cost no pass. */
static const int depths[] = {1, 2, 3, 4, 5, 6, 8, 11};
enum { N_DEPTHS = sizeof depths / sizeof *depths };

/* ---- the best number of guesses ---- */

/* Takes pair after pair. It ends where the pairs that are left, each of them with the gain of this
 * one, could not make up for the time any more. */
static void try_depth(struct planner_sum sum, struct planner_order *order, int depth,
                      struct planner_choice *best)
{
    double log_best = log(best->us);
    const struct planner_pair *pair;
    for (int i = 0; sum.n_guesses < sum.base->n_pairs && (pair = planner_order_at(order, i)); i++) {
        if (pair->position >= depth) continue;
        planner_sum_add(&sum, &order->lanes[pair->lane], pair);
        double log_us = log(sum.us), dearer = sum.base->n_lanes * (log_us - log_best);
        if (sum.gain - best->gain > dearer) {
            *best = planner_choice_of(&sum, depth);
            log_best = log_us;
            continue;
        }
        double left = (double)pair->gain * order->n_lanes * LEFT_DEPTHS;
        if (sum.gain + left - best->gain <= dearer) break;
    }
}

static struct planner_choice choose_best(const struct planner_sum *plain,
                                         struct planner_order *order)
{
    const struct planner_choice none = planner_choice_of(plain, DRAFT_MAX);
    struct planner_choice best = none;
    int deepest = 1;
    bool has_choice = order->n_lanes > 1 || order->has_siblings;
    try_depth(*plain, order, DRAFT_MAX, &best);
    for (int i = 0; i < best.n; i++) {
        deepest = most(deepest, order->pairs[i].position + 1);
    }
    for (int i = 0; i < N_DEPTHS && depths[i] <= deepest && has_choice; i++) {
        try_depth(*plain, order, depths[i], &best);
    }
    return worth_ratio * best.us < none.us * planner_worth(plain->base, best.gain) ? best : none;
}

/* Where the best choice is far beyond what was measured, its first guesses are made, as many as are
 * near, even if those alone do not pay: their times say more of the others. */
static struct planner_choice stay_near(struct planner_sum sum, struct planner_order *order,
                                       const struct planner_choice *best)
{
    int n_fed[PLANNER_MODELS] = {0};
    for (int i = 0; sum.n_guesses < best->n; i++) {
        const struct planner_pair *pair = planner_order_at(order, i);
        if (pair->position >= best->depth) continue;
        const struct planner_lane *lane = &order->lanes[pair->lane];
        const struct planner_model *model = &sum.p->models[lane->model];
        bool is_first = planner_pass_of(model, pair->position) == 0 && pair->rank == 0;
        int rows = pair->position == 0 ? 1 + model->lane_rows : 1;
        int *n = &n_fed[lane->model];
        *n += is_first && !lane->offer ? rows : 0;
        if (*n > sum.base->near_fed[lane->model] || sum.n_guesses == sum.base->near_pairs) break;
        planner_sum_add(&sum, lane, pair);
    }
    return planner_choice_of(&sum, best->depth);
}

/* ---- handing out ---- */

/* Only lanes whose model has little to read teach what a guess costs. model: it alone, or -1: the
 * first one that may guess. Returns how many lanes guess. */
static int hand_out_learning(struct planner_lane *lanes, int n_lanes, int model, int k, int n_pairs)
{
    int n = 0;
    for (int i = 0; i < n_lanes && n < LEARN_LANES && n_pairs > 0; i++) {
        struct planner_lane *lane = &lanes[i];
        for (int m = 0; m < PLANNER_MODELS && lane->tree.n == 0; m++) {
            const struct planner_drafting *draft = &lane->models[m];
            if (model >= 0 && m != model) continue;
            if (draft->n_missed > least(PLANNER_LEARN_MISSED, lane->n_left)) continue;
            guess_tree_plan(&lane->tree, least(least(k, draft->k_max), n_pairs), GUESS_CHAIN);
            if (lane->tree.n > 0) lane->model = m;
        }
        n_pairs -= lane->tree.n;
        n += lane->tree.n > 0 ? 1 : 0;
    }
    return n;
}

/* True if times of which too little is known are measured in this round. First those of a pass of
 * each model; once one of them is known, plain rounds come first, and then some with guesses. */
static bool learn(const struct planner *p, struct planner_lane *lanes, int n_lanes, int n_pairs,
                  bool *is_plain)
{
    bool is_timed = false;
    *is_plain = false;
    for (int m = 0; m < PLANNER_MODELS; m++) {
        is_timed = is_timed || p->models[m].draft.largest > 0;
        if (p->models[m].draft.largest > 0) continue;
        if (hand_out_learning(lanes, n_lanes, m, LEARN_K, n_pairs) > 0) return true;
    }
    if (!is_timed || p->is_calibrated || p->n_rounds >= LEARN_ALL) return false;
    *is_plain = p->n_plain < LEARN_ROUNDS;
    if (*is_plain) return true;
    return p->n_guessed < LEARN_ROUNDS &&
           hand_out_learning(lanes, n_lanes, -1, LEARN_K, n_pairs) > 0;
}

/* Only a few lanes draft with a model while nothing is known of how often its guesses stay. */
static void hold_back(const struct planner *p, struct planner_lane *lanes, int n_lanes)
{
    for (int m = 0; m < PLANNER_MODELS; m++) {
        if (p->models[m].counts.tested[0] >= FIRST_TESTS) continue;
        for (int i = 0, n = 0; i < n_lanes; i++) {
            struct planner_drafting *draft = &lanes[i].models[m];
            if (draft->k_max <= 0) continue;
            if (n == LEARN_LANES) draft->k_max = 0;
            n += n < LEARN_LANES ? 1 : 0;
        }
    }
}

static void hand_out(const struct planner_order *order, const struct planner_choice *choice,
                     struct planner_lane *lanes)
{
    for (int i = 0, n = 0; n < choice->n; i++) {
        const struct planner_pair *pair = &order->pairs[i];
        if (pair->position >= choice->depth) continue;
        struct guess_tree *tree = &lanes[pair->lane].tree;
        int parent = pair->position > 0 ? tree->chain[pair->position - 1] : -1;
        guess_tree_add(tree, parent, pair->rank > 0 ? GUESS_SIBLING : GUESS_CHAIN, -1, NULL);
        n++;
    }
}

/* ---- who guesses ---- */

/* How good a choice is for all lanes together: its gain less the logarithm of its time. */
static double value_of(const struct planner_base *base, const struct planner_choice *choice)
{
    return choice->gain - base->n_lanes * log(choice->us);
}

/* The best choice of all ways; the lanes' offers and models and the order are those of that way. */
static struct planner_choice choose_way(struct planner *p, const struct planner_sum *plain,
                                        struct planner_lane *lanes, int n_lanes,
                                        struct planner_order *order)
{
    bool has_ways = false;
    for (int i = 0; i < n_lanes; i++) {
        has_ways |= lanes[i].n_offers > 0;
        for (int m = 0; m < PLANNER_MODELS; m++) {
            has_ways |= m != lanes[i].model && planner_may_draft(p, &lanes[i], m);
        }
    }
    struct planner_choice best = {0};
    enum planner_way best_way = PLANNER_EACH_ITS_OWN, last = PLANNER_EACH_ITS_OWN;
    for (int way = 0; way < (has_ways ? PLANNER_WAYS : 1); way++) {
        if (has_ways &&
            planner_assign(p, plain->base, lanes, n_lanes, (enum planner_way)way) == 0 && way > 0) {
            continue;
        }
        planner_order_begin(p, lanes, n_lanes, order);
        struct planner_choice choice = choose_best(plain, order);
        last = (enum planner_way)way;
        if (way > 0 && value_of(plain->base, &choice) <= value_of(plain->base, &best)) continue;
        best = choice;
        best_way = last;
    }
    if (best_way == last) return best;
    planner_assign(p, plain->base, lanes, n_lanes, best_way);
    planner_order_begin(p, lanes, n_lanes, order);
    return choose_best(plain, order);
}

/* True if some lane may guess after siblings that it has. */
static bool may_grow(const struct planner_lane *lanes, int n_lanes)
{
    for (int i = 0; i < n_lanes; i++) {
        const struct planner_lane *lane = &lanes[i];
        const struct planner_drafting *draft = planner_lane_draft(lane);
        if (!draft->grows || lane->offer) continue;
        for (int g = 0; g < lane->tree.n_chain && g + 1 < draft->k_max; g++) {
            if (guess_tree_siblings(&lane->tree, g) > 0) return true;
        }
    }
    return false;
}

static bool has_grown(const struct planner_order *order, const struct planner_choice *choice)
{
    for (int i = 0, n = 0; n < choice->n; i++) {
        const struct planner_pair *pair = &order->pairs[i];
        if (pair->position >= choice->depth) continue;
        if (pair->rank >= PLANNER_GROWN) return true;
        n++;
    }
    return false;
}

/* In place of the choice that was handed out one with guesses after siblings, if that promises
 * more than it and the branches beside it. Then no lane has a branch: both are for the case that
 * the chain is wrong. Only where siblings pay this is looked at, because a guess after one is
 * committed more seldom and costs more; and where that promises too little it is not looked at for
 * some rounds, because looking takes time. */
static void share_growing(struct planner *p, const struct planner_sum *plain,
                          struct planner_lane *lanes, int n_lanes,
                          const struct planner_choice *best, struct planner_order *order)
{
    struct planner_growing growing[PLANNER_LANES_MAX];
    double search = log1p(grow_us * n_lanes / best->us);
    double least_promised = value_of(plain->base, best) + (grow_value + search) * n_lanes;
    for (int i = 0; i < n_lanes; i++) {
        bool has_branch = guess_tree_count(&lanes[i].tree, GUESS_BRANCH) > 0;
        least_promised += has_branch ? (double)lanes[i].branch.value : 0;
    }
    planner_order_begin_growing(p, lanes, n_lanes, growing, order);
    struct planner_choice grown = choose_best(plain, order);
    if (value_of(plain->base, &grown) <= least_promised || !has_grown(order, &grown)) {
        p->grow_wait = (int)fmin(grow_us * n_lanes / (grow_share * best->us), INT16_MAX);
        return;
    }
    /* Where only a part of them is near what was measured, they are looked at again at once: their
     * times are to be known soon. */
    grown = stay_near(*plain, order, &grown);
    if (value_of(plain->base, &grown) <= least_promised || !has_grown(order, &grown)) return;
    for (int i = 0; i < n_lanes; i++) {
        guess_tree_begin(&lanes[i].tree, 0);
    }
    planner_grow_hand_out(growing, order->pairs, grown.depth, grown.n, lanes);
    p->planned_us = grown.us;
}

static void share_planned(struct planner *p, const struct planner_base *base,
                          struct planner_lane *lanes, int n_lanes, const struct planner_load *load)
{
    struct planner_order order;
    const struct planner_sum plain = planner_sum_begin(p, base, load);
    struct planner_choice best = choose_way(p, &plain, lanes, n_lanes, &order);
    if (best.n > 0) best = stay_near(plain, &order, &best);
    int n_chosen = best.n;
    bool is_trial = planner_has_trial(p, lanes, n_lanes);
    bool is_due = !is_trial && planner_probe_around(p, &plain, &order, &best);
    bool is_probe = best.n != n_chosen;
    hand_out(&order, &best, lanes);
    p->planned_us = planner_branch_all(p, base, lanes, n_lanes, best.n, best.us);
    if (!is_probe && !is_due) {
        is_probe = planner_probe_model(p, plain, lanes, n_lanes, &order, &best);
    }
    if (is_probe || !may_grow(lanes, n_lanes)) return;
    if (p->grow_wait > 0) {
        p->grow_wait--;
    } else {
        share_growing(p, &plain, lanes, n_lanes, &best, &order);
    }
}

void planner_share(struct planner *p, struct planner_lane *lanes, int n_lanes,
                   const struct planner_load *load)
{
    int n_may = 0;
    bool is_plain;
    planner_refresh(p);
    for (int i = 0; i < n_lanes; i++) {
        guess_tree_begin(&lanes[i].tree, 0);
        lanes[i].offer = NULL;
        lanes[i].model = 0;
        n_may += lanes[i].n_offers > 0 ? 1 : 0;
        for (int m = PLANNER_MODELS - 1; m >= 0; m--) {
            n_may += lanes[i].models[m].k_max > 0 ? 1 : 0;
            if (planner_may_draft(p, &lanes[i], m)) lanes[i].model = m;
        }
    }
    const struct planner_base base = planner_base_of(p, n_lanes, load);
    p->planned_us = n_lanes > 0 ? base.us : 0;
    p->plain_us = base.us;
    p->prompt_us = base.prompt_us;
    if (p->prompt_ratio > 0 && !planner_is_decoding(base.rows, load->n_prompt)) {
        p->prompt_us *= p->prompt_ratio;
    }
    p->is_predicted = n_lanes > 0 && p->step.largest > 0 && p->rest.largest > 0;
    if (n_may == 0 || base.n_pairs <= 0) return;
    if (learn(p, lanes, n_lanes, base.n_pairs, &is_plain)) {
        p->is_predicted = p->is_predicted && is_plain;
        return;
    }
    hold_back(p, lanes, n_lanes);
    if (p->step.largest > 0) share_planned(p, &base, lanes, n_lanes, load);
}

double planner_round_us(const struct planner *p, const int n_read[PLANNER_MODELS])
{
    if (!p->is_predicted || p->planned_us <= 0) return 0;
    double us = p->planned_us + p->prompt_us;
    for (int m = 0; m < PLANNER_MODELS; m++) {
        const struct planner_time *read = &p->models[m].read;
        if (n_read && read->n) us += n_read[m] * read->us;
    }
    return us;
}
