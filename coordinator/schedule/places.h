/* Places of sequences: a slot of the group and of the drafters, and the KV that was kept of texts
 * that began alike. Owned by the engine thread. */
#pragma once

#include "base/error.h"

struct block_pool;
struct drafter;
struct drafters;
struct sequence;

/* Gives the sequence a place: what is known of the beginning of its text is taken over. Errors:
 * ERR_NO_MEMORY. */
int places_give(struct sequence *seq, int slot, struct block_pool *target_pool,
                struct drafters *drafters, struct error *err);

/* Takes over what others have published of the beginning of the text: all of it, or, where the
 * draft model reads the target's features, only as much as that knows. */
void places_reuse_target(struct sequence *seq, struct block_pool *target_pool,
                         const struct drafters *drafters);

/* As sequence_reuse, but for the draft model: takes over what it knows of the beginning of the
 * text. */
void places_reuse_draft(struct sequence *seq, struct drafter *model);

/* Takes the place away; both models have to read the text again. */
void places_withdraw(struct sequence *seq, struct block_pool *target_pool,
                     struct drafters *drafters);

/* As places_withdraw, for a sequence whose job goes on: is_evicted tells the engine, which queues
 * it. */
void places_evict(struct sequence *seq, struct block_pool *target_pool, struct drafters *drafters);
