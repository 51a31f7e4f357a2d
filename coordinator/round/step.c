/* The step that checks all guesses: its lanes, the rows that are wanted of each, and the exchange
 * with the target (coordinator/target/verify.c). */
#include <string.h>

#include "base/clock.h"
#include "coordinator/round/round.h"
#include "coordinator/round/score.h"
#include "coordinator/sequence/sequence.h"
#include "speculation/accept/multi_draft.h"

/* Tokens n_target_kv .. of the sequence, then the guesses: a chain or, where there is more, a tree,
 * of which the siblings, guesses after them and the branch go after the chain. There is no more
 * of it than what was planned, because how many there are must not depend on their values; where
 * siblings follow q, this was decided before they were drawn. What was set aside of KV is for a
 * tree that is at least as large. */
static int fill_lane(struct round *r, struct round_lane *lane, struct error *err)
{
    struct block_pool *pool = r->tools->target_pool;
    struct step_lane *step_lane = &r->step_lanes[lane->step_lane];
    struct sequence *seq = lane->seq;
    struct draft *draft = &lane->draft;
    struct block_tails *tails = lane->plan.tails;
    *step_lane = (struct step_lane){
        .slot = seq->slot,
        .position = seq->n_target_kv,
        .n_tokens = lane->plan.n_tokens + draft->n,
        .tokens = seq->tokens + seq->n_target_kv,
        .n_draft = draft->n,
        .first_block = seq->n_blocks_sent,
        .n_blocks = seq->target_blocks.n - seq->n_blocks_sent,
        .blocks = seq->target_blocks.blocks + seq->n_blocks_sent,
    };
    if (tails) block_tails_release(tails, pool);
    for (int i = 0; i < draft->n && !(tails && lane->plan.follows_q); i++) {
        int most = tails ? lane->plan.siblings[i] : 0;
        if (draft->n_siblings[i] > most) draft->n_siblings[i] = (uint8_t)most;
    }
    if (!tails) draft->n_branch = draft->grown.n = 0;
    bool is_chain = lane_tree_siblings(draft) == 0 && lane_tree_shared(draft) >= draft->n_branch;
    if (is_chain) return 0;
    lane->tree = arena_take(&r->arena, 1, sizeof *lane->tree);
    if (!lane->tree) return error_set(err, ERR_NO_MEMORY, "no room for a tree of guesses");
    lane_tree_init(lane->tree, draft);
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

/* Makes the wish for row i name the tokens that the q of a guess after it can give: in a tree that
 * of all its children. */
static int name_ids(struct round *r, const struct round_lane *lane, int i, struct target_want *want,
                    struct error *err)
{
    if (!lane->tree) {
        want->q = i < lane->draft.n ? &lane->draft.q[i] : NULL;
        return 0;
    }
    const struct tree *guesses = &lane->tree->guesses;
    size_t n = (size_t)multi_draft_ids_most(guesses, i - 1);
    struct sparse_dist *q = arena_take(&r->arena, 1, sizeof *q);
    int32_t *ids = arena_take(&r->arena, n + 1, sizeof *ids);
    if (!q || !ids) return error_set(err, ERR_NO_MEMORY, "no room for a row of %zu ids", n);
    multi_draft_want(guesses, i - 1, ids, q, want);
    return 0;
}

/* The rows of a lane: first those of a prompt that is scored. Then row i is what is known of p
 * after the committed tokens and the first i guesses or, in a tree, after guess i - 1. */
static int list_wants(struct round *r, struct round_lane *lane, struct error *err)
{
    struct sequence *seq = lane->seq;
    int n_guesses = lane->tree ? lane->tree->guesses.n : lane->draft.n, rc = 0;
    bool lists_best = drafters_observes(r->tools->drafters);
    lane->first_want = r->n_wants;
    if (lane->plan.n_scored) {
        TRY(score_list_wants(&lane->plan, lane->step_lane, r->wants + r->n_wants, &r->arena, err));
        r->n_wants += lane->plan.n_scored;
    }
    for (int i = 0; i <= n_guesses && lane->plan.is_last; i++) {
        struct lane_want *want = &r->wants[r->n_wants++];
        const struct edit_list *edits = NULL;
        bool is_in_chain = i <= lane->draft.n;
        int depth = is_in_chain ? i : lane->tree->shape.depth[i - 1] + 1;
        if (seq->edits) {
            TRY(edits_at(seq->edits, lane->draft.tokens, i, &r->arena, &edits, err));
        }
        *want = (struct lane_want){
            .lane = lane->step_lane,
            .index = lane->plan.n_tokens - 1 + i,
            .want =
                {
                    .rule = seq->rule,
                    .params = &seq->sampling,
                    .at = {seq->seed, (uint32_t)(seq->n_tokens + depth), (uint32_t)seq->n_tokens},
                    .full_rows = seq->job->generate.full_rows,
                    .wants_logprobs = seq->job->generate.logprobs >= 0,
                    .n_top = seq->job->generate.logprobs,
                    .edits = edits,
                    .lists_best = lists_best,
                },
        };
        TRY(name_ids(r, lane, i, &want->want, err));
    }
    lane->n_wants = r->n_wants - lane->first_want;
out:
    return rc;
}

int round_build(struct round *r, struct error *err)
{
    int n_wants = 0;
    for (int i = 0; i < r->n_lanes; i++) {
        const struct draft *draft = &r->lanes[i].draft;
        n_wants += r->lanes[i].plan.n_scored + draft->n + 1;
        n_wants += lane_tree_siblings(draft) + draft->n_branch + draft->grown.n;
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
    return 0;
}

/* One stream that speculates with the draft model: the draft need not wait for the target. */
static bool can_draft_ahead(const struct round *r)
{
    const struct round_lane *lane = &r->lanes[0];
    const struct drafter *model = r->tools->drafters->model;
    if (lane->plan.k > 0 && lane->plan.drafter != model) return false;
    if (lane->seq->tree) return false; /* guesses made ahead are a chain */
    return model && r->is_alone && r->n_lanes == 1 && lane->plan.is_last && !lane->err.code;
}

int round_send(struct round *r, struct error *err)
{
    struct ahead *ahead = r->tools->ahead;
    struct round_lane *lane = &r->lanes[0];
    struct sequence *seq = lane->seq;
    r->meanwhile_us = 0;
    r->verify_us = clock_now_us();
    r->cost = (struct target_cost){0};
    r->is_ahead = can_draft_ahead(r);
    if (r->is_ahead) {
        int limit = drafter_limit(r->tools->drafters->model), end = seq->end - 1;
        int room = (end < limit ? end : limit) - (seq->n_tokens + lane->draft.n + 1);
        int k = round_n_own(lane) < room ? round_n_own(lane) : room;
        ahead_begin(ahead, seq, &lane->draft, k, &seq->ends);
    } else if (ahead) {
        ahead_skip(ahead);
    }
    r->query = (struct target_query){r->step_lanes, r->n_step_lanes, r->wants, r->n_wants};
    return target_verify_send(r->tools->target, &r->query, &r->arena, &r->question, &r->result,
                              &r->cost, err);
}

int round_merge(struct round *r, struct error *err)
{
    return target_verify_merge(r->tools->target, &r->query, &r->arena, &r->question, &r->result,
                               &r->cost, err);
}

void round_end_step(struct round *r, bool has_failed)
{
    const struct round_lane *lane = &r->lanes[0];
    if (!r->is_ahead) return;
    /* The step has fed the last committed token and the guesses, nothing else. */
    bool is_plain = lane->plan.is_last && lane->plan.n_tokens == 1;
    const struct ahead_times times = {
        .is_plain = !has_failed && is_plain && lane->n_missed <= 2 && r->plan.n_readings == 0,
        .draft_us = r->draft_us,
        .verify_us = r->cost.total_us,
        .step_us = r->cost.compute_us + r->cost.collective_us,
    };
    ahead_end(r->tools->ahead, lane->seq, &times);
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
