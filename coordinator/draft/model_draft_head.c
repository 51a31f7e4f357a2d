/* The drafter that is a head: a draft model that reads the target's features besides tokens
 * (coordinator/draft/model_draft_inputs.h). Its first pass of a round reads the committed tokens
 * with the features that the target's last steps have shown; each later one reads a guess with its
 * own output in place of them (EAGLE, Li et al. 2024, arXiv 2401.15077). All else is as in
 * model_draft.c. */
#include <string.h>

#include "base/least.h"
#include "base/log.h"
#include "coordinator/draft/model_draft_grow.h"
#include "coordinator/draft/model_draft_inputs.h"
#include "model/checkpoint/head.h"
#include "model/checkpoint/head_readings.h"

enum {
    /* Features of a text that wait to be read: more of them are read at once, so that those of a
     * text which has no guesses for long take no memory. */
    WAITING_MAX = 1024
};

/* ---- opening ---- */

static const char *folder_of(const struct drafter_options *options)
{
    return strchr(options->name, ':') + 1;
}

/* Opens the head with what its target lends it. */
static int open_checkpoints(struct model_draft *d, struct error *err)
{
    const struct drafter_options *options = &d->options;
    const char *folder = folder_of(options);
    int rc = 0;
    if (!options->target) {
        return error_set(err, ERR_ARGUMENT,
                         "the head %s guesses for one target, and may lack what that lends it: "
                         "name the target's folder with --tokenizer",
                         folder);
    }
    if (options->vocabulary) {
        return error_set(err, ERR_ARGUMENT,
                         "--draft-vocab %.60s chooses the tokens of a draft model; the head %s has "
                         "those that it was made with: leave the option out",
                         options->vocabulary, folder);
    }
    TRY(checkpoint_open(&d->target, options->target, err));
    const struct head_options head = {.target = d->target};
    TRY(checkpoint_open_head(&d->checkpoint, folder, &head, err));
    TRY(checkpoint_demand_target(d->checkpoint, err));
out:
    return rc;
}

/* Chooses what the head means by its features. */
static int open_inputs(struct model_draft *d, struct error *err)
{
    const struct head_config *head = checkpoint_head(d->checkpoint);
    struct head_reading readings[HEAD_READINGS_MAX];
    int rc = 0, n;
    TRY(head_readings(head, checkpoint_config(d->target)->n_layers, readings, &n, err));
    TRY(draft_inputs_open(&d->inputs, &readings[0], head->entry.feature_dim,
                          checkpoint_config(d->checkpoint)->dim, d->options.n_sequences, err));
    d->base.features = &d->inputs->wish;
    d->base.feature_dim = head->entry.feature_dim;
    d->shift = 1;
out:
    return rc;
}

static int head_draft_open(struct drafter **drafter, const struct drafter_options *options,
                           const struct tokenizer *tok, struct error *err)
{
    int rc = 0;
    struct model_draft *d = NULL;
    *drafter = NULL;
    TRY(model_draft_new(&d, options, err));
    TRY(open_checkpoints(d, err));
    if (options->is_strict) TRY(checkpoint_demand_known_keys(d->checkpoint, err));
    TRY(open_inputs(d, err));
    TRY(model_draft_start(d, tok, err));
    TRY(model_keep_output(d->model, err));
    *drafter = &d->base;
    d = NULL;
out:
    if (d) model_draft_close(&d->base);
    return rc;
}

static int head_draft_count_threads(const struct drafter_options *options, int n_cores,
                                    int *n_threads, struct error *err)
{
    struct checkpoint *ck = NULL;
    int rc = 0;
    *n_threads = 1; /* feeds a GPU */
    if (strcmp(options->backend.device, "cpu") != 0) return 0;
    TRY(checkpoint_open_head(&ck, folder_of(options), NULL, err));
    const struct head_config *head = checkpoint_head(ck);
    struct model_config cfg = *checkpoint_config(ck);
    cfg.vocab_size = head->n_columns;
    *n_threads = model_draft_threads(model_draft_weight_bytes(&cfg), n_cores);
out:
    checkpoint_close(ck);
    return rc;
}

/* ---- features ---- */

int model_draft_first_unread(const struct model_draft *d, const struct sequence *seq)
{
    return seq->n_draft_kv > d->shift ? seq->n_draft_kv : d->shift;
}

int model_draft_readable(const struct model_draft *d, const struct sequence *seq, int end)
{
    if (!d->inputs) return end;
    return least(end, least(draft_inputs_end(d->inputs, seq->slot) + 1, seq->n_tokens));
}

static int head_draft_observe(struct drafter *drafter, struct sequence *seq,
                              const struct draft_features *features, struct error *err)
{
    struct model_draft *d = model_draft(drafter);
    int needed = model_draft_first_unread(d, seq) - 1, rc = 0;
    TRY(draft_inputs_keep(d->inputs, seq->slot, features, needed, err));
    int n_waiting = draft_inputs_end(d->inputs, seq->slot) - needed;
    if (n_waiting <= WAITING_MAX) return 0;
    const struct draft_reading reading = {seq, n_waiting};
    rc = model_draft_read(drafter, &reading, 1, err);
    if (rc == ERR_EXHAUSTED) rc = 0; /* others have the KV: they wait on */
out:
    return rc;
}

bool model_draft_has_features(const struct model_draft *d, const struct feeding *feeding, int base)
{
    int begin = model_draft_first_unread(d, feeding->seq);
    if (!d->inputs) return true;
    if (begin >= feeding->end) return false;
    return draft_inputs_have(d->inputs, feeding->seq->slot, begin - 1,
                             least(feeding->end, base) - 1);
}

void model_draft_end_guesses(const struct model_draft *d, struct draft_lane *lanes, int n)
{
    for (int i = 0; d->inputs && i < n; i++) {
        struct sequence *seq = lanes[i].seq;
        seq->n_draft_kv = least(seq->n_draft_kv, lanes[i].draft->base);
    }
}

/* The node before a node of a draft. */
static int node_before(const struct guess_tree *draft, int node)
{
    return draft->parents[node];
}

/* Of a lane that reads a chain: the committed tokens have the target's features. */
static void place_chain(struct model_draft *d, int lane, const struct feeding *feeding,
                        const struct forward_lane *forward, struct forward_features *out)
{
    struct draft_inputs *in = d->inputs;
    int slot = feeding->seq->slot, begin = forward->position + d->shift;
    int base = feeding->lane ? feeding->lane->draft->base : feeding->end;
    out->n_target = base > begin ? least(base - begin, forward->n_tokens) : 0;
    if (out->n_target > 0) out->target = draft_inputs_rows(in, slot, begin - 1);
    uint16_t *to = draft_inputs_gathered(in, lane);
    out->recycled = to;
    for (int i = out->n_target; i < forward->n_tokens; i++, to += in->dim) {
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
    out->n_target = g->nodes[0] < 0 ? 1 : 0;
    if (out->n_target > 0) out->target = draft_inputs_rows(in, slot, draft->base - 2);
    uint16_t *to = draft_inputs_gathered(in, lane);
    out->recycled = to;
    for (int i = out->n_target; i < forward->n_tokens; i++, to += in->dim) {
        int before = node_before(draft, g->nodes[i]);
        memcpy(to, draft_inputs_output(in, slot, before), (size_t)in->dim * sizeof *to);
    }
}

void model_draft_place_features(struct model_draft *d, int lane, const struct feeding *feeding,
                                const struct forward_lane *forward)
{
    struct forward_features *out = &d->inputs->features[lane];
    *out = (struct forward_features){0};
    if (feeding->grower) {
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
    for (int r = 0; r < feeding->n_rows; r++) {
        uint16_t *to = draft_inputs_output(in, feeding->seq->slot, node_of_row(feeding, r));
        const uint16_t *row = model_features(d->model, 0, first_token + rows[r].index, 1);
        if (!row) return error_set(err, ERR_UNAVAILABLE, "the draft's device is lost");
        memcpy(to, row, (size_t)in->dim * sizeof *to);
    }
    return 0;
}

const struct model_draft_ops head_draft_ops = {
    .open = head_draft_open,
    .close = model_draft_close,
    .set_vocabulary = model_draft_set_vocabulary,
    .begin = model_draft_begin,
    .read = model_draft_read,
    .forget = model_draft_forget,
    .reserve = model_draft_reserve,
    .propose = model_draft_propose,
    .commit = model_draft_commit,
    .extra = {.observe = head_draft_observe, .count_threads = head_draft_count_threads},
};
