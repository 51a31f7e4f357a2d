/* The n best of a stream of scored ids, without sorting the rest: a bounded heap whose root is the
 * worst that is kept and, for whole rows of logits, a threshold before it. Best = highest score,
 * then lowest id. Ids are offered in ascending order. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "model/numerics/numerics.h"

/* Signed integers in the order of floats: -NaN, -inf .. +inf, NaN. Loops that compare these
 * vectorize; with floats they would not, since comparing may trap. */
static inline int32_t select_order_key(float x)
{
    int32_t bits = (int32_t)num_float_to_bits(x);
    return bits ^ (bits >> 31 & 0x7fffffff);
}

static inline float select_order_float(int32_t key)
{
    return num_bits_to_float((uint32_t)(key ^ (key >> 31 & 0x7fffffff)));
}

struct select_item {
    double score;
    int32_t id;
};

/* items are the caller's, [capacity], capacity >= 1; n starts at 0. */
struct select_heap {
    struct select_item *items;
    int n, capacity;
};

/* True if an id with this score, higher than all ids before it, would be kept: ties lose. */
static inline bool select_wants(const struct select_heap *heap, double score)
{
    return heap->n < heap->capacity || score > heap->items[0].score;
}

/* Offers one id. A NaN must not be offered. */
void select_offer(struct select_heap *heap, double score, int32_t id);

/* Offers logits[n] as ids 0..n-1; without `with_masked`, those that are -inf or NaN are left out.
 * With it no logit may be NaN. */
void select_offer_logits(struct select_heap *heap, const float *logits, int n, bool with_masked);

enum { SELECT_BLOCK = 64 };

/* tops[b] = the largest order key of logits[b * SELECT_BLOCK ..], for whole blocks of logits[n];
 * *low and *high are the smallest and largest key of all n >= 1, NaN among them. */
void select_tops(const float *logits, int n, int32_t *tops, int32_t *low, int32_t *high);

/* select_offer_logits with_masked for a row whose tops are known; none is NaN. */
void select_offer_tops(struct select_heap *heap, const float *logits, int n, const int32_t *tops);

/* keys[n_kept] of those of logits[n] that are at least `least`, for select_sort_keys: falling logit
 * in the upper half, rising id in the lower. tops are those of select_tops; none is NaN. Returns
 * n_kept; keys has room for n. */
int select_at_least(const float *logits, int n, const int32_t *tops, float least, uint64_t *keys);
/* Sorts keys[n], whose lower halves ascend; spare has room for n. Faster than a heap from some
 * hundred on. */
void select_sort_keys(uint64_t *keys, uint64_t *spare, int n);

/* Offers ids[n] with their logits, best first as a slice answers them, all higher than any id
 * before; -inf is left out. */
void select_offer_best(struct select_heap *heap, const int32_t *ids, const float *logits, int n);

/* Sorts what was kept, best first. The heap is a plain array afterwards. */
void select_sort_best(struct select_heap *heap);

/* Sorts items by ascending id. */
void select_sort_ids(struct select_item *items, int n);
