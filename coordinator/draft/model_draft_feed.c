/* The features of a head's steps: those that a feeding reads, and the outputs that it leaves for
 * the guesses after it. */
#include <assert.h>
#include <string.h>

#include "base/least.h"
#include "coordinator/draft/model_draft_grow.h"
#include "coordinator/draft/model_draft_inputs.h"

int model_draft_first_unread(const struct model_draft *d, const struct sequence *seq)
{
    return seq->n_draft_kv[d->base.model] > d->shift ? seq->n_draft_kv[d->base.model] : d->shift;
}

int model_draft_readable(const struct model_draft *d, const struct sequence *seq, int end)
{
    if (!d->inputs) return end;
    return least(end, least(draft_inputs_end(d->inputs, seq->slot) + 1, seq->n_tokens));
}

bool model_draft_has_features(const struct model_draft *d, const struct feeding *feeding, int base)
{
    int begin = model_draft_first_unread(d, feeding->seq);
    if (!d->inputs) return true;
    if (d->n_places)
        return base > 1 && draft_inputs_have(d->inputs, feeding->seq->slot, base - 2, base - 1);
    if (d->block.size > 0 && base < 2) return false;
    if (d->block.size == 0 && begin >= feeding->end) return false;
    return draft_inputs_have(d->inputs, feeding->seq->slot, begin - 1,
                             least(feeding->end, base) - 1);
}

void model_draft_end_guesses(const struct model_draft *d, struct draft_lane *lanes, int n)
{
    for (int i = 0; d->inputs && i < n; i++) {
        struct sequence *seq = lanes[i].seq;
        seq->n_draft_kv[d->base.model] =
            least(seq->n_draft_kv[d->base.model], lanes[i].draft->base);
    }
}

/* The node before a node of a draft. */
static int node_before(const struct guess_tree *draft, int node)
{
    return draft->parents[node];
}

/* Places the target's features of n positions from `first` on, which the first of a lane's n_rows
 * read; returns where the outputs go that the others read. Projected features are read as outputs
 * are, and so lie before these: a pass that reads more than one committed token makes its lane's
 * first guess, which reads no outputs. */
static uint16_t *place_target(struct draft_inputs *in, int lane, int slot, int first, int n,
                              int n_rows, struct forward_features *out)
{
    const uint16_t *rows = n > 0 ? draft_inputs_rows(in, slot, first) : NULL;
    uint16_t *to = draft_inputs_gathered(in, lane);
    size_t len = (size_t)n * (size_t)in->dim;
    if (!draft_inputs_are_projected(in)) {
        *out = (struct forward_features){.target = rows, .n_target = n, .recycled = to};
        return to;
    }
    *out = (struct forward_features){.recycled = n == n_rows ? rows : to};
    if (n == 0 || n == n_rows) return to;
    assert(n_rows <= DRAFT_INPUTS_ROWS);
    memcpy(to, rows, len * sizeof *to);
    return to + len;
}

/* Places those of a lane that reads a chain: the committed tokens have the target's features. */
static void place_chain(struct model_draft *d, int lane, const struct feeding *feeding,
                        const struct forward_lane *forward, struct forward_features *out)
{
    struct draft_inputs *in = d->inputs;
    int slot = feeding->seq->slot, begin = forward->position + d->shift;
    int base = feeding->lane ? feeding->lane->draft->base : feeding->end;
    int n_target = base > begin ? least(base - begin, forward->n_tokens) : 0;
    if (d->mask_features) n_target = forward->n_tokens;
    uint16_t *to = place_target(in, lane, slot, begin - 1, n_target, forward->n_tokens, out);
    for (int i = n_target; i < forward->n_tokens; i++, to += in->dim) {
        const struct guess_tree *draft = feeding->lane->draft;
        int before = node_before(draft, draft->chain[begin + i - base]);
        memcpy(to, draft_inputs_output(in, slot, before), (size_t)in->dim * sizeof *to);
    }
}

static void place_tree(struct model_draft *d, int lane, const struct feeding *feeding,
                       const struct forward_lane *forward, struct forward_features *out)
{
    struct draft_inputs *in = d->inputs;
    const struct guess_tree *draft = feeding->lane->draft;
    const struct draft_grower *g = feeding->grower;
    int slot = feeding->seq->slot;
    int n_target = g->nodes[0] < 0 ? 1 : 0;
    uint16_t *to = place_target(in, lane, slot, draft->base - 2, n_target, forward->n_tokens, out);
    for (int i = n_target; i < forward->n_tokens; i++, to += in->dim) {
        int before = node_before(draft, g->nodes[i]);
        memcpy(to, draft_inputs_output(in, slot, before), (size_t)in->dim * sizeof *to);
    }
}

void model_draft_place_features(struct model_draft *d, int lane, const struct feeding *feeding,
                                const struct forward_lane *forward)
{
    struct forward_features *out = &d->inputs->features[lane];
    if (d->block.size > 0) return; /* they have been placed */
    if (d->n_places) {
        int last = feeding->lane->draft->base - 2;
        const uint16_t *row = draft_inputs_rows(d->inputs, feeding->seq->slot, last);
        *out = (struct forward_features){.target = row, .n_target = 1};
    } else if (feeding->grower) {
        place_tree(d, lane, feeding, forward, out);
    } else {
        place_chain(d, lane, feeding, forward, out);
    }
}

/* The node of the lane's draft after which row r of its feeding is. */
static int node_of_row(const struct feeding *feeding, int r)
{
    if (feeding->grower && (r > 0 || !feeding->has_chain_row)) {
        return feeding->grower->of_row[r - (feeding->has_chain_row ? 1 : 0)];
    }
    return guess_tree_last(feeding->lane->draft);
}

int model_draft_keep_outputs(struct model_draft *d, const struct feeding *feeding, int first_token,
                             const struct forward_row *rows, struct error *err)
{
    struct draft_inputs *in = d->inputs;
    for (int r = 0; r < feeding->n_rows && !d->base.is_parallel; r++) {
        uint16_t *to = draft_inputs_output(in, feeding->seq->slot, node_of_row(feeding, r));
        const uint16_t *row = model_features(d->model, 0, first_token + rows[r].index, 1);
        if (!row) return error_set(err, ERR_UNAVAILABLE, "the draft's device is lost");
        memcpy(to, row, (size_t)in->dim * sizeof *to);
    }
    return 0;
}
