/* Rounds that are made to measure. The constants are choices and not measurements, like those of
 * speculation/planner/share.c. */
#include "speculation/planner/probe.h"

#include <math.h>
#include <stddef.h>

#include "base/least.h"
#include "speculation/planner/cost.h"
#include "speculation/planner/way.h"

/* Counts. Each comment begins with the unit. */
enum {
    /* Guesses of a probe where none are planned. */
    PROBE_K = 2,
    /* Times the best number of guesses: probes make that many and one a lane more at most. */
    FAR_PROBE = 2,
    /* Rounds without a measurement after which a number of rows may be probed. One that was
     * measured less than SURE_TIMES times may be probed so much sooner. */
    STALE_ROUNDS = 200,
    SURE_TIMES = 48
};

/* Ratio of predicted times per token: a number of guesses that takes up to this many times as long
 * as the best one may in truth be the better one, so it is measured again. */
static const double rival_ratio = 1.15;
/* Tests: a lane with this many recent ones is probed only if it is twice as cheap as one without.
 * What is known already is worth less. */
static const double probe_evidence = 4;
/* Ratio: the price of such a probe over a plain round, at least: where guesses seem to be free,
 * plain rounds would not be measured any more. */
static const double least_price = 0.05;
/* Ratio: the price of another probe over a plain round, at most: the credit for it comes within 50
 * rounds. */
static const double soon_price = 0.5;

double planner_worth(const struct planner_base *base, double gain)
{
    return exp(gain / base->n_lanes);
}

/* ---- another number of guesses ---- */

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
static struct planner_choice stalest(struct planner_sum sum, struct planner_order *order,
                                     const struct planner_choice *best)
{
    struct planner_choice found = *best;
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
        double even_us = best->us * planner_worth(sum.base, sum.gain - best->gain);
        bool is_rival = sum.us <= rival_ratio * even_us;
        if (age <= oldest || age < stale_after(knot, is_rival, i < 0)) continue;
        oldest = age;
        found = planner_choice_of(&sum, best->depth);
    }
    return found;
}

/* Time in which the lanes of a choice read what they must read first, beyond the part that the
 * round is charged with. */
static double reading_us(const struct planner *p, const struct planner_order *order,
                         const struct planner_choice *choice)
{
    double us = 0;
    for (int i = 0, n = 0; n < choice->n; i++) {
        const struct planner_pair *pair = &order->pairs[i];
        if (pair->position >= choice->depth) continue;
        const struct planner_lane *lane = &order->lanes[pair->lane];
        if (pair->position == 0 && pair->rank == 0 && !lane->offer)
            us += planner_catch_up_us(p, lane->model, planner_lane_draft(lane)->n_missed);
        n++;
    }
    return us;
}

bool planner_probe_around(struct planner *p, const struct planner_sum *plain,
                          struct planner_order *order, struct planner_choice *best)
{
    struct planner_choice other = stalest(*plain, order, best);
    if (other.n == best->n) return false;
    double price_us = other.us - best->us * planner_worth(plain->base, other.gain - best->gain);
    if (best->n == 0) price_us += reading_us(p, order, &other);
    if (price_us > soon_price * plain->us) return false;
    if (planner_pay(p, price_us)) *best = other;
    return true;
}

/* ---- another model ---- */

/* True if a model may be tried in a lane: where nobody guesses, or in the place of another model.
 * */
static bool may_try(const struct planner *p, const struct planner_lane *lane, int model,
                    bool has_guesses)
{
    bool is_drafted = lane->tree.n > 0 && !lane->offer;
    if (!planner_may_draft(p, lane, model) || (is_drafted && lane->model == model)) return false;
    return !has_guesses || is_drafted || lane->seq->is_on_trial[model];
}

/* Chooses the lane, and its model, in which two guesses tell the most for their price, or are owed;
 * NULL: no model may be tried. */
static struct planner_lane *probe_lane(const struct planner *p, const struct planner_sum *plain,
                                       struct planner_lane *lanes, int n_lanes, bool has_guesses,
                                       int *model)
{
    double best = 0;
    double us = planner_step_us(p, plain->base, PROBE_K) - planner_step_us(p, plain->base, 0);
    struct planner_lane *found = NULL;
    for (int i = 0; i < n_lanes * PLANNER_MODELS; i++) {
        struct planner_lane *lane = &lanes[i / PLANNER_MODELS];
        int m = i % PLANNER_MODELS;
        if (!may_try(p, lane, m, has_guesses)) continue;
        double pass_us = planner_curve_at(&p->models[m].draft, 1 + p->models[m].lane_rows);
        double evidence = probe_evidence + lane->seq->counts[m].tested[0];
        double price_us = us + PROBE_K * pass_us;
        price_us += planner_catch_up_us(p, m, lane->models[m].n_missed);
        double dearness = lane->seq->is_on_trial[m] ? 0 : price_us * evidence;
        if (found && dearness >= best) continue;
        best = dearness;
        found = lane;
        *model = m;
    }
    return found;
}

/* Adds the first n guesses of a lane. */
static void add_probe(struct planner_sum *sum, struct planner_order *order,
                      const struct planner_lane *lane, int n)
{
    struct planner_pair pair = {.survival = 1};
    order->chains[0] = planner_lane_chain(order->p, lane);
    order->tokens[0] = 1;
    for (int i = 0; i < n; i++) {
        pair = planner_order_next(order, 0, pair.survival);
        planner_sum_add(sum, lane, &pair);
    }
}

bool planner_probe_model(struct planner *p, struct planner_sum sum, struct planner_lane *lanes,
                         int n_lanes, struct planner_order *order,
                         const struct planner_choice *best)
{
    int model = 0, n_added = 0;
    double plain_us = sum.us;
    struct planner_lane *lane = probe_lane(p, &sum, lanes, n_lanes, best->n > 0, &model);
    if (!lane) return false;
    struct planner_lane caught_up = *lane;
    struct planner_drafting *draft = &caught_up.models[model];
    int n_missed = draft->n_missed, k = least(draft->k_max, PROBE_K);
    caught_up.offer = NULL;
    caught_up.model = model;
    draft->n_missed = least(n_missed, planner_caught_up(&p->models[model]));
    for (int i = 0; n_added < best->n; i++) {
        const struct planner_pair *pair = &order->pairs[i];
        if (pair->position >= best->depth) continue;
        n_added++;
        if (&lanes[pair->lane] != lane) planner_sum_add(&sum, &lanes[pair->lane], pair);
    }
    k = least(k, sum.base->n_pairs - sum.n_guesses);
    add_probe(&sum, order, &caught_up, k);
    double even_us = best->us * planner_worth(sum.base, sum.gain - best->gain);
    double price_us = sum.us - even_us + planner_catch_up_us(p, model, n_missed);
    price_us = fmax(price_us, least_price * plain_us);
    if (k <= 0) return false;
    if (lane->seq->is_on_trial[model]) {
        p->credit_us -= price_us; /* the reading for it was paid, so it comes before others */
    } else if (!planner_pay(p, price_us)) {
        return false;
    }
    guess_tree_begin(&lane->tree, 0);
    guess_tree_plan(&lane->tree, k, GUESS_CHAIN);
    lane->offer = NULL;
    lane->model = model;
    p->planned_us = sum.us;
    return true;
}

bool planner_has_trial(const struct planner *p, const struct planner_lane *lanes, int n_lanes)
{
    for (int i = 0; i < n_lanes * PLANNER_MODELS; i++) {
        const struct planner_lane *lane = &lanes[i / PLANNER_MODELS];
        int m = i % PLANNER_MODELS;
        if (lane->seq->is_on_trial[m] && planner_may_draft(p, lane, m)) return true;
    }
    return false;
}
