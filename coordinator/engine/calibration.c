/* Measuring an idle group and an idle draft. */
#include "coordinator/engine/calibration.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/least.h"
#include "coordinator/sequence/sequence.h"

enum {
    ARENA_BYTES = 64 << 20,
    CALIBRATION_TOKENS = 2, /* of a text: a draft that reads features has no row for the first */
    TRIES = 3, /* of which the shortest counts, because nothing makes a step too short */
    SIZES = 9, /* 1, 2, 4, ... up to SEQUENCES_MAX */
    /* The very first measurements of a model, in which pages are touched for the first time, may
     * take many times as long as they will ever take again. They do not count. */
    FIRST = 2,
    /* The sizes up to this one are measured NEEDED_TRIES times even if that takes longer than the
     * budget, up to CALIBRATION_LATE times as long. A load whose steps nobody has measured is
     * served at first with up to a tenth fewer tokens a second than without guesses, which takes
     * far longer. */
    NEEDED_SIZE = 64,
    NEEDED_TRIES = 2,
    /* A request that comes waits for the measurement that is running, so a size is left out that is
     * expected to take longer than this, or than LONGEST_ROWS times one lane where that is more: a
     * request takes that long in any case. */
    LONGEST_US = 250000,
    LONGEST_ROWS = 4,
    /* The second one reads one token a lane, as most passes do. A parallel draft makes only one. */
    DRAFT_PASSES = 2
};

struct calibration;

/* One of the models and how it is measured. */
struct measured_model {
    struct drafter *drafter; /* NULL: the target */
    /* Measures n lanes; *us = 0: that teaches nothing. */
    int (*measure)(struct calibration *c, int n, int64_t *us, struct error *err);
    int n_most;             /* lanes */
    bool takes_blocks;      /* one of the pool for each lane */
    bool lacked[SIZES];     /* there were no free blocks for this size, in one of the tries */
    int64_t end_us;         /* of the time that all measurements may have taken then ... */
    int64_t late_us;        /* ... and of that for the sizes that are needed */
    int64_t expected_us;    /* that a measurement of the next size takes, if none was made of it */
    int64_t took_us[SIZES]; /* the shortest of each size, as a request that waits sees it ... */
    int64_t best_us[SIZES]; /* ... and the shortest time that was measured */
};

struct calibration {
    struct calibration_options options;
    struct arena arena;
    struct sequence *seqs; /* [n_lanes] of the draft's lanes */
    struct measured_model models[PLANNER_MODELS + 1];
    int n_models;
    int model, n_first, try, size; /* what is measured next; n_first: of the first ones, made */
    int64_t spent_us;
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
    int last = -1;
    for (int i = 0; i < n; i++) {
        blocks[i] = last = block_pool_take(c->options.pool, last);
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
    for (int i = 0; i < n; i++) { /* at once: nobody takes blocks while the step runs */
        block_pool_give_back(c->options.pool, blocks[i]);
    }
    TRY(target_step(c->options.target, &step, &c->arena, &answer, &cost, err));
    *us = cost.compute_us + cost.collective_us;
out:
    return rc;
}

static void begin_sequence(struct calibration *c, int i)
{
    struct sequence *seq = &c->seqs[i];
    seq->slot = i;
    seq->n_tokens = seq->n_prompt = CALIBRATION_TOKENS;
    memset(seq->n_draft_kv, 0, sizeof seq->n_draft_kv);
    seq->rule = &accept_rules[RULE_REJECTION];
    seq->tree_rule = &tree_rules[TREE_RULE_AUTO];
    seq->sampling = (struct sampling_params){.temperature = 1, .top_p = 1};
}

/* The target's feature of the first token, of zeros, for a draft that reads features: they take as
 * long as any others. */
static int show_features(struct calibration *c, struct drafter *drafter, int i, struct error *err)
{
    if (!drafter->features) return 0;
    struct draft_features features = draft_features_of(drafter->features, drafter->feature_dim);
    size_t n = feature_wish_width(drafter->features, drafter->feature_dim);
    uint16_t *row = arena_take(&c->arena, n, sizeof *row);
    if (!row) return error_set(err, ERR_NO_MEMORY, "no room for features");
    memset(row, 0, n * sizeof *row);
    features.n = CALIBRATION_TOKENS - 1;
    features.rows = row;
    return drafter_observe(drafter, &c->seqs[i], &features, err);
}

/* One pass of the draft model that is measured, over n lanes. */
static int draft_once(struct calibration *c, int n, int64_t *us, struct error *err)
{
    static const struct end_ids no_ends;
    struct draft_cost cost;
    struct drafter *drafter = c->models[c->model].drafter;
    int n_passes = drafter->is_parallel ? 1 : DRAFT_PASSES, rc = 0;
    arena_reset(&c->arena);
    struct draft_lane *lanes = arena_take(&c->arena, (size_t)n, sizeof *lanes);
    struct guess_tree *drafts = arena_take(&c->arena, (size_t)n, sizeof *drafts);
    if (!lanes || !drafts) return error_set(err, ERR_NO_MEMORY, "no room for %d lanes", n);
    for (int i = 0; i < n; i++) {
        begin_sequence(c, i);
        TRY(show_features(c, drafter, i, err));
        guess_tree_begin(&drafts[i], CALIBRATION_TOKENS);
        lanes[i] = (struct draft_lane){
            .seq = &c->seqs[i], .k = n_passes, .ends = &no_ends, .draft = &drafts[i]};
    }
    drafter_propose(drafter, lanes, n, &c->arena, &cost);
    for (int i = 0; i < n; i++) {
        drafter_forget(drafter, i);
    }
    /* A drafter that makes no passes, or fails, teaches nothing. */
    *us = cost.n_passes == n_passes ? cost.pass_us[n_passes - 1] : 0;
out:
    return rc;
}

/* A group whose pool is small has fewer blocks than lanes. */
static int most_lanes(const struct calibration_options *o)
{
    const struct target_description *d = target_description(o->target);
    int n = least(o->n_lanes, least(d->max_step_rows, d->max_step_tokens));
    return least(n, d->n_kv_blocks);
}

static int open_sequences(struct calibration *c, struct error *err)
{
    int rc = 0;
    TRY(mem_array(&c->seqs, (size_t)c->options.n_lanes, sizeof *c->seqs, err));
    for (int i = 0; i < c->options.n_lanes; i++) {
        TRY(mem_array(&c->seqs[i].tokens, DRAFT_PASSES + 1 + CALIBRATION_TOKENS, sizeof(int32_t),
                      err));
    }
out:
    return rc;
}

int calibration_open(struct calibration **calibration, const struct calibration_options *options,
                     struct error *err)
{
    int rc = 0;
    int64_t budget_us = options->budget_us;
    struct calibration *c = NULL;
    TRY(mem_array(&c, 1, sizeof *c, err));
    c->options = *options;
    TRY(arena_open(&c->arena, ARENA_BYTES, err));
    TRY(open_sequences(c, err));
    for (int m = 0, n = options->drafters->n_models; m < n; m++) {
        int64_t end_us = budget_us / 2 * (m + 1) / n; /* with what those before it have left */
        c->models[c->n_models++] = (struct measured_model){.drafter = options->drafters->models[m],
                                                           .measure = draft_once,
                                                           .n_most = options->n_lanes,
                                                           .end_us = end_us,
                                                           .late_us = CALIBRATION_LATE * end_us};
    }
    c->models[c->n_models++] =
        (struct measured_model){.measure = step_once,
                                .n_most = most_lanes(options),
                                .takes_blocks = true,
                                .end_us = budget_us, /* with what the draft has left */
                                .late_us = CALIBRATION_LATE * budget_us};
    *calibration = c;
    c = NULL;
out:
    calibration_close(c);
    return rc;
}

void calibration_close(struct calibration *c)
{
    if (!c) return;
    for (int i = 0; c->seqs && i < c->options.n_lanes; i++) {
        free(c->seqs[i].tokens);
    }
    free(c->seqs);
    arena_close(&c->arena);
    free(c);
}

/* True if lanes 1 << c->size are measured in this try: they are few enough and expected to be done
 * in time. */
static bool is_due(const struct calibration *c, const struct measured_model *model)
{
    int n = 1 << c->size;
    if (c->size >= SIZES || n > model->n_most) return false;
    int64_t took_us = model->took_us[c->size];
    int64_t expected_us = took_us ? took_us : model->expected_us;
    int64_t longest_us = LONGEST_ROWS * model->took_us[0];
    if (longest_us < LONGEST_US) longest_us = LONGEST_US;
    if (c->size > 0 && expected_us > longest_us) return false;
    int64_t end_us = n <= NEEDED_SIZE && c->try < NEEDED_TRIES ? model->late_us : model->end_us;
    return c->spent_us + expected_us <= end_us;
}

/* True if lanes 1 << c->size can be measured without a block that holds the prefix of a text. */
static bool finds_blocks(const struct calibration *c, struct measured_model *model)
{
    if (!model->takes_blocks || 1 << c->size <= c->options.pool->n_free) return true;
    model->lacked[c->size] = true;
    return false;
}

/* Goes through the sizes, small ones first, and again as long as there is time; what is expected to
 * last longer than that is left out, and what finds no blocks. True: there is one more. */
static bool find_next(struct calibration *c, struct measured_model *model)
{
    if (c->n_first < FIRST && finds_blocks(c, model)) return true;
    for (; c->try < TRIES; c->try++, c->size = 0) {
        for (; is_due(c, model); c->size++) {
            if (finds_blocks(c, model)) return true;
        }
    }
    return false;
}

/* True: models[c->model] has a measurement to make; false: none of them has. What was due may not
 * be any more, because a request that came between may have left its prefix in the free blocks. */
static bool find_model(struct calibration *c)
{
    for (; c->model < c->n_models; c->model++, c->n_first = c->try = c->size = 0) {
        if (find_next(c, &c->models[c->model])) return true;
    }
    return false;
}

static void teach(struct planner *planner, const struct drafter *drafter, int n, double us)
{
    if (drafter) {
        planner_calibrate_draft(planner, drafter->model, n, us);
    } else {
        planner_calibrate_step(planner, n, us);
    }
}

/* All models at once: until then requests are planned like those of a new pair. */
static void teach_planner(const struct calibration *c)
{
    for (const struct measured_model *model = c->models; model < c->models + c->n_models; model++) {
        for (int i = 0; i < SIZES; i++) {
            if (model->best_us[i] == 0) continue;
            teach(c->options.planner, model->drafter, 1 << i, (double)model->best_us[i]);
        }
    }
}

/* 0: nothing is known. */
static void keep_least(int64_t *us, int64_t now_us)
{
    if (*us == 0 || now_us < *us) *us = now_us;
}

int calibration_next(struct calibration *c, bool *is_done, struct error *err)
{
    int64_t us = 0, start_us = clock_now_us();
    int rc = 0;
    *is_done = !find_model(c);
    if (*is_done) teach_planner(c);
    if (*is_done) return 0;
    struct measured_model *model = &c->models[c->model];
    bool is_first = c->n_first < FIRST;
    TRY(model->measure(c, is_first ? 1 : 1 << c->size, &us, err));
    int64_t took_us = clock_now_us() - start_us;
    c->spent_us += took_us;
    model->expected_us = is_first ? took_us : 2 * took_us;
    if (is_first) {
        c->n_first++;
    } else {
        if (us > 0) { /* one that has failed says nothing of the others */
            keep_least(&model->took_us[c->size], took_us);
            keep_least(&model->best_us[c->size], us);
        }
        c->size++;
    }
    *is_done = !find_model(c);
    if (*is_done) teach_planner(c);
out:
    return rc;
}

bool calibration_is_whole(const struct calibration *c)
{
    for (int i = 0; i < c->n_models * SIZES; i++) {
        const struct measured_model *model = &c->models[i / SIZES];
        if (model->lacked[i % SIZES] && model->best_us[i % SIZES] == 0) return false;
    }
    return true;
}
