/* Each generation is a suffix tree with compressed edges, cut at STORE_DEPTH: a node is an edge
 * tokens[start .. start + length) below its parent, and how many suffixes pass its end. A suffix
 * adds two nodes at most: the end of a text inside an edge splits it, so all places of an edge have
 * one count. Children are found by a hash table of (parent, first token). A node knows its most
 * frequent child; counts only grow, so one comparison for each addition keeps that right. */
#include "lookup/store.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { NODES_OF_TOKEN = 2, NONE = 0 };

struct node {
    int32_t start, count;
    int32_t best;   /* the most frequent child; NONE */
    int32_t length; /* of its edge; 0: a root */
};

struct generation {
    int32_t *tokens;
    struct node *nodes; /* nodes[0] is none */
    int32_t *slots;     /* of nodes by parent and first token; NONE: free */
    int32_t *parents;   /* of each node, to tell keys apart */
    size_t n_slots;
    int n_tokens, n_nodes, n_tenants;
    uint64_t tenants[STORE_TENANTS_MAX];
    int32_t roots[STORE_TENANTS_MAX];
};

struct store {
    struct generation *fresh, *old;
    int room; /* tokens of a generation */
};

/* ---- room ---- */

static size_t nodes_room(int room)
{
    return NODES_OF_TOKEN * (size_t)room + STORE_TENANTS_MAX + 1;
}

/* At most four fifths of the slots are used, even if each token makes two nodes. */
static size_t slots_room(int room)
{
    return nodes_room(room) / 4 * 5 + 4;
}

static void generation_close(struct generation *g)
{
    if (!g) return;
    free(g->tokens);
    free(g->nodes);
    free(g->slots);
    free(g->parents);
    free(g);
}

static int generation_open(struct generation **made, int room, struct error *err)
{
    int rc = 0;
    struct generation *g = NULL;
    TRY(mem_array(&g, 1, sizeof *g, err));
    TRY(mem_array(&g->tokens, (size_t)room, sizeof *g->tokens, err));
    TRY(mem_array(&g->nodes, nodes_room(room), sizeof *g->nodes, err));
    TRY(mem_array(&g->parents, nodes_room(room), sizeof *g->parents, err));
    TRY(mem_array(&g->slots, slots_room(room), sizeof *g->slots, err));
    g->n_slots = slots_room(room);
    g->n_nodes = 1;
    *made = g;
    g = NULL;
out:
    generation_close(g);
    return rc;
}

int store_open(struct store **store, int n_tokens, struct error *err)
{
    int rc = 0;
    struct store *s = NULL;
    *store = NULL;
    if (n_tokens < STORE_TOKENS_MIN || n_tokens > STORE_TOKENS_MAX) {
        return error_set(err, ERR_ARGUMENT, "a store of %d tokens; it has %d to %d", n_tokens,
                         STORE_TOKENS_MIN, STORE_TOKENS_MAX);
    }
    TRY(mem_array(&s, 1, sizeof *s, err));
    s->room = n_tokens / 2;
    TRY(generation_open(&s->fresh, s->room, err));
    TRY(generation_open(&s->old, s->room, err));
    *store = s;
    s = NULL;
out:
    store_close(s);
    return rc;
}

void store_close(struct store *s)
{
    if (!s) return;
    generation_close(s->fresh);
    generation_close(s->old);
    free(s);
}

int store_length(const struct store *s)
{
    return s->fresh->n_tokens + s->old->n_tokens;
}

size_t store_bytes(const struct store *s)
{
    size_t one = sizeof *s->fresh + (size_t)s->room * sizeof *s->fresh->tokens +
                 nodes_room(s->room) * (sizeof(struct node) + sizeof(int32_t)) +
                 slots_room(s->room) * sizeof *s->fresh->slots;
    return sizeof *s + 2 * one;
}

/* ---- the tree ---- */

static size_t hash(int32_t parent, int32_t token, size_t n_slots)
{
    uint64_t x = (uint64_t)(uint32_t)parent << 32 | (uint32_t)token;
    x *= 0x9e3779b97f4a7c15U; /* Knuth's multiplicative hash with the golden ratio */
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9U; /* from the finaliser of splitmix64 */
    return (size_t)((x >> 32) * n_slots >> 32);
}

static size_t find_slot(const struct generation *g, int32_t parent, int32_t token)
{
    size_t at = hash(parent, token, g->n_slots);
    for (; g->slots[at] != NONE; at = at + 1 == g->n_slots ? 0 : at + 1) {
        int32_t node = g->slots[at];
        if (g->parents[node] == parent && g->tokens[g->nodes[node].start] == token) break;
    }
    return at;
}

static int32_t find_child(const struct generation *g, int32_t parent, int32_t token)
{
    return g->slots[find_slot(g, parent, token)];
}

/* NONE: the tenant has no text here. */
static int32_t find_root(const struct generation *g, uint64_t tenant)
{
    for (int i = 0; i < g->n_tenants; i++) {
        if (g->tenants[i] == tenant) return g->roots[i];
    }
    return NONE;
}

static int32_t make_node(struct generation *g, int32_t parent, int start, int length)
{
    g->nodes[g->n_nodes] = (struct node){start, 0, NONE, length};
    g->parents[g->n_nodes] = parent;
    return g->n_nodes++;
}

/* The upper `length` tokens of a node's edge become a node of their own, which takes its place. */
static int32_t split(struct generation *g, int32_t node, int length)
{
    struct node *below = &g->nodes[node];
    int32_t parent = g->parents[node];
    size_t at = find_slot(g, parent, g->tokens[below->start]);
    int32_t made = make_node(g, parent, below->start, length);
    g->nodes[made].count = below->count;
    g->nodes[made].best = node;
    if (g->nodes[parent].best == node) g->nodes[parent].best = made;
    g->slots[at] = made;
    below->start += length;
    below->length -= length;
    g->parents[node] = made;
    g->slots[find_slot(g, made, g->tokens[below->start])] = node;
    return made;
}

/* One more suffix passes the node. */
static void count(struct generation *g, int32_t node)
{
    struct node *parent = &g->nodes[g->parents[node]];
    g->nodes[node].count++;
    if (parent->best == NONE || g->nodes[node].count > g->nodes[parent->best].count) {
        parent->best = node;
    }
}

/* Tokens of the node's edge that tokens[at .. end) begins with. */
static int common(const struct generation *g, int32_t node, int at, int end)
{
    const struct node *edge = &g->nodes[node];
    int n = edge->length < end - at ? edge->length : end - at, i = 1;
    while (i < n && g->tokens[edge->start + i] == g->tokens[at + i]) {
        i++;
    }
    return i;
}

/* Adds the suffix tokens[at .. end), at most STORE_DEPTH tokens. */
static void add_suffix(struct generation *g, int32_t root, int at, int end)
{
    int32_t node = root;
    g->nodes[root].count++;
    while (at < end) {
        size_t slot = find_slot(g, node, g->tokens[at]);
        int32_t child = g->slots[slot];
        if (child == NONE) {
            child = g->slots[slot] = make_node(g, node, at, end - at);
            count(g, child);
            return;
        }
        int n = common(g, child, at, end);
        node = n < g->nodes[child].length ? split(g, child, n) : child;
        count(g, node);
        at += n;
    }
}

/* The old generation is forgotten. */
static void turn(struct store *s)
{
    struct generation *g = s->old;
    memset(g->slots, 0, g->n_slots * sizeof *g->slots);
    g->n_tokens = g->n_tenants = 0;
    g->n_nodes = 1;
    s->old = s->fresh;
    s->fresh = g;
}

static int32_t make_root(struct generation *g, uint64_t tenant)
{
    int32_t root = make_node(g, NONE, 0, 0);
    g->tenants[g->n_tenants] = tenant;
    g->roots[g->n_tenants++] = root;
    return root;
}

void store_add(struct store *s, uint64_t tenant, const int32_t *tokens, int n)
{
    if (n <= 0) return;
    if (n > s->room) tokens += n - s->room, n = s->room;
    bool is_new = find_root(s->fresh, tenant) == NONE;
    if (s->room - s->fresh->n_tokens < n || (is_new && s->fresh->n_tenants == STORE_TENANTS_MAX)) {
        turn(s);
    }
    struct generation *g = s->fresh;
    int32_t root = find_root(g, tenant);
    if (root == NONE) root = make_root(g, tenant);
    int begin = g->n_tokens, end = begin + n;
    memcpy(g->tokens + begin, tokens, (size_t)n * sizeof *tokens);
    g->n_tokens = end;
    for (int at = begin; at < end; at++) {
        add_suffix(g, root, at, end - at > STORE_DEPTH ? at + STORE_DEPTH : end);
    }
}

/* ---- looking ---- */

/* A place of a tree: so many tokens of the node's edge are behind it. */
struct place {
    int32_t node;
    int offset;
};

/* Goes on by a token; false: no text did. */
static bool follow(const struct generation *g, struct place *place, int32_t token)
{
    const struct node *node = &g->nodes[place->node];
    if (place->offset < node->length) return g->tokens[node->start + place->offset++] == token;
    *place = (struct place){find_child(g, place->node, token), 1};
    return place->node != NONE;
}

static bool walk(const struct generation *g, int32_t root, const int32_t *text, int n,
                 struct place *place)
{
    *place = (struct place){root, 0};
    for (int i = 0; i < n; i++) {
        if (!follow(g, place, text[i])) return false;
    }
    return true;
}

static bool goes_on(const struct generation *g, const struct place *place)
{
    const struct node *node = &g->nodes[place->node];
    return place->offset < node->length || node->best != NONE;
}

/* The longest end of text[0..n) in the tree: what holds for a length holds for all shorter ones. */
static int longest(const struct generation *g, int32_t root, const int32_t *text, int n)
{
    int low = 0, high = n < STORE_MATCH_MAX ? n : STORE_MATCH_MAX;
    struct place place;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (walk(g, root, text + n - middle, middle, &place)) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

/* What comes next most often. */
static struct store_guess step(const struct generation *g, struct place *place)
{
    const struct node *node = &g->nodes[place->node];
    if (place->offset < node->length) {
        return (struct store_guess){g->tokens[node->start + place->offset++], node->count,
                                    node->count};
    }
    const struct node *best = &g->nodes[node->best];
    *place = (struct place){node->best, 1};
    return (struct store_guess){g->tokens[best->start], best->count, node->count};
}

/* Returns the length of the match; 0: none that was followed by something. */
static int find(const struct generation *g, uint64_t tenant, const int32_t *text, int n,
                int n_match_min, struct place *place)
{
    int32_t root = find_root(g, tenant);
    if (root == NONE) return 0;
    for (int match = longest(g, root, text, n); match >= n_match_min; match--) {
        walk(g, root, text + n - match, match, place);
        if (goes_on(g, place)) return match;
    }
    return 0;
}

void store_find(const struct store *s, uint64_t tenant, const int32_t *text, int n, int n_match_min,
                int k, struct store_guesses *found)
{
    struct place place, other;
    const struct generation *g = s->fresh;
    if (n_match_min < 1) n_match_min = 1;
    found->n = 0;
    found->match = find(g, tenant, text, n, n_match_min, &place);
    int older = find(s->old, tenant, text, n, n_match_min, &other);
    if (older > found->match) found->match = older, g = s->old, place = other;
    if (found->match == 0) return;
    while (found->n < k && goes_on(g, &place)) {
        found->guesses[found->n++] = step(g, &place);
    }
}
