/* How often each token was seen, in a text or in served traffic, and the list that keeps it: what a
 * draft head over the most frequent tokens is chosen from (FR-Spec, arXiv 2502.14856).
 *
 * The list is a text file. Its first line names the token table, then comes a line for each token
 * that was seen, the most frequent first:
 *
 *     # outrider token counts, tokenizer 0123456789abcdef
 *     262 19340
 *     15 17221
 *
 * A list is not trusted: everything in it is checked before it is used. Owned by one thread. */
#pragma once

#include "base/end_ids.h"
#include "model/tokenizer/tokenizer.h"

struct token_counts {
    uint64_t fingerprint; /* tokenizer_fingerprint's */
    int n_vocab;
    uint64_t *counts; /* [n_vocab] */
};

/* All zero. Errors: ERR_NO_MEMORY. */
int token_counts_init(struct token_counts *counts, const struct tokenizer *tok, struct error *err);
void token_counts_free(struct token_counts *counts);

/* Counts ids[n]; ids outside of the vocabulary are left out. */
void token_counts_add(struct token_counts *counts, const int32_t *ids, size_t n);
/* Tokens that were seen. */
int token_counts_seen(const struct token_counts *counts);

/* Reads a list into counts, which must be fresh; origin names it in errors, after which counts hold
 * what was read before. Errors: ERR_FORMAT it is no such list, or a line of it is wrong (named);
 * ERR_ARGUMENT it counts the tokens of another token table. */
int token_counts_parse(struct token_counts *counts, const char *text, size_t len,
                       const char *origin, struct error *err);
/* As token_counts_parse, from a file. Errors: those too, ERR_NOT_FOUND, ERR_IO. */
int token_counts_read(struct token_counts *counts, const char *path, struct error *err);

/* The list as a text, which the caller frees. Tokens seen equally often are in ascending order of
 * id. Errors: ERR_NO_MEMORY. */
int token_counts_text(const struct token_counts *counts, char **text, size_t *len,
                      struct error *err);
/* Writes the list as a whole or not at all. Errors: ERR_NO_MEMORY, file_replace's. */
int token_counts_write(const struct token_counts *counts, const char *path, struct error *err);

/* The n <= token_counts_seen most frequent tokens, ties to the lowest id, and those of `always`
 * besides: ascending, each once, without those of n_vocab and above. The caller frees *ids. Errors:
 * ERR_NO_MEMORY. */
int token_counts_best(const struct token_counts *counts, int n, const struct end_ids *always,
                      int n_vocab, int32_t **ids, int *n_ids, struct error *err);
