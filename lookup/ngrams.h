/* N-grams of one text by their first token, the newest first: the pool of lookahead decoding (Fu et
 * al. 2024, arXiv 2402.02057). Its room is taken at open: lists are in sets of NGRAMS_WAYS by a
 * hash of the first token, and a new list takes the place of the one in its set that was not added
 * to for the longest time.
 *
 * Owned by one thread: nothing is locked. */
#pragma once

#include <stdint.h>

#include "base/error.h"

enum {
    NGRAMS_TOKENS = 4, /* of an n-gram after its first one: N = 5, as in the paper */
    NGRAMS_KEPT = 4,   /* that begin with the same token */
    NGRAMS_TESTS = 16, /* that a list remembers */
    NGRAMS_WAYS = 4,   /* lists of a set */
    NGRAMS_LISTS_MIN = NGRAMS_WAYS,
    NGRAMS_LISTS_MAX = 1 << 20
};

struct ngram {
    int n;
    int32_t tokens[NGRAMS_TOKENS]; /* [n] after the first one */
};

struct ngram_list {
    int32_t token;                    /* the first one of all */
    uint32_t added_at;                /* the number of the last addition, modulo 2^32 */
    struct ngram ngrams[NGRAMS_KEPT]; /* [n] the newest first; none is the beginning of another */
    uint16_t tests;   /* a bit for each test, the newest lowest: whether the newest was right */
    uint8_t n_tested; /* bits, at most NGRAMS_TESTS */
    uint8_t n;        /* 0: no list */
};

struct ngrams;

/* n_lists: NGRAMS_LISTS_MIN .. NGRAMS_LISTS_MAX, rounded down to whole sets. Errors: ERR_ARGUMENT,
 * ERR_NO_MEMORY. */
int ngrams_open(struct ngrams **ngrams, int n_lists, struct error *err);
void ngrams_close(struct ngrams *ngrams);

/* Records that tokens[n] came after `token`, n at most NGRAMS_TOKENS: it is the newest n-gram now.
 * An n-gram that is its beginning is replaced by it; an n-gram whose beginning it is becomes the
 * newest instead. Nothing is added if an id is below 0 or n is 0. Cannot fail. */
void ngrams_add(struct ngrams *ngrams, int32_t token, const int32_t *tokens, int n);

/* Tests the list of `token`: the text went on with `next` after it. */
void ngrams_test(struct ngrams *ngrams, int32_t token, int32_t next);

/* The list of `token`, valid until the next addition; NULL: nothing is known. */
const struct ngram_list *ngrams_find(const struct ngrams *ngrams, int32_t token);

/* How often the newest n-gram's next token was right, of the list's n_tested last tests. */
int ngrams_count_right(const struct ngram_list *list);

/* Lists tokens that came in place of tokens[at] of the list's newest n-gram, after the same tokens:
 * at most n, all different, the newest first; returns how many. */
int ngrams_others(const struct ngram_list *list, int at, int32_t *others, int n);

/* Follows the newest n-grams from `token` on, from each one's last token to the next, up to k
 * tokens, or one from n_vocab on. Token i is number at[i] of lists[i]'s newest n-gram. Returns how
 * many there are. */
int ngrams_chain(const struct ngrams *ngrams, int32_t token, int n_vocab, int32_t *tokens,
                 const struct ngram_list **lists, int *at, int k);
