/* Choosing between drafting and what was found. */
#include "speculation/planner/way.h"

#include <stddef.h>

/* Chance: a guess that is committed more seldom is never made. */
static const double least_survival = 0.01;

/* Time that one more row adds to a pass of a model for all others, where a lane joins it. */
static double draft_pass_us(const struct planner *p, const struct planner_base *base, int model)
{
    const struct planner_curve *draft = &p->models[model].draft;
    int of_lane = 1 + p->models[model].lane_rows;
    int n = (base->n_lanes - base->n_waiting) * of_lane;
    return (planner_curve_at(draft, n) - planner_curve_at(draft, n - of_lane)) / of_lane;
}

/* A lane that alone makes guesses, as far as they are added. */
struct alone {
    double tokens, passes; /* expected; passes, or rows of one that makes all guesses */
    int n_chain, n_nodes;
};

/* Other values that its speed depends on. */
struct alone_costs {
    const struct planner *p;
    const struct planner_base *base;
    double pass_us, missed_us; /* of such a pass or row, and for each token */
    double plain_us;
    int n_most; /* nodes */
};

/* Tokens that the lane commits in the time of a round without guesses: a round that is longer is so
 * for all lanes. */
static double speed_of(const struct alone_costs *c, const struct alone *a)
{
    double us = planner_step_us(c->p, c->base, a->n_nodes) - c->plain_us;
    us += a->passes * c->pass_us + a->tokens * c->missed_us;
    return a->tokens / (1 + c->base->n_lanes * us / c->plain_us);
}

/* The chain that is best without siblings; returns its speed. left[i]: the chance that guess i is
 * tested and rejected. */
static double find_chain(struct planner *p, const struct alone_costs *costs,
                         const struct planner_lane *lane, struct alone *best,
                         double left[DRAFT_MAX])
{
    struct planner_chain chain = planner_lane_chain(p, lane);
    struct alone a = {.tokens = 1};
    int n = planner_lane_most(lane);
    double survival = 1, best_speed = 0;
    *best = a;
    if (n > costs->n_most) n = costs->n_most;
    while (a.n_chain < n && survival >= least_survival) {
        double before = survival;
        survival *= (double)planner_chain_next(&chain);
        a.tokens += survival;
        if (a.n_chain == 0 && !lane->offer) a.passes += p->models[lane->model].lane_rows;
        a.passes += lane->offer ? 0 : 1 - (double)planner_lane_draft(lane)->staged[a.n_chain];
        left[a.n_chain++] = before - survival;
        a.n_nodes++;
        double speed = speed_of(costs, &a);
        if (speed <= best_speed) continue;
        best_speed = speed;
        *best = a;
    }
    return best_speed;
}

/* Siblings of a guess, as long as they make the lane faster than `speed`; returns how fast it is
 * with them. */
static double add_siblings(const struct alone_costs *costs, const struct planner_lane *lane,
                           struct alone *a, int position, double left, double speed)
{
    int drafter = planner_drafter_of(lane->offer, lane->model);
    const struct planner_siblings *siblings = &costs->p->siblings[drafter];
    const struct planner_trust *trust = &lane->seq->sibling_trust[drafter];
    int n = planner_lane_siblings(lane, position);
    for (int rank = 0; rank < n && a->n_nodes < costs->n_most; rank++) {
        struct alone more = *a;
        double kept = left * (double)planner_sibling_chance(siblings, trust, rank);
        more.tokens += kept;
        more.n_nodes++;
        double more_speed = speed_of(costs, &more);
        if (kept < least_survival || more_speed <= speed) break;
        speed = more_speed;
        left -= kept;
        *a = more;
    }
    return speed;
}

/* The best speed of a lane that alone makes guesses, by its offer or its model. The one that finds
 * more siblings may be the better one although its guesses stay less often. */
static double lane_speed(struct planner *p, const struct planner_base *base,
                         const struct planner_lane *lane, double pass_us)
{
    struct alone_costs costs = {.p = p,
                                .base = base,
                                .pass_us = pass_us,
                                .missed_us = lane->offer ? 0 : planner_missed_us(p, lane),
                                .plain_us = planner_step_us(p, base, 0),
                                .n_most = base->n_pairs};
    struct alone best;
    double left[DRAFT_MAX];
    if (lane->nodes_max > 0 && lane->nodes_max < costs.n_most) costs.n_most = lane->nodes_max;
    double speed = find_chain(p, &costs, lane, &best, left);
    for (int i = 0; i < best.n_chain; i++) {
        speed = add_siblings(&costs, lane, &best, i, left[i], speed);
    }
    return speed;
}

/* The source of a lane's guesses that is the fastest so far. */
struct source {
    const struct planner_offer *offer;
    int model;
    double speed;
};

static void compare(struct planner *p, const struct planner_base *base,
                    const struct planner_lane *lane, double pass_us, struct source *best)
{
    double speed = lane_speed(p, base, lane, pass_us);
    if (speed <= best->speed) return;
    *best = (struct source){lane->offer, lane->model, speed};
}

/* The model that a way names guesses, where it may; otherwise the best of all, or of what was
 * found. A lane for which one source alone is there need not be looked at. */
static struct source choose(struct planner *p, const struct planner_base *base,
                            const struct planner_lane *asked, enum planner_way way)
{
    struct planner_lane lane = *asked;
    struct source best = {.model = asked->model};
    int n_models = 0, named = (int)way - PLANNER_ALL_DRAFTED;
    for (int m = PLANNER_MODELS - 1; m >= 0; m--) {
        if (!planner_may_draft(p, asked, m)) continue;
        best.model = m;
        n_models++;
    }
    if (named >= 0 && planner_may_draft(p, asked, named)) {
        best.model = named;
        return best;
    }
    if (n_models + lane.n_offers < 2) n_models = 0;
    for (int m = 0; m < PLANNER_MODELS && n_models > 0; m++) {
        if (!planner_may_draft(p, asked, m)) continue;
        if (way == PLANNER_ALL_FOUND && lane.n_offers > 0) continue;
        lane.offer = NULL;
        lane.model = m;
        compare(p, base, &lane, draft_pass_us(p, base, m), &best);
    }
    lane.model = best.model;
    for (int o = 0; o < lane.n_offers; o++) {
        lane.offer = &asked->offers[o];
        compare(p, base, &lane, 0, &best);
    }
    return best;
}

int planner_assign(struct planner *p, const struct planner_base *base, struct planner_lane *lanes,
                   int n_lanes, enum planner_way way)
{
    int n_changed = 0;
    for (int i = 0; i < n_lanes; i++) {
        struct planner_lane *lane = &lanes[i];
        struct source best = choose(p, base, lane, way);
        n_changed += best.offer != lane->offer || best.model != lane->model ? 1 : 0;
        lane->offer = best.offer;
        lane->model = best.model;
    }
    return n_changed;
}
