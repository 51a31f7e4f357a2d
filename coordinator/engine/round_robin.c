/* A ring of shares that take turns. */
#include "coordinator/engine/round_robin.h"

#include <stddef.h>

void round_robin_add(struct round_robin *ring, struct share *share)
{
    share->deficit = 0;
    share->has_turn = false;
    if (ring->n++ == 0) {
        share->next = share->previous = ring->now = share;
        return;
    }
    share->next = ring->now;
    share->previous = ring->now->previous;
    share->previous->next = share->next->previous = share;
}

void round_robin_remove(struct round_robin *ring, struct share *share)
{
    share->previous->next = share->next;
    share->next->previous = share->previous;
    if (ring->now == share) ring->now = share->next;
    if (--ring->n == 0) ring->now = NULL;
}

/* Gives everybody the turns that pass until the first can be served, less one: a job of many
 * quanta costs no more time to find. Nobody has a turn, and everybody's deficit is too small. */
static void skip_turns(struct round_robin *ring)
{
    int64_t fewest = INT64_MAX;
    struct share *share = ring->now;
    for (int i = 0; i < ring->n; i++, share = share->next) {
        int64_t lacking = share->cost - share->deficit;
        int64_t n = (lacking + share->quantum - 1) / share->quantum;
        fewest = n < fewest ? n : fewest;
    }
    for (int i = 0; i < ring->n; i++, share = share->next) {
        share->deficit += (fewest - 1) * share->quantum;
    }
}

struct share *round_robin_next(struct round_robin *ring)
{
    for (int n_passed = 0;; n_passed++) {
        struct share *share = ring->now;
        if (n_passed == ring->n) skip_turns(ring);
        if (!share->has_turn) share->deficit += share->quantum;
        share->has_turn = true;
        if (share->deficit >= share->cost) return share;
        share->has_turn = false;
        ring->now = share->next;
    }
}

void round_robin_trim_deficit(struct share *share)
{
    int64_t most = share->cost > share->quantum ? share->cost : share->quantum;
    if (share->deficit > most) share->deficit = most;
}
