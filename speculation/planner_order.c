/* Pairs of a lane and a position in descending gain: a heap over the lanes. */
#include "speculation/planner_order.h"

#include <stddef.h>

/* Chance: a guess that is committed more seldom is never made. */
static const float least_survival = 0.01F;

static int least(int a, int b)
{
    return a < b ? a : b;
}

struct planner_chain planner_lane_chain(struct planner *p, const struct planner_lane *lane)
{
    if (!lane->offer) return planner_chain_begin(&lane->seq->counts, &p->prior);
    return planner_offer_chain(&p->reasons, &lane->seq->trust[lane->offer->finder], lane->offer);
}

int planner_lane_most(const struct planner_lane *lane)
{
    return least(lane->offer ? lane->offer->k_max : lane->k_max, DRAFT_MAX);
}

/* The gain is log(1 + x) where x = next / tokens is at most 1: nearly x (6 + x) / (6 + 4 x). */
struct planner_pair planner_order_next(struct planner_order *order, int lane, float survival)
{
    struct planner_chain *chain = &order->chains[lane];
    short position = (short)chain->position;
    float tokens = order->tokens[lane];
    float next = survival * planner_chain_next(chain);
    order->tokens[lane] += next;
    float gain = next * (6 * tokens + next) / (tokens * (6 * tokens + 4 * next));
    return (struct planner_pair){gain, next, (short)lane, position};
}

/* Puts a pair where `at` is empty. Behind the last pair of the heap is one without gain, so that
 * the larger child is found without a branch: which one it is cannot be predicted. */
static void heap_settle(struct planner_order *order, int at, struct planner_pair pair)
{
    struct planner_pair *heap = order->heap;
    heap[order->n_heap].gain = 0;
    for (int child = 2 * at + 1; child < order->n_heap; child = 2 * at + 1) {
        child += heap[child + 1].gain > heap[child].gain;
        if (heap[child].gain <= pair.gain) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = pair;
}

void planner_order_begin(struct planner *p, const struct planner_lane *lanes, int n_lanes,
                         struct planner_order *order)
{
    order->p = p;
    order->lanes = lanes;
    order->n_heap = order->n_pairs = 0;
    for (int i = 0; i < least(n_lanes, PLANNER_LANES_MAX); i++) {
        bool is_timed = lanes[i].offer || p->draft.largest > 0;
        if (planner_lane_most(&lanes[i]) <= 0 || !is_timed) continue;
        order->chains[i] = planner_lane_chain(p, &lanes[i]);
        order->tokens[i] = 1;
        struct planner_pair first = planner_order_next(order, i, 1);
        if (first.survival >= least_survival) order->heap[order->n_heap++] = first;
    }
    order->n_lanes = order->n_heap;
    for (int i = order->n_heap / 2 - 1; i >= 0; i--) {
        heap_settle(order, i, order->heap[i]);
    }
}

/* The root becomes its lane's next guess, or leaves. */
static void advance(struct planner_order *order)
{
    struct planner_pair pair = order->heap[0];
    bool is_last = pair.position + 1 >= planner_lane_most(&order->lanes[pair.lane]);
    if (!is_last) pair = planner_order_next(order, pair.lane, pair.survival);
    if (is_last || pair.survival < least_survival) pair = order->heap[--order->n_heap];
    if (order->n_heap) heap_settle(order, 0, pair);
}

const struct planner_pair *planner_order_at(struct planner_order *order, int i)
{
    while (i >= order->n_pairs && order->n_heap) {
        order->pairs[order->n_pairs++] = order->heap[0];
        advance(order);
    }
    return i < order->n_pairs ? &order->pairs[i] : NULL;
}
