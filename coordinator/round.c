/* One round over all active sequences.
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

#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "coordinator/sequence.h"

/* A sequence's share of the round. */
struct round_lane {
    struct sequence *seq; /* NULL: it has failed */
    struct draft draft;
    int k;              /* guesses that the planner wants */
    bool is_last_chunk; /* the step reaches the last committed token, so rows are wanted */
    int first_want;     /* of the rows */
    int n_ahead;        /* guesses that had been made while the last round was verified */
    int n_missed;       /* tokens that the draft had not read */
    int64_t draft_us;
};

enum { ROUND_SEQUENCES_MAX = 64 };

/* The step of one round and what belongs to it. */
struct round {
    struct round_lane lanes[ROUND_SEQUENCES_MAX];
    struct step_lane step_lanes[ROUND_SEQUENCES_MAX]; /* [n_lanes] of the same sequences */
    struct lane_want wants[ROUND_SEQUENCES_MAX * (DRAFT_MAX + 1)];
    int n_lanes, n_wants;
};

/* What one sequence may take of a step. */
struct lane_budget {
    int n_tokens, n_rows;
};

static const struct end_ids no_ends; /* of a request that ignores them */

static int least(int a, int b)
{
    return a < b ? a : b;
}

static const struct end_ids *lane_ends(const struct round_tools *tools, const struct sequence *seq)
{
    return seq->job->generate.ignore_eos ? &no_ends : &target_description(tools->target)->ends;
}

static void fail_lane(const struct round_tools *tools, struct round_lane *lane,
                      const struct error *why)
{
    sequence_fail(lane->seq, why);
    sequence_end(lane->seq, tools->target_pool, tools->drafter);
    lane->seq = NULL;
}

/* ---- drafting ---- */

static int plan_k(const struct round_tools *tools, struct sequence *seq, int k_max, int n_rows_max)
{
    int n_prompt = seq->n_tokens - seq->n_target_kv - 1;
    const struct planner_load load = {
        .n_rows = n_prompt,
        .n_prompt = n_prompt,
        .n_rows_max = n_rows_max,
        .is_alone = true,
    };
    struct planner_lane lane = {
        .seq = &seq->planner_state,
        .k_max = k_max,
        .n_missed = seq->n_tokens - seq->n_draft_kv,
        .n_left = seq->end - seq->n_tokens,
    };
    if (seq->planner_state.strategy != STRATEGY_PLANNED) {
        return planner_own_k(&seq->planner_state, k_max);
    }
    if (lane.n_missed > PLANNER_LEARN_MISSED &&
        !planner_wants_reading(tools->planner, &seq->planner_state, lane.n_missed, lane.n_left,
                               1)) {
        lane.k_max = 0;
    }
    planner_share(tools->planner, &lane, 1, &load);
    return lane.k;
}

/* K of this round: what the strategy says, at most what was asked for. It is cut to what may still
 * be committed, to what the two models can see, and to what the tokens that are fed anyway leave of
 * the step. */
static int choose_k(const struct round_tools *tools, struct sequence *seq,
                    const struct lane_budget *budget)
{
    int k = seq->n_draft;
    int room = seq->end - seq->n_tokens - 1;
    int step_room = budget->n_tokens - (seq->n_tokens - seq->n_target_kv);
    if (k == 0 || !tools->drafter) return 0;
    int draft_room = drafter_limit(tools->drafter) - seq->n_tokens;
    if (draft_room <= 0) {
        seq->speculation_off = "the text has outgrown the draft's context or KV cache";
        return 0;
    }
    k = least(least(k, room), draft_room);
    k = least(least(k, step_room), budget->n_rows - 1);
    return plan_k(tools, seq, k, budget->n_tokens);
}

/* The whole prompt may not fit into one step: only the last chunk carries guesses. */
static void begin_lane(const struct round_tools *tools, const struct lane_budget *budget,
                       struct sequence *seq, struct round_lane *lane)
{
    lane->seq = seq;
    lane->draft = (struct draft){.base = seq->n_tokens};
    lane->draft_us = 0;
    lane->n_ahead = 0;
    lane->n_missed = seq->n_tokens - seq->n_draft_kv;
    lane->is_last_chunk = seq->n_tokens - seq->n_target_kv <= budget->n_tokens;
    lane->k = lane->is_last_chunk ? choose_k(tools, seq, budget) : 0;
}

/* What a draft that failed means for its lane: without KV blocks or without its device the sequence
 * goes on plainly, and with any other error it fails. */
static void settle_draft(const struct round_tools *tools, struct round_lane *lane,
                         const struct error *err)
{
    struct sequence *seq = lane->seq;
    if (!err->code) return;
    if (err->code != ERR_EXHAUSTED && err->code != ERR_UNAVAILABLE) {
        fail_lane(tools, lane, err);
        return;
    }
    lane->draft.n = lane->n_ahead = 0;
    seq->speculation_off = err->code == ERR_EXHAUSTED ? "the draft's KV cache was full"
                                                      : "the draft's device was lost";
    if (err->code == ERR_UNAVAILABLE) {
        log_line(LOG_LEVEL_WARN, "draft_lost", "text=\"%s\"", err->text);
        seq->n_draft = 0;
    }
}

/* All lanes that guess, in one call. */
static void draft_lanes(const struct round_tools *tools, struct round *round)
{
    struct draft_lane drafts[ROUND_SEQUENCES_MAX];
    struct round_lane *lanes[ROUND_SEQUENCES_MAX];
    int n = 0;
    int64_t start_us = clock_now_us();
    for (int i = 0; i < round->n_lanes; i++) {
        struct round_lane *lane = &round->lanes[i];
        if (lane->k == 0) continue;
        ahead_take(tools->ahead, lane->seq, &lane->draft);
        lane->n_ahead = lane->draft.n;
        drafts[n].seq = lane->seq;
        drafts[n].k = lane->k;
        drafts[n].ends = lane_ends(tools, lane->seq);
        drafts[n].draft = &lane->draft;
        lanes[n++] = lane;
    }
    if (n == 0) return;
    drafter_propose(tools->drafter, drafts, n, tools->arena);
    for (int i = 0; i < n; i++) {
        lanes[i]->draft_us = clock_now_us() - start_us;
        settle_draft(tools, lanes[i], &drafts[i].err);
    }
}

/* ---- the step ---- */

/* Tokens n_target_kv .. of the sequence, then the guesses. */
static int fill_step_lane(const struct round_tools *tools, const struct lane_budget *budget,
                          const struct round_lane *lane, struct step_lane *step_lane,
                          struct error *err)
{
    struct sequence *seq = lane->seq;
    int n = least(seq->n_tokens - seq->n_target_kv + lane->draft.n, budget->n_tokens);
    int rc = block_table_reach(&seq->target_blocks, tools->target_pool, seq->n_target_kv + n, err);
    if (rc) return rc;
    *step_lane = (struct step_lane){
        .slot = seq->slot,
        .position = seq->n_target_kv,
        .n_tokens = n,
        .tokens = seq->tokens + seq->n_target_kv,
        .n_draft = lane->draft.n,
        .first_block = seq->n_blocks_sent,
        .n_blocks = seq->target_blocks.n - seq->n_blocks_sent,
        .blocks = seq->target_blocks.blocks + seq->n_blocks_sent,
    };
    return 0;
}

/* Row i is what is known of p after the committed tokens and the first i guesses. */
static int list_wants(const struct round_lane *lane, int index, const struct step_lane *step_lane,
                      struct lane_want *wants)
{
    struct sequence *seq = lane->seq;
    if (!lane->is_last_chunk) return 0;
    int first_index = step_lane->n_tokens - lane->draft.n - 1;
    for (int i = 0; i <= lane->draft.n; i++) {
        wants[i] = (struct lane_want){
            .lane = index,
            .index = first_index + i,
            .want =
                {
                    .rule = seq->rule,
                    .params = &seq->sampling,
                    .q = i < lane->draft.n ? &lane->draft.q[i] : NULL,
                    .at = {seq->seed, (uint32_t)(seq->n_tokens + i), (uint32_t)seq->n_tokens},
                    .full_rows = seq->job->generate.full_rows,
                },
        };
    }
    return lane->draft.n + 1;
}

/* Puts the lanes into the step. One that has failed, or that gets no KV block, is left out. */
static void fill_step_lanes(const struct round_tools *tools, const struct lane_budget *budget,
                            struct round *round)
{
    int n = 0;
    round->n_wants = 0;
    for (int i = 0; i < round->n_lanes; i++) {
        struct error err;
        struct round_lane *lane = &round->lanes[n];
        struct step_lane *step_lane = &round->step_lanes[n];
        if (!round->lanes[i].seq) continue;
        if (n < i) *lane = round->lanes[i];
        if (fill_step_lane(tools, budget, lane, step_lane, &err)) {
            fail_lane(tools, lane, &err);
            continue;
        }
        lane->first_want = round->n_wants;
        round->n_wants += list_wants(lane, n, step_lane, &round->wants[round->n_wants]);
        n++;
    }
    round->n_lanes = n;
}

/* ---- verifying ---- */

/* The step feeds the last committed token and the guesses, nothing else. */
static bool is_plain(const struct round_lane *lane, const struct step_lane *step_lane)
{
    return step_lane->n_tokens == lane->draft.n + 1;
}

/* One stream that speculates: the draft need not wait for the target. */
static bool can_draft_ahead(const struct round_tools *tools, const struct round *round)
{
    return tools->drafter && round->n_lanes == 1 && round->lanes[0].is_last_chunk;
}

static void begin_ahead(const struct round_tools *tools, const struct round_lane *lane)
{
    struct sequence *seq = lane->seq;
    int base = seq->n_tokens + lane->draft.n + 1;
    int room = least(seq->end - 1, drafter_limit(tools->drafter)) - base;
    ahead_begin(tools->ahead, seq, &lane->draft, least(lane->draft.n, room), lane_ends(tools, seq));
}

static int verify_round(const struct round_tools *tools, struct round *round,
                        struct target_row **rows, struct target_cost *cost, struct error *err)
{
    const struct target_meanwhile meanwhile = {ahead_work, tools->ahead};
    const struct round_lane *lane = &round->lanes[0];
    bool is_ahead = can_draft_ahead(tools, round);
    const struct target_query query = {
        .lanes = round->step_lanes,
        .n_lanes = round->n_lanes,
        .wants = round->wants,
        .n_wants = round->n_wants,
        .meanwhile = is_ahead ? &meanwhile : NULL,
    };
    *rows = arena_take(tools->arena, (size_t)round->n_wants, sizeof **rows);
    if (!*rows) return error_set(err, ERR_NO_MEMORY, "no room for %d rows", round->n_wants);
    if (is_ahead) begin_ahead(tools, lane);
    int rc = target_verify(tools->target, &query, tools->arena, *rows, cost, err);
    if (is_ahead) {
        const struct ahead_times times = {
            .is_plain = !rc && is_plain(lane, &round->step_lanes[0]) && lane->n_missed <= 2,
            .draft_us = lane->draft_us,
            .verify_us = cost->total_us,
            .step_us = cost->compute_us + cost->collective_us,
        };
        ahead_end(tools->ahead, lane->seq, &times);
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
static int commit_lane(const struct round_tools *tools, struct round_lane *lane,
                       const struct target_row *rows, struct error *err)
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
    count(seq, lane, result.n_accepted);
    int known = seq->n_tokens + result.n_accepted; /* fed and right */
    seq->n_target_kv = known;
    if (seq->n_draft_kv > known) seq->n_draft_kv = known;
    const struct commit commit = {
        .ids = ids,
        .origins = origins,
        .n = result.n_accepted + 1,
        .rejected = is_rejected ? draft->tokens[result.n_accepted] : -1,
    };
    const struct end_ids *ends = &target_description(tools->target)->ends;
    return sequence_commit(seq, &commit, tools->tok, ends, err);
}

/* Where the time of the step went, charged to each sequence that shared it. */
static void charge(struct sequence *seq, const struct target_cost *cost, int n_rows,
                   int64_t round_us, int64_t draft_us)
{
    struct generate_counters *c = &seq->counters;
    c->verify_us += (uint64_t)cost->compute_us;
    c->collective_us += (uint64_t)cost->collective_us;
    int64_t wire = cost->total_us - cost->compute_us - cost->collective_us;
    c->wire_us += wire > 0 ? (uint64_t)wire : 0;
    c->rounds_us += (uint64_t)round_us;
    int64_t overhead = round_us - draft_us - cost->compute_us - cost->collective_us;
    histogram_add(&seq->overhead, overhead > 0 ? (uint64_t)overhead : 0);
    c->bytes_sent += cost->bytes_sent;
    c->bytes_received += cost->bytes_received;
    c->rows += (uint64_t)n_rows;
    c->more_rows += cost->more_rows;
}

/* What the planner learns from a round; n_accepted guesses of it stayed. */
static void teach(const struct round_tools *tools, const struct round_lane *lane,
                  const struct step_lane *step_lane, const struct target_cost *cost, int n_accepted,
                  int64_t round_us)
{
    /* The drafter says only what all passes took, of which reading is a part. */
    int k = lane->draft.n, n_drafted = k - lane->n_ahead;
    int n_passes = n_drafted > 0 && lane->n_missed > 2 ? 1 : n_drafted;
    struct planner_round round = {
        .n_rows = step_lane->n_tokens,
        .n_lanes = 1,
        .n_prompt = step_lane->n_tokens - k - 1,
        .is_timed = true,
        .has_prompt = !is_plain(lane, step_lane),
        .n_passes = n_passes,
        .first_pass_tokens = lane->n_ahead ? 1 : lane->n_missed,
        .n_ahead = lane->n_ahead,
        .k = k,
        .draft_us = lane->draft_us,
        .step_us = cost->compute_us + cost->collective_us,
        .round_us = round_us,
    };
    for (int i = 0; i < n_passes; i++) {
        round.pass_lanes[i] = 1;
        round.pass_us[i] = lane->draft_us / n_passes;
    }
    planner_observe_round(tools->planner, &round);
    planner_observe_lane(tools->planner, &lane->seq->planner_state, k, n_accepted);
}

/* After the step: the sequence's rows become tokens. */
static void settle_lane(const struct round_tools *tools, struct round_lane *lane,
                        const struct step_lane *step_lane, const struct target_row *rows,
                        const struct target_cost *cost, int64_t start_us, int64_t merge_us)
{
    struct sequence *seq = lane->seq;
    struct error err;
    seq->n_blocks_sent = seq->target_blocks.n;
    if (!lane->is_last_chunk) {
        seq->n_target_kv += step_lane->n_tokens;
        return;
    }
    bool is_first = seq->n_tokens == seq->n_prompt;
    uint32_t n_accepted = seq->counters.accepted;
    int64_t accept_us = clock_now_us();
    int rc = commit_lane(tools, lane, rows + lane->first_want, &err);
    int64_t now_us = clock_now_us();
    n_accepted = seq->counters.accepted - n_accepted;
    teach(tools, lane, step_lane, cost, (int)n_accepted, now_us - start_us);
    if (is_first) {
        seq->counters.first_round_tokens = (uint32_t)(seq->n_tokens - seq->n_prompt);
    } else {
        charge(seq, cost, lane->draft.n + 1, now_us - start_us, lane->draft_us);
        seq->counters.draft_us += (uint64_t)lane->draft_us;
        seq->counters.accept_us += (uint64_t)(now_us - accept_us + merge_us);
    }
    if (rc) fail_lane(tools, lane, &err);
}

/* Why a row of the lane has no p; NULL: all have. */
static const struct error *rows_failure(const struct round_lane *lane,
                                        const struct target_row *rows)
{
    for (int i = 0; lane->is_last_chunk && i <= lane->draft.n; i++) {
        const struct error *failure = rows[lane->first_want + i].failure;
        if (failure) return failure;
    }
    return NULL;
}

int round_run(const struct round_tools *tools, struct sequence **seqs, int n, struct error *err)
{
    struct round round;
    struct target_row *rows;
    struct target_cost cost = {0};
    const struct target_description *target = target_description(tools->target);
    const struct lane_budget budget = {target->max_step_tokens / n, target->max_step_rows / n};
    int64_t start_us = clock_now_us();
    arena_reset(tools->arena);
    round.n_lanes = n;
    for (int i = 0; i < n; i++) {
        begin_lane(tools, &budget, seqs[i], &round.lanes[i]);
    }
    draft_lanes(tools, &round);
    fill_step_lanes(tools, &budget, &round);
    if (round.n_lanes == 0) return 0;
    int64_t verify_us = clock_now_us();
    int rc = verify_round(tools, &round, &rows, &cost, err);
    if (rc && !target_is_connected(tools->target)) return rc;
    int64_t merge_us = clock_now_us() - verify_us - cost.total_us;
    for (int i = 0; i < round.n_lanes; i++) {
        struct round_lane *lane = &round.lanes[i];
        /* The text of err says whose lane a rank refused, but the step is one for all. */
        const struct error *failure = rc ? err : rows_failure(lane, rows);
        if (failure) {
            fail_lane(tools, lane, failure);
        } else {
            settle_lane(tools, lane, &round.step_lanes[i], rows, &cost, start_us, merge_us);
        }
    }
    return 0;
}
