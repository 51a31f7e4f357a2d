/* Parallel drafts: a small model that was taught what a mask token is (PARD, arXiv 2504.18583; its
 * config.json names it). The pass of a lane reads the tokens that the draft has not read and then
 * masks. The row after the last token is that of the first guess, and the row after each mask that
 * of one more, so one pass makes all guesses.
 *
 * No guess is read before the others are made: q of a place depends on the committed tokens and
 * on how many masks are before it. Each guess is still drawn from its own q with the coin of its
 * place, and all that acceptance needs to know of a guess is this q (speculation/accept/rules.h);
 * no rule takes it for granted that q knew the guesses before. Where the drawing ends, at an end of
 * the text or below a threshold, the rows after it are not looked at.
 *
 * The row of a place holds after any guess of the place before, so guesses after siblings take no
 * tokens either: they are drawn from it with coins of their own. The KV of masks belongs to no
 * text: n_draft_kv does not count it, so the next pass overwrites it with that of what the text has
 * there. */
#include "coordinator/draft/model_draft_grow.h"

#include "base/least.h"
#include "coordinator/draft/model_draft_inputs.h"
#include "model/checkpoint/head.h"

int model_draft_open_parallel(struct model_draft *d, struct error *err)
{
    const struct model_config *cfg = checkpoint_config(d->checkpoint);
    const struct head_config *head = checkpoint_head(d->checkpoint);
    const char *key = "mask_token_id";
    d->mask_features = head ? checkpoint_head_mask(d->checkpoint) : NULL;
    if (head) {
        d->mask_token = d->mask_features ? head->mask_token_id : -1;
        d->n_places = d->base.k_max = head->places.n;
    } else {
        d->mask_token = checkpoint_mask_token(d->checkpoint, &key);
    }
    d->base.is_parallel = d->mask_token >= 0 || d->n_places > 0;
    if (d->mask_token < 0) return 0;
    if (d->mask_token >= cfg->vocab_size) {
        return error_set(err, ERR_FORMAT,
                         "the draft %s has \"%s\" = %d, which is no token of a model with %d; "
                         "without this key in config.json it guesses one token in each pass",
                         d->options.name, key, (int)d->mask_token, cfg->vocab_size);
    }
    if (end_ids_have(&cfg->ends, d->mask_token)) {
        return error_set(err, ERR_FORMAT,
                         "the draft %s has \"%s\" = %d, which ends texts and would never be "
                         "guessed; a mask must be a token that no text has, and without this key "
                         "in config.json the draft guesses one token in each pass",
                         d->options.name, key, (int)d->mask_token);
    }
    return 0;
}

int model_draft_count_places(const struct draft_lane *lane)
{
    int n = lane->k;
    for (int i = 0; lane->plan && i < lane->plan->n; i++) {
        bool is_grown = lane->plan->marks[i] & GUESS_GROWN;
        int place = guess_tree_place(lane->plan, i);
        if (is_grown && place >= n) n = place + 1;
    }
    return n;
}

/* The KV for as many as the chain has was set aside; guesses after siblings may be for places after
 * that, and are left out where there are no blocks. */
static int add_masks(struct model_draft *d, struct feeding *feeding)
{
    struct draft_lane *lane = feeding->lane;
    struct sequence *seq = lane->seq;
    struct block_table *table = &d->tables[seq->slot];
    struct error err;
    int n_wanted[] = {model_draft_count_places(lane), lane->k}, n = 0;
    for (int i = 0; i < 2 && n <= 0; i++) {
        n = least(n_wanted[i] - lane->draft->n_chain, d->n_rows_max) - 1;
        if (n > 0 && block_table_reach(table, &d->pool, feeding->end + n - d->shift, &err)) n = 0;
    }
    if (n > 0 && d->mask_features &&
        draft_inputs_add_masks(d->inputs, seq->slot, d->mask_features, n, &err)) {
        n = 0;
    }
    if (n <= 0) {
        /* A further pass would read this guess, whose feature nobody has. */
        if (d->mask_features) lane->k = lane->draft->n_chain + 1;
        return 0;
    }
    for (int i = 0; i < n; i++) {
        seq->tokens[feeding->end + i] = d->mask_token;
    }
    feeding->end += n;
    feeding->n_rows += n;
    return n;
}

/* Rows of a head of places, which reads neither tokens nor masks for them. */
static int add_places(const struct model_draft *d, struct feeding *feeding)
{
    int n = least(least(model_draft_count_places(feeding->lane), d->n_places), d->n_rows_max) - 1;
    feeding->n_rows += n;
    return n;
}

int model_draft_add_masks(struct model_draft *d, int n_feedings)
{
    int n = 0;
    for (int i = 0; i < n_feedings; i++) {
        n += d->n_places ? add_places(d, &d->feedings[i]) : add_masks(d, &d->feedings[i]);
    }
    return n;
}

int model_draft_next_place(struct model_draft *d, const struct feeding *feeding, int first,
                           struct feeding *part)
{
    struct draft_lane *lane = feeding->lane;
    struct draft_grower *grower = feeding->beside;
    const struct guess_tree *draft = lane->draft;
    int end = first + feeding->n_rows;
    bool goes_on = draft->n_chain < least(lane->k, end) && !draft->is_over;
    bool grows = model_draft_wants_growth(grower, lane, goes_on);
    int place = goes_on ? draft->n_chain : grows ? model_draft_growth_place(grower) : end;
    if (place >= end) {
        model_draft_stop_growth(grower);
        return -1;
    }
    *part = *feeding;
    part->has_chain_row = goes_on;
    if (grows) model_draft_plan_growth_of_row(d, grower, part);
    return place;
}
