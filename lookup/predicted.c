/* The place is found again in two ways: near the place where it was lost by looking at every token
 * there, and anywhere in the text through chains of positions after equal triples of tokens, as
 * LZ77 coders have them. The numbers are choices and not measurements. */
#include "lookup/predicted.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum {
    NONE = -1,
    TRIPLE = 3,
    BEGIN_RUN = 16,  /* what the client's word is worth before anything was seen */
    MATCH_MOST = 32, /* tokens that are compared backwards */
    NEAR_BEFORE = 64,
    NEAR_AFTER = 256, /* of the place where it was lost */
    ONE_AFTER = 4,    /* a single token is as good as a longer match so near to the place */
    CHAIN_MOST = 64,  /* positions of a chain that are looked at */
    EXPECTED_LOST = 1 /* tokens that may be replaced by as many others */
};

struct predicted {
    int32_t *tokens; /* [n] */
    int n;
    int32_t *heads;   /* [n_heads] the last position after a triple with this hash; NONE */
    int32_t *earlier; /* [n + 1] by position: the one before it with the same hash */
    uint32_t n_heads; /* a power of two */
};

/* Knuth's multiplicative hash with the golden ratio. */
static uint32_t head_of(const struct predicted *p, const int32_t *triple)
{
    uint64_t x = 0;
    for (int i = 0; i < TRIPLE; i++) {
        x = (x + (uint32_t)triple[i]) * 0x9e3779b97f4a7c15U;
        x ^= x >> 32;
    }
    return (uint32_t)x & (p->n_heads - 1);
}

static void index_triples(struct predicted *p)
{
    for (uint32_t i = 0; i < p->n_heads; i++) {
        p->heads[i] = NONE;
    }
    for (int at = TRIPLE; at <= p->n; at++) {
        int32_t *head = &p->heads[head_of(p, p->tokens + at - TRIPLE)];
        p->earlier[at] = *head;
        *head = at;
    }
}

int predicted_open(struct predicted **predicted, const int32_t *tokens, int n, struct error *err)
{
    struct predicted *p = NULL;
    int rc = 0;
    *predicted = NULL;
    TRY(mem_array(&p, 1, sizeof *p, err));
    p->n = n;
    p->n_heads = 1;
    while (p->n_heads < (uint32_t)n)
        p->n_heads *= 2;
    TRY(mem_array(&p->tokens, (size_t)n, sizeof *p->tokens, err));
    TRY(mem_array(&p->heads, p->n_heads, sizeof *p->heads, err));
    TRY(mem_array(&p->earlier, (size_t)n + 1, sizeof *p->earlier, err));
    memcpy(p->tokens, tokens, (size_t)n * sizeof *tokens);
    index_triples(p);
    *predicted = p;
    p = NULL;
out:
    predicted_close(p);
    return rc;
}

void predicted_close(struct predicted *p)
{
    if (!p) return;
    free(p->tokens);
    free(p->heads);
    free(p->earlier);
    free(p);
}

size_t predicted_bytes(const struct predicted *p)
{
    if (!p) return 0;
    return sizeof *p + (2 * (size_t)p->n + 1) * sizeof *p->tokens +
           (size_t)p->n_heads * sizeof *p->heads;
}

struct predicted_place predicted_begin(void)
{
    return (struct predicted_place){.run = BEGIN_RUN};
}

/* ---- finding the place again ---- */

/* The search after a token that was not expected. */
struct search {
    const struct predicted *p;
    const int32_t *text; /* [n] */
    int n;
    int expected; /* where the text would go on if as many tokens were replaced */
    int best, length;
};

/* How many tokens before a position are the text's last ones. */
static int match_length(const struct search *s, int at)
{
    int n = 0;
    while (n < MATCH_MOST && n < at && n < s->n &&
           s->p->tokens[at - 1 - n] == s->text[s->n - 1 - n]) {
        n++;
    }
    return n;
}

/* Longer matches are better, and of equal ones the one that is nearer. */
static void consider(struct search *s, int at, int least)
{
    int length = match_length(s, at);
    if (length < least || length < s->length) return;
    bool is_nearer = abs(at - s->expected) < abs(s->best - s->expected);
    if (length == s->length && !is_nearer) return;
    s->best = at;
    s->length = length;
}

/* place: where it was lost. */
static void look_near(struct search *s, const struct predicted_place *place)
{
    int first = place->next > NEAR_BEFORE ? place->next - NEAR_BEFORE : 1;
    int last = s->p->n - place->next > NEAR_AFTER ? place->next + NEAR_AFTER : s->p->n;
    for (int at = first; at <= last; at++) {
        bool is_close = at > place->next && at <= s->expected + ONE_AFTER;
        consider(s, at, is_close ? 1 : 2);
    }
}

static void look_anywhere(struct search *s)
{
    if (s->n < TRIPLE || s->p->n < TRIPLE) return;
    int at = s->p->heads[head_of(s->p, s->text + s->n - TRIPLE)];
    for (int i = 0; i < CHAIN_MOST && at != NONE; i++, at = s->p->earlier[at]) {
        consider(s, at, TRIPLE);
    }
}

void predicted_follow(const struct predicted *p, struct predicted_place *place, const int32_t *text,
                      int n)
{
    int at = place->next + place->lost; /* the tokens since then were replaced, it seems */
    bool may_be_replaced = place->lost <= EXPECTED_LOST;
    if (may_be_replaced && at < p->n && p->tokens[at] == text[n - 1]) {
        *place = (struct predicted_place){.next = at + 1, .run = place->lost ? 1 : place->run + 1};
        return;
    }
    struct search s = {
        .p = p, .text = text, .n = n, .expected = place->next + place->lost + 1, .best = NONE};
    look_near(&s, place);
    look_anywhere(&s);
    if (s.length > 0) {
        *place = (struct predicted_place){.next = s.best, .run = s.length};
    } else if (place->lost < INT32_MAX / 2) {
        place->lost++;
    }
}

int predicted_copy(const struct predicted *p, const struct predicted_place *place, int32_t *tokens,
                   int n)
{
    int at = place->next + place->lost;
    if (place->lost > EXPECTED_LOST || at >= p->n) return 0;
    if (n > p->n - at) n = p->n - at;
    memcpy(tokens, p->tokens + at, (size_t)n * sizeof *tokens);
    return n;
}
