/* Texts that are finished, and how often each part of them went on in which way: guesses for texts
 * that are like them (SuffixDecoding, Oliaro et al. 2024, arXiv 2411.04975).
 *
 * The store takes so many tokens as it was opened for, in two generations: texts go to the new one;
 * when that is full the old one is forgotten as a whole and the new one becomes the old one. So it
 * always knows at least the last half of its tokens. All memory is taken at open, and adding
 * cannot fail. Tenants never see each other's texts, though they share the room.
 *
 * Counts are exact: each generation is a suffix tree of depth STORE_DEPTH over its texts, so a
 * count is how often the tokens before and the guess follow each other within one text of that
 * generation. Nothing is counted across two texts.
 *
 * Owned by one thread: nothing is locked. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/limits.h"

enum {
    STORE_DEPTH = 64,                          /* tokens of a match and its guesses together */
    STORE_MATCH_MAX = STORE_DEPTH - DRAFT_MAX, /* of a match: there is room for all guesses */
    STORE_TENANTS_MAX = 1024,                  /* in a generation; one more begins a new one */
    STORE_TOKENS_MIN = 2,
    STORE_TOKENS_MAX = 1 << 28
};

struct store;
struct generation;

/* n_tokens: of both generations, STORE_TOKENS_MIN .. STORE_TOKENS_MAX. Pages of memory that were
 * never needed are not occupied. Errors: ERR_ARGUMENT, ERR_NO_MEMORY. */
int store_open(struct store **store, int n_tokens, struct error *err);
void store_close(struct store *store);

/* Tokens that are known now, and the bytes of the whole store. */
int store_length(const struct store *store);
size_t store_bytes(const struct store *store);

/* Adds a finished text. tenant: any number that the caller gives its tenants. Of a text that is
 * longer than a generation its end is kept. Takes time proportional to n, a generation that begins
 * included, and that of looking at a thousandth of the table. */
void store_add(struct store *store, uint64_t tenant, const int32_t *tokens, int n);

/* A place of the texts: the end of a match, and the tokens that were followed after it. Valid until
 * a text is added. */
struct store_walk {
    const struct generation *in;
    int32_t node;
    int offset; /* tokens of the node's edge that come after the place */
    int match;  /* tokens at the end of the text that were found in a text of the tenant */
};

/* The tokens that came after a place, the most frequent first; of equally frequent ones that were
 * listed the one that was so first. `total` counts all that came, and the ends of texts. */
enum { STORE_NEXT_MAX = 8 };
struct store_next {
    int n;
    int32_t tokens[STORE_NEXT_MAX], counts[STORE_NEXT_MAX]; /* [n] */
    int32_t total;
};

/* Begins at the place of text[0..n): that of its longest end of n_match_min (at least 1) ..
 * STORE_MATCH_MAX tokens that was followed by something; where both generations have one, the
 * longer, or of equal ones the newer's. False: there is none. Keeps the store. */
bool store_walk_begin(const struct store *store, uint64_t tenant, const int32_t *text, int n,
                      int n_match_min, struct store_walk *walk);

/* Lists the `most` most frequent tokens after the place, 0 .. STORE_NEXT_MAX; none after
 * STORE_DEPTH tokens and where all texts end. */
void store_walk_next(const struct store_walk *walk, int most, struct store_next *next);

/* Goes on by a token; false: no text did, and the place is not valid any more. */
bool store_walk_step(struct store_walk *walk, int32_t token);

/* Guesses how a text goes on: the first guesses[i] follow the match, each the most frequent token
 * after those before it (of equally frequent ones, the one that was so first). It did so `count`
 * times of `total`. */
struct store_guess {
    int32_t token;
    int32_t count, total;
};
struct store_guesses {
    struct store_guess guesses[DRAFT_MAX];
    int n;
    int match; /* tokens at the end of the text that stood in a text of the tenant */
};

/* Guesses what follows text[0..n): the most frequent continuation of store_walk_begin's place.
 * Makes at most k guesses, 0 .. DRAFT_MAX; n = 0: nothing is known. */
void store_find(const struct store *store, uint64_t tenant, const int32_t *text, int n,
                int n_match_min, int k, struct store_guesses *found);
