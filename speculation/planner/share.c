/* Choosing: how many guesses each lane makes. Learning is in speculation/planner/learn.c. The
 * constants are choices and not measurements; tests/unit/speculation/planner/test_planner.c and
 * test_planner_load.c compare the planner that they make with the best fixed K and with plain
 * decoding over simulated texts. */
#include <math.h>
#include <stddef.h>

#include "base/least.h"
#include "speculation/planner/branch.h"
#include "speculation/planner/cost.h"
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
    /* Guesses of a probe where none are planned. */
    PROBE_K = 2,
    /* Times the best number of guesses: probes make that many and one a lane more at most. */
    FAR_PROBE = 2,
    /* Rounds without a measurement after which a number of rows may be probed. One that was
     * measured less than SURE_TIMES times may be probed so much sooner. */
    STALE_ROUNDS = 200,
    SURE_TIMES = 48,
    /* Guesses of each lane that are looked at beyond one that does not pay: together with it they
     * might. */
    LEFT_DEPTHS = 4
};

/* Ratio of predicted times per token: a number of guesses that takes up to this many times as long
 * as the best one may in truth be the better one, so it is measured again. */
static const double rival_ratio = 1.15;
/* Ratio of predicted times per token: guesses must promise this much to be made at all, because
 * smaller differences are mostly noise, and plain decoding is the safer one of two. */
static const double worth_ratio = 1.02;
/* Tests: a lane with this many recent ones is probed only if it is twice as cheap as one without.
 * What is known already is worth less. */
static const double probe_evidence = 4;
/* Ratio: the price of such a probe over a plain round, at least: where guesses seem to be free,
 * plain rounds would not be measured any more. */
static const double least_price = 0.05;
/* Ratio: the price of another probe over a plain round, at most: the credit for it comes within 50
 * rounds. */
static const double soon_price = 0.5;
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

/* The first n pairs of `order` that are less deep than depth. */
struct choice {
    int depth, n;
    double gain, us;
};

static struct choice choice_of(const struct planner_sum *sum, int depth)
{
    return (struct choice){depth, sum->n_guesses, sum->gain, sum->us};
}

/* How much longer the round may take, as a ratio, for so much gain. */
static double worth(const struct planner_base *base, double gain)
{
    return exp(gain / base->n_lanes);
}

/* Takes pair after pair. It ends where the pairs that are left, each of them with the gain of this
 * one, could not make up for the time any more. */
static void try_depth(struct planner_sum sum, struct planner_order *order, int depth,
                      struct choice *best)
{
    double log_best = log(best->us);
    const struct planner_pair *pair;
    for (int i = 0; sum.n_guesses < sum.base->n_pairs && (pair = planner_order_at(order, i)); i++) {
        if (pair->position >= depth) continue;
        planner_sum_add(&sum, &order->lanes[pair->lane], pair);
        double log_us = log(sum.us), dearer = sum.base->n_lanes * (log_us - log_best);
        if (sum.gain - best->gain > dearer) {
            *best = choice_of(&sum, depth);
            log_best = log_us;
            continue;
        }
        double left = (double)pair->gain * order->n_lanes * LEFT_DEPTHS;
        if (sum.gain + left - best->gain <= dearer) break;
    }
}

static struct choice choose_best(const struct planner_sum *plain, struct planner_order *order)
{
    const struct choice none = choice_of(plain, DRAFT_MAX);
    struct choice best = none;
    int deepest = 1;
    bool has_choice = order->n_lanes > 1 || order->has_siblings;
    try_depth(*plain, order, DRAFT_MAX, &best);
    for (int i = 0; i < best.n; i++) {
        deepest = most(deepest, order->pairs[i].position + 1);
    }
    for (int i = 0; i < N_DEPTHS && depths[i] <= deepest && has_choice; i++) {
        try_depth(*plain, order, depths[i], &best);
    }
    return worth_ratio * best.us < none.us * worth(plain->base, best.gain) ? best : none;
}

/* Where the best choice is far beyond what was measured, its first guesses are made, as many as are
 * near, even if those alone do not pay: their times say more of the others. */
static struct choice stay_near(struct planner_sum sum, struct planner_order *order,
                               const struct choice *best)
{
    int n_fed = 0;
    for (int i = 0; sum.n_guesses < best->n; i++) {
        const struct planner_pair *pair = planner_order_at(order, i);
        if (pair->position >= best->depth) continue;
        bool is_first = planner_pass_of(sum.p, pair->position) == 0 && pair->rank == 0;
        int rows = pair->position == 0 ? 1 + sum.p->lane_rows : 1;
        n_fed += is_first && !order->lanes[pair->lane].offer ? rows : 0;
        if (n_fed > sum.base->near_fed || sum.n_guesses == sum.base->near_pairs) break;
        planner_sum_add(&sum, &order->lanes[pair->lane], pair);
    }
    return choice_of(&sum, best->depth);
}

/* ---- probes ---- */

/* Rounds after which a knot may be measured again, if its rows may be better than they look: those
 * that are close to the best and, less often, plain decoding in any case. It is sooner while little
 * is known of them, and for plain decoding that is close. */
static uint64_t stale_after(const struct planner_knot *knot, bool is_rival, bool is_plain)
{
    uint64_t known = (uint64_t)least(knot->shape.n, SURE_TIMES);
    if (is_rival) return STALE_ROUNDS * (is_plain ? known / 4 : known) / SURE_TIMES;
    return is_plain ? 4 * STALE_ROUNDS * known / SURE_TIMES : UINT64_MAX;
}

/* Returns the number of guesses whose rows were timed longest ago, among those that may be measured
 * again. */
static struct choice stalest(struct planner_sum sum, struct planner_order *order,
                             const struct choice *best)
{
    struct choice found = *best;
    uint64_t oldest = 0;
    int n_deciding = sum.base->n_lanes - sum.base->n_waiting;
    int n_most =
        least(least(sum.base->n_pairs, sum.base->near_pairs), FAR_PROBE * best->n + n_deciding);
    for (int i = -1; sum.n_guesses < n_most; i++) {
        const struct planner_pair *pair = i < 0 ? NULL : planner_order_at(order, i);
        if (i >= 0 && !pair) break;
        if (pair && pair->position >= best->depth) continue;
        if (pair) planner_sum_add(&sum, &order->lanes[pair->lane], pair);
        int at = planner_knot_of(sum.base->rows + sum.n_guesses);
        const struct planner_knot *knot = &sum.p->step.knots[at];
        uint64_t age = sum.p->n_rounds - knot->at;
        double even_us = best->us * worth(sum.base, sum.gain - best->gain);
        bool is_rival = sum.us <= rival_ratio * even_us;
        if (age <= oldest || age < stale_after(knot, is_rival, i < 0)) continue;
        oldest = age;
        found = choice_of(&sum, best->depth);
    }
    return found;
}

/* Time in which the lanes of a choice read what they must read first, beyond the part that the
 * round is charged with. */
static double reading_us(const struct planner *p, const struct planner_order *order,
                         const struct choice *choice)
{
    double us = 0;
    for (int i = 0, n = 0; n < choice->n; i++) {
        const struct planner_pair *pair = &order->pairs[i];
        if (pair->position >= choice->depth) continue;
        const struct planner_lane *lane = &order->lanes[pair->lane];
        if (pair->position == 0 && pair->rank == 0 && !lane->offer)
            us += planner_catch_up_us(p, lane->n_missed);
        n++;
    }
    return us;
}

/* Makes another number of guesses the choice if that is due and the credit pays it. Returns whether
 * it is due and the credit will pay it soon. */
static bool probe_around(struct planner *p, const struct planner_sum *plain,
                         struct planner_order *order, struct choice *best)
{
    struct choice other = stalest(*plain, order, best);
    if (other.n == best->n) return false;
    double price_us = other.us - best->us * worth(plain->base, other.gain - best->gain);
    if (best->n == 0) price_us += reading_us(p, order, &other);
    if (price_us > soon_price * plain->us) return false;
    if (planner_pay(p, price_us)) *best = other;
    return true;
}

/* The lane in which two guesses tell the most for their price. */
static int probe_lane(const struct planner *p, const struct planner_sum *plain,
                      const struct planner_lane *lanes, int n_lanes)
{
    double pass_us = planner_curve_at(&p->draft, 1 + p->lane_rows), best = 0;
    double us = planner_step_us(p, plain->base, PROBE_K) - planner_step_us(p, plain->base, 0) +
                PROBE_K * pass_us;
    int found = -1;
    for (int i = 0; i < n_lanes; i++) {
        if (lanes[i].k_max <= 0 || p->draft.largest == 0) continue;
        double evidence = probe_evidence + lanes[i].seq->counts.tested[0];
        double dearness = (us + planner_catch_up_us(p, lanes[i].n_missed)) * evidence;
        if (found >= 0 && dearness >= best) continue;
        best = dearness;
        found = i;
    }
    return found;
}

/* Where no guesses are planned, one lane makes a few. Its reading is a price of this round
 * alone. */
static void probe_one(struct planner *p, struct planner_sum sum, struct planner_lane *lanes,
                      int n_lanes, struct planner_order *order)
{
    int at = probe_lane(p, &sum, lanes, n_lanes);
    if (at < 0) return;
    struct planner_lane caught_up = lanes[at];
    int k = least(least(lanes[at].k_max, PROBE_K), sum.base->n_pairs);
    double plain_us = sum.us;
    caught_up.n_missed = least(lanes[at].n_missed, planner_caught_up(p));
    caught_up.offer = NULL;
    order->chains[0] = planner_lane_chain(p, &caught_up);
    order->tokens[0] = 1;
    struct planner_pair pair = {.survival = 1};
    for (int i = 0; i < k; i++) {
        pair = planner_order_next(order, 0, pair.survival);
        planner_sum_add(&sum, &caught_up, &pair);
    }
    double even_us = plain_us * worth(sum.base, sum.gain);
    double price_us = sum.us - even_us + planner_catch_up_us(p, lanes[at].n_missed);
    price_us = fmax(price_us, least_price * plain_us);
    if (k > 0 && planner_pay(p, price_us)) {
        guess_tree_begin(&lanes[at].tree, 0);
        guess_tree_plan(&lanes[at].tree, k, GUESS_CHAIN);
        lanes[at].offer = NULL;
        p->planned_us = sum.us;
    }
}

/* ---- handing out ---- */

/* True if times of which too little is known are measured in this round; *k is then the number of
 * guesses that a lane may have. Once the time of a pass is known, plain rounds come first. */
static bool learns(const struct planner *p, int *k)
{
    *k = LEARN_K;
    if (p->draft.largest == 0) return true;
    if (p->is_calibrated || p->n_rounds >= LEARN_ALL) return false;
    if (p->n_plain < LEARN_ROUNDS) *k = 0;
    return p->n_plain < LEARN_ROUNDS || p->n_guessed < LEARN_ROUNDS;
}

/* Only lanes whose draft has little to read teach what a guess costs. */
static int hand_out_learning(struct planner_lane *lanes, int n_lanes, int k, int n_pairs)
{
    int n = 0;
    for (int i = 0; i < n_lanes && n < LEARN_LANES && n_pairs > 0; i++) {
        if (lanes[i].n_missed > least(PLANNER_LEARN_MISSED, lanes[i].n_left)) continue;
        guess_tree_plan(&lanes[i].tree, least(least(k, lanes[i].k_max), n_pairs), GUESS_CHAIN);
        n_pairs -= lanes[i].tree.n;
        n += lanes[i].tree.n > 0 ? 1 : 0;
    }
    return n;
}

/* Only a few lanes draft while nothing is known of how often guesses stay. */
static void hold_back(const struct planner *p, struct planner_lane *lanes, int n_lanes)
{
    if (p->counts.tested[0] >= FIRST_TESTS) return;
    for (int i = 0, n = 0; i < n_lanes; i++) {
        if (lanes[i].k_max <= 0) continue;
        if (n == LEARN_LANES) lanes[i].k_max = 0;
        n += n < LEARN_LANES ? 1 : 0;
    }
}

static void hand_out(const struct planner_order *order, const struct choice *choice,
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
static double value_of(const struct planner_base *base, const struct choice *choice)
{
    return choice->gain - base->n_lanes * log(choice->us);
}

/* The best choice of all ways; the lanes' offers and the order are those of that way. */
static struct choice choose_way(struct planner *p, const struct planner_sum *plain,
                                struct planner_lane *lanes, int n_lanes,
                                struct planner_order *order)
{
    bool has_offers = false;
    for (int i = 0; i < n_lanes; i++) {
        has_offers |= lanes[i].n_offers > 0;
    }
    struct choice best = {0};
    enum planner_way best_way = PLANNER_EACH_ITS_OWN, last = PLANNER_EACH_ITS_OWN;
    for (int way = 0; way < (has_offers ? PLANNER_WAYS : 1); way++) {
        if (has_offers &&
            planner_assign(p, plain->base, lanes, n_lanes, (enum planner_way)way) == 0 && way > 0) {
            continue;
        }
        planner_order_begin(p, lanes, n_lanes, order);
        struct choice choice = choose_best(plain, order);
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
        if (!lane->grows || lane->offer) continue;
        for (int g = 0; g < lane->tree.n_chain && g + 1 < lane->k_max; g++) {
            if (guess_tree_siblings(&lane->tree, g) > 0) return true;
        }
    }
    return false;
}

static bool has_grown(const struct planner_order *order, const struct choice *choice)
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
                          struct planner_lane *lanes, int n_lanes, const struct choice *best,
                          struct planner_order *order)
{
    struct planner_growing growing[PLANNER_LANES_MAX];
    double search = log1p(grow_us * n_lanes / best->us);
    double least_promised = value_of(plain->base, best) + (grow_value + search) * n_lanes;
    for (int i = 0; i < n_lanes; i++) {
        bool has_branch = guess_tree_count(&lanes[i].tree, GUESS_BRANCH) > 0;
        least_promised += has_branch ? (double)lanes[i].branch.value : 0;
    }
    planner_order_begin_growing(p, lanes, n_lanes, growing, order);
    struct choice grown = choose_best(plain, order);
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
    struct choice best = choose_way(p, &plain, lanes, n_lanes, &order);
    if (best.n > 0) best = stay_near(plain, &order, &best);
    int n_chosen = best.n;
    bool is_due = probe_around(p, &plain, &order, &best), is_probe = best.n != n_chosen;
    hand_out(&order, &best, lanes);
    p->planned_us = planner_branch_all(p, base, lanes, n_lanes, best.n, best.us);
    if (n_chosen == 0 && !is_due) probe_one(p, plain, lanes, n_lanes, &order);
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
    int k = 0, n_may = 0;
    planner_refresh(p);
    for (int i = 0; i < n_lanes; i++) {
        guess_tree_begin(&lanes[i].tree, 0);
        lanes[i].offer = NULL;
        n_may += lanes[i].k_max > 0 || lanes[i].n_offers > 0 ? 1 : 0;
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
    if (learns(p, &k) && (k == 0 || hand_out_learning(lanes, n_lanes, k, base.n_pairs) > 0)) {
        p->is_predicted = p->is_predicted && k == 0;
        return;
    }
    hold_back(p, lanes, n_lanes);
    if (p->step.largest > 0) share_planned(p, &base, lanes, n_lanes, load);
}

double planner_round_us(const struct planner *p, int n_read)
{
    if (!p->is_predicted || p->planned_us <= 0) return 0;
    return p->planned_us + p->prompt_us + n_read * (p->read.n ? p->read.us : 0);
}
