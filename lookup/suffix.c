/* The automaton. Most states have one transition, whose token is read from the text: a state keeps
 * only the state that it leads to. Further transitions, about one for every two tokens of a usual
 * text, lie in a pool that a hash table finds. */
#include "lookup/suffix.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/memory.h"

enum {
    NONE = -1,
    /* States whose last occurrence is noted for each token: the longest part of the end of the text
     * and so many shorter ones. */
    RECENT_STATES = 8,
    OTHER_STATES = 4, /* lengths of a match at which other tokens are looked for */
    SLOTS_FIRST = 64, /* of the hash table */
    ROOM_FIRST = 16   /* elements of an array */
};

/* Returns a mark that separates texts: it is no token, and no two marks are equal. */
static int32_t end_mark(int position)
{
    return -1 - position;
}

struct state {
    int32_t length, link;
    int32_t end;    /* where the first occurrence ends; tokens[end + 1] is `next`'s token */
    int32_t next;   /* where that leads to; NONE: nothing has followed yet */
    int32_t recent; /* where a late occurrence ends */
    int32_t more;   /* the first of its further transitions in `edges`; NONE */
};

struct edge {
    int32_t state, token, target;
    int32_t sibling; /* the state's next one; NONE */
};

struct suffix {
    int32_t *tokens;
    struct state *states;
    struct edge *edges;
    int32_t *slots; /* [n_slots] of edges, by state and token; NONE: free */
    size_t tokens_room, states_room, edges_room, n_slots;
    int n_tokens, n_states, n_edges;
    int32_t last; /* the state of the whole text */
    bool is_full; /* it takes no more tokens */
};

static int make_root(struct suffix *s, struct error *err)
{
    int rc = 0;
    TRY(mem_grow(&s->states, &s->states_room, 1, err));
    s->states[s->n_states++] = (struct state){0, NONE, -1, NONE, -1, NONE};
out:
    return rc;
}

int suffix_open(struct suffix **suffix, struct error *err)
{
    int rc = 0;
    struct suffix *s = NULL;
    *suffix = NULL;
    TRY(mem_array(&s, 1, sizeof *s, err));
    TRY(make_root(s, err));
    *suffix = s;
    s = NULL;
out:
    suffix_close(s);
    return rc;
}

void suffix_close(struct suffix *s)
{
    if (!s) return;
    free(s->tokens);
    free(s->states);
    free(s->edges);
    free(s->slots);
    free(s);
}

int suffix_length(const struct suffix *s)
{
    return s->n_tokens;
}

size_t suffix_bytes(const struct suffix *s)
{
    return sizeof *s + s->tokens_room * sizeof *s->tokens + s->states_room * sizeof *s->states +
           s->edges_room * sizeof *s->edges + s->n_slots * sizeof *s->slots;
}

/* ---- transitions ---- */

/* The slot where the search for an edge begins. */
static size_t first_slot(const struct suffix *s, int32_t state, int32_t token)
{
    uint64_t x = (uint64_t)(uint32_t)state << 32 | (uint32_t)token;
    x *= 0x9e3779b97f4a7c15U; /* Knuth's multiplicative hash with the golden ratio */
    return (size_t)(((x >> 32 ^ (x & UINT32_MAX)) * s->n_slots) >> 32);
}

/* The slot that holds the edge, or the free one where it belongs. */
static size_t find_slot(const struct suffix *s, int32_t state, int32_t token)
{
    size_t at = first_slot(s, state, token);
    while (s->slots[at] != NONE) {
        const struct edge *edge = &s->edges[s->slots[at]];
        if (edge->state == state && edge->token == token) break;
        at = at + 1 < s->n_slots ? at + 1 : 0;
    }
    return at;
}

/* Where a transition's target is kept; NULL: there is no such transition. */
static int32_t *find_target(const struct suffix *s, int32_t state, int32_t token)
{
    struct state *from = &s->states[state];
    if (from->next == NONE) return NULL;
    if (s->tokens[from->end + 1] == token) return &from->next;
    if (from->more == NONE) return NULL;
    int32_t edge = s->slots[find_slot(s, state, token)];
    return edge == NONE ? NULL : &s->edges[edge].target;
}

/* Between half and three quarters of the table are used. */
static int grow_slots(struct suffix *s, struct error *err)
{
    size_t n = s->n_slots ? s->n_slots + s->n_slots / 2 : SLOTS_FIRST;
    int32_t *slots = NULL;
    if ((size_t)s->n_edges + 1 <= s->n_slots / 4 * 3) return 0;
    if (mem_array(&slots, n, sizeof *slots, err)) return err->code;
    for (size_t i = 0; i < n; i++) {
        slots[i] = NONE;
    }
    free(s->slots);
    s->slots = slots;
    s->n_slots = n;
    for (int i = 0; i < s->n_edges; i++) {
        s->slots[find_slot(s, s->edges[i].state, s->edges[i].token)] = i;
    }
    return 0;
}

/* Room for n elements, a sixteenth more than needed at most: there is one automaton for each text.
 */
static void *grow(void *array, size_t *room, size_t n, size_t size, struct error *err)
{
    if (n <= *room) return array;
    size_t wanted = n + n / 16 + ROOM_FIRST;
    void *grown = realloc(array, wanted * size);
    if (!grown) {
        error_set(err, ERR_NO_MEMORY, "no memory for a text of %zu tokens", n);
        return array;
    }
    *room = wanted;
    return grown;
}

#define GROW(array, room, n, err)                                           \
    (*(array) = grow(*(array), (room), (size_t)(n), sizeof **(array), err), \
     *(room) >= (size_t)(n) ? 0 : ERR_NO_MEMORY)

static int add_edge(struct suffix *s, int32_t state, int32_t token, int32_t target,
                    struct error *err)
{
    struct state *from = &s->states[state];
    int rc = 0;
    if (from->next == NONE) { /* all its occurrences end where the text did */
        from->next = target;
        return 0;
    }
    TRY(GROW(&s->edges, &s->edges_room, s->n_edges + 1, err));
    TRY(grow_slots(s, err));
    s->slots[find_slot(s, state, token)] = s->n_edges;
    s->edges[s->n_edges] = (struct edge){state, token, target, from->more};
    from->more = s->n_edges++;
out:
    return rc;
}

/* ---- adding ---- */

/* Splits off the shorter of two states that have the same end of the text: it has what the longer
 * one has, and ends elsewhere, too. */
static int split(struct suffix *s, int32_t from, int32_t token, int32_t longer, int32_t *shorter,
                 struct error *err)
{
    int rc = 0;
    int32_t made = s->n_states++, *target;
    s->states[made] = s->states[longer];
    s->states[made].length = s->states[from].length + 1;
    s->states[made].more = NONE;
    for (int32_t e = s->states[longer].more; e != NONE; e = s->edges[e].sibling) {
        TRY(add_edge(s, made, s->edges[e].token, s->edges[e].target, err));
    }
    while (from != NONE && (target = find_target(s, from, token)) && *target == longer) {
        *target = made;
        from = s->states[from].link;
    }
    s->states[longer].link = made;
    *shorter = made;
out:
    return rc;
}

/* The strings that end the text so far, and ended it before, have one more occurrence. */
static void note_recent(struct suffix *s)
{
    int32_t at = s->states[s->last].link;
    for (int i = 0; i < RECENT_STATES && at > 0; i++, at = s->states[at].link) {
        s->states[at].recent = s->n_tokens - 1;
    }
}

/* Extends the automaton by a token, as the algorithm does: `added` is the state of the whole text
 * with its new token. */
static int extend(struct suffix *s, int32_t token, struct error *err)
{
    int rc = 0;
    int32_t added = s->n_states++, from = s->last, *target = NULL;
    s->states[added] =
        (struct state){s->states[from].length + 1, 0, s->n_tokens, NONE, s->n_tokens, NONE};
    s->tokens[s->n_tokens] = token;
    while (from != NONE && !(target = find_target(s, from, token))) {
        TRY(add_edge(s, from, token, added, err));
        from = s->states[from].link;
    }
    if (from != NONE) {
        int32_t there = *target;
        if (s->states[there].length != s->states[from].length + 1) {
            TRY(split(s, from, token, there, &there, err));
        }
        s->states[added].link = there;
    }
    s->last = added;
    s->n_tokens++;
out:
    return rc;
}

static int add(struct suffix *s, int32_t token, struct error *err)
{
    int rc = 0;
    if (s->is_full || s->n_tokens == SUFFIX_TOKENS_MAX) {
        return error_set(err, ERR_EXHAUSTED, "the text of %d tokens takes no more", s->n_tokens);
    }
    TRY(GROW(&s->tokens, &s->tokens_room, s->n_tokens + 1, err));
    TRY(GROW(&s->states, &s->states_room, s->n_states + 2, err));
    note_recent(s);
    TRY(extend(s, token, err));
out:
    s->is_full |= rc != 0;
    return rc;
}

int suffix_add(struct suffix *s, int32_t token, struct error *err)
{
    return add(s, token, err);
}

int suffix_add_end(struct suffix *s, struct error *err)
{
    return add(s, end_mark(s->n_tokens), err);
}

/* ---- looking ---- */

struct suffix_place suffix_end(const struct suffix *s)
{
    int32_t before = s->states[s->last].link;
    if (before == NONE) return (struct suffix_place){0, 0};
    return (struct suffix_place){before, s->states[before].length};
}

void suffix_follow(const struct suffix *s, struct suffix_place *place, int32_t token)
{
    const int32_t *target = find_target(s, place->state, token);
    while (!target && place->state != 0) {
        place->state = s->states[place->state].link;
        if (place->length > s->states[place->state].length) {
            place->length = s->states[place->state].length;
        }
        target = find_target(s, place->state, token);
    }
    if (!target) return;
    place->state = *target;
    place->length++;
}

int suffix_copy_after(const struct suffix *s, const struct suffix_place *place, const int32_t *tail,
                      int n_tail, int32_t *tokens, int n)
{
    int from = s->states[place->state].recent + 1, n_copied = 0;
    if (place->length == 0 || from >= s->n_tokens + n_tail) return 0;
    for (; n_copied < n; n_copied++) {
        int at = from + n_copied, beyond = at - s->n_tokens;
        int32_t token = beyond < 0        ? s->tokens[at]
                        : beyond < n_tail ? tail[beyond]
                                          : tokens[beyond - n_tail];
        if (token < 0) break;
        tokens[n_copied] = token;
    }
    return n_copied;
}

/* Adds the token of the text at `at`, if there is one that is not among tokens[n] yet. */
static int add_other(const struct suffix *s, int at, int32_t known, int32_t *tokens, int n)
{
    int32_t token = at < s->n_tokens ? s->tokens[at] : known;
    if (token < 0 || token == known) return n;
    for (int i = 0; i < n; i++) {
        if (tokens[i] == token) return n;
    }
    tokens[n] = token;
    return n + 1;
}

int suffix_others(const struct suffix *s, const struct suffix_place *place, int32_t known,
                  int32_t *tokens, int n)
{
    int32_t at = place->state;
    int n_found = 0;
    for (int i = 0; i < OTHER_STATES && at > 0; i++, at = s->states[at].link) {
        if (n_found < n) n_found = add_other(s, s->states[at].recent + 1, known, tokens, n_found);
        if (n_found < n) n_found = add_other(s, s->states[at].end + 1, known, tokens, n_found);
    }
    return n_found;
}

int suffix_copy(const struct suffix *s, const struct suffix_place *place, int32_t *tokens, int n)
{
    return suffix_copy_after(s, place, NULL, 0, tokens, n);
}
