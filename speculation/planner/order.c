/* Pairs of a lane and a position in descending gain: a heap over the lanes. */
#include "speculation/planner/order.h"

#include <stddef.h>

#include "base/least.h"

static bool may_have_siblings(const struct planner_lane *lane)
{
    int n = 0;
    for (int i = 0; i < planner_lane_most(lane) && n == 0; i++) {
        n = planner_lane_siblings(lane, i);
    }
    return n > 0;
}

struct planner_pair planner_order_next(struct planner_order *order, int lane, float survival)
{
    struct planner_chain *chain = &order->chains[lane];
    short position = (short)chain->position;
    float tokens = order->tokens[lane];
    float next = survival * planner_chain_next(chain);
    order->tokens[lane] += next;
    return (struct planner_pair){.gain = planner_gain(tokens, next),
                                 .survival = next,
                                 .left = survival - next,
                                 .lane = (uint8_t)lane,
                                 .position = (int8_t)position};
}

/* The next sibling of a pair's position. */
static struct planner_pair next_sibling(struct planner_order *order,
                                        const struct planner_pair *before)
{
    const struct planner_lane *lane = &order->lanes[before->lane];
    struct planner_pair pair = *before;
    float tokens = order->tokens[pair.lane];
    int drafter = planner_drafter_of(lane->offer, lane->model);
    float chance = planner_sibling_chance(&order->p->siblings[drafter],
                                          &lane->seq->sibling_trust[drafter], before->rank);
    pair.rank++;
    pair.survival = before->left * chance;
    pair.left = before->left - pair.survival;
    pair.gain = planner_gain(tokens, pair.survival);
    return pair;
}

/* Puts a pair where `at` is empty. After the last pair of the heap is one without gain, so that
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

/* The lanes that may guess enter the heap, each with its first pair. */
static void begin(struct planner *p, const struct planner_lane *lanes, int n_lanes,
                  struct planner_growing *growing, struct planner_order *order)
{
    order->p = p;
    order->growing = growing;
    order->lanes = lanes;
    order->n_heap = order->n_pairs = 0;
    order->has_siblings = false;
    for (int i = 0; i < least(n_lanes, PLANNER_LANES_MAX); i++) {
        bool is_timed = lanes[i].offer || p->models[lanes[i].model].draft.largest > 0;
        if (planner_lane_most(&lanes[i]) <= 0 || !is_timed) continue;
        order->chains[i] = planner_lane_chain(p, &lanes[i]);
        order->tokens[i] = 1;
        order->nodes[i] = 0;
        order->has_siblings = order->has_siblings || may_have_siblings(&lanes[i]);
        struct planner_pair first = growing ? planner_grow_begin(&growing[i], p, lanes, i)
                                            : planner_order_next(order, i, 1);
        if (first.survival >= PLANNER_LEAST_SURVIVAL) order->heap[order->n_heap++] = first;
    }
    order->n_lanes = order->n_heap;
    for (int i = order->n_heap / 2 - 1; i >= 0; i--) {
        heap_settle(order, i, order->heap[i]);
    }
}

void planner_order_begin(struct planner *p, const struct planner_lane *lanes, int n_lanes,
                         struct planner_order *order)
{
    begin(p, lanes, n_lanes, NULL, order);
}

void planner_order_begin_growing(struct planner *p, const struct planner_lane *lanes, int n_lanes,
                                 struct planner_growing *growing, struct planner_order *order)
{
    begin(p, lanes, n_lanes, growing, order);
}

/* A pair that is worth it gets a place of its own. */
static void heap_push(struct planner_order *order, struct planner_pair pair)
{
    int at = order->n_heap++;
    for (int up; at > 0 && order->heap[up = (at - 1) / 2].gain < pair.gain; at = up) {
        order->heap[at] = order->heap[up];
    }
    order->heap[at] = pair;
}

/* Puts the next sibling of the pair that was taken last into the heap; a guess of a lane is
 * followed by the lane's next guess, too. */
static void advance(struct planner_order *order)
{
    const struct planner_pair taken = order->heap[0];
    const struct planner_lane *lane = &order->lanes[taken.lane];
    struct planner_pair pair = {0};
    bool is_last = taken.rank > 0 || taken.position + 1 >= planner_lane_most(lane);
    if (taken.rank > 0) order->tokens[taken.lane] += taken.survival;
    if (!is_last) pair = planner_order_next(order, taken.lane, taken.survival);
    if (is_last || pair.survival < PLANNER_LEAST_SURVIVAL) pair = order->heap[--order->n_heap];
    if (order->n_heap) heap_settle(order, 0, pair);
    if (taken.rank >= planner_lane_siblings(lane, taken.position)) return;
    pair = next_sibling(order, &taken);
    if (pair.survival >= PLANNER_LEAST_SURVIVAL) heap_push(order, pair);
}

/* The best pair of all, where lanes grow: a lane without room for more has left the heap. */
static const struct planner_pair *take_growing(struct planner_order *order)
{
    if (order->n_heap == 0) return NULL;
    struct planner_pair *best = &order->pairs[order->n_pairs++];
    *best = order->heap[0];
    struct planner_pair next = planner_grow_take(&order->growing[best->lane], order->lanes, best);
    if (next.survival < PLANNER_LEAST_SURVIVAL) next = order->heap[--order->n_heap];
    if (order->n_heap) heap_settle(order, 0, next);
    return best;
}

/* The best pair whose lane has room for it; NULL: there is none. */
static const struct planner_pair *take_best(struct planner_order *order)
{
    if (order->growing) return take_growing(order);
    while (order->n_heap) {
        const struct planner_pair best = order->heap[0];
        int most = order->lanes[best.lane].nodes_max;
        bool has_room = most == 0 || order->nodes[best.lane] < most;
        advance(order);
        if (!has_room) continue;
        order->nodes[best.lane]++;
        order->pairs[order->n_pairs++] = best;
        return &order->pairs[order->n_pairs - 1];
    }
    return NULL;
}

const struct planner_pair *planner_order_at(struct planner_order *order, int i)
{
    while (i >= order->n_pairs && take_best(order)) {
        continue;
    }
    return i < order->n_pairs ? &order->pairs[i] : NULL;
}
