/* One round over all active sequences. */
#include "coordinator/round.h"

#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "speculation/accept.h"

/* A sequence's share of the round. */
struct part {
    struct sequence *seq;
    struct draft draft;
    bool is_last_chunk; /* rows are wanted: the step reaches the last committed token */
    int first_want;     /* of the rows */
    int n_ahead;        /* guesses that had been made while the last round was verified */
    int n_missed;       /* tokens that the draft had not read */
    int64_t draft_us;
};

enum { ROUND_SEQUENCES_MAX = 64 };

/* What one sequence may take of a step. */
struct share {
    int n_tokens, n_rows;
};

static const struct end_ids no_ends; /* of a request that ignores them */

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* K of this round: what the strategy says, at most what was asked for, cut to what may still be
 * committed, to what the two models can see, and to what the tokens that are fed anyway leave of the
 * step. */
static int choose_k(const struct round_tools *tools, struct sequence *seq,
                    const struct share *share)
{
    int k = seq->n_draft;
    int room = seq->end - seq->n_tokens - 1;
    int step_room = share->n_tokens - (seq->n_tokens - seq->n_target_kv);
    if (k == 0 || !tools->drafter) return 0;
    int draft_room = drafter_limit(tools->drafter) - seq->n_tokens;
    if (draft_room <= 0) {
        seq->speculation_off = "the text has outgrown the draft's context or KV cache";
        return 0;
    }
    k = least(least(k, room), draft_room);
    k = least(least(k, step_room), share->n_rows - 1);
    const struct planner_ask ask = {k, seq->n_tokens - seq->n_draft_kv, seq->end - seq->n_tokens};
    return planner_choose(tools->planner, &seq->plan, &ask);
}

/* The whole prompt may not fit into one step: only the last chunk carries guesses. */
static int draft_part(const struct round_tools *tools, struct part *part, const struct share *share,
                      struct error *err)
{
    struct sequence *seq = part->seq;
    const struct target_description *target = target_description(tools->target);
    part->draft = (struct draft){.base = seq->n_tokens};
    part->draft_us = 0;
    part->n_ahead = 0;
    part->n_missed = seq->n_tokens - seq->n_draft_kv;
    part->is_last_chunk = seq->n_tokens - seq->n_target_kv <= share->n_tokens;
    if (!part->is_last_chunk) return 0;
    int k = choose_k(tools, seq, share);
    if (k == 0) return 0;
    int64_t start_us = clock_now_us();
    const struct end_ids *ends = seq->job->generate.ignore_eos ? &no_ends : &target->ends;
    ahead_take(tools->ahead, seq, &part->draft);
    part->n_ahead = part->draft.n;
    int rc = drafter_propose(tools->drafter, seq, k, ends, tools->arena, &part->draft, err);
    part->draft_us = clock_now_us() - start_us;
    if (rc != ERR_EXHAUSTED && rc != ERR_UNAVAILABLE) return rc;
    part->draft.n = part->n_ahead = 0; /* the sequence goes on plainly */
    seq->speculation_off =
        rc == ERR_EXHAUSTED ? "the draft's KV cache was full" : "the draft's device was lost";
    if (rc == ERR_UNAVAILABLE) {
        log_line(LOG_LEVEL_WARN, "draft_lost", "text=\"%s\"", err->text);
        seq->n_draft = 0;
    }
    return 0;
}

/* Tokens n_target_kv .. of the sequence, then the guesses. */
static int place_lane(const struct round_tools *tools, struct part *part, const struct share *share,
                      struct step_lane *lane, struct error *err)
{
    struct sequence *seq = part->seq;
    int n = least(seq->n_tokens - seq->n_target_kv + part->draft.n, share->n_tokens);
    int rc = block_table_reach(&seq->target_blocks, tools->target_pool, seq->n_target_kv + n, err);
    if (rc) return rc;
    *lane = (struct step_lane){
        .slot = seq->slot,
        .position = seq->n_target_kv,
        .n_tokens = n,
        .tokens = seq->tokens + seq->n_target_kv,
        .n_draft = part->draft.n,
        .first_block = seq->n_blocks_sent,
        .n_blocks = seq->target_blocks.n - seq->n_blocks_sent,
        .blocks = seq->target_blocks.blocks + seq->n_blocks_sent,
    };
    return 0;
}

/* Row i is what is known of p after the committed tokens and the first i guesses. */
static int list_wants(struct part *part, int lane, const struct step_lane *step_lane,
                      struct target_want *wants)
{
    struct sequence *seq = part->seq;
    if (!part->is_last_chunk) return 0;
    int first_index = step_lane->n_tokens - part->draft.n - 1;
    for (int i = 0; i <= part->draft.n; i++) {
        wants[i] = (struct target_want){
            .lane = lane,
            .index = first_index + i,
            .rule = seq->rule,
            .params = &seq->sampling,
            .q = i < part->draft.n ? &part->draft.q[i] : NULL,
            .at = {seq->seed, (uint32_t)(seq->n_tokens + i), (uint32_t)seq->n_tokens},
            .full_rows = seq->job->generate.full_rows,
        };
    }
    return part->draft.n + 1;
}

/* The step feeds the last committed token and the guesses, nothing else. */
static bool is_plain(const struct part *part, const struct step_lane *lane)
{
    return lane->n_tokens == part->draft.n + 1;
}

static void count(struct sequence *seq, const struct part *part, int n_accepted)
{
    const struct draft *draft = &part->draft;
    struct generate_counters *c = &seq->counters;
    c->rounds++;
    c->drafted_ahead += (uint32_t)part->n_ahead;
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
static int commit_part(const struct round_tools *tools, struct part *part,
                       const struct target_row *rows, struct error *err)
{
    struct sequence *seq = part->seq;
    const struct draft *draft = &part->draft;
    const struct target_description *target = target_description(tools->target);
    const struct rng_address at = {seq->seed, (uint32_t)seq->n_tokens, (uint32_t)seq->n_tokens};
    struct accept_result result =
        accept_function(seq->rule)(rows, draft->q, draft->tokens, draft->n, &at);

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
    count(seq, part, result.n_accepted);
    int known = seq->n_tokens + result.n_accepted; /* fed and right */
    seq->n_target_kv = known;
    if (seq->n_draft_kv > known) seq->n_draft_kv = known;
    return sequence_commit(seq, ids, origins, result.n_accepted + 1,
                           is_rejected ? draft->tokens[result.n_accepted] : -1, tools->tok,
                           &target->ends, tools->buffer, err);
}

static void fail_part(const struct round_tools *tools, struct part *part, const struct error *why)
{
    sequence_fail(part->seq, why);
    sequence_end(part->seq, tools->target_pool,
                 tools->drafter ? drafter_pool(tools->drafter) : NULL);
    part->seq = NULL;
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
static void teach(const struct round_tools *tools, const struct part *part,
                  const struct step_lane *lane, const struct target_cost *cost, int n_accepted,
                  int64_t round_us)
{
    const struct planner_round round = {
        .k = part->draft.n,
        .n_accepted = n_accepted,
        .n_missed = part->n_missed,
        .n_ahead = part->n_ahead,
        .is_timed = is_plain(part, lane),
        .draft_us = part->draft_us,
        .step_us = cost->compute_us + cost->collective_us,
        .round_us = round_us,
    };
    planner_observe(tools->planner, &part->seq->plan, &round);
}

/* After the step: the sequence's rows become tokens. */
static void settle_part(const struct round_tools *tools, struct part *part,
                        const struct step_lane *lane, const struct target_row *rows,
                        const struct target_cost *cost, int64_t start_us, int64_t merge_us)
{
    struct sequence *seq = part->seq;
    struct error err;
    seq->n_blocks_sent = seq->target_blocks.n;
    if (!part->is_last_chunk) {
        seq->n_target_kv += lane->n_tokens;
        return;
    }
    bool is_first = seq->n_tokens == seq->n_prompt;
    uint32_t n_accepted = seq->counters.accepted;
    int64_t accept_us = clock_now_us();
    int rc = commit_part(tools, part, rows + part->first_want, &err);
    int64_t now_us = clock_now_us();
    n_accepted = seq->counters.accepted - n_accepted;
    teach(tools, part, lane, cost, (int)n_accepted, now_us - start_us);
    if (is_first) {
        seq->counters.first_round_tokens = (uint32_t)(seq->n_tokens - seq->n_prompt);
    } else {
        charge(seq, cost, part->draft.n + 1, now_us - start_us, part->draft_us);
        seq->counters.draft_us += (uint64_t)part->draft_us;
        seq->counters.accept_us += (uint64_t)(now_us - accept_us + merge_us);
    }
    if (rc) fail_part(tools, part, &err);
}

/* The step of one round and what belongs to it. */
struct plan {
    struct part parts[ROUND_SEQUENCES_MAX];
    struct step_lane lanes[ROUND_SEQUENCES_MAX];
    struct target_want wants[ROUND_SEQUENCES_MAX * (DRAFT_MAX + 1)];
    int n_lanes, n_wants;
};

/* Drafts and lists the lanes; a sequence that cannot take part is failed and left out. */
static void plan_round(const struct round_tools *tools, struct sequence **seqs, int n,
                       struct plan *plan)
{
    const struct target_description *target = target_description(tools->target);
    const struct share share = {target->max_step_tokens / n, target->max_step_rows / n};
    plan->n_lanes = plan->n_wants = 0;
    for (int i = 0; i < n; i++) {
        struct error err;
        struct part *part = &plan->parts[plan->n_lanes];
        struct step_lane *lane = &plan->lanes[plan->n_lanes];
        part->seq = seqs[i];
        int rc = draft_part(tools, part, &share, &err);
        if (!rc) rc = place_lane(tools, part, &share, lane, &err);
        if (rc) {
            fail_part(tools, part, &err);
            continue;
        }
        part->first_want = plan->n_wants;
        plan->n_wants += list_wants(part, plan->n_lanes, lane, &plan->wants[plan->n_wants]);
        plan->n_lanes++;
    }
}

/* One stream that speculates: the draft need not wait for the target. */
static bool can_draft_ahead(const struct round_tools *tools, const struct plan *plan)
{
    return tools->drafter && plan->n_lanes == 1 && plan->parts[0].is_last_chunk;
}

static void begin_ahead(const struct round_tools *tools, const struct part *part)
{
    struct sequence *seq = part->seq;
    const struct target_description *target = target_description(tools->target);
    int base = seq->n_tokens + part->draft.n + 1;
    int room = least(seq->end - 1, drafter_limit(tools->drafter)) - base;
    const struct end_ids *ends = seq->job->generate.ignore_eos ? &no_ends : &target->ends;
    ahead_begin(tools->ahead, seq, &part->draft, least(part->draft.n, room), ends);
}

static int verify_round(const struct round_tools *tools, struct plan *plan,
                        struct target_row **rows, struct target_cost *cost, struct error *err)
{
    const struct target_meanwhile meanwhile = {ahead_work, tools->ahead};
    const struct part *part = &plan->parts[0];
    bool is_ahead = can_draft_ahead(tools, plan);
    *rows = arena_take(tools->arena, (size_t)plan->n_wants, sizeof **rows);
    if (!*rows) return error_set(err, ERR_NO_MEMORY, "no room for %d rows", plan->n_wants);
    if (is_ahead) begin_ahead(tools, part);
    int rc = target_verify(tools->target, plan->lanes, plan->n_lanes, plan->wants, plan->n_wants,
                           is_ahead ? &meanwhile : NULL, tools->arena, *rows, cost, err);
    if (is_ahead) {
        const struct ahead_times times = {
            .is_plain = !rc && is_plain(part, &plan->lanes[0]) && part->n_missed <= 2,
            .draft_us = part->draft_us,
            .verify_us = cost->total_us,
            .step_us = cost->compute_us + cost->collective_us,
        };
        ahead_end(tools->ahead, part->seq, &times);
    }
    return rc;
}

int round_run(const struct round_tools *tools, struct sequence **seqs, int n, struct error *err)
{
    struct plan plan;
    struct target_row *rows;
    struct target_cost cost = {0};
    int64_t start_us = clock_now_us();
    arena_reset(tools->arena);
    plan_round(tools, seqs, n, &plan);
    if (plan.n_lanes == 0) return 0;
    int64_t verify_us = clock_now_us();
    int rc = verify_round(tools, &plan, &rows, &cost, err);
    if (rc && !target_is_connected(tools->target)) return rc;
    int64_t merge_us = clock_now_us() - verify_us - cost.total_us;
    for (int i = 0; i < plan.n_lanes; i++) {
        struct part *part = &plan.parts[i];
        if (rc) { /* whose lane a rank refused is in the text, but the step is one */
            fail_part(tools, part, err);
        } else {
            settle_part(tools, part, &plan.lanes[i], rows, &cost, start_us, merge_us);
        }
    }
    return 0;
}
