/* Deficit round robin (Shreedhar and Varghese 1995) among shares of one ring. A share whose turn it
 * is gets its quantum once and is served until its deficit is below the cost of its next job; then
 * it is the next one's turn. In coordinator/engine/waiting.c the classes are such shares, and
 * inside each class its clients. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The caller sets quantum and, whenever its next job is another, cost. */
struct share {
    struct share *next, *previous;
    int64_t quantum, cost; /* >= 1 */
    int64_t deficit;       /* what it may still spend; the caller takes off what it serves */
    bool has_turn;         /* it got its quantum for the turn that it has */
};

/* Zeroed = empty. */
struct round_robin {
    struct share *now; /* whose turn it is; NULL: empty */
    int n;
};

/* The last to get its turn; without a deficit. */
void round_robin_add(struct round_robin *ring, struct share *share);
void round_robin_remove(struct round_robin *ring, struct share *share);

/* The share that is served next; the same until it was served, removed or has another cost. There
 * is at least one. Passes over the ring at most three times, whatever the costs are. */
struct share *round_robin_next(struct round_robin *ring);

/* Leaves a share no larger deficit than its next job or its quantum needs. */
void round_robin_trim_deficit(struct share *share);
