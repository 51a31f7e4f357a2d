/* A list is found with one look into memory, because a set lies in a few neighbouring lines. */
#include "lookup/recycled.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

struct recycled {
    struct recycled_list *lists; /* [n_sets][RECYCLED_WAYS] */
    uint32_t n_sets, n_added;
};

int recycled_open(struct recycled **recycled, int n_lists, struct error *err)
{
    int rc = 0;
    struct recycled *r = NULL;
    *recycled = NULL;
    if (n_lists < RECYCLED_LISTS_MIN || n_lists > RECYCLED_LISTS_MAX) {
        return error_set(err, ERR_ARGUMENT, "%d lists of tokens; there are %d to %d", n_lists,
                         RECYCLED_LISTS_MIN, RECYCLED_LISTS_MAX);
    }
    TRY(mem_array(&r, 1, sizeof *r, err));
    r->n_sets = (uint32_t)(n_lists / RECYCLED_WAYS);
    TRY(mem_array(&r->lists, (size_t)r->n_sets * RECYCLED_WAYS, sizeof *r->lists, err));
    *recycled = r;
    r = NULL;
out:
    recycled_close(r);
    return rc;
}

void recycled_close(struct recycled *r)
{
    if (!r) return;
    free(r->lists);
    free(r);
}

size_t recycled_bytes(const struct recycled *r)
{
    return sizeof *r + (size_t)r->n_sets * RECYCLED_WAYS * sizeof *r->lists;
}

static struct recycled_list *find_set(const struct recycled *r, uint64_t tenant, int32_t token)
{
    uint64_t x = tenant * 0x9e3779b97f4a7c15U + (uint32_t)token; /* the golden ratio, as Knuth's */
    x ^= x >> 30;                                                /* the finaliser of splitmix64 */
    x *= 0xbf58476d1ce4e5b9U;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebU;
    return r->lists + ((x >> 32) * r->n_sets >> 32) * RECYCLED_WAYS;
}

static bool is_of(const struct recycled_list *list, uint64_t tenant, int32_t token)
{
    return list->n > 0 && list->token == token && list->tenant == tenant;
}

const struct recycled_list *recycled_find(const struct recycled *r, uint64_t tenant, int32_t token)
{
    const struct recycled_list *set = find_set(r, tenant, token);
    for (int i = 0; i < RECYCLED_WAYS; i++) {
        if (is_of(&set[i], tenant, token)) return &set[i];
    }
    return NULL;
}

/* How long ago it was added to; an empty one the longest. */
static uint32_t age(const struct recycled *r, const struct recycled_list *list)
{
    return list->n ? r->n_added - list->added_at : UINT32_MAX;
}

/* The list of the token, or the one that gives its place to it, emptied. */
static struct recycled_list *take_list(struct recycled *r, uint64_t tenant, int32_t token)
{
    struct recycled_list *set = find_set(r, tenant, token), *oldest = set;
    for (int i = 0; i < RECYCLED_WAYS; i++) {
        if (is_of(&set[i], tenant, token)) return &set[i];
        if (age(r, &set[i]) > age(r, oldest)) oldest = &set[i];
    }
    *oldest = (struct recycled_list){.tenant = tenant, .token = token};
    return oldest;
}

/* Appends a token to the first n, unless it is among them; returns how many there are. */
static int append(int32_t *tokens, int n, int32_t token)
{
    if (token < 0 || n == RECYCLED_SUCCESSORS) return n;
    for (int i = 0; i < n; i++) {
        if (tokens[i] == token) return n;
    }
    tokens[n] = token;
    return n + 1;
}

static void note_test(struct recycled_list *list, int32_t said)
{
    if (list->n == 0) return;
    unsigned tests = list->tests, is_right = list->successors[0] == said;
    list->tests = (uint16_t)(tests << 1 | is_right);
    if (list->n_tested < RECYCLED_TESTS) list->n_tested++;
}

void recycled_add(struct recycled *r, uint64_t tenant, int32_t token, int32_t said,
                  const int32_t *best, int n)
{
    int32_t fresh[RECYCLED_SUCCESSORS];
    int n_fresh = 0;
    for (int i = 0; i < n; i++) {
        n_fresh = append(fresh, n_fresh, best[i]);
    }
    if (token < 0 || n_fresh == 0) return;
    struct recycled_list *list = take_list(r, tenant, token);
    list->added_at = r->n_added++;
    note_test(list, said);
    for (int i = 0; i < list->n; i++) {
        n_fresh = append(fresh, n_fresh, list->successors[i]);
    }
    memcpy(list->successors, fresh, (size_t)n_fresh * sizeof *fresh);
    list->n = (uint8_t)n_fresh;
}

int recycled_count_right(const struct recycled_list *list)
{
    int n = 0;
    for (unsigned left = list->tests; left; left &= left - 1) {
        n++;
    }
    return n;
}

int recycled_chain(const struct recycled *r, uint64_t tenant, int32_t token, int n_vocab,
                   const struct recycled_list **lists, int k)
{
    int n = 0;
    while (n < k) {
        const struct recycled_list *list = recycled_find(r, tenant, token);
        if (!list || list->successors[0] >= n_vocab) break;
        token = list->successors[0];
        lists[n++] = list;
    }
    return n;
}
