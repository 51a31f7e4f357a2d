/* Where the last few tokens of a text that grows stood first: what prompt lookup goes on from. For
 * each number of tokens a hash table has the first place of every run of so many tokens, so that
 * neither adding nor finding depends on the length of the text. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Tokens of a run. */
enum { FIRST_PLACES_LEAST = 2, FIRST_PLACES_MOST = 3 };

struct first_places;

/* Errors: ERR_NO_MEMORY. */
int first_places_open(struct first_places **places, struct error *err);
void first_places_close(struct first_places *places);

/* The text goes on with a token. Errors: ERR_NO_MEMORY; ERR_EXHAUSTED there are INT32_MAX. */
int first_places_add(struct first_places *places, int32_t token, struct error *err);

/* The first place, counted from 0, where the last n tokens of the text, FIRST_PLACES_LEAST ..
 * FIRST_PLACES_MOST, stood before; -1: they are there for the first time, or fewer. */
int32_t first_places_find(const struct first_places *places, int n);

/* Tokens of the text, and bytes of all. */
size_t first_places_length(const struct first_places *places);
size_t first_places_bytes(const struct first_places *places);
