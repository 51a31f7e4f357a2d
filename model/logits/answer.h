/* Answers to many wishes at once, shared out over a team. Members divide slices, or chunks of them
 * where there are few slices, never a sum, so the bits do not depend on the number of threads. */
#pragma once

#include "base/threads/team.h"
#include "model/logits/row.h"

/* Answers items[n_items] as row_slice_answer does: out[n_items] with arrays from arena, which gets
 * back what was scratch. Where an item has no answer, the code of its row says why. team: NULL =
 * the caller alone. Nothing is allocated. */
void answer_items(struct team *team, const struct answer_item *items, int n_items,
                  struct arena *arena, struct slice_row *out);
