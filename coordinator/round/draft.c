/* The first half of a round: its plan, the guesses, and the step that checks them. */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "coordinator/round/parts.h"
#include "coordinator/round/score.h"
#include "coordinator/sequence/sequence.h"
#include "speculation/accept/multi_draft.h"

/* ---- drafting ---- */

static void begin_lanes(struct round_part *part)
{
    part->n_lanes = part->plan.n_lanes;
    for (int i = 0; i < part->n_lanes; i++) {
        struct round_lane *lane = &part->lanes[i];
        struct sequence *seq = part->plan.lanes[i].seq;
        lane->plan = part->plan.lanes[i];
        lane->seq = seq;
        lane->draft.base = seq->n_tokens;
        lane->draft.n = lane->draft.n_branch = lane->draft.n_staged = lane->draft.n_appended = 0;
        lane->draft.grown.n = 0;
        lane->draft.is_over = false;
        lane->tree = NULL;
        lane->n_wants = lane->n_ahead = lane->n_accepted = 0;
        lane->n_missed = seq->n_tokens - seq->n_draft_kv;
        lane->is_settled = false;
        lane->err.code = 0;
    }
}

static void lose_draft(struct sequence *seq, const struct error *err)
{
    if (err->code == ERR_UNAVAILABLE) {
        log_line(LOG_LEVEL_WARN, "draft_lost", "text=\"%s\"", err->text);
        seq->lost_draft = true;
    }
    seq->speculation_off = err->code == ERR_EXHAUSTED ? "the draft's KV cache was full"
                                                      : "the draft's device was lost";
}

/* The draft reads parts of prompts that it will need. */
static void read_prompts(struct round_part *part)
{
    struct error err;
    int64_t start_us = clock_now_us();
    part->read_us = 0;
    if (part->plan.n_readings == 0) return;
    round_flush(part, false);
    if (drafter_read(part->tools->drafters->model, part->plan.readings, part->plan.n_readings,
                     &err)) {
        for (int i = 0; i < part->plan.n_readings; i++) {
            lose_draft(part->plan.readings[i].seq, &err);
        }
    } else {
        for (int i = 0; i < part->plan.n_readings; i++) {
            drafter_commit(part->tools->drafters->model, part->plan.readings[i].seq);
        }
    }
    part->read_us = clock_now_us() - start_us;
}

/* What a draft that failed means for its lane: without KV blocks or without its device the sequence
 * goes on plainly, and with any other error its job fails. */
static void settle_draft(struct round_lane *lane, const struct error *err)
{
    if (!err->code) return;
    lane->draft.n = lane->draft.n_appended = lane->draft.n_staged = lane->n_ahead = 0;
    lane->draft.grown.n = 0;
    if (err->code == ERR_EXHAUSTED || err->code == ERR_UNAVAILABLE) {
        lose_draft(lane->seq, err);
    } else {
        lane->err = *err;
        lane->end = JOB_END_FAILED;
    }
}

/* Guesses that were made ahead are taken only by a single stream that guesses nothing behind
 * siblings; otherwise the same guesses are drawn again with the same coins. */
static void take_ahead(struct round_part *part, struct round_lane *lane)
{
    if (!part->is_alone || part->n_lanes > 1 || lane->plan.growth.n > 0) return;
    ahead_take(part->tools->ahead, lane->seq, lane->plan.k, &lane->draft);
    lane->n_ahead = lane->draft.n;
}

/* The most siblings that the plan has for a guess. */
static int most_siblings(const struct lane_plan *plan)
{
    int most = 0;
    for (int i = 0; i < plan->k && plan->tails; i++) {
        if (plan->siblings[i] > most) most = plan->siblings[i];
    }
    return most;
}

/* The share in a call of propose of each lane whose guesses `drafter` makes; returns how many. */
static int list_drafts(struct round_part *part, const struct drafter *drafter,
                       struct round_lane **owners)
{
    int n = 0;
    for (int i = 0; i < part->n_lanes; i++) {
        struct round_lane *lane = &part->lanes[i];
        if (lane->plan.k == 0 || lane->plan.drafter != drafter) continue;
        part->drafts[n].seq = lane->seq;
        part->drafts[n].k = lane->plan.k;
        part->drafts[n].ends = &lane->seq->ends;
        part->drafts[n].siblings_max = most_siblings(&lane->plan);
        bool grows = lane->plan.tails && lane->plan.growth.n > 0;
        part->drafts[n].growth = grows ? &lane->plan.growth : NULL;
        part->drafts[n].siblings = grows && lane->plan.follows_q ? lane->plan.siblings : NULL;
        part->drafts[n].draft = &lane->draft;
        owners[n++] = lane;
    }
    return n;
}

/* All lanes that guess with the draft model, in one call. */
static void draft_lanes(struct round_part *part)
{
    struct drafter *model = part->tools->drafters->model;
    struct round_lane *owners[SEQUENCES_MAX];
    bool needs_guesses = false; /* those made ahead may be enough */
    int64_t start_us = clock_now_us();
    part->draft_cost = (struct draft_cost){0};
    part->draft_us = 0;
    int n = model ? list_drafts(part, model, owners) : 0;
    if (n == 0) return;
    for (int i = 0; i < n; i++) {
        take_ahead(part, owners[i]);
        needs_guesses |= owners[i]->draft.n < owners[i]->plan.k && !owners[i]->draft.is_over;
    }
    if (needs_guesses) round_flush(part, false);
    drafter_propose(model, part->drafts, n, &part->arena, &part->draft_cost);
    part->draft_us = clock_now_us() - start_us;
    round_append(part, owners, n);
    for (int i = 0; i < n; i++) {
        settle_draft(owners[i], &part->drafts[i].err);
    }
}

/* The other lanes that guess. It takes microseconds, which count as planning. */
static void find_guesses(struct round_part *part)
{
    const struct drafters *drafters = part->tools->drafters;
    struct round_lane *owners[SEQUENCES_MAX];
    struct draft_cost cost;
    for (int f = 0; f < drafters->n_finders; f++) {
        int n = list_drafts(part, drafters->finders[f], owners);
        if (n == 0) continue;
        drafter_propose(drafters->finders[f], part->drafts, n, &part->arena, &cost);
        for (int i = 0; i < n; i++) {
            settle_draft(owners[i], &part->drafts[i].err);
        }
    }
}

/* What was found as a branch of what the draft has guessed. The finder writes it behind the text,
 * where the guesses must be again afterwards. */
static void find_branch(struct round_part *part, struct round_lane *lane)
{
    struct sequence *seq = lane->seq;
    struct draft *draft = &lane->draft;
    struct draft found = {.base = draft->base};
    struct draft_lane wanted = {
        .seq = seq, .k = lane->plan.branch.n, .ends = &seq->ends, .draft = &found};
    struct draft_cost cost;
    drafter_propose(part->tools->drafters->finders[lane->plan.branch.offer.finder], &wanted, 1,
                    &part->arena, &cost);
    memcpy(seq->tokens + seq->n_tokens, draft->tokens, (size_t)draft->n * sizeof *draft->tokens);
    draft->n_branch = wanted.err.code ? 0 : found.n;
    memcpy(draft->branch, found.tokens, (size_t)draft->n_branch * sizeof *draft->branch);
    memcpy(draft->branch_q, found.q, (size_t)draft->n_branch * sizeof *draft->branch_q);
}

/* The window of a finder as a branch; without memory for it there is none. */
static void find_window(struct round_part *part, struct round_lane *lane)
{
    struct draft_lane wanted = {.seq = lane->seq,
                                .k = lane->plan.n_window,
                                .ends = &lane->seq->ends,
                                .draft = &lane->draft};
    drafter_window(lane->plan.window, &wanted, &part->arena);
}

static void find_branches(struct round_part *part)
{
    for (int i = 0; i < part->n_lanes; i++) {
        struct round_lane *lane = &part->lanes[i];
        if (lane->err.code) continue;
        if (lane->plan.branch.n > 0 && lane->draft.n > 0) find_branch(part, lane);
        if (lane->plan.n_window > 0) find_window(part, lane);
    }
}

/* ---- the step ---- */

/* No more than what was planned: how many there are does not depend on their values. Where they
 * follow q, this was decided before they were drawn. Whether there is anything but a chain. */
static bool trim_tree(struct round_lane *lane)
{
    struct draft *draft = &lane->draft;
    bool is_decided = lane->plan.tails && lane->plan.follows_q;
    for (int i = 0; i < draft->n && !is_decided; i++) {
        int most = lane->plan.tails ? lane->plan.siblings[i] : 0;
        if (draft->n_siblings[i] > most) draft->n_siblings[i] = (uint8_t)most;
    }
    if (!lane->plan.tails) draft->n_branch = draft->grown.n = 0;
    return lane_tree_siblings(draft) > 0 || lane_tree_shared(draft) < draft->n_branch;
}

/* The siblings, what is behind them and the branch go behind the chain. What was set aside is for a
 * tree that is at least as large. */
static int fill_tree(struct round_part *part, struct round_lane *lane, struct step_lane *step_lane,
                     struct error *err)
{
    struct block_pool *pool = part->tools->target_pool;
    struct sequence *seq = lane->seq;
    struct block_tails *tails = lane->plan.tails;
    if (tails) block_tails_release(tails, pool);
    if (!trim_tree(lane)) return 0;
    lane->tree = arena_take(&part->arena, 1, sizeof *lane->tree);
    if (!lane->tree) return error_set(err, ERR_NO_MEMORY, "no room for a tree of guesses");
    lane_tree_init(lane->tree, &lane->draft);
    const struct tree *guesses = &lane->tree->guesses;
    int rc = block_tails_reserve(tails, pool, &seq->target_blocks, &lane->tree->shape,
                                 seq->n_tokens, err);
    if (rc) return rc;
    memcpy(seq->tokens + seq->n_tokens, guesses->tokens,
           (size_t)guesses->n * sizeof *guesses->tokens);
    step_lane->n_tokens = lane->plan.n_tokens + guesses->n;
    step_lane->n_draft = guesses->n;
    step_lane->parents = guesses->parents;
    step_lane->n_tails = tails->n;
    step_lane->tails = tails->blocks;
    return 0;
}

/* Tokens n_target_kv .. of the sequence, then the guesses. */
static int fill_step_lane(struct round_part *part, struct round_lane *lane,
                          struct step_lane *step_lane, struct error *err)
{
    struct sequence *seq = lane->seq;
    *step_lane = (struct step_lane){
        .slot = seq->slot,
        .position = seq->n_target_kv,
        .n_tokens = lane->plan.n_tokens + lane->draft.n,
        .tokens = seq->tokens + seq->n_target_kv,
        .n_draft = lane->draft.n,
        .first_block = seq->n_blocks_sent,
        .n_blocks = seq->target_blocks.n - seq->n_blocks_sent,
        .blocks = seq->target_blocks.blocks + seq->n_blocks_sent,
    };
    return fill_tree(part, lane, step_lane, err);
}

/* The place of row i, in tokens behind the committed ones. */
static int row_depth(const struct round_lane *lane, int i)
{
    return i <= lane->draft.n ? i : lane->tree->shape.depth[i - 1] + 1;
}

/* Makes the wish for row i name the tokens that the q of a guess behind it can give. */
static int name_ids(struct round_part *part, const struct round_lane *lane, int i,
                    struct target_want *want, struct error *err)
{
    if (!lane->tree) {
        want->q = i < lane->draft.n ? &lane->draft.q[i] : NULL;
        return 0;
    }
    const struct tree *guesses = &lane->tree->guesses;
    size_t n = (size_t)multi_draft_ids_most(guesses, i - 1);
    struct sparse_dist *q = arena_take(&part->arena, 1, sizeof *q);
    int32_t *ids = arena_take(&part->arena, n + 1, sizeof *ids);
    if (!q || !ids) return error_set(err, ERR_NO_MEMORY, "no room for a row of %zu ids", n);
    multi_draft_want(guesses, i - 1, ids, q, want);
    return 0;
}

/* Row i is what is known of p behind the committed tokens and the first i guesses or, in a tree,
 * behind guess i - 1. */
static int list_wants(struct round_part *part, struct round_lane *lane, int index,
                      struct error *err)
{
    struct sequence *seq = lane->seq;
    int n_guesses = lane->tree ? lane->tree->guesses.n : lane->draft.n;
    bool lists_best = drafters_observes(part->tools->drafters);
    for (int i = 0; i <= n_guesses; i++) {
        struct lane_want *want = &part->wants[part->n_wants++];
        const struct edit_list *edits = NULL;
        if (seq->edits) {
            int rc = edits_at(seq->edits, lane->draft.tokens, i, &part->arena, &edits, err);
            if (rc) return rc;
        }
        *want = (struct lane_want){
            .lane = index,
            .index = lane->plan.n_tokens - 1 + i,
            .want =
                {
                    .rule = seq->rule,
                    .params = &seq->sampling,
                    .at = {seq->seed, (uint32_t)(seq->n_tokens + row_depth(lane, i)),
                           (uint32_t)seq->n_tokens},
                    .full_rows = seq->job->generate.full_rows,
                    .wants_logprobs = seq->job->generate.logprobs >= 0,
                    .n_top = seq->job->generate.logprobs,
                    .edits = edits,
                    .lists_best = lists_best,
                },
        };
        int rc = name_ids(part, lane, i, &want->want, err);
        if (rc) return rc;
    }
    return 0;
}

static int list_lane(struct round_part *part, struct round_lane *lane, int index, struct error *err)
{
    int rc = 0;
    lane->first_want = part->n_wants;
    if (lane->plan.n_scored) {
        rc = score_list_wants(&lane->plan, index, part->wants + part->n_wants, &part->arena, err);
        part->n_wants += rc ? 0 : lane->plan.n_scored;
    }
    if (!rc && lane->plan.is_last) rc = list_wants(part, lane, index, err);
    lane->n_wants = part->n_wants - lane->first_want;
    return rc;
}

int round_fill_step(struct round_part *part, struct error *err)
{
    int n = 0, n_wants = 0;
    for (int i = 0; i < part->n_lanes; i++) {
        n_wants += part->lanes[i].plan.n_scored + part->lanes[i].draft.n + 1;
        n_wants += lane_tree_siblings(&part->lanes[i].draft) + part->lanes[i].draft.n_branch;
        n_wants += part->lanes[i].draft.grown.n;
    }
    part->n_wants = part->n_tokens = 0;
    part->wants = arena_take(&part->arena, (size_t)n_wants, sizeof *part->wants);
    if (!part->wants) return error_set(err, ERR_NO_MEMORY, "no room for %d rows", n_wants);
    for (int i = 0; i < part->n_lanes; i++) {
        struct round_lane *lane = &part->lanes[i];
        lane->step_lane = -1;
        if (lane->err.code) continue;
        lane->step_lane = n;
        int n_listed = part->n_wants;
        if (fill_step_lane(part, lane, &part->step_lanes[n], &lane->err) ||
            list_lane(part, lane, n, &lane->err)) {
            lane->end = JOB_END_FAILED;
            lane->step_lane = -1;
            part->n_wants = n_listed;
            continue;
        }
        lane->err.code = 0;
        part->n_tokens += part->step_lanes[n++].n_tokens;
    }
    part->n_step_lanes = n;
    return 0;
}

/* ---- both ---- */

void round_prepare(struct round_part *part, struct sequence **seqs, int n, int hidden_rows,
                   int n_ahead)
{
    int64_t start_us = clock_now_us();
    struct scheduler *scheduler = part->tools->scheduler;
    arena_reset(&part->arena);
    scheduler->n_ahead = n_ahead;
    scheduler->is_halved = !part->is_alone;
    scheduler->n_hidden_rows = hidden_rows;
    scheduler_plan(scheduler, seqs, n, &part->plan);
    begin_lanes(part);
    read_prompts(part);
    find_guesses(part);
    draft_lanes(part);
    find_branches(part);
    part->prepare_us = clock_now_us() - start_us;
    part->is_prepared = part->n_lanes > 0;
}
