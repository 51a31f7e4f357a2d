/* One round over the sequences that have places. Where halves of them take turns, a round is the
 * step of one half, and the guesses of the other half are made meanwhile.
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
#include "coordinator/round/round.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/limits.h"
#include "coordinator/round/parts.h"
#include "coordinator/sequence/sequence.h"
#include "speculation/planner/times.h"

enum {
    /* Rows, each cut out of a whole vocabulary where full ones are wanted. Pages that no round
     * needs are never touched. */
    ARENA_BYTES = 1 << 30,
    /* KV blocks that a lane may need for a step of one token and its guesses. */
    STEP_BLOCKS = (1 + DRAFT_MAX) / KV_BLOCK_TOKENS + 1
};

struct round {
    struct round_tools tools;
    struct round_part parts[2];
    int next; /* the part whose step comes next */
    /* The last whole step that only decoded; halves are predicted from it. */
    int whole_rows, whole_lanes;
    int64_t whole_draft_us;
    /* What the other part is made of, while a step is on its way. */
    struct sequence *others[SEQUENCES_MAX];
    int n_others;
};

int round_open(struct round **round, const struct round_tools *tools, struct error *err)
{
    int rc = 0;
    struct round *r = NULL;
    *round = NULL;
    TRY(mem_array(&r, 1, sizeof *r, err));
    r->tools = *tools;
    for (int i = 0; i < 2; i++) {
        r->parts[i].tools = &r->tools;
        TRY(arena_open(&r->parts[i].arena, ARENA_BYTES, err));
    }
    *round = r;
    r = NULL;
out:
    round_close(r);
    return rc;
}

void round_close(struct round *r)
{
    if (!r) return;
    arena_close(&r->parts[0].arena);
    arena_close(&r->parts[1].arena);
    free(r);
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* ---- one step ---- */

/* One stream that speculates with the draft model: the draft need not wait for the target. */
static bool can_draft_ahead(const struct round_part *part)
{
    const struct round_lane *lane = &part->lanes[0];
    if (lane->plan.k > 0 && lane->plan.drafter != part->tools->drafters->model) return false;
    if (lane->seq->tree) return false; /* guesses made ahead are a chain */
    return part->tools->drafters->model && part->is_alone && part->n_lanes == 1 &&
           lane->plan.is_last && !lane->err.code;
}

static void begin_ahead(const struct round_part *part, const struct round_lane *lane)
{
    struct sequence *seq = lane->seq;
    int base = seq->n_tokens + lane->draft.n + 1;
    int room = least(seq->end - 1, drafter_limit(part->tools->drafters->model)) - base;
    ahead_begin(part->tools->ahead, seq, &lane->draft, least(round_n_own(lane), room), &seq->ends);
}

/* The step feeds the last committed token and the guesses, nothing else. */
static bool is_plain(const struct round_lane *lane)
{
    return lane->plan.is_last && lane->plan.n_tokens == 1;
}

static void end_ahead(const struct round_part *part, bool has_failed)
{
    const struct round_lane *lane = &part->lanes[0];
    const struct ahead_times times = {
        .is_plain =
            !has_failed && is_plain(lane) && lane->n_missed <= 2 && part->plan.n_readings == 0,
        .draft_us = part->draft_us,
        .verify_us = part->cost.total_us,
        .step_us = part->cost.compute_us + part->cost.collective_us,
    };
    ahead_end(part->tools->ahead, lane->seq, &times);
}

void round_flush(const struct round_part *part, bool has_time)
{
    part->tools->flush_answers(part->tools->flush_arg, has_time);
}

/* What is done while the ranks compute: answers leave first. */
struct waiting_work {
    const struct round_part *part;
    const struct target_meanwhile *next; /* NULL = nothing else */
    bool has_flushed;
};

static bool flush_and_work(void *arg)
{
    struct waiting_work *work = arg;
    if (work->has_flushed) return work->next->work(work->next->arg);
    work->has_flushed = true;
    round_flush(work->part, true);
    return work->next != NULL;
}

static int verify(struct round_part *part, const struct target_meanwhile *meanwhile,
                  struct error *err)
{
    const struct round_tools *tools = part->tools;
    const struct target_meanwhile ahead = {ahead_work, tools->ahead};
    bool is_ahead = can_draft_ahead(part);
    struct waiting_work work = {.part = part, .next = is_ahead ? &ahead : meanwhile};
    const struct target_meanwhile waiting = {flush_and_work, &work};
    const struct target_query query = {
        .lanes = part->step_lanes,
        .n_lanes = part->n_step_lanes,
        .wants = part->wants,
        .n_wants = part->n_wants,
        .meanwhile = &waiting,
    };
    part->cost = (struct target_cost){0};
    if (is_ahead) begin_ahead(part, &part->lanes[0]);
    if (!is_ahead && tools->ahead) ahead_skip(tools->ahead);
    int rc = target_verify(tools->target, &query, &part->arena, &part->result, &part->cost, err);
    if (!work.has_flushed) round_flush(part, false); /* the ranks were quick */
    if (is_ahead) end_ahead(part, rc != 0);
    return rc;
}

/* The step failed as a whole, and the group is still there. */
static void fail_step(struct round_part *part, const struct error *why)
{
    for (int i = 0; i < part->n_lanes; i++) {
        struct round_lane *lane = &part->lanes[i];
        if (lane->err.code) continue;
        lane->err = *why;
        lane->end = JOB_END_FAILED;
    }
}

static void end_failed(struct round_part *part)
{
    for (int i = 0; i < part->n_lanes; i++) {
        struct round_lane *lane = &part->lanes[i];
        if (lane->err.code) sequence_fail(lane->seq, lane->end, &lane->err);
    }
}

/* What was set aside for trees and is not part of a text now. */
static void release_tails(struct round_part *part)
{
    for (int i = 0; i < part->plan.n_tails; i++) {
        block_tails_release(&part->plan.tails[i], part->tools->target_pool);
    }
    part->plan.n_tails = 0;
}

/* The step of a part that is prepared, and what follows from it. */
static int finish_part(struct round_part *part, const struct target_meanwhile *meanwhile,
                       struct error *err)
{
    int rc = round_fill_step(part, err);
    part->is_prepared = false;
    part->meanwhile_us = 0;
    part->verify_us = clock_now_us();
    if (!rc && part->n_step_lanes > 0) rc = verify(part, meanwhile, err);
    if (rc && !target_is_connected(part->tools->target)) {
        release_tails(part);
        return rc;
    }
    if (rc) {
        fail_step(part, err);
    } else if (part->n_step_lanes > 0) {
        round_settle(part);
        part->tools->halves->n_steps++;
        part->tools->halves->n_half_steps += part->is_alone ? 0 : 1;
    }
    release_tails(part);
    end_failed(part);
    return 0;
}

/* ---- halves ---- */

static bool has_lane(const struct round_part *part, const struct sequence *seq)
{
    for (int i = 0; part->is_prepared && i < part->n_lanes; i++) {
        if (part->lanes[i].seq == seq) return true;
    }
    return false;
}

static bool decodes(const struct sequence *seq)
{
    return !seq->is_score && seq->n_tokens - seq->n_target_kv == 1;
}

/* Two half steps over a whole one with its drafting; 0 = not known. */
static double predict_ratio(const struct round *r, int n)
{
    const struct planner *p = r->tools.planner;
    int lanes = r->whole_lanes;
    if (lanes == 0 || r->whole_draft_us == 0 || n < lanes / 2 || n > 2 * lanes) return 0;
    double step_us = planner_curve_at(&p->step, r->whole_rows);
    double half_step_us = planner_curve_at(&p->step, (r->whole_rows + 1) / 2);
    double draft_us = (double)r->whole_draft_us, pass_us = planner_curve_at(&p->draft, lanes);
    double half_pass_us = planner_curve_at(&p->draft, (lanes + 1) / 2);
    if (!(step_us > 0 && pass_us > 0)) return 0;
    double half_draft_us = draft_us * half_pass_us / pass_us;
    return 2 * (half_step_us > half_draft_us ? half_step_us : half_draft_us) / (step_us + draft_us);
}

/* Its K is its own, so it has no step before the draft has read more. */
static bool waits_for_draft(const struct round *r, const struct sequence *seq)
{
    if (seq->planner_state.strategy == STRATEGY_PLANNED) return false;
    if (seq->n_draft == 0 || seq->lost_draft) return false;
    return seq->n_tokens - seq->n_draft_kv > CAUGHT_UP_TOKENS &&
           seq->n_tokens < drafter_limit(r->tools.drafters->model);
}

static bool draft_has_room(const struct drafter *drafter, int n_blocks)
{
    struct draft_kv kv = drafter_kv(drafter);
    return kv.n_blocks == 0 || kv.n_free + kv.n_cached >= n_blocks;
}

/* Nothing but decoding, and KV for whatever two halves may need: a sequence of the other half
 * cannot give up its place or what the draft knows of it. */
static bool may_halve(const struct round *r, struct sequence **seqs, int n)
{
    int n_guessing = 0;
    if (!r->tools.drafters->model || n < 2) return false;
    for (int i = 0; i < n; i++) {
        if (!decodes(seqs[i]) || seqs[i]->reader.slow_us) return false;
        if (waits_for_draft(r, seqs[i])) return false;
        n_guessing += seqs[i]->n_draft > 0 && !seqs[i]->lost_draft ? 1 : 0;
    }
    return n_guessing > 0 && block_pool_room(r->tools.target_pool) >= n * STEP_BLOCKS &&
           draft_has_room(r->tools.drafters->model, n * STEP_BLOCKS);
}

static bool choose_halves(const struct round *r, struct sequence **seqs, int n)
{
    return may_halve(r, seqs, n) && halves_choose(r->tools.halves, n, predict_ratio(r, n));
}

/* Up to half of seqs[n], those first whose last step is longest ago, without those that the other
 * part has. What is left over comes with the next half, so that the two become equal. */
static void list_half(struct round *r, const struct round_part *other, struct sequence **seqs,
                      int n)
{
    int n_listed = 0;
    for (int i = 0; i < n; i++) {
        if (has_lane(other, seqs[i])) continue;
        int at = n_listed++;
        for (; at > 0 && r->others[at - 1]->last_round > seqs[i]->last_round; at--) {
            r->others[at] = r->others[at - 1];
        }
        r->others[at] = seqs[i];
    }
    r->n_others = least(n_listed, (n + 1) / 2);
}

/* The work of a struct target_meanwhile: all of it at once. */
static bool prepare_other(void *round)
{
    struct round *r = round;
    struct round_part *other = &r->parts[r->next], *part = &r->parts[!r->next];
    if (r->n_others > 0) {
        round_prepare(other, r->others, r->n_others, part->n_tokens, 0);
        part->meanwhile_us = other->prepare_us;
    }
    r->n_others = 0;
    return false;
}

void round_drop(struct round *r, const struct sequence *seq)
{
    for (int p = 0; p < 2; p++) {
        struct round_part *part = &r->parts[p];
        int n = 0;
        for (int i = 0; part->is_prepared && i < part->n_lanes; i++) {
            if (part->lanes[i].seq != seq) part->lanes[n++] = part->lanes[i];
        }
        if (!part->is_prepared) continue;
        part->n_lanes = n;
        part->is_prepared = n > 0;
    }
}

/* ---- rounds ---- */

static int run_whole(struct round *r, struct sequence **seqs, int n, bool *is_idle,
                     struct error *err)
{
    struct round_part *part = &r->parts[r->next];
    const struct round_tools *tools = &r->tools;
    if (!part->is_prepared) {
        part->is_alone = true;
        round_prepare(part, seqs, n, 0,
                      n == 1 && tools->ahead ? ahead_count(tools->ahead, seqs[0]) : 0);
        *is_idle = part->n_lanes == 0 && part->plan.n_readings == 0;
    }
    if (!part->is_prepared) return 0;
    if (part->is_alone && part->plan.n_prompt == 0) {
        r->whole_rows = part->plan.n_tokens;
        r->whole_lanes = part->n_lanes;
        r->whole_draft_us = part->draft_us;
        for (int i = 0; i < part->n_lanes; i++) {
            r->whole_rows += part->lanes[i].draft.n;
            for (int g = 0; g < part->lanes[i].plan.k; g++) {
                r->whole_rows += part->lanes[i].plan.siblings[g];
            }
            r->whole_rows += part->lanes[i].plan.growth.n;
        }
    }
    return finish_part(part, NULL, err);
}

static int run_half(struct round *r, struct sequence **seqs, int n, bool *is_idle,
                    struct error *err)
{
    const struct target_meanwhile meanwhile = {prepare_other, r};
    struct round_part *part = &r->parts[r->next];
    r->parts[0].is_alone = r->parts[1].is_alone = false;
    if (!part->is_prepared) {
        list_half(r, &r->parts[!r->next], seqs, n);
        round_prepare(part, r->others, r->n_others, 0, 0);
    }
    if (!part->is_prepared) return run_whole(r, seqs, n, is_idle, err); /* nobody of it can go on */
    r->next = !r->next;
    list_half(r, part, seqs, n);
    return finish_part(part, &meanwhile, err);
}

static int count_tokens(struct sequence **seqs, int n)
{
    int n_tokens = 0;
    for (int i = 0; i < n; i++) {
        n_tokens += seqs[i]->n_tokens;
    }
    return n_tokens;
}

int round_run(struct round *r, struct sequence **seqs, int n, bool *is_idle, struct error *err)
{
    bool can_halve = may_halve(r, seqs, n), is_halved = choose_halves(r, seqs, n);
    int n_before = count_tokens(seqs, n);
    *is_idle = false;
    int rc = is_halved ? run_half(r, seqs, n, is_idle, err) : run_whole(r, seqs, n, is_idle, err);
    if (!rc && !*is_idle) {
        halves_observe(r->tools.halves, n, is_halved, can_halve, count_tokens(seqs, n) - n_before,
                       clock_now_us());
    }
    return rc;
}
