/* The target's latest predictions after each token: a list of its best tokens there, the newest
 * first (Token Recycling, Luo et al. 2024, arXiv 2408.08696). The paper overwrites a list with the
 * best tokens of the last row; rows here often name one token alone, so the tokens of a new row go
 * to the front and older tokens follow.
 *
 * The room is taken at open: lists are in sets of RECYCLED_WAYS by a hash of tenant and token, and
 * a new list takes the place of the one in its set that was not added to for the longest time.
 * Tenants never see each other's lists, though they share the room.
 *
 * Owned by one thread: nothing is locked. */
#pragma once

#include <stdint.h>

#include "base/error.h"

enum {
    RECYCLED_SUCCESSORS = 8, /* of a list */
    RECYCLED_TESTS = 16,     /* that a list remembers */
    RECYCLED_WAYS = 4,       /* lists of a set */
    RECYCLED_LISTS_MIN = RECYCLED_WAYS,
    RECYCLED_LISTS_MAX = 1 << 24
};

struct recycled_list {
    uint64_t tenant;
    int32_t token;                           /* that the tokens below follow */
    uint32_t added_at;                       /* the number of the last addition, modulo 2^32 */
    int32_t successors[RECYCLED_SUCCESSORS]; /* [n] all different; the newest best one first */
    uint16_t tests;   /* a bit for each addition, the newest lowest: whether the list said it */
    uint8_t n_tested; /* bits, at most RECYCLED_TESTS */
    uint8_t n;        /* 0: no list */
};

struct recycled;

/* n_lists: RECYCLED_LISTS_MIN .. RECYCLED_LISTS_MAX, rounded down to whole sets. Pages of memory
 * that were never needed are not occupied. Errors: ERR_ARGUMENT, ERR_NO_MEMORY. */
int recycled_open(struct recycled **recycled, int n_lists, struct error *err);
void recycled_close(struct recycled *recycled);

size_t recycled_bytes(const struct recycled *recycled);

/* Records that best[n] are the best tokens after `token`, best first, and that `said` is the one
 * that came: the list is tested by it. tenant: any number that the caller gives its tenants. Ids
 * below 0 are no tokens, and of equal ones the first counts. Cannot fail. */
void recycled_add(struct recycled *recycled, uint64_t tenant, int32_t token, int32_t said,
                  const int32_t *best, int n);

/* Returns the list of `token`, valid until the next addition; NULL: nothing is known. */
const struct recycled_list *recycled_find(const struct recycled *recycled, uint64_t tenant,
                                          int32_t token);

/* How often the list's first token was what came, of its n_tested last additions. */
int recycled_count_right(const struct recycled_list *list);

/* Follows the first tokens of lists from `token` on, at most k of them: lists[i] holds what may
 * stand at place i, valid until the next addition. Returns how many there are. A first token from
 * n_vocab on ends the chain. */
int recycled_chain(const struct recycled *recycled, uint64_t tenant, int32_t token, int n_vocab,
                   const struct recycled_list **lists, int k);
