/* A suffix automaton over a text that grows at its end (Blumer et al. 1985; for guessing: SAM
 * decoding, Hu et al. 2024, arXiv 2411.10666). For the end of the text, and for any other text that
 * is followed through it, it knows the longest part that stood in the text before, and what came
 * behind that. Adding a token and following one take constant time on average, however long the
 * text is.
 *
 * Words: a state stands for the strings that end at the same positions of the text; the longest of
 * them has `length` tokens. Tokens may have any value of 0 or more. */
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

/* A place in the text: the longest end of what was followed that stands in it. Zero it to begin. A
 * place stays valid while tokens are added, but a longer match may have come about since. */
struct suffix_place {
    int32_t state, length;
};

/* The place of the end of the text itself, with its longest part that stood in the text before. */
struct suffix_place suffix_end(const struct suffix *suffix);

/* Goes on by a token. */
void suffix_follow(const struct suffix *suffix, struct suffix_place *place, int32_t token);

/* What came behind the last occurrence that is known of a place, up to n tokens; returns how many.
 * Where the copy reaches the end of the text it goes on with what it has copied itself, so a text
 * that repeats a part is expected to repeat it again. 0: nothing is known. */
int suffix_copy(const struct suffix *suffix, const struct suffix_place *place, int32_t *tokens,
                int n);

/* Up to n other tokens than `known` that came behind a place or behind shorter ends of it, those of
 * longer ones first: of each length the token behind the last known occurrence and the one behind
 * the first. Returns how many. It looks at a few lengths, so its time is bounded. */
int suffix_others(const struct suffix *suffix, const struct suffix_place *place, int32_t known,
                  int32_t *tokens, int n);

/* The same where the place was reached from the end of the text by following behind[n_behind],
 * which the text does not have yet: where the copy reaches the end of the text it goes on with
 * them. */
int suffix_copy_behind(const struct suffix *suffix, const struct suffix_place *place,
                       const int32_t *behind, int n_behind, int32_t *tokens, int n);
