/* Bounded selection for best(n) of a slice and for the draft's support: a scan of the logits finds
 * the blocks that can hold one of the best, then a heap takes those blocks. */
#include "model/logits/select.h"

#include <math.h>
#include <string.h>

#include "model/numerics/variants.h"

enum {
    BLOCK = SELECT_BLOCK,
    FEW = 64,
    BLOCKS_AT_ONCE = 2048, /* 8 KiB of maxima */
    BOUND_BITS_OPEN = 12,  /* a bound is a little low: exactness does not depend on it */
    SPAN = 8,              /* a part of a block */
    SPANS_OF_BLOCK = BLOCK / SPAN,
    SPANS_AT_ONCE =
        1024 /* of them, those that are looked at more closely; 20 KiB with their logits */
};

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

/* The largest key of logits[n], NaN left out. There is no branch, not even for NaN, so that the
 * loop is one maximum over all and vectorizes. */
static inline int32_t largest_key(const float *logits, int n)
{
    const int32_t endless = select_order_key(INFINITY);
    int32_t top = INT32_MIN;
    for (int i = 0; i < n; i++) {
        int32_t key = select_order_key(logits[i]), is_nan = -(int32_t)(key > endless);
        key = (key & ~is_nan) | (INT32_MIN & is_nan);
        top = key > top ? key : top;
    }
    return top;
}

/* tops[b] = that of logits[b * BLOCK ..). */
VARIANTS static void block_tops(const float *logits, int n_blocks, int32_t *tops)
{
    for (int b = 0; b < n_blocks; b++) {
        tops[b] = largest_key(logits + (size_t)b * BLOCK, BLOCK);
    }
}

/* A key that at least n of keys[count] reach, and nearly no other such key is higher: its bits but
 * the lowest n_open are found from the highest on, each by one pass that vectorizes. With n_open 0
 * it is the n-th best. INT32_MIN when count < n. */
VARIANTS static int32_t bound_of_best(const int32_t *keys, int count, int n, int n_open)
{
    uint32_t bound = 0; /* the key less INT32_MIN, so that bits may be added */
    for (int bit = 31; bit >= n_open; bit--) {
        uint32_t higher = bound | 1u << bit;
        int32_t wanted = (int32_t)(higher ^ 0x80000000u);
        int n_reach = 0;
        for (int i = 0; i < count; i++) {
            n_reach += keys[i] >= wanted;
        }
        bound = n_reach >= n ? higher : bound;
    }
    return (int32_t)(bound ^ 0x80000000u);
}

/* For keys of which 0 and -0 tie. */
static int32_t bound_with_zeros(const int32_t *keys, int count, int n)
{
    int32_t key = bound_of_best(keys, count, n, BOUND_BITS_OPEN);
    return key == 0 ? -1 : key;
}

static void offer_run(struct select_heap *heap, const float *logits, int begin, int end,
                      bool with_masked)
{
    for (int i = begin; i < end; i++) {
        bool is_offered = with_masked || logits[i] > -INFINITY;
        if (is_offered && select_wants(heap, (double)logits[i])) {
            select_offer(heap, (double)logits[i], i);
        }
    }
}

/* Logits that may be among the best, by ascending id. */
struct candidates {
    int n;
    int32_t keys[SPANS_AT_ONCE * SPAN], ids[SPANS_AT_ONCE * SPAN];
};

/* spans[n] = the first logits of the parts of blocks that reach the bound, tops[n] = their maxima;
 * returns n, or -1 if there is no room for them. */
VARIANTS static int list_spans(const float *logits, int n_blocks, const int32_t *block_tops,
                               int32_t bound, int32_t *spans, int32_t *tops)
{
    int n = 0;
    for (int b = 0; b < n_blocks; b++) {
        if (block_tops[b] < bound) continue;
        if (n + SPANS_OF_BLOCK > SPANS_AT_ONCE) return -1;
        for (int i = 0; i < SPANS_OF_BLOCK; i++, n++) {
            spans[n] = b * BLOCK + i * SPAN;
            tops[n] = largest_key(logits + spans[n], SPAN);
        }
    }
    return n;
}

/* Keeps the `capacity` best of the candidates, of equal ones those with the lowest ids. */
static void keep_best(struct candidates *all, int capacity)
{
    int32_t least = bound_of_best(all->keys, all->n, capacity, 0);
    int n_higher = 0, n = 0;
    for (int i = 0; i < all->n; i++) {
        n_higher += all->keys[i] > least;
    }
    int n_equal = capacity - n_higher;
    for (int i = 0; i < all->n; i++) {
        bool is_equal = all->keys[i] == least && n_equal > 0;
        all->keys[n] = all->keys[i];
        all->ids[n] = all->ids[i];
        n += is_equal || all->keys[i] > least;
        n_equal -= is_equal;
    }
    all->n = n;
}

/* Adds those of a span that reach the bound; a NaN of either sign does not. Without a branch. */
static inline void add_candidates(struct candidates *all, const float *logits, int first,
                                  int32_t bound)
{
    const int32_t endless = select_order_key(INFINITY);
    for (int i = first; i < first + SPAN; i++) {
        int32_t key = select_order_key(logits[i] + 0.0f);
        all->keys[all->n] = key;
        all->ids[all->n] = i;
        all->n += key >= bound && key <= endless;
    }
}

static void take_best(struct select_heap *heap, struct candidates *all, int at)
{
    if (all->n > heap->capacity) keep_best(all, heap->capacity);
    for (int i = 0; i < all->n; i++) {
        double score = (double)select_order_float(all->keys[i]);
        heap->items[i] = (struct select_item){score, at + all->ids[i]};
    }
    heap->n = all->n;
    for (int i = heap->n / 2 - 1; i >= 0; i--) {
        sift_down(heap->items, heap->n, i, worse);
    }
}

/* Fills an empty heap from the blocks that reach the bound, as at least `capacity` do: the parts of
 * these have a bound of their own, and what reaches that is little more than the best. False: there
 * is too much of it. */
static bool fill_heap(struct select_heap *heap, const float *logits, int at, int n_blocks,
                      const int32_t *tops, int32_t bound)
{
    int32_t spans[SPANS_AT_ONCE], highest[SPANS_AT_ONCE];
    struct candidates all;
    highest[0] = INT32_MIN; /* for compilers that do not see that there is one */
    int n = list_spans(logits + at, n_blocks, tops, bound, spans, highest);
    if (n < 0) return false;
    int32_t closer = bound_with_zeros(highest, n, heap->capacity);
    all.n = 0;
    for (int s = 0; s < n; s++) {
        if (highest[s] >= closer) add_candidates(&all, logits + at, spans[s], closer);
    }
    take_best(heap, &all, at);
    return true;
}

/* At least `capacity` logits reach a bound of the blocks' maxima, so a block that does not holds
 * none of the best: a random row of 128,256 is read once, and about as many blocks again as are
 * kept. The blocks begin at logit `at`. */
static void offer_blocks(struct select_heap *heap, const float *logits, int at, int n_blocks,
                         const int32_t *tops, bool with_masked)
{
    int32_t bound = bound_with_zeros(tops, n_blocks, heap->capacity);
    /* A row with less than that to keep has each of its logits looked at. */
    if (heap->n == 0 && bound > select_order_key(-INFINITY) &&
        fill_heap(heap, logits, at, n_blocks, tops, bound)) {
        return;
    }
    for (int b = 0; b < n_blocks; b++, at += BLOCK) {
        bool is_full = heap->n == heap->capacity;
        if (tops[b] < bound) continue;
        if (is_full && tops[b] <= select_order_key((float)heap->items[0].score)) continue;
        offer_run(heap, logits, at, at + BLOCK, with_masked);
    }
}

void select_offer_logits(struct select_heap *heap, const float *logits, int n, bool with_masked)
{
    int32_t tops[BLOCKS_AT_ONCE];
    int at = 0;
    while (n - at >= BLOCK) {
        int n_blocks = (n - at) / BLOCK < BLOCKS_AT_ONCE ? (n - at) / BLOCK : BLOCKS_AT_ONCE;
        block_tops(logits + at, n_blocks, tops);
        offer_blocks(heap, logits, at, n_blocks, tops, with_masked);
        at += n_blocks * BLOCK;
    }
    offer_run(heap, logits, at, n, with_masked);
}

void select_offer_tops(struct select_heap *heap, const float *logits, int n, const int32_t *tops)
{
    int n_blocks = n / BLOCK;
    offer_blocks(heap, logits, 0, n_blocks, tops, true);
    offer_run(heap, logits, n_blocks * BLOCK, n, true);
}

/* Smallest and largest of n keys. */
VARIANTS static void key_bounds(const float *logits, int n, int32_t *low, int32_t *high)
{
    int32_t smallest = *low, largest = *high;
    for (int i = 0; i < n; i++) {
        int32_t key = select_order_key(logits[i]);
        smallest = key < smallest ? key : smallest;
        largest = key > largest ? key : largest;
    }
    *low = smallest;
    *high = largest;
}

/* The maxima of blocks, and the smallest of all. */
VARIANTS static int32_t block_bounds(const float *logits, int n_blocks, int32_t *tops)
{
    int32_t lows[BLOCK];
    for (int i = 0; i < BLOCK; i++) {
        lows[i] = INT32_MAX;
    }
    for (int b = 0; b < n_blocks; b++) {
        const float *block = logits + (size_t)b * BLOCK;
        int32_t top = INT32_MIN;
        for (int i = 0; i < BLOCK; i++) {
            int32_t key = select_order_key(block[i]);
            top = key > top ? key : top;
            lows[i] = key < lows[i] ? key : lows[i];
        }
        tops[b] = top;
    }
    int32_t low = INT32_MAX;
    for (int i = 0; i < BLOCK; i++) {
        low = lows[i] < low ? lows[i] : low;
    }
    return low;
}

void select_tops(const float *logits, int n, int32_t *tops, int32_t *low, int32_t *high)
{
    int n_blocks = n / BLOCK;
    *low = block_bounds(logits, n_blocks, tops);
    *high = INT32_MIN;
    for (int b = 0; b < n_blocks; b++) {
        *high = tops[b] > *high ? tops[b] : *high;
    }
    key_bounds(logits + n_blocks * BLOCK, n - n_blocks * BLOCK, low, high);
}

/* The logit's rank, which falls as the logit rises, before its id. -0 equals 0. */
static inline uint64_t sort_key(float logit, int id)
{
    uint32_t rank = ~((uint32_t)select_order_key(logit + 0.0f) ^ 0x80000000u);
    return (uint64_t)rank << 32 | (uint32_t)id;
}

int select_at_least(const float *logits, int n, const int32_t *tops, float least, uint64_t *keys)
{
    int n_kept = 0, n_blocks = n / BLOCK;
    int32_t least_key = select_order_key(least + 0.0f) == 0 ? -1 : select_order_key(least);
    for (int first = 0; first < n; first += BLOCK) {
        int end = first + BLOCK < n ? first + BLOCK : n;
        if (first / BLOCK < n_blocks && tops[first / BLOCK] < least_key) continue;
        for (int i = first; i < end; i++) {
            keys[n_kept] = sort_key(logits[i], i);
            n_kept += logits[i] >= least;
        }
    }
    return n_kept;
}

enum { DIGITS = 4, DIGIT_BITS = 8, DIGIT_VALUES = 1 << DIGIT_BITS };

static inline uint32_t digit_of(uint64_t key, int digit)
{
    return (uint32_t)(key >> (32 + digit * DIGIT_BITS)) & (DIGIT_VALUES - 1);
}

/* A radix sort by the upper half from its lowest digit on. It keeps the order of equal keys. */
void select_sort_keys(uint64_t *keys, uint64_t *spare, int n)
{
    int places[DIGITS][DIGIT_VALUES] = {{0}};
    for (int i = 0; i < n; i++) {
        for (int d = 0; d < DIGITS; d++) {
            places[d][digit_of(keys[i], d)]++;
        }
    }
    for (int d = 0; d < DIGITS; d++) {
        int place = 0;
        for (int v = 0; v < DIGIT_VALUES; v++) {
            int count = places[d][v];
            places[d][v] = place;
            place += count;
        }
        for (int i = 0; i < n; i++) {
            spare[places[d][digit_of(keys[i], d)]++] = keys[i];
        }
        uint64_t *sorted = spare; /* DIGITS is even: the last pass ends in the caller's keys */
        spare = keys;
        keys = sorted;
    }
}

void select_offer_best(struct select_heap *heap, const int32_t *ids, const float *logits, int n)
{
    for (int i = 0; i < n; i++) {
        if (!(logits[i] > -INFINITY) || !select_wants(heap, (double)logits[i])) break;
        select_offer(heap, (double)logits[i], ids[i]);
    }
}

/* places[i] = how many of n keys, all different, are below key i. Without a branch: for as few as a
 * draft's support this is faster than any sort that branches. */
VARIANTS static void find_places(const int64_t *keys, int n, int64_t *places)
{
    for (int i = 0; i < n; i++) {
        int64_t place = 0, key = keys[i];
        for (int j = 0; j < n; j++) {
            place += (int64_t)(keys[j] < key);
        }
        places[i] = place;
    }
}

static void sort_few(struct select_item *items, int n, const int64_t *keys)
{
    struct select_item sorted[FEW];
    int64_t places[FEW];
    memcpy(sorted, items, (size_t)n * sizeof *items);
    find_places(keys, n, places);
    for (int i = 0; i < n; i++) {
        sorted[places[i]] = items[i];
    }
    memcpy(items, sorted, (size_t)n * sizeof *items);
}

/* Keys of falling score, then rising id; false: a score is no float, as with noise, and has no room
 * in one. -0 equals 0. */
static bool rank_keys(const struct select_item *items, int n, int64_t *keys)
{
    bool fits = true;
    for (int i = 0; i < n; i++) {
        float score = (float)items[i].score + 0.0f;
        fits &= (double)score == items[i].score;
        keys[i] = (int64_t)~select_order_key(score) * ((int64_t)1 << 32) + items[i].id;
    }
    return fits;
}

void select_sort_best(struct select_heap *heap)
{
    int64_t keys[FEW];
    if (heap->n > 0 && heap->n <= FEW && rank_keys(heap->items, heap->n, keys)) {
        sort_few(heap->items, heap->n, keys);
    } else {
        drain(heap->items, heap->n, worse);
    }
}

void select_sort_ids(struct select_item *items, int n)
{
    int64_t keys[FEW] = {0};
    if (n <= FEW) {
        for (int i = 0; i < n; i++) {
            keys[i] = (int64_t)items[i].id * FEW + i;
        }
        sort_few(items, n, keys);
        return;
    }
    for (int at = n / 2 - 1; at >= 0; at--) {
        sift_down(items, n, at, higher_id);
    }
    drain(items, n, higher_id);
}
