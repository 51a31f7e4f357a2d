/* Choosing between drafting and what was found. */
#include "speculation/planner_way.h"

#include <stddef.h>

/* Chance: a guess that is committed more seldom is never made. */
static const double least_survival = 0.01;

/* What a pass of the draft costs for one more lane in the company of all others. */
static double draft_pass_us(const struct planner *p, const struct planner_base *base)
{
    const struct planner_curve *draft = &p->draft;
    int n = base->n_lanes;
    return base->visible * (planner_curve_at(draft, n) - planner_curve_at(draft, n - 1));
}

/* Tokens that a lane commits, at best, in the time of a round without guesses, when it alone makes
 * guesses, by its offer or the draft: a round that is longer is so for all lanes. */
static double lane_speed(struct planner *p, const struct planner_base *base,
                         const struct planner_lane *lane, double pass_us)
{
    struct planner_chain chain = planner_lane_chain(p, lane);
    double survival = 1, tokens = 1, passes = 0, best = 0, plain_us = planner_step_us(p, base, 0);
    int n = planner_lane_most(lane);
    if (n > base->n_pairs) n = base->n_pairs;
    for (int k = 1; k <= n && survival >= least_survival; k++) {
        survival *= (double)planner_chain_next(&chain);
        tokens += survival;
        passes += 1 - (double)lane->staged[k - 1];
        double us = planner_step_us(p, base, k) - plain_us;
        if (!lane->offer) us += passes * pass_us + tokens * planner_missed_us(p, lane);
        double speed = tokens / (1 + base->n_lanes * us / plain_us);
        if (speed > best) best = speed;
    }
    return best;
}

int planner_assign(struct planner *p, const struct planner_base *base, struct planner_lane *lanes,
                   int n_lanes, enum planner_way way)
{
    double pass_us = draft_pass_us(p, base);
    int n_changed = 0;
    for (int i = 0; i < n_lanes; i++) {
        struct planner_lane lane = lanes[i];
        bool may_draft = lane.k_max > 0 && p->draft.largest > 0;
        double best = 0;
        lane.offer = NULL;
        if (may_draft && way == PLANNER_EACH_ITS_OWN) best = lane_speed(p, base, &lane, pass_us);
        const struct planner_offer *found = NULL;
        for (int o = 0; o < lane.n_offers && !(may_draft && way == PLANNER_ALL_DRAFTED); o++) {
            lane.offer = &lanes[i].offers[o];
            double speed = lane_speed(p, base, &lane, 0);
            if (speed <= best) continue;
            best = speed;
            found = lane.offer;
        }
        n_changed += found != lanes[i].offer ? 1 : 0;
        lanes[i].offer = found;
    }
    return n_changed;
}
