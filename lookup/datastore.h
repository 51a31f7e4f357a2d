/* Texts in a file, with all their suffixes in order: guesses for texts that are like them (REST, He
 * et al. 2024, arXiv 2311.08252). The file is mapped, so that processes share its pages, and may be
 * larger than memory. A file that lies makes wrong guesses and nothing worse: lengths are checked
 * at open, every other number when it is used. A file that becomes shorter while it is in use is
 * lost: nothing is found in it any more.
 *
 * Immutable after open; any number of threads may look at once. */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "lookup/store.h"

enum {
    DATASTORE_DEPTH = STORE_DEPTH, /* suffixes are in order by so many tokens */
    DATASTORE_TOKENS_MAX = 1 << 30,
    DATASTORE_END = -1 /* the end of a text: nothing is found across it */
};

/* The tokenizer of a file: ids mean something with one tokenizer only. */
struct datastore_tokenizer {
    uint64_t fingerprint; /* tokenizer_fingerprint */
    int n_vocab;
};

/* Writes tokens[n], texts with DATASTORE_END after each, with their suffixes; a reader finds the
 * old file or the new one. Takes n log n steps and 8 n bytes of memory besides the tokens.
 * Errors: ERR_ARGUMENT too many tokens, none, or one outside the vocabulary; ERR_NO_MEMORY,
 * ERR_IO. */
int datastore_write(const char *path, const int32_t *tokens, size_t n,
                    const struct datastore_tokenizer *tokenizer, struct error *err);

struct datastore;

/* Errors: ERR_NOT_FOUND, ERR_IO, ERR_FORMAT not such a file, or not a whole one; ERR_NO_MEMORY. */
int datastore_open(struct datastore **store, const char *path, struct error *err);
void datastore_close(struct datastore *store);

struct datastore_tokenizer datastore_tokenizer(const struct datastore *store);
size_t datastore_length(const struct datastore *store);

const char *datastore_path(const struct datastore *store);
/* True if a part of the file was found to be missing. */
bool datastore_is_lost(const struct datastore *store);

/* Reads the whole file: are these the bytes that were written? Errors: ERR_FORMAT; ERR_IO it became
 * shorter meanwhile. */
int datastore_check(const struct datastore *store, struct error *err);

/* A place of the texts, as struct store_walk of lookup/store.h. */
struct datastore_walk {
    const struct datastore *in;
    size_t low, high; /* these suffixes, in order, go on alike for `depth` tokens */
    int depth, match;
};

/* As store_walk_begin, _next and _step. Counts are exact. Of more than 16 occurrences a next token
 * is sure to be listed if it follows a sixteenth of them; others may be missed. Of equally frequent
 * ones the one with the lowest id comes first. */
bool datastore_walk_begin(const struct datastore *store, const int32_t *text, int n,
                          int n_match_min, struct datastore_walk *walk);
void datastore_walk_next(const struct datastore_walk *walk, int most, struct store_next *next);
bool datastore_walk_step(struct datastore_walk *walk, int32_t token);

/* As store_find. */
void datastore_find(const struct datastore *store, const int32_t *text, int n, int n_match_min,
                    int k, struct store_guesses *found);
