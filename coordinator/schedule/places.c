/* A place is taken and given up in both models at once: the KV blocks of the target, and what the
 * drafters keep. */
#include "coordinator/schedule/places.h"

#include "coordinator/draft/drafters.h"
#include "coordinator/kv/blocks.h"
#include "coordinator/sequence/sequence.h"

void places_reuse_draft(struct sequence *seq, struct drafter *model)
{
    int before = seq->n_draft_kv;
    drafter_begin(model, seq);
    if (!seq->admitted_us || seq->draft_forgot || seq->n_draft_kv == before) return;
    int n = seq->n_draft_kv < seq->n_prompt ? seq->n_draft_kv : seq->n_prompt;
    seq->counters.draft_reused = (uint32_t)n;
}

void places_reuse_target(struct sequence *seq, struct block_pool *target_pool,
                         const struct drafters *drafters)
{
    bool needs_features = drafters_features(drafters, seq) != NULL;
    sequence_reuse(seq, target_pool, needs_features ? seq->n_draft_kv : seq->n_tokens);
}

int places_give(struct sequence *seq, int slot, struct block_pool *target_pool,
                struct drafters *drafters, struct error *err)
{
    int rc = sequence_open_tokens(seq, target_pool->block_tokens, err);
    if (rc) return rc;
    seq->slot = slot;
    seq->is_evicted = false;
    if (drafters->model && seq->n_draft > 0) places_reuse_draft(seq, drafters->model);
    places_reuse_target(seq, target_pool, drafters);
    return 0;
}

void places_withdraw(struct sequence *seq, struct block_pool *target_pool,
                     struct drafters *drafters)
{
    block_table_release(&seq->target_blocks, target_pool);
    drafters_forget(drafters, seq->slot);
    seq->n_target_kv = seq->n_draft_kv = 0;
    seq->draft_forgot = true;
    seq->n_blocks_sent = 0;
    seq->slot = -1;
}

void places_evict(struct sequence *seq, struct block_pool *target_pool, struct drafters *drafters)
{
    seq->evicted_slot = seq->slot;
    seq->is_evicted = true;
    seq->counters.preemptions++;
    places_withdraw(seq, target_pool, drafters);
}
