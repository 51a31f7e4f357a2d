/* The pool of n-grams. */
#include "lookup/ngrams.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

struct ngrams {
    struct ngram_list *lists; /* [n_sets][NGRAMS_WAYS] */
    uint32_t n_sets, n_added;
};

int ngrams_open(struct ngrams **ngrams, int n_lists, struct error *err)
{
    int rc = 0;
    struct ngrams *g = NULL;
    *ngrams = NULL;
    if (n_lists < NGRAMS_LISTS_MIN || n_lists > NGRAMS_LISTS_MAX) {
        return error_set(err, ERR_ARGUMENT, "%d lists of n-grams; there are %d to %d", n_lists,
                         NGRAMS_LISTS_MIN, NGRAMS_LISTS_MAX);
    }
    TRY(mem_array(&g, 1, sizeof *g, err));
    g->n_sets = (uint32_t)(n_lists / NGRAMS_WAYS);
    TRY(mem_array(&g->lists, (size_t)g->n_sets * NGRAMS_WAYS, sizeof *g->lists, err));
    *ngrams = g;
    g = NULL;
out:
    ngrams_close(g);
    return rc;
}

void ngrams_close(struct ngrams *g)
{
    if (!g) return;
    free(g->lists);
    free(g);
}

static struct ngram_list *find_set(const struct ngrams *g, int32_t token)
{
    uint64_t x = (uint32_t)token * 0x9e3779b97f4a7c15U; /* the golden ratio, as Knuth's */
    return g->lists + ((x >> 32) * g->n_sets >> 32) * NGRAMS_WAYS;
}

static struct ngram_list *find(const struct ngrams *g, int32_t token)
{
    struct ngram_list *set = find_set(g, token);
    for (int i = 0; i < NGRAMS_WAYS; i++) {
        if (set[i].n > 0 && set[i].token == token) return &set[i];
    }
    return NULL;
}

const struct ngram_list *ngrams_find(const struct ngrams *g, int32_t token)
{
    return find(g, token);
}

/* How long ago it was added to; an empty one the longest. */
static uint32_t age(const struct ngrams *g, const struct ngram_list *list)
{
    return list->n ? g->n_added - list->added_at : UINT32_MAX;
}

/* The list of the token, or the one that gives its place to it, emptied. */
static struct ngram_list *take_list(struct ngrams *g, int32_t token)
{
    struct ngram_list *known = find(g, token);
    struct ngram_list *set = find_set(g, token), *oldest = set;
    if (known) return known;
    for (int i = 1; i < NGRAMS_WAYS; i++) {
        if (age(g, &set[i]) > age(g, oldest)) oldest = &set[i];
    }
    *oldest = (struct ngram_list){.token = token};
    return oldest;
}

static int n_alike(const struct ngram *a, const struct ngram *b)
{
    int n = 0;
    while (n < a->n && n < b->n && a->tokens[n] == b->tokens[n]) {
        n++;
    }
    return n;
}

/* The n-gram goes to the front, or the one whose beginning it is. Those that are its beginning
 * go, and of the others the oldest where there are too many. */
static void put_first(struct ngram_list *list, struct ngram ngram)
{
    struct ngram kept[NGRAMS_KEPT + 1];
    int n = 1;
    for (int i = 0; i < list->n; i++) {
        const struct ngram *other = &list->ngrams[i];
        int alike = n_alike(&ngram, other);
        if (alike == ngram.n) {
            ngram = *other;
        } else if (alike < other->n) {
            kept[n++] = *other;
        }
    }
    kept[0] = ngram;
    list->n = (uint8_t)(n < NGRAMS_KEPT ? n : NGRAMS_KEPT);
    memcpy(list->ngrams, kept, list->n * sizeof *kept);
}

void ngrams_add(struct ngrams *g, int32_t token, const int32_t *tokens, int n)
{
    struct ngram ngram = {.n = n};
    if (token < 0 || n <= 0 || n > NGRAMS_TOKENS) return;
    for (int i = 0; i < n; i++) {
        if (tokens[i] < 0) return;
        ngram.tokens[i] = tokens[i];
    }
    struct ngram_list *list = take_list(g, token);
    list->added_at = g->n_added++;
    put_first(list, ngram);
}

void ngrams_test(struct ngrams *g, int32_t token, int32_t next)
{
    struct ngram_list *list = find(g, token);
    if (!list) return;
    unsigned is_right = list->ngrams[0].tokens[0] == next, tests = list->tests;
    list->tests = (uint16_t)(tests << 1 | is_right);
    if (list->n_tested < NGRAMS_TESTS) list->n_tested++;
}

int ngrams_count_right(const struct ngram_list *list)
{
    int n = 0;
    for (unsigned left = list->tests; left; left &= left - 1) {
        n++;
    }
    return n;
}

static bool has(const int32_t *tokens, int n, int32_t token)
{
    for (int i = 0; i < n; i++) {
        if (tokens[i] == token) return true;
    }
    return false;
}

int ngrams_others(const struct ngram_list *list, int at, int32_t *others, int n)
{
    const struct ngram *newest = &list->ngrams[0];
    int n_others = 0;
    for (int i = 1; i < list->n && n_others < n; i++) {
        const struct ngram *other = &list->ngrams[i];
        if (other->n <= at || n_alike(newest, other) != at) continue;
        int32_t token = other->tokens[at];
        if (!has(others, n_others, token)) others[n_others++] = token;
    }
    return n_others;
}

int ngrams_chain(const struct ngrams *g, int32_t token, int n_vocab, int32_t *tokens,
                 const struct ngram_list **lists, int *at, int k)
{
    int n = 0;
    const struct ngram_list *list = NULL;
    for (int i = 0; n < k; i++) {
        if (!list || i == list->ngrams[0].n) {
            list = ngrams_find(g, token);
            i = 0;
        }
        if (!list || list->ngrams[0].tokens[i] >= n_vocab) break;
        token = tokens[n] = list->ngrams[0].tokens[i];
        lists[n] = list;
        at[n++] = i;
    }
    return n;
}
