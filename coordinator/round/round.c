/* One round over the sequences that have places. round_run is the algorithm of the papers
 * (Leviathan et al. 2023, Algorithm 1): propose K guesses, verify them with one step of the target,
 * accept the longest prefix, and resample the token after it. A guess is drawn from q in
 * model_draft_choose (coordinator/draft/model_draft_row.c). Acceptance and resampling are one
 * function of the request's rule, which round_accept calls through rule_accept
 * (speculation/accept/rules.h): for rejection accept_rejection of speculation/accept/chain.c, as
 * long as no guess has siblings.
 *
 * A worked round: one sequence, rule rejection, K = 3; two guesses stay and the third is replaced.
 * The prompt had 10 tokens and 2 have been committed since, so n_tokens = 12.
 * The last of them, t11, has not been read by either model: n_target_kv = n_draft_kv = 11. Coins
 * are addressed by (position, round), where the round's number is n_tokens at its beginning, here
 * 12.
 *
 *   tokens           t0 .. t11 | g0  g1  g2         guesses, after the committed tokens
 *   position         0  .. 11  | 12  13  14
 *
 *   draft lane       reads t11, guesses g0; reads g0, guesses g1; reads g1, guesses g2;
 *                    n_draft_kv = 14
 *   draft            base = 12, n = 3, tokens = {g0, g1, g2}, parents = {-1, 0, 1},
 *                    q = {q0, q1, q2}: a tree without siblings
 *   its coins        RNG_DRAFT at (12, 12), (13, 12), (14, 12)
 *
 *   step lane        position = 11, n_tokens = 4, tokens = {t11, g0, g1, g2}, n_draft = 3
 *   wants            i      = 0         1         2         3       and index = i
 *                    q      = q0        q1        q2        NULL
 *                    at     = (12, 12)  (13, 12)  (14, 12)  (15, 12)
 *   rows             p of position 12, 13, 14 and 15, after t11 , g0, g1 and g2
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
#include "coordinator/sequence/sequence.h"

enum {
    /* Rows, each cut out of a whole vocabulary where full ones are wanted. Pages that no round
     * needs are never touched. */
    ARENA_BYTES = 1 << 30
};

int round_open(struct round **round, const struct round_tools *tools, struct error *err)
{
    int rc = 0;
    struct round *r = NULL;
    *round = NULL;
    TRY(mem_array(&r, 1, sizeof *r, err));
    r->tools = tools;
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

void round_plan(struct round *r, struct sequence **seqs, int n)
{
    r->begin_us = clock_now_us();
    arena_reset(&r->arena);
    scheduler_plan(r->tools->scheduler, seqs, n, &r->plan);
    r->n_lanes = r->plan.n_lanes;
    for (int i = 0; i < r->n_lanes; i++) {
        struct round_lane *lane = &r->lanes[i];
        struct sequence *seq = r->plan.lanes[i].seq;
        lane->plan = r->plan.lanes[i];
        lane->seq = seq;
        guess_tree_begin(&lane->draft, seq->n_tokens);
        lane->fed = &lane->draft;
        lane->n_wants = lane->n_accepted = 0;
        lane->is_committed = false;
        lane->err.code = 0;
    }
}

static void fail_lane(struct round_lane *lane, const struct error *why, enum job_end end)
{
    lane->err = *why;
    lane->end = end;
}

/* Without the group nothing is failed here: the caller decides about all sequences. Otherwise lanes
 * that have failed end their jobs: with step_failed, which is why the step failed as a whole, all
 * of them. What was set aside for trees and is not part of a text now is given back. */
static int end_round(struct round *r, int rc, const struct error *step_failed)
{
    bool is_lost = rc && !target_is_connected(r->tools->target);
    for (int i = 0; i < r->plan.n_tails; i++) {
        block_tails_release(&r->plan.tails[i], r->tools->target_pool);
    }
    r->plan.n_tails = 0;
    for (int i = 0; i < r->n_lanes && !is_lost; i++) {
        struct round_lane *lane = &r->lanes[i];
        if (rc && !lane->err.code) fail_lane(lane, step_failed, JOB_END_FAILED);
        if (lane->err.code) sequence_fail(lane->seq, lane->end, &lane->err);
    }
    return is_lost ? rc : 0;
}

int round_run(struct round *r, struct sequence **seqs, int n, bool *is_idle, struct error *err)
{
    int rc = 0;
    round_plan(r, seqs, n); /* who has a step, with how many tokens and guesses */
    round_read(r);          /* the draft reads what it has missed of prompts */
    round_propose(r);       /* guesses, each drawn from its q */
    *is_idle = r->n_lanes == 0 && r->plan.n_readings == 0;
    if (r->n_lanes == 0) return 0; /* nobody has a step */
    TRY(round_build(r, err));      /* the step: tokens, guesses, and the rows that are wanted */
    if (r->n_step_lanes == 0) goto out;

    TRY(round_send(r, err));  /* verify: one step checks all guesses */
    TRY(round_merge(r, err)); /* p of each guess's place, and of the one after them */

    r->accept_us = clock_now_us();
    for (int i = 0; i < r->n_lanes; i++) {
        struct round_lane *lane = &r->lanes[i];
        struct round_accepted accepted;
        struct error why;
        if (!round_take_answer(r, lane)) continue;    /* it has failed, or its job has ended */
        if (round_accept(r, lane, &accepted, &why) || /* the guesses that stay; resample */
            round_commit(r, lane, &accepted, &why)) { /* they and that token are the text's */
            fail_lane(lane, &why, job_end_of_error(why.code));
        }
    }
    round_learn(r); /* alpha, times, metrics */
out:
    return end_round(r, rc, err);
}
