/* Tables of places by the tokens that stand there, with linear probing; at most half full. */
#include "client/replay/first_places.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { N_TABLES = FIRST_PLACES_MOST - FIRST_PLACES_LEAST + 1, SLOTS_FIRST = 64, NONE = -1 };

struct table {
    int32_t *slots; /* [n_slots] places or NONE; n_slots is a power of two */
    size_t n_slots, n_used;
};

struct first_places {
    int32_t *tokens;
    size_t n_tokens, capacity;
    struct table tables[N_TABLES]; /* of runs of FIRST_PLACES_LEAST + i tokens */
};

static int table_open(struct table *t, size_t n_slots, struct error *err)
{
    *t = (struct table){.n_slots = n_slots};
    int rc = mem_array(&t->slots, n_slots, sizeof *t->slots, err);
    for (size_t i = 0; !rc && i < n_slots; i++) {
        t->slots[i] = NONE;
    }
    return rc;
}

int first_places_open(struct first_places **places, struct error *err)
{
    int rc = 0;
    struct first_places *p = NULL;
    *places = NULL;
    TRY(mem_array(&p, 1, sizeof *p, err));
    for (int i = 0; i < N_TABLES; i++) {
        TRY(table_open(&p->tables[i], SLOTS_FIRST, err));
    }
    *places = p;
    p = NULL;
out:
    first_places_close(p);
    return rc;
}

void first_places_close(struct first_places *p)
{
    if (!p) return;
    for (int i = 0; i < N_TABLES; i++) {
        free(p->tables[i].slots);
    }
    free(p->tokens);
    free(p);
}

/* FNV-1a over the tokens, with the finaliser of splitmix64, because the low bits are used. */
static size_t hash(const int32_t *run, int n)
{
    uint64_t x = 0xcbf29ce484222325U;
    for (int i = 0; i < n; i++) {
        x = (x ^ (uint32_t)run[i]) * 0x100000001b3U;
    }
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9U;
    x = (x ^ x >> 27) * 0x94d049bb133111ebU;
    return (size_t)(x ^ x >> 31);
}

/* The slot of the run of n tokens at `place`, which may be empty. */
static size_t find_slot(const struct first_places *p, const struct table *t, size_t place, int n)
{
    const int32_t *run = p->tokens + place;
    size_t at = hash(run, n) & (t->n_slots - 1);
    while (t->slots[at] != NONE &&
           memcmp(p->tokens + t->slots[at], run, (size_t)n * sizeof *run) != 0) {
        at = (at + 1) & (t->n_slots - 1);
    }
    return at;
}

static int grow(const struct first_places *p, struct table *t, int n, struct error *err)
{
    struct table wider;
    int rc = table_open(&wider, 2 * t->n_slots, err);
    if (rc) return rc;
    for (size_t i = 0; i < t->n_slots; i++) {
        if (t->slots[i] == NONE) continue;
        wider.slots[find_slot(p, &wider, (size_t)t->slots[i], n)] = t->slots[i];
    }
    wider.n_used = t->n_used;
    free(t->slots);
    *t = wider;
    return 0;
}

/* The run that the last n tokens are. */
static int add_run(struct first_places *p, struct table *t, int n, struct error *err)
{
    size_t place = p->n_tokens - (size_t)n;
    if (2 * (t->n_used + 1) > t->n_slots) {
        int rc = grow(p, t, n, err);
        if (rc) return rc;
    }
    size_t at = find_slot(p, t, place, n);
    if (t->slots[at] != NONE) return 0;
    t->slots[at] = (int32_t)place;
    t->n_used++;
    return 0;
}

int first_places_add(struct first_places *p, int32_t token, struct error *err)
{
    int rc = 0;
    if (p->n_tokens >= INT32_MAX) {
        return error_set(err, ERR_EXHAUSTED, "a text of more than %d tokens", INT32_MAX);
    }
    TRY(mem_grow(&p->tokens, &p->capacity, p->n_tokens + 1, err));
    p->tokens[p->n_tokens++] = token;
    for (int n = FIRST_PLACES_LEAST; n <= FIRST_PLACES_MOST && (size_t)n <= p->n_tokens; n++) {
        TRY(add_run(p, &p->tables[n - FIRST_PLACES_LEAST], n, err));
    }
out:
    return rc;
}

int32_t first_places_find(const struct first_places *p, int n)
{
    const struct table *t = &p->tables[n - FIRST_PLACES_LEAST];
    if (p->n_tokens <= (size_t)n) return -1;
    size_t own = p->n_tokens - (size_t)n;
    int32_t place = t->slots[find_slot(p, t, own, n)];
    return (size_t)place < own ? place : -1;
}

size_t first_places_length(const struct first_places *p)
{
    return p->n_tokens;
}

size_t first_places_bytes(const struct first_places *p)
{
    size_t bytes = sizeof *p + p->capacity * sizeof *p->tokens;
    for (int i = 0; i < N_TABLES; i++) {
        bytes += p->tables[i].n_slots * sizeof *p->tables[i].slots;
    }
    return bytes;
}
