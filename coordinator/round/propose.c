/* Proposes guesses: each draft model in one call for all of its lanes, finders for those that they
 * have something for. Each guess is drawn from a q that acceptance will know. */
#include "base/clock.h"
#include "base/log.h"
#include "coordinator/round/round.h"
#include "coordinator/sequence/sequence.h"

static void lose_draft(const struct round *r, struct sequence *seq, int model,
                       const struct error *err)
{
    if (err->code == ERR_UNAVAILABLE) {
        log_line(LOG_LEVEL_WARN, "draft_lost", "text=\"%s\"", err->text);
        drafters_lose(r->tools->drafters, seq, model, "the draft's device was lost");
    } else {
        seq->speculation_off = "the draft's KV cache was full";
    }
}

/* One model reads readings[n]. */
static void read_with(struct round *r, struct drafter *model, const struct draft_reading *readings,
                      int n)
{
    struct error err;
    int64_t start_us = clock_now_us();
    int rc = drafter_read(model, readings, n, &err);
    for (int i = 0; i < n; i++) {
        if (rc) {
            lose_draft(r, readings[i].seq, model->model, &err);
        } else {
            drafter_commit(model, readings[i].seq);
        }
    }
    r->drafted[model->model].read_us = clock_now_us() - start_us;
    r->read_us += r->drafted[model->model].read_us;
}

void round_read(struct round *r)
{
    const struct draft_reading *readings = r->plan.readings;
    int n_left = r->plan.n_readings;
    r->read_us = 0;
    for (int m = 0; m < PLANNER_MODELS; m++) {
        r->drafted[m].read_us = 0;
    }
    if (n_left > 0) round_flush(r, false); /* before the draft works */
    while (n_left > 0) {
        int n = 1, model = readings[0].model;
        while (n < n_left && readings[n].model == model) {
            n++;
        }
        read_with(r, r->tools->drafters->models[model], readings, n);
        readings += n;
        n_left -= n;
    }
}

/* The share in a call of propose of each lane whose guesses `drafter` makes, after the n that are
 * listed; returns how many there are now. */
static int list_drafts(struct round *r, const struct drafter *drafter, struct round_lane **owners,
                       int n)
{
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
static void settle_draft(struct round *r, struct round_lane *lane, const struct error *err)
{
    if (!err->code) return;
    guess_tree_begin(&lane->draft, lane->draft.base);
    if (err->code == ERR_EXHAUSTED || err->code == ERR_UNAVAILABLE) {
        lose_draft(r, lane->seq, round_model(lane), err);
    } else {
        lane->err = *err;
        lane->end = JOB_END_FAILED;
    }
}

/* All lanes that guess with a draft model, in one call of each. What follows the guesses is found
 * when all models have made theirs. */
static void propose_with_models(struct round *r)
{
    const struct drafters *drafters = r->tools->drafters;
    struct round_lane *owners[SEQUENCES_MAX];
    int n = 0;
    r->draft_us = 0;
    for (int m = 0; m < PLANNER_MODELS; m++) {
        r->drafted[m].cost = (struct draft_cost){0};
        r->drafted[m].draft_us = 0;
    }
    for (int m = 0; m < drafters->n_models; m++) {
        struct round_drafted *drafted = &r->drafted[m];
        int64_t start_us = clock_now_us();
        int first = n;
        n = list_drafts(r, drafters->models[m], owners, n);
        if (n == first) continue;
        if (first == 0) round_flush(r, false); /* before the draft works */
        drafter_propose(drafters->models[m], r->drafts + first, n - first, &r->arena,
                        &drafted->cost);
        drafted->draft_us = clock_now_us() - start_us;
        r->draft_us += drafted->draft_us;
    }
    if (n > 0) round_append(r, owners, n);
    for (int i = 0; i < n; i++) {
        settle_draft(r, owners[i], &r->drafts[i].err);
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
        int n = list_drafts(r, drafters->finders[f], owners, 0);
        if (n == 0) continue;
        drafter_propose(drafters->finders[f], r->drafts, n, &r->arena, &cost);
        for (int i = 0; i < n; i++) {
            settle_draft(r, owners[i], &r->drafts[i].err);
        }
    }
    propose_with_models(r);
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
