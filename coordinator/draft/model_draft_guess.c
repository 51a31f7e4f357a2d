/* The guesses of a draft model: its passes. */
#include "coordinator/draft/model_draft_grow.h"

#include <string.h>

#include "base/clock.h"
#include "base/least.h"
#include "speculation/accept/multi_draft.h"
#include "speculation/accept/rules.h"

/* The lane's next guess of the chain, from its row of the last step. mark: GUESS_STAGED, or 0. */
static int guess_once(struct model_draft *d, const struct feeding *feeding, int row, int mark,
                      struct arena *arena, struct error *err)
{
    struct draft_lane *lane = feeding->lane;
    struct sequence *seq = lane->seq;
    struct guess_tree *draft = lane->draft;
    int position = draft->base + draft->n_chain;
    struct guess guess = {.position = position,
                          .base = draft->base,
                          .q = arena_take(arena, 1, sizeof *guess.q),
                          .siblings_max = draft_lane_siblings(lane, draft->n_chain),
                          .is_independent = draft->is_independent};
    if (!guess.q) return error_set(err, ERR_NO_MEMORY, "no room for the draft's q");
    int rc = feeding->follows ? model_draft_choose_following(d, feeding, row, arena, &guess, err)
                              : model_draft_choose(d, lane, row, arena, &guess, err);
    if (rc) return rc;
    int first =
        model_draft_add(draft, guess_tree_last(draft), GUESS_CHAIN | mark, GUESS_SIBLING, &guess);
    if (feeding->follows) model_draft_value(feeding->follows, draft, first, &guess);
    seq->tokens[position] = guess.id; /* after the committed ones, where the next pass reads it */
    draft->is_over = model_draft_ends(lane, guess.id) || guess.chance < seq->threshold;
    return 0;
}

/* The lanes that want another guess, of the chain or after siblings, and what must be read for
 * it. */
static int list_feedings(struct model_draft *d, struct draft_lane *lanes, int n)
{
    int n_feedings = 0;
    for (int i = 0; i < n; i++) {
        struct draft_lane *lane = &lanes[i];
        const struct guess_tree *draft = lane->draft;
        struct draft_grower *grower = model_draft_grower(d, i);
        if (lane->err.code) continue;
        bool goes_on = draft->n_chain < lane->k && !draft->is_over;
        bool grows = model_draft_wants_growth(grower, lane, goes_on);
        if (!goes_on && !grows) continue;
        struct feeding *feeding = &d->feedings[n_feedings];
        int end = draft->base + draft->n_chain;
        if (model_draft_plan_feeding(d, feeding, lane->seq, end, &lane->err)) continue;
        if (!model_draft_has_features(d, feeding, draft->base)) continue;
        feeding->lane = lane;
        feeding->beside = grower;
        feeding->follows = model_draft_follows_q(grower) ? grower : NULL;
        if (grows && !model_draft_plan_growth(d, grower, goes_on, feeding) && !goes_on) continue;
        d->passing[n_feedings++] = lane;
    }
    return n_feedings;
}

/* After the last token of a feeding, what its lane is expected to guess, as far as another guess
 * may follow it. The KV for that was set aside with that for the guesses. Returns how many
 * tokens. */
static int add_expected(struct model_draft *d, struct feeding *feeding)
{
    const struct draft_lane *lane = feeding->lane;
    const int32_t *tokens = lane->expected.tokens;
    struct error err;
    if (feeding->grower) return 0;
    int n = 0, n_most = least(lane->expected.n_fed, lane->k - lane->draft->n_chain - 1);
    while (n < n_most && tokens[n] >= 0 && tokens[n] < d->n_vocab_target &&
           !end_ids_have(lane->ends, tokens[n])) {
        n++;
    }
    struct block_table *table = &d->tables[lane->seq->slot];
    if (n == 0 || block_table_reach(table, &d->pool, feeding->end + n, &err)) return 0;
    memcpy(lane->seq->tokens + feeding->end, tokens, (size_t)n * sizeof *tokens);
    feeding->end += n;
    feeding->n_rows += n;
    return n;
}

/* Adds what is expected, or masks, to the feedings of a pass; returns how many tokens. */
static int read_ahead(struct model_draft *d, int n_feedings)
{
    struct draft_stage *stage = d->base.stage;
    int n = 0;
    if (d->block.size > 0) return model_draft_add_blocks(d, n_feedings);
    if (d->base.is_parallel) return model_draft_add_masks(d, n_feedings);
    if (!stage) return 0;
    stage->expect(stage, d->passing, n_feedings);
    for (int i = 0; i < n_feedings; i++) {
        n += add_expected(d, &d->feedings[i]);
    }
    return n;
}

/* The lane's guesses from the rows of its feeding, the first of which is number `row` of the step.
 * If a guess is the token that was read ahead in its place, the next row is what a pass of its own
 * would compute after that guess, bit for bit (docs/design.md section 4), so the next guess is made
 * from it. At the first other one the rows after it belong to another text: the guess is kept, and
 * n_draft_kv says that what was read after it must be written again.
 *
 * This is speculative sampling of the draft's own text (Spector and Re 2023, arXiv 2308.04623) with
 * a shared coin: the guess is drawn from q with the coin of its position, whatever was expected,
 * and what was expected only decides whether the next row is there already. So no token is tested
 * with a coin of its own, there is no residual to draw from, and q is still exactly what the guess
 * was drawn from. */
static int guess_from_rows(struct model_draft *d, const struct feeding *feeding, int row,
                           struct arena *arena, struct error *err)
{
    const struct draft_lane *lane = feeding->lane;
    const struct guess_tree *draft = lane->draft;
    const int32_t *expected = lane->expected.tokens;
    int rc = 0;
    bool has_next = true;
    for (int i = 0; has_next; i++) {
        rc = guess_once(d, feeding, row + i, i > 0 ? GUESS_STAGED : 0, arena, err);
        has_next = !rc && i + 1 < feeding->n_rows && !draft->is_over &&
                   draft->tokens[guess_tree_last(draft)] == expected[i];
    }
    feeding->seq->n_draft_kv[d->base.model] = draft->base + draft->n_chain - 1;
    return rc;
}

/* Draws the guesses of the lane's next place. */
static int guess_place(struct model_draft *d, const struct place_draw *draw, struct arena *arena,
                       struct error *err)
{
    const struct feeding *part = &draw->part;
    int rc = part->grower ? model_draft_draw_growth(d, part, draw->row, arena, err) : 0;
    return rc || !part->has_chain_row ? rc : guess_once(d, part, draw->row, 0, arena, err);
}

/* The guesses of n lanes from the rows of a pass that makes all of them, those of the first lane
 * before those of the next one: a place of each lane at a time. */
static void guess_places(struct model_draft *d, const struct feeding *feedings, int n,
                         struct arena *arena)
{
    struct place_draw *draws = d->draws;
    struct error err;
    int n_left = n;
    for (int f = 0; f < n; f++) {
        draws[f] = (struct place_draw){.first = feedings[f].lane->draft->n_chain};
        feedings[f].lane->err.code = 0;
        feedings[f].seq->n_draft_kv[d->base.model] = feedings[f].lane->draft->base;
    }
    while (n_left > 0) {
        n_left = 0;
        for (int f = 0, row = 0; f < n; row += feedings[f++].n_rows) {
            struct place_draw *draw = &draws[f];
            if (draw->place < 0) continue;
            draw->place = model_draft_next_place(d, &feedings[f], draw->first, &draw->part);
            draw->row = row + draw->place - draw->first;
            n_left += draw->place >= 0 ? 1 : 0;
        }
        bool is_lost = model_draft_chain_places(d, draws, n, &err);
        for (int f = 0; f < n; f++) {
            struct draft_lane *lane = feedings[f].lane;
            if (draws[f].place < 0) continue;
            if (is_lost) lane->err = err;
            if (is_lost || guess_place(d, &draws[f], arena, &lane->err)) draws[f].place = -1;
        }
    }
}

static int guess_from_feeding(struct model_draft *d, const struct feeding *feeding, int row,
                              struct arena *arena, struct error *err)
{
    if (!feeding->grower) return guess_from_rows(d, feeding, row, arena, err);
    int rc = model_draft_draw_growth(d, feeding, row, arena, err);
    if (rc || !feeding->has_chain_row) return rc;
    return guess_once(d, feeding, row, 0, arena, err);
}

/* Guesses for each feeding's lane. A step that fails fails all lanes that were in it. */
static void run_pass(struct model_draft *d, const struct feeding *feedings, int n,
                     struct arena *arena)
{
    struct error err;
    for (int i = 0, n_done = 0; i < n; i += n_done) {
        int rc = model_draft_step(d, feedings + i, n - i, &n_done, &err);
        if (rc) n_done = n - i;
        if (!rc && d->base.is_parallel) {
            guess_places(d, feedings + i, n_done, arena);
            continue;
        }
        for (int f = i, row = 0; f < i + n_done; row += feedings[f++].n_rows) {
            struct draft_lane *lane = feedings[f].lane;
            if (rc) {
                lane->err = err;
            } else if (!guess_from_feeding(d, &feedings[f], row, arena, &lane->err)) {
                lane->err.code = 0;
            }
        }
    }
    for (int i = 0; i < n; i++) {
        model_draft_end_growth(d, &feedings[i]);
    }
}

/* n_ahead, n_again: tokens that were read ahead or as masks, and again. */
static void note_pass(struct draft_cost *cost, int n_lanes, int n_ahead, int n_again, int64_t us)
{
    if (cost->n_passes == DRAFT_MAX) return;
    cost->pass_grows[cost->n_passes] = n_again > 0;
    cost->pass_lanes[cost->n_passes] = n_lanes;
    cost->pass_expected[cost->n_passes] = n_ahead + n_again;
    cost->pass_us[cost->n_passes++] = us;
}

void model_draft_propose(struct drafter *drafter, struct draft_lane *lanes, int n,
                         struct arena *arena, struct draft_cost *cost)
{
    struct model_draft *d = model_draft(drafter);
    int n_feedings;
    *cost = (struct draft_cost){0};
    for (int i = 0; i < n; i++) {
        lanes[i].err.code = 0;
        lanes[i].expected.n_passes = 0;
    }
    model_draft_begin_growth(d, lanes, n);
    while ((n_feedings = list_feedings(d, lanes, n)) > 0) {
        for (int i = 0; i < n_feedings && cost->n_passes == 0; i++) {
            cost->first_pass_tokens +=
                d->feedings[i].end - d->feedings[i].seq->n_draft_kv[d->base.model];
        }
        int n_ahead = read_ahead(d, n_feedings), n_again = 0;
        for (int i = 0; i < n_feedings; i++) {
            n_again += model_draft_count_again(&d->feedings[i]);
        }
        int64_t start_us = clock_now_us();
        run_pass(d, d->feedings, n_feedings, arena);
        note_pass(cost, n_feedings, n_ahead, n_again, clock_now_us() - start_us);
        if (d->base.stage) d->base.stage->compare(d->base.stage, d->passing, n_feedings);
    }
    model_draft_end_guesses(d, lanes, n);
}
