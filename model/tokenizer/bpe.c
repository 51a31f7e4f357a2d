/* Byte pair encoding of one word: merge the pair of the lowest rank, the leftmost first, until none
 * is left (Sennrich et al. 2016, arXiv 1508.07909). Short words are searched anew for every merge;
 * long ones keep their pairs in a heap, so that n symbols cost n log n. Both give the same ids. */
#include "model/tokenizer/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { SHORT_WORD = 48, HEAP_WAYS = 4 };
static const uint64_t no_pair = UINT64_MAX;

static uint64_t pair_key(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static size_t pair_start(const struct pair_map *map, uint64_t key)
{
    key ^= key >> 32;
    key *= 0x9e3779b97f4a7c15u;
    key ^= key >> 29;
    return (size_t)key & map->mask;
}

int pair_map_init(struct pair_map *map, size_t n_pairs, struct error *err)
{
    size_t n_slots = 16;
    while (n_slots < n_pairs * 2)
        n_slots *= 2;
    *map = (struct pair_map){.mask = n_slots - 1};
    int rc = mem_array(&map->slots, n_slots, sizeof *map->slots, err);
    if (rc) return rc;
    for (size_t i = 0; i < n_slots; i++)
        map->slots[i].key = no_pair;
    return 0;
}

void pair_map_put(struct pair_map *map, int32_t left, int32_t right, uint32_t rank, int32_t id)
{
    uint64_t key = pair_key(left, right);
    size_t at = pair_start(map, key);
    while (map->slots[at].key != no_pair && map->slots[at].key != key)
        at = (at + 1) & map->mask;
    map->slots[at] = (struct pair_slot){key, rank, id};
}

static const struct pair_slot *pair_find(const struct pair_map *map, int32_t left, int32_t right)
{
    uint64_t key = pair_key(left, right);
    size_t at = pair_start(map, key);
    while (map->slots[at].key != key) {
        if (map->slots[at].key == no_pair) return NULL;
        at = (at + 1) & map->mask;
    }
    return &map->slots[at];
}

void bpe_scratch_free(struct bpe_scratch *scratch)
{
    free(scratch->ids);
    free(scratch->next);
    free(scratch->prev);
    free(scratch->heap);
    text_buf_free(&scratch->word);
    *scratch = (struct bpe_scratch){0};
}

static int reserve_symbols(struct bpe_scratch *scratch, size_t n, struct error *err)
{
    if (n <= scratch->capacity) return 0;
    int rc = 0;
    size_t capacity = n < 256 ? 256 : n + n / 4;
    free(scratch->ids);
    free(scratch->next);
    free(scratch->prev);
    scratch->ids = scratch->next = scratch->prev = NULL;
    scratch->capacity = 0;
    TRY(mem_array(&scratch->ids, capacity, sizeof *scratch->ids, err));
    TRY(mem_array(&scratch->next, capacity, sizeof *scratch->next, err));
    TRY(mem_array(&scratch->prev, capacity, sizeof *scratch->prev, err));
    scratch->capacity = capacity;
out:
    return rc;
}

/* ids[n], n <= SHORT_WORD, in place; returns the new n. */
static size_t merge_short(const struct pair_map *pairs, int32_t *ids, size_t n)
{
    const struct pair_slot *slots[SHORT_WORD];
    for (size_t i = 0; i + 1 < n; i++)
        slots[i] = pair_find(pairs, ids[i], ids[i + 1]);
    for (;;) {
        size_t best = n;
        uint32_t rank = UINT32_MAX;
        for (size_t i = 0; i + 1 < n; i++) {
            if (slots[i] && slots[i]->rank < rank) {
                rank = slots[i]->rank;
                best = i;
            }
        }
        if (best == n) return n;
        ids[best] = slots[best]->id;
        n--;
        for (size_t i = best + 1; i < n; i++)
            ids[i] = ids[i + 1];
        for (size_t i = best + 1; i + 1 < n; i++)
            slots[i] = slots[i + 1];
        if (best) slots[best - 1] = pair_find(pairs, ids[best - 1], ids[best]);
        if (best + 1 < n) slots[best] = pair_find(pairs, ids[best], ids[best + 1]);
    }
}

static void heap_sink(uint64_t *heap, size_t n, size_t at)
{
    uint64_t key = heap[at];
    for (;;) {
        size_t child = at * HEAP_WAYS + 1;
        if (child >= n) break;
        size_t last = child + HEAP_WAYS < n ? child + HEAP_WAYS : n;
        size_t best = child;
        for (size_t i = child + 1; i < last; i++)
            best = heap[i] < heap[best] ? i : best;
        if (heap[best] >= key) break;
        heap[at] = heap[best];
        at = best;
    }
    heap[at] = key;
}

static void heap_push(struct bpe_scratch *scratch, uint64_t key)
{
    uint64_t *heap = scratch->heap;
    size_t at = scratch->n_heap++;
    while (at && heap[(at - 1) / HEAP_WAYS] > key) {
        heap[at] = heap[(at - 1) / HEAP_WAYS];
        at = (at - 1) / HEAP_WAYS;
    }
    heap[at] = key;
}

static uint64_t heap_pop(struct bpe_scratch *scratch)
{
    uint64_t top = scratch->heap[0];
    scratch->heap[0] = scratch->heap[--scratch->n_heap];
    if (scratch->n_heap) heap_sink(scratch->heap, scratch->n_heap, 0);
    return top;
}

/* A heap key: rank above, position of the left symbol below: lowest rank, then leftmost. */
static void push_pair(const struct pair_map *pairs, struct bpe_scratch *scratch, int32_t at)
{
    int32_t next = scratch->next[at];
    if (at < 0 || next < 0) return;
    const struct pair_slot *slot = pair_find(pairs, scratch->ids[at], scratch->ids[next]);
    if (slot) heap_push(scratch, (uint64_t)slot->rank << 32 | (uint32_t)at);
}

/* Links the symbols and collects the first pairs. A merge removes one key and adds two at most, so
 * 2 n keys are enough. */
static int start_heap(const struct pair_map *pairs, struct bpe_scratch *scratch, size_t n,
                      struct error *err)
{
    if (scratch->heap_capacity < 2 * n) {
        free(scratch->heap);
        scratch->heap_capacity = 0;
        int rc = mem_array(&scratch->heap, 2 * n, sizeof *scratch->heap, err);
        if (rc) return rc;
        scratch->heap_capacity = 2 * n;
    }
    for (size_t i = 0; i < n; i++) {
        scratch->next[i] = i + 1 < n ? (int32_t)(i + 1) : -1;
        scratch->prev[i] = (int32_t)i - 1;
    }
    scratch->n_heap = 0;
    for (size_t i = 0; i + 1 < n; i++) {
        const struct pair_slot *slot = pair_find(pairs, scratch->ids[i], scratch->ids[i + 1]);
        if (slot) scratch->heap[scratch->n_heap++] = (uint64_t)slot->rank << 32 | i;
    }
    for (size_t i = scratch->n_heap / HEAP_WAYS + 1; i-- > 0;) {
        if (i < scratch->n_heap) heap_sink(scratch->heap, scratch->n_heap, i);
    }
    return 0;
}

static void merge_at(const struct pair_map *pairs, struct bpe_scratch *scratch, uint64_t key)
{
    int32_t *ids = scratch->ids, *next = scratch->next, *prev = scratch->prev;
    int32_t at = (int32_t)(uint32_t)key;
    int32_t right = next[at];
    if (ids[at] < 0 || right < 0) return; /* merged away since */
    const struct pair_slot *slot = pair_find(pairs, ids[at], ids[right]);
    if (!slot || slot->rank != key >> 32) return;
    ids[at] = slot->id;
    ids[right] = -1;
    next[at] = next[right];
    if (next[at] >= 0) prev[next[at]] = at;
    if (prev[at] >= 0) push_pair(pairs, scratch, prev[at]);
    push_pair(pairs, scratch, at);
}

static int merge_long(const struct pair_map *pairs, struct bpe_scratch *scratch, size_t *n,
                      struct error *err)
{
    int rc = start_heap(pairs, scratch, *n, err);
    if (rc) return rc;
    while (scratch->n_heap)
        merge_at(pairs, scratch, heap_pop(scratch));
    size_t kept = 0;
    for (size_t i = 0; i < *n; i++) {
        if (scratch->ids[i] >= 0) scratch->ids[kept++] = scratch->ids[i];
    }
    *n = kept;
    return 0;
}

int32_t bpe_byte(const struct bpe *bpe, uint8_t byte)
{
    return bpe->byte_id[byte] >= 0 ? bpe->byte_id[byte] : bpe->unk_id;
}

int bpe_no_token(struct bpe_scratch *scratch, const char *data, size_t len, struct error *err)
{
    scratch->n_lacking = len < sizeof scratch->lacking ? len : sizeof scratch->lacking;
    memcpy(scratch->lacking, data, scratch->n_lacking);
    return error_set(err, ERR_ARGUMENT, "the tokenizer has no token for byte 0x%02x",
                     (unsigned)(uint8_t)*data);
}

static int symbols_of_bytes(const struct bpe *bpe, struct text word, struct bpe_scratch *scratch,
                            size_t *n, struct error *err)
{
    int32_t *ids = scratch->ids;
    bool unknown = false; /* the last symbol is an unknown that may take more in */
    for (size_t i = 0; i < word.len; i++) {
        int32_t id = bpe->byte_id[(uint8_t)word.data[i]];
        if (id < 0 && bpe->unk_id < 0) return bpe_no_token(scratch, word.data + i, 1, err);
        if (id < 0 && unknown && bpe->fuse_unk) continue;
        unknown = id < 0;
        ids[(*n)++] = unknown ? bpe->unk_id : id;
    }
    return 0;
}

/* The bytes of one character as byte tokens; false when one of them is missing. */
static bool fall_back(const struct bpe *bpe, const char *data, size_t len, int32_t *ids, size_t *n)
{
    if (!bpe->byte_fallback) return false;
    for (size_t i = 0; i < len; i++) {
        if (bpe->byte_id[(uint8_t)data[i]] < 0) return false;
    }
    for (size_t i = 0; i < len; i++)
        ids[(*n)++] = bpe->byte_id[(uint8_t)data[i]];
    return true;
}

/* The token of an unknown character is only put before the next known one, so that unknown
 * neighbours can join it; byte tokens do not end the wait. That is Hugging Face's order. */
static int symbols_of_chars(const struct bpe *bpe, const struct token_table *table,
                            struct text word, struct bpe_scratch *scratch, size_t *n,
                            struct error *err)
{
    int32_t *ids = scratch->ids;
    bool waiting = false;
    for (size_t at = 0; at < word.len;) {
        size_t len = text_char_length(word.data[at]);
        int32_t id = token_table_find(table, word.data + at, len, TOKEN_MODEL);
        if (id >= 0) {
            if (waiting) ids[(*n)++] = bpe->unk_id;
            waiting = false;
            ids[(*n)++] = id;
        } else if (!fall_back(bpe, word.data + at, len, ids, n)) {
            if (bpe->unk_id < 0) return bpe_no_token(scratch, word.data + at, len, err);
            if (waiting && !bpe->fuse_unk) ids[(*n)++] = bpe->unk_id;
            waiting = true;
        }
        at += len;
    }
    if (waiting) ids[(*n)++] = bpe->unk_id;
    return 0;
}

static int encode_part(const struct bpe *bpe, const struct token_table *table, struct text word,
                       struct bpe_scratch *scratch, struct token_ids *ids, struct error *err)
{
    size_t n = 0;
    if (word.len > INT32_MAX) {
        return error_set(err, ERR_ARGUMENT, "a word of %zu bytes is too long", word.len);
    }
    int rc = reserve_symbols(scratch, word.len, err);
    if (rc) return rc;
    rc = bpe->byte_level ? symbols_of_bytes(bpe, word, scratch, &n, err)
                         : symbols_of_chars(bpe, table, word, scratch, &n, err);
    if (rc) return rc;
    if (n <= SHORT_WORD) {
        n = merge_short(&bpe->pairs, scratch->ids, n);
    } else {
        rc = merge_long(&bpe->pairs, scratch, &n, err);
        if (rc) return rc;
    }
    return token_ids_append(ids, scratch->ids, n, err);
}

/* The token that is the whole word, or -1. */
static int find_whole(const struct bpe *bpe, const struct token_table *table, struct text word,
                      struct bpe_scratch *scratch, int32_t *id, struct error *err)
{
    *id = -1;
    if (word.len > table->max_content) return 0;
    if (bpe->byte_level) {
        scratch->word.len = 0;
        for (size_t i = 0; i < word.len; i++) {
            char code[2];
            size_t len = byte_level_char((uint8_t)word.data[i], code);
            int rc = text_buf_append(&scratch->word, code, len, err);
            if (rc) return rc;
        }
        word = (struct text){scratch->word.data, scratch->word.len};
    }
    *id = token_table_find(table, word.data, word.len, TOKEN_MODEL);
    return 0;
}

static bool at_space_mark(const char *data, size_t left)
{
    return left >= 3 && memcmp(data, "\xe2\x96\x81", 3) == 0;
}

int bpe_encode_word(const struct bpe *bpe, const struct token_table *table, struct text word,
                    struct bpe_scratch *scratch, struct token_ids *ids, struct error *err)
{
    if (!word.len) return 0;
    if (bpe->ignore_merges) {
        int32_t id;
        int rc = find_whole(bpe, table, word, scratch, &id, err);
        if (rc) return rc;
        if (id >= 0) return token_ids_append(ids, &id, 1, err);
    }
    size_t begin = 0;
    for (size_t at = 1; bpe->cut_before_space && at < word.len; at++) {
        if (!at_space_mark(word.data + at, word.len - at)) continue;
        if (at >= 3 && at_space_mark(word.data + at - 3, 3)) continue;
        struct text part = {word.data + begin, at - begin};
        int rc = encode_part(bpe, table, part, scratch, ids, err);
        if (rc) return rc;
        begin = at;
    }
    return encode_part(bpe, table, (struct text){word.data + begin, word.len - begin}, scratch, ids,
                       err);
}
