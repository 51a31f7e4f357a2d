/* Block drafters (DFlash and DSpark): struct head_block. The pass of a lane reads the
 * features of the committed tokens that it has not read, whose K and V last, and then a block: the
 * last token, whose features nobody has, and masks. The rows of the block give all guesses. They
 * see the masks after them, so the block is always whole, and a guess does not depend on K.
 *
 * Tokens are counted as in every head's text: n_draft_kv - 1 is the number of positions whose
 * features have been read. The KV of a position depends on the tokens up to it, as the target's
 * does, and is found by these. That of the block belongs to no text: n_draft_kv does not count it,
 * and the next context overwrites it.
 *
 * With a chain the row of a place becomes that after the guess of the place before. That guess is
 * drawn and sent by then, so q of the place is what its guess is drawn from. Guesses after siblings
 * are drawn from the same row: that the draft's chain is before them costs them some of their
 * chances, but nothing of what acceptance needs to know (model_draft_parallel.c). Chains that are
 * independent (base/guess_tree.h) must all be drawn alike, so only their first places are
 * chained. */
#include <assert.h>

#include "base/least.h"
#include "coordinator/draft/model_draft.h"
#include "coordinator/draft/model_draft_inputs.h"
#include "model/backend/attention_lane.h"

void model_draft_open_block(struct model_draft *d, const struct head_config *head)
{
    d->block = head->block;
    d->mask_token = head->mask_token_id;
    d->base.is_parallel = true;
    d->base.k_max = least(head_block_guesses(&d->block), DRAFT_MAX);
    d->base.lane_rows = d->block.size;
}

int model_draft_open_block_tokens(struct model_draft *d, struct error *err)
{
    size_t n = (size_t)d->options.n_sequences * (size_t)d->block.size;
    if (d->block.size == 0) return 0;
    int rc = mem_array(&d->block_tokens, n, sizeof *d->block_tokens, err);
    for (size_t i = 0; !rc && i < n; i++) {
        d->block_tokens[i] = d->mask_token;
    }
    return rc;
}

int model_draft_block_end(const struct model_draft *d, int n_tokens)
{
    return n_tokens - d->shift + d->block.size;
}

int model_draft_plan_block(struct model_draft *d, struct feeding *feeding, int position,
                           struct error *err)
{
    struct sequence *seq = feeding->seq;
    seq->n_draft_kv[d->base.model] = least(seq->n_draft_kv[d->base.model], position);
    return block_table_reach(&d->tables[seq->slot], &d->pool, model_draft_block_end(d, position),
                             err);
}

int model_draft_add_blocks(struct model_draft *d, int n_feedings)
{
    int n = 0;
    for (int i = 0; i < n_feedings; i++) {
        struct draft_lane *lane = d->feedings[i].lane;
        lane->k = least(lane->k, d->base.k_max);
        d->feedings[i].n_rows = least(model_draft_count_places(lane), d->base.k_max);
        n += d->block.size + d->feedings[i].n_rows - 1;
    }
    return n;
}

int model_draft_place_block(struct model_draft *d, int lane, const struct feeding *f, int left,
                            bool *is_whole)
{
    const struct sequence *seq = f->seq;
    int begin = model_draft_first_unread(d, seq), n_context = f->end - begin;
    int n_block = f->lane ? d->block.size : 0;
    int32_t *tokens = d->block_tokens + (size_t)lane * (size_t)d->block.size;
    const struct block_table *table = &d->tables[seq->slot];
    assert(attention_first(begin - d->shift, d->pool.window) / KV_BLOCK_TOKENS >=
           table->n_given_up);
    *is_whole = n_context + n_block <= left;
    if (!*is_whole) n_context = least(n_context, left);
    if (!*is_whole) n_block = 0;
    if (n_block > 0) tokens[0] = seq->tokens[f->end - 1];
    d->forward[lane] = (struct forward_lane){.position = begin - d->shift,
                                             .n_tokens = n_block,
                                             .tokens = tokens,
                                             .blocks = table->blocks};
    d->inputs->features[lane] = (struct forward_features){.n_target = n_context};
    if (n_context > 0) {
        d->inputs->features[lane].target = draft_inputs_rows(d->inputs, seq->slot, begin - 1);
    }
    return n_context + n_block;
}

int model_draft_chain_places(struct model_draft *d, const struct place_draw *draws, int n,
                             struct error *err)
{
    int rows[STEP_ROWS], n_rows = 0;
    int32_t previous[STEP_ROWS];
    if (d->block.rank == 0) return 0;
    for (int i = 0; i < n; i++) {
        if (draws[i].place < 0) continue;
        const struct draft_lane *lane = draws[i].part.lane;
        int before = draws[i].place - 1;
        if (before >= lane->draft->n_chain) continue;
        if (before >= 0 && lane->draft->is_independent) continue;
        rows[n_rows] = draws[i].row;
        previous[n_rows++] = lane->seq->tokens[lane->draft->base + before];
    }
    return n_rows > 0 ? model_chain_rows(d->model, rows, previous, n_rows, err) : 0;
}
