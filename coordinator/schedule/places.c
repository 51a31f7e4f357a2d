/* A place is taken and given up in both models at once: the KV blocks of the target, and what the
 * drafters keep. */
#include "coordinator/schedule/places.h"

#include <string.h>

#include "coordinator/draft/drafters.h"
#include "coordinator/kv/blocks.h"
#include "coordinator/sequence/sequence.h"

void places_reuse_draft(struct sequence *seq, struct drafter *model)
{
    int before = seq->n_draft_kv[model->model];
    drafter_begin(model, seq);
    if (!seq->admitted_us || seq->draft_forgot || seq->n_draft_kv[model->model] == before) return;
    seq->counters.draft_reused = (uint32_t)sequence_draft_reused(seq);
}

void places_reuse_target(struct sequence *seq, struct block_pool *target_pool,
                         const struct drafters *drafters)
{
    bool needs_features = drafters_features(drafters, seq) != NULL;
    int n_most = needs_features ? seq->n_draft_kv[drafters_reader(drafters)->model] : seq->n_tokens;
    sequence_reuse(seq, target_pool, n_most);
}

int places_give(struct sequence *seq, int slot, struct block_pool *target_pool,
                struct drafters *drafters, struct error *err)
{
    int rc = sequence_open_tokens(seq, target_pool->block_tokens, err);
    if (rc) return rc;
    seq->slot = slot;
    seq->is_evicted = false;
    for (int m = 0; m < drafters->n_models; m++) {
        if (drafters_may_guess(drafters, seq, m)) places_reuse_draft(seq, drafters->models[m]);
    }
    places_reuse_target(seq, target_pool, drafters);
    return 0;
}

void places_withdraw(struct sequence *seq, struct block_pool *target_pool,
                     struct drafters *drafters)
{
    block_table_release(&seq->target_blocks, target_pool);
    drafters_forget(drafters, seq->slot);
    seq->n_target_kv = 0;
    memset(seq->n_draft_kv, 0, sizeof seq->n_draft_kv);
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
