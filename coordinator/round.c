/* One round over the sequences that have places.
 *
 * A worked round: one sequence, rule rejection, K = 3, no drafting ahead; two guesses stay and the
 * third is replaced. The prompt had 10 tokens and 2 have been committed since, so n_tokens = 12.
 * The last of them, t11, has not been read by either model: n_target_kv = n_draft_kv = 11. Coins
 * are addressed by (position, round), where the round's number is n_tokens at its beginning, here
 * 12.
 *
 *   seq->tokens      t0 .. t11 | g0  g1  g2         guesses stand behind the committed tokens
 *   position         0  .. 11  | 12  13  14
 *
 *   draft lane       reads t11, guesses g0; reads g0, guesses g1; reads g1, guesses g2;
 *                    n_draft_kv = 14
 *   draft            base = 12, n = 3, tokens = {g0, g1, g2}, q = {q0, q1, q2}
 *   its coins        RNG_DRAFT at (12, 12), (13, 12), (14, 12)
 *
 *   step lane        position = 11, n_tokens = 4, tokens = {t11, g0, g1, g2}, n_draft = 3
 *   wants            i      = 0         1         2         3       and index = i
 *                    q      = q0        q1        q2        NULL
 *                    at     = (12, 12)  (13, 12)  (14, 12)  (15, 12)
 *   rows             p of position 12, 13, 14 and 15, behind t11, g0, g1 and g2
 *
 *   acceptance       RNG_ACCEPT at (12, 12) keeps g0, at (13, 12) keeps g1, at (14, 12) rejects g2.
 *                    RNG_RESIDUAL at (14, 12) draws r from max(0, p - q2) of rows[2]: index 0
 *                    chooses r, or that it lies outside of q2's tokens; index 1 has chosen, in the
 *                    merge, which slice's token that is. rows[3] is not used.
 *   result           n_accepted = 2, next = r
 *   commit           ids = {g0, g1, r}, origins = {ACCEPTED, ACCEPTED, REPLACEMENT}, rejected = g2
 *
 *   seq->tokens      t0 .. t11 g0 g1 r |            n_tokens = 15
 *   counters         n_target_kv = n_draft_kv = 14: both models have read g1 and neither has
 *                    read r. The target had read g2 at position 14, too; the next round writes
 *                    over it.
 *
 * The next round begins with base = 15, and its coins are (15, 15), (16, 15) ... If g2 had stayed,
 * rows[3] would have given a bonus token b with the coin (15, 12): ids = {g0, g1, g2, b}, n_tokens
 * = 16, n_target_kv = 15, but n_draft_kv = 14, because nobody fed g2 to the draft: its next round
 * reads two tokens before the first guess. */
#include "coordinator/round.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "coordinator/prefix_cache.h"
#include "coordinator/score.h"
#include "coordinator/sequence.h"

enum {
    /* Rows, each cut out of a whole vocabulary where full ones are wanted. Pages that no round
     * needs are never touched. */
    ARENA_BYTES = 1 << 30,
    ECHO_TOKENS = 4096 /* of a prompt in one message */
};

/* A sequence's share of the round. */
struct round_lane {
    struct lane_plan plan;
    struct sequence *seq;
    struct draft draft;
    int step_lane; /* its index in the step; -1: it is not in it */
    int first_want, n_wants;
    int n_ahead;  /* guesses that had been made while the last round was verified */
    int n_missed; /* tokens that the draft had not read */
    int n_accepted;
    bool is_settled;  /* tokens were committed */
    struct error err; /* code 0, or why its job ends */
    enum job_end end;
};

struct round {
    struct round_tools tools;
    struct arena arena; /* of one round */
    struct round_plan plan;
    struct round_lane lanes[SEQUENCES_MAX];
    struct step_lane step_lanes[SEQUENCES_MAX];
    struct draft_lane drafts[SEQUENCES_MAX];
    struct lane_want *wants;
    int n_lanes, n_step_lanes, n_wants, n_tokens;
    int64_t start_us, read_us, draft_us, verify_us;
    struct draft_cost draft_cost;
    struct target_cost cost;
    struct target_result result;
};

int round_open(struct round **round, const struct round_tools *tools, struct error *err)
{
    int rc = 0;
    struct round *r = NULL;
    *round = NULL;
    TRY(mem_array(&r, 1, sizeof *r, err));
    r->tools = *tools;
    TRY(arena_open(&r->arena, ARENA_BYTES, err));
    *round = r;
    r = NULL;
out:
    round_close(r);
    return rc;
}

void round_close(struct round *r)
{
    if (!r) return;
    arena_close(&r->arena);
    free(r);
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* ---- drafting ---- */

static void begin_lanes(struct round *r)
{
    r->n_lanes = r->plan.n_lanes;
    for (int i = 0; i < r->n_lanes; i++) {
        struct round_lane *lane = &r->lanes[i];
        struct sequence *seq = r->plan.lanes[i].seq;
        lane->plan = r->plan.lanes[i];
        lane->seq = seq;
        lane->draft.base = seq->n_tokens;
        lane->draft.n = 0;
        lane->draft.is_over = false;
        lane->n_wants = lane->n_ahead = lane->n_accepted = 0;
        lane->n_missed = seq->n_tokens - seq->n_draft_kv;
        lane->is_settled = false;
        lane->err.code = 0;
    }
}

static void lose_draft(const struct round *r, struct sequence *seq, const struct error *err)
{
    if (err->code == ERR_UNAVAILABLE) {
        log_line(LOG_LEVEL_WARN, "draft_lost", "text=\"%s\"", err->text);
        seq->n_draft = 0;
    }
    seq->speculation_off = err->code == ERR_EXHAUSTED ? "the draft's KV cache was full"
                                                      : "the draft's device was lost";
    (void)r;
}

/* The draft reads parts of prompts that it will need. */
static void read_prompts(struct round *r)
{
    struct error err;
    int64_t start_us = clock_now_us();
    r->read_us = 0;
    if (r->plan.n_readings == 0) return;
    if (drafter_read(r->tools.drafter, r->plan.readings, r->plan.n_readings, &err)) {
        for (int i = 0; i < r->plan.n_readings; i++) {
            lose_draft(r, r->plan.readings[i].seq, &err);
        }
    }
    r->read_us = clock_now_us() - start_us;
}

/* What a draft that failed means for its lane: without KV blocks or without its device the sequence
 * goes on plainly, and with any other error its job fails. */
static void settle_draft(struct round *r, struct round_lane *lane, const struct error *err)
{
    if (!err->code) return;
    lane->draft.n = lane->n_ahead = 0;
    if (err->code == ERR_EXHAUSTED || err->code == ERR_UNAVAILABLE) {
        lose_draft(r, lane->seq, err);
    } else {
        lane->err = *err;
        lane->end = JOB_END_FAILED;
    }
}

/* Guesses that were made ahead are taken only by a single stream; in company K is chosen anew, and
 * the same guesses are drawn again with the same coins. */
static void take_ahead(struct round *r, struct round_lane *lane)
{
    if (r->n_lanes > 1 || lane->plan.k == 0) return;
    ahead_take(r->tools.ahead, lane->seq, lane->plan.k, &lane->draft);
    lane->n_ahead = lane->draft.n;
}

/* All lanes that guess, in one call. */
static void draft_lanes(struct round *r)
{
    struct round_lane *owners[SEQUENCES_MAX];
    int n = 0;
    int64_t start_us = clock_now_us();
    r->draft_cost = (struct draft_cost){0};
    r->draft_us = 0;
    for (int i = 0; i < r->n_lanes; i++) {
        struct round_lane *lane = &r->lanes[i];
        if (lane->plan.k == 0) continue;
        take_ahead(r, lane);
        r->drafts[n].seq = lane->seq;
        r->drafts[n].k = lane->plan.k;
        r->drafts[n].ends = &lane->seq->ends;
        r->drafts[n].draft = &lane->draft;
        owners[n++] = lane;
    }
    if (n == 0) return;
    drafter_propose(r->tools.drafter, r->drafts, n, &r->arena, &r->draft_cost);
    r->draft_us = clock_now_us() - start_us;
    for (int i = 0; i < n; i++) {
        settle_draft(r, owners[i], &r->drafts[i].err);
    }
}

/* ---- the step ---- */

/* Tokens n_target_kv .. of the sequence, then the guesses. */
static void fill_step_lane(const struct round_lane *lane, struct step_lane *step_lane)
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
}

/* Row i is what is known of p after the committed tokens and the first i guesses. */
static int list_wants(struct round *r, struct round_lane *lane, int index, struct error *err)
{
    struct sequence *seq = lane->seq;
    for (int i = 0; i <= lane->draft.n; i++) {
        const struct edit_list *edits = NULL;
        if (seq->edits) {
            int rc = edits_at(seq->edits, lane->draft.tokens, i, &r->arena, &edits, err);
            if (rc) return rc;
        }
        r->wants[r->n_wants++] = (struct lane_want){
            .lane = index,
            .index = lane->plan.n_tokens - 1 + i,
            .want =
                {
                    .rule = seq->rule,
                    .params = &seq->sampling,
                    .q = i < lane->draft.n ? &lane->draft.q[i] : NULL,
                    .at = {seq->seed, (uint32_t)(seq->n_tokens + i), (uint32_t)seq->n_tokens},
                    .full_rows = seq->job->generate.full_rows,
                    .wants_logprobs = seq->job->generate.logprobs >= 0,
                    .n_top = seq->job->generate.logprobs,
                    .edits = edits,
                },
        };
    }
    return 0;
}

static int list_lane(struct round *r, struct round_lane *lane, int index, struct error *err)
{
    int rc = 0;
    lane->first_want = r->n_wants;
    if (lane->plan.n_scored) {
        rc = score_list_wants(&lane->plan, index, r->wants + r->n_wants, &r->arena, err);
        r->n_wants += rc ? 0 : lane->plan.n_scored;
    }
    if (!rc && lane->plan.is_last) rc = list_wants(r, lane, index, err);
    lane->n_wants = r->n_wants - lane->first_want;
    return rc;
}

/* Puts the lanes into the step; those that have failed are left out. */
static int fill_step(struct round *r, struct error *err)
{
    int n = 0, n_wants = 0;
    for (int i = 0; i < r->n_lanes; i++) {
        n_wants += r->lanes[i].plan.n_scored + r->lanes[i].draft.n + 1;
    }
    r->n_wants = r->n_tokens = 0;
    r->wants = arena_take(&r->arena, (size_t)n_wants, sizeof *r->wants);
    if (!r->wants) return error_set(err, ERR_NO_MEMORY, "no room for %d rows", n_wants);
    for (int i = 0; i < r->n_lanes; i++) {
        struct round_lane *lane = &r->lanes[i];
        lane->step_lane = -1;
        if (lane->err.code) continue;
        lane->step_lane = n;
        fill_step_lane(lane, &r->step_lanes[n]);
        int n_listed = r->n_wants;
        if (list_lane(r, lane, n, &lane->err)) {
            lane->end = JOB_END_FAILED;
            lane->step_lane = -1;
            r->n_wants = n_listed;
            continue;
        }
        lane->err.code = 0;
        r->n_tokens += r->step_lanes[n++].n_tokens;
    }
    r->n_step_lanes = n;
    return 0;
}

/* ---- verifying ---- */

/* One stream that speculates: the draft need not wait for the target. */
static bool can_draft_ahead(const struct round *r)
{
    return r->tools.drafter && r->n_lanes == 1 && r->lanes[0].plan.is_last && !r->lanes[0].err.code;
}

static void begin_ahead(struct round *r, struct round_lane *lane)
{
    struct sequence *seq = lane->seq;
    int base = seq->n_tokens + lane->draft.n + 1;
    int room = least(seq->end - 1, drafter_limit(r->tools.drafter)) - base;
    ahead_begin(r->tools.ahead, seq, &lane->draft, least(lane->draft.n, room), &seq->ends);
}

/* The step feeds the last committed token and the guesses, nothing else. */
static bool is_plain(const struct round_lane *lane)
{
    return lane->plan.is_last && lane->plan.n_tokens == 1;
}

static int verify(struct round *r, struct error *err)
{
    const struct target_meanwhile meanwhile = {ahead_work, r->tools.ahead};
    struct round_lane *lane = &r->lanes[0];
    bool is_ahead = can_draft_ahead(r);
    const struct target_query query = {
        .lanes = r->step_lanes,
        .n_lanes = r->n_step_lanes,
        .wants = r->wants,
        .n_wants = r->n_wants,
        .meanwhile = is_ahead ? &meanwhile : NULL,
    };
    r->cost = (struct target_cost){0};
    if (is_ahead) begin_ahead(r, lane);
    int rc = target_verify(r->tools.target, &query, &r->arena, &r->result, &r->cost, err);
    if (is_ahead) {
        const struct ahead_times times = {
            .is_plain = !rc && is_plain(lane) && lane->n_missed <= 2 && r->plan.n_readings == 0,
            .draft_us = r->draft_us,
            .verify_us = r->cost.total_us,
            .step_us = r->cost.compute_us + r->cost.collective_us,
        };
        ahead_end(r->tools.ahead, lane->seq, &times);
    }
    return rc;
}

/* ---- accepting and committing ---- */

static void count(struct sequence *seq, const struct round_lane *lane, int n_accepted)
{
    const struct draft *draft = &lane->draft;
    struct generate_counters *c = &seq->counters;
    c->rounds++;
    c->drafted_ahead += (uint32_t)lane->n_ahead;
    c->drafted += (uint32_t)draft->n;
    c->accepted += (uint32_t)n_accepted;
    c->rejections += n_accepted < draft->n ? 1 : 0;
    for (int i = 0; i < draft->n; i++) {
        c->drafted_at[i]++;
        c->tested_at[i] += i <= n_accepted ? 1 : 0;
        c->accepted_at[i] += i < n_accepted ? 1 : 0;
    }
}

/* Accepts, then commits n_accepted guesses and the token after them. */
static int commit_lane(struct round *r, struct round_lane *lane, const struct target_row *rows,
                       struct error *err)
{
    struct sequence *seq = lane->seq;
    const struct draft *draft = &lane->draft;
    const struct rng_address at = {seq->seed, (uint32_t)seq->n_tokens, (uint32_t)seq->n_tokens};
    struct accept_result result = seq->rule->accept(rows, draft->q, draft->tokens, draft->n, &at);

    int32_t ids[DRAFT_MAX + 1];
    enum token_origin origins[DRAFT_MAX + 1];
    for (int i = 0; i < result.n_accepted; i++) {
        ids[i] = draft->tokens[i];
        origins[i] = TOKEN_ACCEPTED;
    }
    bool is_rejected = result.n_accepted < draft->n;
    ids[result.n_accepted] = result.next;
    origins[result.n_accepted] = draft->n == 0 ? TOKEN_PLAIN
                                 : is_rejected ? TOKEN_REPLACEMENT
                                               : TOKEN_BONUS;
    lane->n_accepted = result.n_accepted;
    count(seq, lane, result.n_accepted);
    int known = seq->n_tokens + result.n_accepted; /* fed and right */
    seq->n_target_kv = known;
    if (seq->n_draft_kv > known) seq->n_draft_kv = known;
    const struct token_logprob *logprobs = NULL;
    if (seq->job->generate.logprobs >= 0) {
        logprobs = score_list_logprobs(rows, ids, result.n_accepted + 1, r->tools.tok, &r->arena);
        if (!logprobs) return error_set(err, ERR_NO_MEMORY, "no room for the log-probabilities");
    }
    const struct commit commit = {
        .logprobs = logprobs,
        .ids = ids,
        .origins = origins,
        .n = result.n_accepted + 1,
        .rejected = is_rejected ? draft->tokens[result.n_accepted] : -1,
    };
    return sequence_commit(seq, &commit, r->tools.tok, err);
}

/* Where the time of the step went, charged to each sequence that shared it. */
static void charge(const struct round *r, const struct round_lane *lane, int64_t round_us)
{
    const struct target_cost *cost = &r->cost;
    struct sequence *seq = lane->seq;
    struct generate_counters *c = &seq->counters;
    c->verify_us += (uint64_t)cost->compute_us;
    c->collective_us += (uint64_t)cost->collective_us;
    int64_t wire = cost->total_us - cost->compute_us - cost->collective_us;
    c->wire_us += wire > 0 ? (uint64_t)wire : 0;
    c->rounds_us += (uint64_t)round_us;
    c->draft_us += (uint64_t)(r->draft_us + r->read_us);
    int64_t overhead = round_us - r->draft_us - r->read_us - cost->compute_us - cost->collective_us;
    histogram_add(&seq->overhead, overhead > 0 ? (uint64_t)overhead : 0);
    c->bytes_sent += cost->bytes_sent;
    c->bytes_received += cost->bytes_received;
    c->rows += (uint64_t)lane->n_wants;
    c->more_rows += cost->more_rows;
    c->lanes += (uint64_t)r->n_step_lanes;
    c->step_tokens += (uint64_t)r->n_tokens;
}

/* The tokens of an echoed prompt that have no scores. */
static int echo_plain(struct round *r, struct sequence *seq, struct error *err)
{
    int rc = 0;
    while (seq->n_scored < seq->n_prompt && !rc) {
        int end = least(seq->n_scored + ECHO_TOKENS, seq->n_prompt);
        rc = score_send_plain(seq, seq->n_scored, end, r->tools.tok, &r->arena, err);
    }
    return rc;
}

/* The prompt's scores, if this lane has any, and before the first token of the answer all of the
 * prompt, if it is to be echoed. */
static int settle_scores(struct round *r, struct round_lane *lane, struct error *err)
{
    struct sequence *seq = lane->seq;
    int rc = 0;
    if (lane->plan.n_scored) {
        TRY(score_send(&lane->plan, &r->wants[lane->first_want],
                       &r->result.slices[lane->first_want], target_description(r->tools.target),
                       r->tools.tok, &r->arena, err));
    }
    bool is_echoed = seq->job->generate.echo && seq->index == 0;
    if (is_echoed && lane->plan.is_last) rc = echo_plain(r, seq, err);
out:
    return rc;
}

/* After the step: the sequence's rows become tokens. */
static int settle_lane(struct round *r, struct round_lane *lane, int64_t settle_us,
                       struct error *err)
{
    struct sequence *seq = lane->seq;
    int rc = 0;
    seq->n_blocks_sent = seq->target_blocks.n;
    TRY(settle_scores(r, lane, err));
    if (!lane->plan.is_last) {
        seq->n_target_kv += lane->plan.n_tokens;
        goto out;
    }
    bool is_first = seq->n_tokens == seq->n_prompt;
    int64_t accept_us = clock_now_us();
    TRY(commit_lane(r, lane, &r->result.rows[lane->first_want + lane->plan.n_scored], err));
    lane->is_settled = true;
    int64_t now_us = clock_now_us();
    if (is_first) {
        seq->counters.first_round_tokens = (uint32_t)(seq->n_tokens - seq->n_prompt);
    } else {
        charge(r, lane, settle_us - r->start_us + now_us - accept_us);
        int64_t merge_us = settle_us - r->verify_us - r->cost.total_us;
        seq->counters.accept_us += (uint64_t)(now_us - accept_us + merge_us);
    }
out:
    return rc;
}

/* Others whose texts begin alike may use what has been computed. */
static void publish(struct round *r, struct sequence *seq)
{
    prefix_cache_publish(&seq->target_blocks, r->tools.target_pool, seq->tokens, seq->n_target_kv);
    if (r->tools.drafter && !seq->is_score) drafter_commit(r->tools.drafter, seq);
}

static void settle_lanes(struct round *r)
{
    int64_t settle_us = clock_now_us();
    for (int i = 0; i < r->n_lanes; i++) {
        struct round_lane *lane = &r->lanes[i];
        if (lane->err.code) continue;
        const struct error *why = r->result.lane_errors[lane->step_lane];
        if (why) {
            lane->err = *why;
            lane->end = JOB_END_FAILED;
        } else if (settle_lane(r, lane, settle_us, &lane->err)) {
            lane->end = job_end_of_error(lane->err.code);
        } else {
            lane->err.code = 0;
            publish(r, lane->seq);
        }
    }
}

/* What the planner learns. */
static void teach(struct round *r)
{
    struct planner_round round = {
        .n_rows = r->n_tokens,
        .n_prompt = r->plan.n_prompt,
        .is_timed = true,
        .has_prompt = r->plan.n_prompt > 0,
        .n_passes = r->draft_cost.n_passes,
        .first_pass_tokens = r->draft_cost.first_pass_tokens,
        .read_us = r->read_us,
        .n_ahead = r->lanes[0].n_ahead,
        .k = r->lanes[0].draft.n,
        .draft_us = r->draft_us,
        .step_us = r->cost.step_us,
        .round_us = clock_now_us() - r->start_us,
    };
    memcpy(round.pass_lanes, r->draft_cost.pass_lanes, sizeof r->draft_cost.pass_lanes);
    memcpy(round.pass_us, r->draft_cost.pass_us, sizeof r->draft_cost.pass_us);
    for (int i = 0; i < r->plan.n_readings; i++) {
        round.n_read += r->plan.readings[i].n_tokens;
    }
    for (int i = 0; i < r->n_lanes; i++) {
        round.n_lanes += r->lanes[i].is_settled ? 1 : 0;
        round.is_timed = round.is_timed && !r->lanes[i].err.code;
    }
    planner_observe_round(r->tools.planner, &round);
    for (int i = 0; i < r->n_lanes; i++) {
        const struct round_lane *lane = &r->lanes[i];
        if (!lane->is_settled) continue;
        planner_observe_lane(r->tools.planner, &lane->seq->planner_state, lane->draft.n,
                             lane->n_accepted);
    }
}

static void end_failed(struct round *r)
{
    for (int i = 0; i < r->n_lanes; i++) {
        struct round_lane *lane = &r->lanes[i];
        if (lane->err.code) sequence_fail(lane->seq, lane->end, &lane->err);
    }
}

/* The step failed as a whole, and the group is still there. */
static void fail_step(struct round *r, const struct error *why)
{
    for (int i = 0; i < r->n_lanes; i++) {
        struct round_lane *lane = &r->lanes[i];
        if (lane->err.code) continue;
        lane->err = *why;
        lane->end = JOB_END_FAILED;
    }
}

int round_run(struct round *r, struct sequence **seqs, int n, bool *is_idle, struct error *err)
{
    r->start_us = clock_now_us();
    arena_reset(&r->arena);
    r->tools.scheduler->n_ahead =
        n == 1 && r->tools.ahead ? ahead_count(r->tools.ahead, seqs[0]) : 0;
    scheduler_plan(r->tools.scheduler, seqs, n, &r->plan);
    *is_idle = r->plan.n_lanes == 0 && r->plan.n_readings == 0;
    begin_lanes(r);
    read_prompts(r);
    draft_lanes(r);
    if (r->n_lanes == 0) return 0;
    int rc = fill_step(r, err);
    r->verify_us = clock_now_us();
    if (!rc && r->n_step_lanes > 0) rc = verify(r, err);
    if (rc && !target_is_connected(r->tools.target)) return rc;
    if (rc) {
        fail_step(r, err);
    } else if (r->n_step_lanes > 0) {
        settle_lanes(r);
        teach(r);
    }
    end_failed(r);
    return 0;
}
