/* A suffix automaton over a text that grows at its end (Blumer et al. 1985; for guessing: SAM
 * decoding, Hu et al. 2024, arXiv 2411.10666). For the end of the text, and for any other text that
 * is followed through it, it knows the longest part that the text had before, and the tokens that
 * came after that. Adding a token and following one take constant time on average, however long the
 * text is.
 *
 * Words: a state is the set of the strings that end at the same positions of the text; the longest
 * of them has `length` tokens. Tokens may have any value of 0 or more. */
#pragma once

#include <stdint.h>

#include "base/error.h"

struct suffix;

/* A text of no tokens. Errors: ERR_NO_MEMORY. */
int suffix_open(struct suffix **suffix, struct error *err);
void suffix_close(struct suffix *suffix);

enum { SUFFIX_TOKENS_MAX = 1 << 29 };

/* Adds a token to the text. Errors: ERR_NO_MEMORY, ERR_EXHAUSTED the text has SUFFIX_TOKENS_MAX
 * tokens; the text takes no more tokens then, and what is found in it is still right. */
int suffix_add(struct suffix *suffix, int32_t token, struct error *err);

/* Adds the end of a text: nothing that is found goes beyond it. Errors as above. */
int suffix_add_end(struct suffix *suffix, struct error *err);

/* Tokens, ends of texts included, and bytes of memory for them. */
int suffix_length(const struct suffix *suffix);
size_t suffix_bytes(const struct suffix *suffix);

/* A place in the text: the longest end of the followed tokens that the text contains. Zero it to
 * begin. A place stays valid while tokens are added, but a longer match may have come about
 * since. */
struct suffix_place {
    int32_t state, length;
};

/* The place of the end of the text itself, with its longest part that stood in the text before. */
struct suffix_place suffix_end(const struct suffix *suffix);

/* Goes on by a token. */
void suffix_follow(const struct suffix *suffix, struct suffix_place *place, int32_t token);

/* Copies up to n tokens that came after the last known occurrence of a place; returns how many.
 * Where the copy reaches the end of the text it goes on with what it has copied itself, so a text
 * that repeats a part is expected to repeat it again. 0: nothing is known. */
int suffix_copy(const struct suffix *suffix, const struct suffix_place *place, int32_t *tokens,
                int n);

/* Lists up to n tokens other than `known` that came after a place or after shorter ends of it,
 * those of longer ones first: of each length the token after the last known occurrence and the one
 * after the first. Returns how many. It looks at a few lengths, so its time is bounded. */
int suffix_others(const struct suffix *suffix, const struct suffix_place *place, int32_t known,
                  int32_t *tokens, int n);

/* As suffix_copy, where the place was reached from the end of the text by following tail[n_tail],
 * which the text does not have yet: where the copy reaches the end of the text it goes on with
 * them. */
int suffix_copy_after(const struct suffix *suffix, const struct suffix_place *place,
                      const int32_t *tail, int n_tail, int32_t *tokens, int n);
