/* The step that checks all guesses: its lanes, the rows that are wanted of each, and the exchange
 * with the target (coordinator/target/verify.c). */
#include <string.h>

#include "base/clock.h"
#include "coordinator/round/round.h"
#include "coordinator/round/score.h"
#include "coordinator/sequence/sequence.h"
#include "speculation/accept/multi_draft.h"

static bool is_chain(const struct guess_tree *tree)
{
    int i = 0;
    while (i < tree->n && tree->parents[i] == i - 1) {
        i++;
    }
    return i == tree->n;
}

/* Tokens n_target_kv .. of the sequence, then the guesses in depth-first order. There are no more
 * of them than were planned, because how many there are must not depend on their values; where
 * siblings follow q, this was decided before they were drawn. What was set aside of KV is for a
 * tree that is at least as large. */
static int fill_lane(struct round *r, struct round_lane *lane, struct error *err)
{
    struct block_pool *pool = r->tools->target_pool;
    struct step_lane *step_lane = &r->step_lanes[lane->step_lane];
    struct sequence *seq = lane->seq;
    struct guess_tree *draft = &lane->draft;
    struct block_tails *tails = lane->plan.tails;
    int n_fed = lane->plan.n_tokens, rc = 0;
    guess_tree_sort(draft);
    TRY(round_feed_look_ahead(r, lane, err));
    const struct guess_tree *fed = lane->fed;
    int32_t *tokens = arena_take(&r->arena, (size_t)n_fed + (size_t)fed->n, sizeof *tokens);
    if (!tokens) return error_set(err, ERR_NO_MEMORY, "no room for the tokens of a step");
    memcpy(tokens, seq->tokens + seq->n_target_kv, (size_t)n_fed * sizeof *tokens);
    memcpy(tokens + n_fed, fed->tokens, (size_t)fed->n * sizeof *tokens);
    *step_lane = (struct step_lane){
        .slot = seq->slot,
        .position = seq->n_target_kv,
        .n_tokens = n_fed + fed->n,
        .tokens = tokens,
        .n_draft = fed->n,
        .first_block = seq->n_blocks_sent,
        .n_blocks = seq->target_blocks.n - seq->n_blocks_sent,
        .blocks = seq->target_blocks.blocks + seq->n_blocks_sent,
    };
    lane->layout = (struct tree_layout){0};
    if (tails) block_tails_release(tails, pool);
    if (is_chain(fed)) goto out;
    TRY(tree_layout_init(&lane->layout, fed->parents, fed->n, err));
    TRY(block_tails_reserve(tails, pool, &seq->target_blocks, &lane->layout, seq->n_tokens, err));
    step_lane->parents = fed->parents;
    step_lane->n_tails = tails->n;
    step_lane->tails = tails->blocks;
out:
    return rc;
}

/* The rows of a lane: first those of a prompt that is scored. Then row i is what is known of p
 * after the committed tokens, and after guess i - 1 and those that lead to it; it names the tokens
 * that the q of a guess after that can give. */
static int list_wants(struct round *r, struct round_lane *lane, struct error *err)
{
    struct sequence *seq = lane->seq;
    const struct guess_tree *draft = &lane->draft;
    int rc = 0;
    bool lists_best = drafters_observes(r->tools->drafters);
    lane->first_want = r->n_wants;
    if (lane->plan.n_scored) {
        TRY(score_list_wants(&lane->plan, lane->step_lane, r->wants + r->n_wants, &r->arena, err));
        r->n_wants += lane->plan.n_scored;
    }
    for (int i = 0; i <= draft->n && lane->plan.is_last; i++) {
        struct lane_want *want = &r->wants[r->n_wants++];
        const struct edit_list *edits = NULL;
        int32_t before[DRAFT_MAX];
        int n_before = guess_tree_text(draft, i - 1, before);
        if (seq->edits) TRY(edits_at(seq->edits, before, n_before, &r->arena, &edits, err));
        *want = (struct lane_want){
            .lane = lane->step_lane,
            .index = lane->plan.n_tokens + round_fed_node(lane, i - 1),
            .want =
                {
                    .rule = seq->rule,
                    .params = &seq->sampling,
                    .at = {seq->seed, (uint32_t)(seq->n_tokens + n_before),
                           (uint32_t)seq->n_tokens},
                    .full_rows = seq->job->generate.full_rows,
                    .wants_logprobs = seq->job->generate.logprobs >= 0,
                    .n_top = seq->job->generate.logprobs,
                    .edits = edits,
                    .lists_best = lists_best,
                },
        };
        TRY(multi_draft_want(draft, i - 1, &r->arena, &want->want, err));
    }
    if (lane->plan.is_last) round_want_look_ahead(r, lane);
    lane->n_wants = r->n_wants - lane->first_want;
out:
    return rc;
}

int round_build(struct round *r, struct error *err)
{
    int n_wants = 0;
    for (int i = 0; i < r->n_lanes; i++) {
        const struct lane_plan *plan = &r->lanes[i].plan;
        n_wants += plan->n_scored + r->lanes[i].draft.n + 1;
        n_wants += lane_look_ahead_rows(&plan->look_ahead);
    }
    r->n_wants = r->n_tokens = r->n_step_lanes = 0;
    r->wants = arena_take(&r->arena, (size_t)n_wants, sizeof *r->wants);
    if (!r->wants) return error_set(err, ERR_NO_MEMORY, "no room for %d rows", n_wants);
    for (int i = 0; i < r->n_lanes; i++) {
        struct round_lane *lane = &r->lanes[i];
        int n_listed = r->n_wants;
        lane->step_lane = -1;
        if (lane->err.code) continue;
        lane->step_lane = r->n_step_lanes;
        if (fill_lane(r, lane, &lane->err) || list_wants(r, lane, &lane->err)) {
            lane->end = JOB_END_FAILED;
            lane->step_lane = -1;
            r->n_wants = n_listed;
            continue;
        }
        lane->err.code = 0;
        r->n_tokens += r->step_lanes[r->n_step_lanes++].n_tokens;
    }
    round_want_features(r);
    return 0;
}

int round_send(struct round *r, struct error *err)
{
    r->verify_us = clock_now_us();
    r->cost = (struct target_cost){0};
    r->query.lanes = r->step_lanes;
    r->query.n_lanes = r->n_step_lanes;
    r->query.wants = r->wants;
    r->query.n_wants = r->n_wants;
    int rc = target_verify_send(r->tools->target, &r->query, &r->arena, &r->question, &r->result,
                                &r->cost, err);
    r->has_flushed = rc || !target_has_answered(r->tools->target);
    if (r->has_flushed) round_flush(r, !rc);
    return rc;
}

int round_merge(struct round *r, struct error *err)
{
    int rc = target_verify_merge(r->tools->target, &r->query, &r->arena, &r->question, &r->result,
                                 &r->cost, err);
    if (!r->has_flushed) round_flush(r, false);
    return rc;
}

bool round_take_answer(struct round *r, struct round_lane *lane)
{
    if (lane->err.code || lane->seq->job->is_over) return false;
    const struct error *refusal = r->result.lane_errors[lane->step_lane];
    if (!refusal) return true;
    lane->err = *refusal;
    lane->end = JOB_END_FAILED;
    return false;
}
