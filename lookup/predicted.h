/* A text that another text is expected to be, but for a few changes, as when somebody asks for an
 * edit and sends what it is going to look like. The other text is followed token by token: the
 * place in the predicted one where it goes on is known from the first token on, and found again
 * after tokens that were added, left out or replaced. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Immutable after open. */
struct predicted;

/* Keeps a copy of tokens[n], n >= 1. Errors: ERR_NO_MEMORY. */
int predicted_open(struct predicted **predicted, const int32_t *tokens, int n, struct error *err);
void predicted_close(struct predicted *predicted);
/* Bytes of memory for it; 0 for NULL. */
size_t predicted_bytes(const struct predicted *predicted);

/* The place in the predicted text that another text has reached. */
struct predicted_place {
    int next; /* the text is expected to go on with this token */
    int run;  /* so many tokens before it were as predicted, one after the other */
    int lost; /* tokens since the last one that was; 0 = none */
};

/* The place of a text that has no tokens yet: it is expected to be the predicted one from its
 * beginning, and that counts as a run of some length. */
struct predicted_place predicted_begin(void);

/* The text has the tokens text[n], of which the place has followed all but the last. The time is
 * bounded, whatever the lengths. */
void predicted_follow(const struct predicted *predicted, struct predicted_place *place,
                      const int32_t *text, int n);

/* Copies up to n tokens that the text is expected to go on with; returns how many. After one token
 * that was not predicted, that token is taken to replace the predicted one; after more of them
 * nothing is expected until a part of the predicted text is found again. */
int predicted_copy(const struct predicted *predicted, const struct predicted_place *place,
                   int32_t *tokens, int n);
