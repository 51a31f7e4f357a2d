/* A guess, with siblings, among n >= 1 tokens that were counted after the guesses before it. */
#pragma once

#include "coordinator/draft/finder.h"

struct store_next; /* lookup/store.h */

/* The lane's next guess. Every guess that is drawn must be sent. Errors: ERR_NO_MEMORY. */
int counted_draw(const struct store_next *next, const struct draft_lane *lane, struct arena *arena,
                 struct finder_guess *guess, struct error *err);

/* Guess `index` after the committed tokens, where guesses are not drawn, and n_wanted - 1 siblings;
 * no coin decides it. */
void counted_pick(const struct store_next *next, const struct sequence *seq, int index,
                  int n_wanted, struct finder_guess *guess);
