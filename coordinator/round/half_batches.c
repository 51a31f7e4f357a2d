/* Half-batches: rounds over all sequences or, where that was measured to be faster (half_choice.h),
 * over halves that take turns. Then a round is the step of one half, and the guesses of the other
 * half are made while the ranks have it. */
#include "coordinator/round/half_batches.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/limits.h"
#include "coordinator/round/round.h"
#include "coordinator/sequence/sequence.h"
#include "speculation/planner/times.h"

enum {
    /* Rows, each cut out of a whole vocabulary where full ones are wanted. Pages that no round
     * needs are never touched. */
    ARENA_BYTES = 1 << 30,
    /* KV blocks that a lane may need for a step of one token and its guesses. */
    STEP_BLOCKS = (1 + DRAFT_MAX) / KV_BLOCK_TOKENS + 1
};

struct half_batches {
    struct round_tools tools;
    struct round rounds[2]; /* one for each half; without halves one of them does all */
    int turn;               /* the round whose step comes next */
    /* The last whole step that only decoded; halves are predicted from it. */
    int whole_rows, whole_lanes;
    int64_t whole_draft_us;
};

int half_batches_open(struct half_batches **batches, const struct round_tools *tools,
                      struct error *err)
{
    int rc = 0;
    struct half_batches *h = NULL;
    *batches = NULL;
    TRY(mem_array(&h, 1, sizeof *h, err));
    h->tools = *tools;
    for (int i = 0; i < 2; i++) {
        h->rounds[i].tools = &h->tools;
        TRY(arena_open(&h->rounds[i].arena, ARENA_BYTES, err));
    }
    *batches = h;
    h = NULL;
out:
    half_batches_close(h);
    return rc;
}

void half_batches_close(struct half_batches *h)
{
    if (!h) return;
    arena_close(&h->rounds[0].arena);
    arena_close(&h->rounds[1].arena);
    free(h);
}

void half_batches_drop(struct half_batches *h, const struct sequence *seq)
{
    for (int p = 0; p < 2; p++) {
        struct round *r = &h->rounds[p];
        int n = 0;
        for (int i = 0; r->is_prepared && i < r->n_lanes; i++) {
            if (r->lanes[i].seq != seq) r->lanes[n++] = r->lanes[i];
        }
        if (!r->is_prepared) continue;
        r->n_lanes = n;
        r->is_prepared = n > 0;
    }
}

/* ---- whether ---- */

/* Two half rounds over a whole one (half_choice_ratio); 0 = not known. */
static double predict_ratio(const struct half_batches *h, int n)
{
    const struct planner *p = h->tools.planner;
    int lanes = h->whole_lanes;
    if (lanes == 0 || h->whole_draft_us == 0 || n < lanes / 2 || n > 2 * lanes) return 0;
    int rows = h->whole_rows, half_rows = (rows + 1) / 2;
    double draft_us = (double)h->whole_draft_us, pass_us = planner_curve_at(&p->draft, lanes);
    double half_pass_us = planner_curve_at(&p->draft, (lanes + 1) / 2);
    const struct half_choice_times times = {
        .step_us = planner_curve_at(&p->step, rows),
        .half_step_us = planner_curve_at(&p->step, half_rows),
        .rest_us = planner_curve_at(&p->rest, rows),
        .half_rest_us = planner_curve_at(&p->rest, half_rows),
        .draft_us = draft_us,
        .half_draft_us = pass_us > 0 ? draft_us * half_pass_us / pass_us : 0,
    };
    return times.step_us > 0 && pass_us > 0 ? half_choice_ratio(&times) : 0;
}

/* Its K is its own, so it has no step before the draft has read more. */
static bool waits_for_draft(const struct half_batches *h, const struct sequence *seq)
{
    if (seq->planner_state.strategy == STRATEGY_PLANNED) return false;
    if (seq->n_draft == 0 || seq->lost_draft) return false;
    return seq->n_tokens - seq->n_draft_kv > CAUGHT_UP_TOKENS &&
           seq->n_tokens < drafter_limit(h->tools.drafters->model);
}

/* Nothing but decoding, and KV for whatever two halves may need: a sequence of the other half
 * cannot give up its place or what the draft knows of it. */
static bool may_halve(const struct half_batches *h, struct sequence **seqs, int n)
{
    const struct drafter *model = h->tools.drafters->model;
    int n_guessing = 0, n_blocks = n * STEP_BLOCKS;
    if (!model || n < 2) return false;
    for (int i = 0; i < n; i++) {
        bool decodes = !seqs[i]->is_score && seqs[i]->n_tokens - seqs[i]->n_target_kv == 1;
        if (!decodes || seqs[i]->backpressure.slow_us) return false;
        if (waits_for_draft(h, seqs[i])) return false;
        n_guessing += seqs[i]->n_draft > 0 && !seqs[i]->lost_draft ? 1 : 0;
    }
    if (n_guessing == 0 || block_pool_room(h->tools.target_pool) < n_blocks) return false;
    const struct draft_kv kv = drafter_kv(model);
    return kv.n_blocks == 0 || kv.n_free + kv.n_cached >= n_blocks;
}

/* ---- who ---- */

static bool has_lane(const struct round *r, const struct sequence *seq)
{
    for (int i = 0; r->is_prepared && i < r->n_lanes; i++) {
        if (r->lanes[i].seq == seq) return true;
    }
    return false;
}

/* Up to half of seqs[n], those first whose last step is longest ago, without those that the other
 * round has. What is left over comes with the next half, so that the two become equal. Returns how
 * many; half[n]. */
static int list_half(const struct round *other, struct sequence **seqs, int n,
                     struct sequence **half)
{
    int n_listed = 0;
    for (int i = 0; i < n; i++) {
        if (has_lane(other, seqs[i])) continue;
        int at = n_listed++;
        for (; at > 0 && half[at - 1]->last_round > seqs[i]->last_round; at--) {
            half[at] = half[at - 1];
        }
        half[at] = seqs[i];
    }
    return n_listed < (n + 1) / 2 ? n_listed : (n + 1) / 2;
}

/* ---- rounds ---- */

static int run_whole(struct half_batches *h, struct sequence **seqs, int n, bool *is_idle,
                     struct error *err)
{
    struct round *r = &h->rounds[h->turn];
    bool is_new = !r->is_prepared; /* or a half's step is still to come */
    if (is_new) r->is_alone = true;
    int rc = round_run(r, seqs, n, NULL, err);
    *is_idle = is_new && r->n_lanes == 0 && r->plan.n_readings == 0;
    if (r->n_lanes == 0 || !r->is_alone || r->plan.n_prompt > 0) return rc;
    h->whole_rows = r->plan.n_tokens;
    h->whole_lanes = r->n_lanes;
    h->whole_draft_us = r->draft_us;
    for (int i = 0; i < r->n_lanes; i++) {
        const struct round_lane *lane = &r->lanes[i];
        h->whole_rows +=
            lane->draft.n_chain + guess_tree_count(&lane->plan.tree, GUESS_SIBLING | GUESS_GROWN);
    }
    return rc;
}

/* The verbs before the step are those of round_run; they are done here where nothing has prepared
 * this half while the other one had its step. */
static int run_half(struct half_batches *h, struct sequence **seqs, int n, bool *is_idle,
                    struct error *err)
{
    struct round *r = &h->rounds[h->turn], *other = &h->rounds[!h->turn];
    struct sequence *half[SEQUENCES_MAX];
    r->is_alone = other->is_alone = false;
    if (!r->is_prepared) {
        int n_half = list_half(other, seqs, n, half);
        round_plan(r, half, n_half, 0);
        round_read(r);
        round_propose(r);
    }
    if (!r->is_prepared) return run_whole(h, seqs, n, is_idle, err); /* nobody of it can go on */
    h->turn = !h->turn;
    const struct round_next next = {other, half, list_half(r, seqs, n, half)};
    return round_run(r, NULL, 0, &next, err);
}

static int count_tokens(struct sequence **seqs, int n)
{
    int n_tokens = 0;
    for (int i = 0; i < n; i++) {
        n_tokens += seqs[i]->n_tokens;
    }
    return n_tokens;
}

int half_batches_run(struct half_batches *h, struct sequence **seqs, int n, bool *is_idle,
                     struct error *err)
{
    bool can_halve = may_halve(h, seqs, n);
    bool is_halved = can_halve && half_choice_make(h->tools.half_choice, n, predict_ratio(h, n));
    int n_before = count_tokens(seqs, n);
    *is_idle = false;
    int rc = is_halved ? run_half(h, seqs, n, is_idle, err) : run_whole(h, seqs, n, is_idle, err);
    if (!rc && !*is_idle) {
        half_choice_observe(h->tools.half_choice, n, is_halved, can_halve,
                            count_tokens(seqs, n) - n_before, clock_now_us());
    }
    return rc;
}
