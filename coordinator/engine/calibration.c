/* Measuring an idle group and an idle draft. */
#include "coordinator/engine/calibration.h"

#include <stdlib.h>

#include "base/clock.h"
#include "coordinator/sequence/sequence.h"

enum {
    ARENA_BYTES = 64 << 20,
    TRIES = 3, /* of which the shortest counts, because nothing makes a step too short */
    SIZES = 9, /* 1, 2, 4, ... up to SEQUENCES_MAX */
    /* The sizes up to this one are measured NEEDED_TRIES times even if that takes longer than the
     * budget, up to CALIBRATION_LATE times as long. A load whose steps nobody has measured is
     * served at first with up to a tenth fewer tokens a second than without guesses, which takes
     * far longer. */
    NEEDED_SIZE = 64,
    NEEDED_TRIES = 2,
    DRAFT_PASSES = 2 /* the second one reads one token a lane, as most passes do */
};

struct calibration {
    struct target *target;
    struct drafter *drafter;
    struct planner *planner;
    struct arena arena;
    struct sequence *seqs; /* [n_lanes] of the draft's lanes */
    int64_t end_us;        /* of the time that one of the two models has ... */
    int64_t late_us;       /* ... and of that for the sizes that are needed */
    calibration_goes_on_fn *goes_on;
    void *arg; /* of goes_on */
};

static const int32_t first_token = 0;

/* One step of n lanes, one token each. */
static int step_once(struct calibration *c, int n, int64_t *us, struct error *err)
{
    int rc = 0;
    struct target_cost cost = {0};
    struct target_answer answer;
    arena_reset(&c->arena);
    struct step_lane *lanes = arena_take(&c->arena, (size_t)n, sizeof *lanes);
    struct step_row *rows = arena_take(&c->arena, (size_t)n, sizeof *rows);
    int32_t *blocks = arena_take(&c->arena, (size_t)n, sizeof *blocks);
    if (!lanes || !rows || !blocks) return error_set(err, ERR_NO_MEMORY, "no room for %d lanes", n);
    for (int i = 0; i < n; i++) {
        blocks[i] = i;
        rows[i] = (struct step_row){
            .wish = {.outside = true, .n_temperatures = 1, .temperatures = {1.0f}}};
        lanes[i] = (struct step_lane){.slot = i,
                                      .n_tokens = 1,
                                      .tokens = &first_token,
                                      .n_blocks = 1,
                                      .blocks = &blocks[i],
                                      .n_rows = 1,
                                      .rows = &rows[i]};
    }
    struct step step = {.n_lanes = n, .lanes = lanes};
    TRY(target_step(c->target, &step, &c->arena, &answer, &cost, err));
    *us = cost.compute_us + cost.collective_us;
out:
    return rc;
}

static void begin_sequence(struct calibration *c, int i)
{
    struct sequence *seq = &c->seqs[i];
    seq->slot = i;
    seq->n_tokens = seq->n_prompt = 1;
    seq->n_draft_kv = 0;
    seq->rule = &accept_rules[RULE_REJECTION];
    seq->tree_rule = &tree_rules[TREE_RULE_AUTO];
    seq->sampling = (struct sampling_params){.temperature = 1, .top_p = 1};
}

/* One pass of the draft over n lanes. */
static int draft_once(struct calibration *c, int n, int64_t *us, struct error *err)
{
    static const struct end_ids no_ends;
    struct draft_cost cost;
    arena_reset(&c->arena);
    struct draft_lane *lanes = arena_take(&c->arena, (size_t)n, sizeof *lanes);
    struct guess_tree *drafts = arena_take(&c->arena, (size_t)n, sizeof *drafts);
    if (!lanes || !drafts) return error_set(err, ERR_NO_MEMORY, "no room for %d lanes", n);
    for (int i = 0; i < n; i++) {
        begin_sequence(c, i);
        guess_tree_begin(&drafts[i], 1);
        lanes[i] = (struct draft_lane){
            .seq = &c->seqs[i], .k = DRAFT_PASSES, .ends = &no_ends, .draft = &drafts[i]};
    }
    drafter_propose(c->drafter, lanes, n, &c->arena, &cost);
    for (int i = 0; i < n; i++) {
        drafter_forget(c->drafter, i);
    }
    /* A drafter that makes no passes, or fails, teaches nothing. */
    *us = cost.n_passes == DRAFT_PASSES ? cost.pass_us[DRAFT_PASSES - 1] : 0;
    return 0;
}

typedef int measure_fn(struct calibration *c, int n, int64_t *us, struct error *err);

static int64_t end_of(const struct calibration *c, int size, int try)
{
    return size <= NEEDED_SIZE && try < NEEDED_TRIES ? c->late_us : c->end_us;
}

/* Goes through the sizes, small ones first, and again as long as there is time; what is expected to
 * last longer than that is left out. The very first one, in which pages are touched for the first
 * time, may take many times as long as it will ever take again. */
static int measure_all(struct calibration *c, measure_fn *measure,
                       void (*teach)(struct planner *planner, int n, double us), int n_most,
                       struct error *err)
{
    int rc = 0;
    int64_t best_us[SIZES] = {0}, us = 0;
    for (int i = 0; i < 2 && c->goes_on(c->arg); i++) {
        TRY(measure(c, 1, &us, err));
    }
    for (int try = 0; try < TRIES; try++) {
        int64_t expected_us = us;
        for (int i = 0; i < SIZES && 1 << i <= n_most; i++) {
            if (best_us[i]) expected_us = best_us[i];
            if (clock_now_us() + expected_us > end_of(c, 1 << i, try)) break;
            if (!c->goes_on(c->arg)) break;
            TRY(measure(c, 1 << i, &us, err));
            if (!best_us[i] || us < best_us[i]) best_us[i] = us;
            expected_us = 2 * us;
        }
    }
    for (int i = 0; i < SIZES; i++) {
        if (best_us[i] > 0) teach(c->planner, 1 << i, (double)best_us[i]);
    }
out:
    return rc;
}

/* A group whose pool is small has fewer blocks than lanes. */
static int most_lanes(const struct calibration *c, int n_lanes)
{
    const struct target_description *d = target_description(c->target);
    if (n_lanes > d->max_step_rows) n_lanes = d->max_step_rows;
    if (n_lanes > d->max_step_tokens) n_lanes = d->max_step_tokens;
    return n_lanes < d->n_kv_blocks ? n_lanes : d->n_kv_blocks;
}

static int open_sequences(struct calibration *c, int n, struct error *err)
{
    int rc = 0;
    TRY(mem_array(&c->seqs, (size_t)n, sizeof *c->seqs, err));
    for (int i = 0; i < n; i++) {
        TRY(mem_array(&c->seqs[i].tokens, DRAFT_PASSES + 2, sizeof(int32_t), err));
    }
out:
    return rc;
}

int calibration_run(struct target *target, struct drafter *drafter, struct planner *planner,
                    int n_lanes, int64_t budget_us, calibration_goes_on_fn *goes_on, void *arg,
                    struct error *err)
{
    int rc = 0;
    struct calibration c = {
        .target = target, .drafter = drafter, .planner = planner, .goes_on = goes_on, .arg = arg};
    int64_t start_us = clock_now_us();
    if (budget_us <= 0) return 0;
    TRY(arena_open(&c.arena, ARENA_BYTES, err));
    TRY(open_sequences(&c, n_lanes, err));
    c.end_us = start_us + budget_us / 2;
    c.late_us = start_us + CALIBRATION_LATE * budget_us / 2;
    if (drafter) TRY(measure_all(&c, draft_once, planner_calibrate_draft, n_lanes, err));
    c.end_us = start_us + budget_us; /* with what the draft has left */
    c.late_us = start_us + CALIBRATION_LATE * budget_us;
    TRY(measure_all(&c, step_once, planner_calibrate_step, most_lanes(&c, n_lanes), err));
out:
    for (int i = 0; c.seqs && i < n_lanes; i++) {
        free(c.seqs[i].tokens);
    }
    free(c.seqs);
    arena_close(&c.arena);
    return rc;
}
