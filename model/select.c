/* Bounded selection for best(n) of a slice and for the draft's support. */
#include "model/select.h"

#include <math.h>

#include "model/variants.h"

enum { BLOCK = 64 };

typedef bool item_order(const struct select_item *a, const struct select_item *b);

/* a ranks below b. */
static bool worse(const struct select_item *a, const struct select_item *b)
{
    return a->score < b->score || (a->score == b->score && a->id > b->id);
}

static bool higher_id(const struct select_item *a, const struct select_item *b)
{
    return a->id > b->id;
}

/* Moves items[at] down until no child comes before it; the root is the first of `before`. */
static inline void sift_down(struct select_item *items, int n, int at, item_order *before)
{
    struct select_item item = items[at];
    for (int child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && before(&items[child + 1], &items[child])) child++;
        if (!before(&items[child], &item)) break;
        items[at] = items[child];
    }
    items[at] = item;
}

static void sift_up(struct select_item *items, int at)
{
    struct select_item item = items[at];
    while (at > 0 && worse(&item, &items[(at - 1) / 2])) {
        items[at] = items[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    items[at] = item;
}

/* Takes the root off again and again: what is first of `before` ends up last. */
static inline void drain(struct select_item *items, int n, item_order *before)
{
    for (int left = n - 1; left > 0; left--) {
        struct select_item root = items[0];
        items[0] = items[left];
        items[left] = root;
        sift_down(items, left, 0, before);
    }
}

void select_offer(struct select_heap *heap, double score, int32_t id)
{
    if (heap->n < heap->capacity) {
        heap->items[heap->n] = (struct select_item){score, id};
        sift_up(heap->items, heap->n++);
    } else if (score > heap->items[0].score) {
        heap->items[0] = (struct select_item){score, id};
        sift_down(heap->items, heap->n, 0, worse);
    }
}

/* Whether any of BLOCK logits is above floor; no early exit, so that it vectorizes. A NaN may count
 * as above. */
VARIANTS static bool block_has_above(const float *logits, float floor)
{
    int32_t floor_key = select_order_key(floor), any = 0;
    for (int i = 0; i < BLOCK; i++) {
        any |= select_order_key(logits[i]) > floor_key;
    }
    return any;
}

void select_offer_logits(struct select_heap *heap, const float *logits, int n, bool with_masked)
{
    int i = 0;
    while (i < n) {
        bool is_full = heap->n == heap->capacity;
        if (is_full && n - i >= BLOCK &&
            !block_has_above(logits + i, (float)heap->items[0].score)) {
            i += BLOCK;
            continue;
        }
        int end = n - i < BLOCK ? n : i + BLOCK;
        for (; i < end; i++) {
            bool is_offered = with_masked || logits[i] > -INFINITY;
            if (is_offered) select_offer(heap, (double)logits[i], i);
        }
    }
}

void select_offer_best(struct select_heap *heap, const int32_t *ids, const float *logits, int n)
{
    for (int i = 0; i < n; i++) {
        if (!(logits[i] > -INFINITY) || !select_wants(heap, (double)logits[i])) break;
        select_offer(heap, (double)logits[i], ids[i]);
    }
}

void select_sort_best(struct select_heap *heap)
{
    drain(heap->items, heap->n, worse);
}

void select_sort_ids(struct select_item *items, int n)
{
    for (int at = n / 2 - 1; at >= 0; at--) {
        sift_down(items, n, at, higher_id);
    }
    drain(items, n, higher_id);
}
