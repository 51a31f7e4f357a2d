/* A ring of shares that take turns. */
#include "coordinator/engine/turns.h"

#include <stddef.h>

void turns_add(struct turns *turns, struct share *share)
{
    share->deficit = 0;
    share->has_turn = false;
    if (turns->n++ == 0) {
        share->next = share->previous = turns->now = share;
        return;
    }
    share->next = turns->now;
    share->previous = turns->now->previous;
    share->previous->next = share->next->previous = share;
}

void turns_remove(struct turns *turns, struct share *share)
{
    share->previous->next = share->next;
    share->next->previous = share->previous;
    if (turns->now == share) turns->now = share->next;
    if (--turns->n == 0) turns->now = NULL;
}

/* Gives everybody the turns that pass until the first can be served, less one: a job of many
 * quanta costs no more time to find. Nobody has a turn, and everybody's deficit is too small. */
static void skip_turns(struct turns *turns)
{
    int64_t fewest = INT64_MAX;
    struct share *share = turns->now;
    for (int i = 0; i < turns->n; i++, share = share->next) {
        int64_t lacking = share->cost - share->deficit;
        int64_t n = (lacking + share->quantum - 1) / share->quantum;
        fewest = n < fewest ? n : fewest;
    }
    for (int i = 0; i < turns->n; i++, share = share->next) {
        share->deficit += (fewest - 1) * share->quantum;
    }
}

struct share *turns_next(struct turns *turns)
{
    for (int n_passed = 0;; n_passed++) {
        struct share *share = turns->now;
        if (n_passed == turns->n) skip_turns(turns);
        if (!share->has_turn) share->deficit += share->quantum;
        share->has_turn = true;
        if (share->deficit >= share->cost) return share;
        share->has_turn = false;
        turns->now = share->next;
    }
}

void turns_forget_saved(struct share *share)
{
    int64_t most = share->cost > share->quantum ? share->cost : share->quantum;
    if (share->deficit > most) share->deficit = most;
}
