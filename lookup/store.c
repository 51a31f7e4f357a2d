/* Each generation is a suffix tree with compressed edges, cut at STORE_DEPTH: a node is an edge
 * tokens[start .. start + length) below its parent, and how many suffixes pass its end. A suffix
 * adds two nodes at most: the end of a text inside an edge splits it, so all places of an edge have
 * one count. Children are found by a hash table of (parent, first token). A node but for a root
 * lists its STORE_NEXT_MAX most frequent children; counts only grow, by one at a time, so moving
 * the child that has grown keeps the list right.
 *
 * Clearing the hash table of a generation that begins anew would take milliseconds. Instead each
 * slot has the number of the generation's epoch in which it was filled, and slots of former epochs
 * count as free. An epoch's number is used again after EPOCHS others; until then every text that is
 * added pays for looking at some slots of both generations, and those of former epochs become free
 * in fact. */
#include "lookup/store.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { NODES_OF_TOKEN = 2, NONE = 0, NODE_BITS = 29, EPOCHS = 7 /* 1 .. 7 in three bits */ };
_Static_assert(NODES_OF_TOKEN *(STORE_TOKENS_MAX / 2) + STORE_TENANTS_MAX + 1 < 1 << NODE_BITS,
               "a slot can name each node");

struct node {
    int32_t start, count;
    int32_t best;     /* the most frequent child; NONE, and of a root always */
    int32_t next;     /* the next one in the parent's list; NONE */
    int16_t length;   /* of its edge; 0: a root */
    int16_t n_listed; /* children */
};

struct generation {
    int32_t *tokens;
    struct node *nodes; /* nodes[0] is none */
    uint32_t *slots;    /* of nodes by parent, first token: epoch, node; 0, a former epoch: free */
    int32_t *parents;   /* of each node, to tell keys apart */
    size_t n_slots;
    uint32_t epoch;  /* 1 .. EPOCHS */
    int oldest;      /* slots may be of so many epochs before this one */
    size_t swept;    /* slots that this pass of the sweep has seen */
    int pass_epochs; /* that have begun since the pass did */
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
    g->epoch = 1;
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

/* NONE: the slot is free. */
static int32_t node_in(const struct generation *g, size_t slot)
{
    uint32_t value = g->slots[slot];
    return value >> NODE_BITS == g->epoch ? (int32_t)(value & ((1U << NODE_BITS) - 1)) : NONE;
}

static void fill_slot(struct generation *g, size_t slot, int32_t node)
{
    g->slots[slot] = g->epoch << NODE_BITS | (uint32_t)node;
}

static size_t find_slot(const struct generation *g, int32_t parent, int32_t token)
{
    size_t at = hash(parent, token, g->n_slots);
    int32_t node;
    for (; (node = node_in(g, at)) != NONE; at = at + 1 == g->n_slots ? 0 : at + 1) {
        if (g->parents[node] == parent && g->tokens[g->nodes[node].start] == token) break;
    }
    return at;
}

static int32_t find_child(const struct generation *g, int32_t parent, int32_t token)
{
    return node_in(g, find_slot(g, parent, token));
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
    g->nodes[g->n_nodes] = (struct node){start, 0, NONE, NONE, (int16_t)length, 0};
    g->parents[g->n_nodes] = parent;
    return g->n_nodes++;
}

/* Returns the link to a child in the list of its parent; *link = NONE: the child is not listed. */
static int32_t *find_link(struct generation *g, int32_t parent, int32_t child)
{
    int32_t *link = &g->nodes[parent].best;
    while (*link != NONE && *link != child) {
        link = &g->nodes[*link].next;
    }
    return link;
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
    g->nodes[made].n_listed = 1;
    int32_t *link = find_link(g, parent, node);
    if (*link == node) {
        *link = made;
        g->nodes[made].next = below->next;
    }
    below->next = NONE;
    fill_slot(g, at, made);
    below->start += length;
    below->length = (int16_t)(below->length - length);
    g->parents[node] = made;
    fill_slot(g, find_slot(g, made, g->tokens[below->start]), node);
    return made;
}

/* A child that has grown overtakes those of its parent's list that are less frequent now. */
static void rank(struct generation *g, int32_t parent, int32_t child)
{
    struct node *self = &g->nodes[child];
    int32_t *link = &g->nodes[parent].best, next = self->next;
    int n = 0;
    if (self->count == 1 && g->nodes[parent].n_listed == STORE_NEXT_MAX) return;
    for (; *link != NONE && *link != child && g->nodes[*link].count >= self->count; n++) {
        link = &g->nodes[*link].next;
    }
    if (*link == child || n == STORE_NEXT_MAX) return;
    self->next = *link;
    *link = child;
    link = &self->next; /* from here on it is taken out, or the last one that is too many */
    for (n++; *link != NONE && *link != child && n < STORE_NEXT_MAX; n++) {
        link = &g->nodes[*link].next;
    }
    g->nodes[parent].n_listed = (int16_t)(g->nodes[parent].n_listed + (*link == NONE));
    *link = *link == child ? next : NONE;
}

/* Counts one more suffix that passes the node. Roots are not counted, because nothing is predicted
 * from no tokens at all. */
static void count(struct generation *g, int32_t node)
{
    int32_t parent = g->parents[node];
    g->nodes[node].count++;
    if (g->nodes[parent].length > 0 && g->nodes[parent].best != node) rank(g, parent, node);
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
        int32_t child = node_in(g, slot);
        if (child == NONE) {
            child = make_node(g, node, at, end - at);
            fill_slot(g, slot, child);
            count(g, child);
            return;
        }
        int n = common(g, child, at, end);
        node = n < g->nodes[child].length ? split(g, child, n) : child;
        count(g, node);
        at += n;
    }
}

/* ---- epochs ---- */

/* Looks at n slots more. A pass over all of them frees those of epochs before it began. */
static void sweep(struct generation *g, size_t n)
{
    for (; n > 0 && g->oldest > 0; n--) {
        uint32_t *slot = &g->slots[g->swept++];
        if (*slot && *slot >> NODE_BITS != g->epoch) *slot = 0;
        if (g->swept < g->n_slots) continue;
        g->oldest = g->pass_epochs;
        g->swept = 0;
        g->pass_epochs = 0;
    }
}

/* Sweeps as many slots as adding a text of n tokens has to pay for. A generation has ended because
 * it had no room for the next text, and then it and the next one together have more tokens than one
 * has room for; or it had STORE_TENANTS_MAX texts. So while four generations come and go each table
 * is looked at once, and an epoch's number is used again after fourteen. */
static void sweep_both(struct store *s, int n)
{
    size_t n_slots = s->fresh->n_slots, a_token = n_slots / (size_t)s->room + 1;
    size_t a_text = n_slots / (2 * STORE_TENANTS_MAX) + 1;
    sweep(s->fresh, (size_t)n * a_token + a_text);
    sweep(s->old, (size_t)n * a_token + a_text);
}

/* The old generation is forgotten. */
static void turn(struct store *s)
{
    struct generation *g = s->old;
    while (g->oldest + 1 >= EPOCHS) {
        sweep(g, g->n_slots);
    }
    g->epoch = g->epoch % EPOCHS + 1;
    g->oldest++;
    if (g->swept > 0) g->pass_epochs++;
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
    sweep_both(s, n);
    for (int at = begin; at < end; at++) {
        add_suffix(g, root, at, end - at > STORE_DEPTH ? at + STORE_DEPTH : end);
    }
}

/* ---- looking ---- */

/* Goes on by a token; false: no text did. */
static bool follow(struct store_walk *walk, int32_t token)
{
    const struct generation *g = walk->in;
    const struct node *node = &g->nodes[walk->node];
    if (walk->offset < node->length) return g->tokens[node->start + walk->offset++] == token;
    walk->node = find_child(g, walk->node, token);
    walk->offset = 1;
    return walk->node != NONE;
}

/* Goes to the end of text[0..n) from the root. */
static bool follow_all(struct store_walk *walk, int32_t root, const int32_t *text, int n)
{
    walk->node = root;
    walk->offset = 0;
    walk->match = n;
    for (int i = 0; i < n; i++) {
        if (!follow(walk, text[i])) return false;
    }
    return true;
}

static bool goes_on(const struct store_walk *walk)
{
    const struct node *node = &walk->in->nodes[walk->node];
    return walk->offset < node->length || node->best != NONE;
}

/* The longest end of text[0..n) in the tree: what holds for a length holds for all shorter ones. */
static int longest(struct store_walk walk, int32_t root, const int32_t *text, int n)
{
    int low = 0, high = n < STORE_MATCH_MAX ? n : STORE_MATCH_MAX;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (follow_all(&walk, root, text + n - middle, middle)) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

/* Where a generation has a match that was followed by something. */
static bool find(const struct generation *g, uint64_t tenant, const int32_t *text, int n,
                 int n_match_min, struct store_walk *walk)
{
    int32_t root = find_root(g, tenant);
    *walk = (struct store_walk){.in = g};
    if (root == NONE) return false;
    for (int match = longest(*walk, root, text, n); match >= n_match_min; match--) {
        follow_all(walk, root, text + n - match, match);
        if (goes_on(walk)) return true;
    }
    return false;
}

bool store_walk_begin(const struct store *s, uint64_t tenant, const int32_t *text, int n,
                      int n_match_min, struct store_walk *walk)
{
    struct store_walk older;
    if (n_match_min < 1) n_match_min = 1;
    bool is_found = find(s->fresh, tenant, text, n, n_match_min, walk);
    if (!find(s->old, tenant, text, n, n_match_min, &older)) return is_found;
    if (!is_found || older.match > walk->match) *walk = older;
    return true;
}

static void list(struct store_next *next, int32_t token, int32_t count)
{
    next->tokens[next->n] = token;
    next->counts[next->n++] = count;
}

void store_walk_next(const struct store_walk *walk, int most, struct store_next *next)
{
    const struct generation *g = walk->in;
    const struct node *node = &g->nodes[walk->node];
    next->n = 0;
    next->total = node->count;
    if (walk->offset < node->length) {
        if (most > 0) list(next, g->tokens[node->start + walk->offset], node->count);
        return;
    }
    for (int32_t i = node->best; i != NONE && next->n < most; i = g->nodes[i].next) {
        list(next, g->tokens[g->nodes[i].start], g->nodes[i].count);
    }
}

bool store_walk_step(struct store_walk *walk, int32_t token)
{
    return follow(walk, token);
}

void store_find(const struct store *s, uint64_t tenant, const int32_t *text, int n, int n_match_min,
                int k, struct store_guesses *found)
{
    struct store_walk walk;
    struct store_next next;
    found->n = found->match = 0;
    if (!store_walk_begin(s, tenant, text, n, n_match_min, &walk)) return;
    found->match = walk.match;
    for (store_walk_next(&walk, 1, &next); found->n < k && next.n > 0;) {
        found->guesses[found->n++] =
            (struct store_guess){next.tokens[0], next.counts[0], next.total};
        store_walk_step(&walk, next.tokens[0]);
        store_walk_next(&walk, 1, &next);
    }
}
