/* Proposes guesses: the draft model in one call for all lanes, finders for those that they
 * have something for. Each guess is drawn from a q that acceptance will know. */
#include "base/clock.h"
#include "base/log.h"
#include "coordinator/round/round.h"
#include "coordinator/sequence/sequence.h"

static void lose_draft(struct sequence *seq, const struct error *err)
{
    if (err->code == ERR_UNAVAILABLE) {
        log_line(LOG_LEVEL_WARN, "draft_lost", "text=\"%s\"", err->text);
        seq->lost_draft = true;
    }
    seq->speculation_off = err->code == ERR_EXHAUSTED ? "the draft's KV cache was full"
                                                      : "the draft's device was lost";
}

void round_read(struct round *r)
{
    struct drafter *model = r->tools->drafters->model;
    const struct draft_reading *readings = r->plan.readings;
    struct error err;
    int64_t start_us = clock_now_us();
    r->read_us = 0;
    if (r->plan.n_readings == 0) return;
    round_flush(r, false); /* before the draft works */
    int rc = drafter_read(model, readings, r->plan.n_readings, &err);
    for (int i = 0; i < r->plan.n_readings; i++) {
        if (rc) {
            lose_draft(readings[i].seq, &err);
        } else {
            drafter_commit(model, readings[i].seq);
        }
    }
    r->read_us = clock_now_us() - start_us;
}

/* The share in a call of propose of each lane whose guesses `drafter` makes; returns how many. */
static int list_drafts(struct round *r, const struct drafter *drafter, struct round_lane **owners)
{
    int n = 0;
    for (int i = 0; i < r->n_lanes; i++) {
        struct round_lane *lane = &r->lanes[i];
        const struct lane_plan *plan = &lane->plan;
        if (plan->tree.n_chain == 0 || plan->drafter != drafter) continue;
        int siblings_max = 0;
        for (int g = 0; g < plan->tree.n; g++) {
            if (!(plan->tree.marks[g] & GUESS_SIBLING)) continue;
            int rank = guess_tree_rank(&plan->tree, g);
            if (rank > siblings_max) siblings_max = rank;
        }
        r->drafts[n].seq = lane->seq;
        r->drafts[n].k = lane_plan_k(plan);
        r->drafts[n].ends = &lane->seq->ends;
        r->drafts[n].siblings_max = siblings_max;
        r->drafts[n].plan = &plan->tree;
        r->drafts[n].follows_q = plan->follows_q;
        r->drafts[n].draft = &lane->draft;
        owners[n++] = lane;
    }
    return n;
}

/* Settles a draft that failed: without KV blocks or without its device the sequence goes on
 * plainly, and with any other error its job fails. */
static void settle_draft(struct round_lane *lane, const struct error *err)
{
    if (!err->code) return;
    guess_tree_begin(&lane->draft, lane->draft.base);
    if (err->code == ERR_EXHAUSTED || err->code == ERR_UNAVAILABLE) {
        lose_draft(lane->seq, err);
    } else {
        lane->err = *err;
        lane->end = JOB_END_FAILED;
    }
}

/* All lanes that guess with the draft model, in one call. */
static void propose_with_model(struct round *r)
{
    struct drafter *model = r->tools->drafters->model;
    struct round_lane *owners[SEQUENCES_MAX];
    int64_t start_us = clock_now_us();
    r->draft_cost = (struct draft_cost){0};
    r->draft_us = 0;
    int n = model ? list_drafts(r, model, owners) : 0;
    if (n == 0) return;
    round_flush(r, false); /* before the draft works */
    drafter_propose(model, r->drafts, n, &r->arena, &r->draft_cost);
    r->draft_us = clock_now_us() - start_us;
    round_append(r, owners, n);
    for (int i = 0; i < n; i++) {
        settle_draft(owners[i], &r->drafts[i].err);
    }
}

/* Finds a branch beside what the draft has guessed, of n guesses. */
static void find_branch(struct round *r, struct round_lane *lane, int n)
{
    struct guess_tree found;
    struct draft_lane wanted = {
        .seq = lane->seq, .k = n, .ends = &lane->seq->ends, .draft = &found};
    struct draft_cost cost;
    guess_tree_begin(&found, lane->draft.base);
    drafter_propose(r->tools->drafters->finders[lane->plan.branch.offer.finder], &wanted, 1,
                    &r->arena, &cost);
    for (int i = 0, at = -1; !wanted.err.code && i < found.n; i++) {
        at = guess_tree_branch(&lane->draft, at, found.tokens[i], found.q[i]);
    }
}

void round_propose(struct round *r)
{
    const struct drafters *drafters = r->tools->drafters;
    /* Finders take microseconds, which count as planning. */
    for (int f = 0; f < drafters->n_finders; f++) {
        struct round_lane *owners[SEQUENCES_MAX];
        struct draft_cost cost;
        int n = list_drafts(r, drafters->finders[f], owners);
        if (n == 0) continue;
        drafter_propose(drafters->finders[f], r->drafts, n, &r->arena, &cost);
        for (int i = 0; i < n; i++) {
            settle_draft(owners[i], &r->drafts[i].err);
        }
    }
    propose_with_model(r);
    /* Then what is found besides: a branch, or the extra rows of a finder as one. */
    for (int i = 0; i < r->n_lanes; i++) {
        struct round_lane *lane = &r->lanes[i];
        int n_branch = guess_tree_count(&lane->plan.tree, GUESS_BRANCH);
        if (lane->err.code || n_branch == 0) continue;
        if (lane->plan.window) {
            struct draft_lane wanted = {
                .seq = lane->seq, .k = n_branch, .ends = &lane->seq->ends, .draft = &lane->draft};
            lookup_extra_rows(lane->plan.window, &wanted, &r->arena); /* without memory, none */
        } else if (lane->draft.n_chain > 0) {
            find_branch(r, lane, n_branch);
        }
    }
    r->prepare_us = clock_now_us() - r->begin_us;
}
