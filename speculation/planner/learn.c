/* Learning: what rounds and calibrations teach the planner, and what it reports. */
#include "speculation/planner/planner.h"

#include <math.h>
#include <stddef.h>

#include "speculation/planner/cost.h"
#include "speculation/planner/grow.h"

/* Counts. Each comment begins with the unit. */
enum {
    /* Guesses in the first round of strategy heuristic, as in transformers. */
    HEURISTIC_FIRST = 5,
    /* Tokens of the shortest text whose reading tells the time per token. A shorter one takes about
     * as long as a single token. */
    READ_LEAST = 16,
    /* Guesses of a chain, about. */
    TYPICAL_K = 4,
    /* Plain rounds whose time is the limit of unspent credit for probes, so that a long text does
     * not save for a long series of probes. */
    CREDIT_ROUNDS = 2,
    /* Measurements that a time of a calibration, or of a kept table, counts as at most: the next
     * rounds of service can still correct it. */
    KEPT_TIMES = 8,
    /* Rounds of a kind that are counted; see LEARN_ROUNDS. */
    COUNTED_ROUNDS = 100,
    /* Timed rounds of a pair in which probes may cost more. */
    SEARCH_ROUNDS = 1000,
    /* Rounds after which what is known of reasons for offers, and of guesses after siblings, fades
     * a little: where they were too bad to be made, that is looked at again. */
    FADE_ROUNDS = 64
};

/* Share of the time of planned rounds that probes may cost: in the first SEARCH_ROUNDS of a pair
 * since the start, and later, when most of what probes can find has been found. */
static const double probe_ratio = 0.01, late_probe_ratio = 0.005;
/* Share that older tests keep with every new test of their position, over all sequences. */
static const double keep_test = 0.998;
/* Ratio: drafting counts as at most so many times as long as its passes. */
static const double around_most = 2;
/* Weight of one measurement in the ratio of prompts, and what that is at most. */
static const double prompt_weight = 0.125, prompt_ratio_most = 4;
/* us: a longer time in a kept table makes no sense. */
static const double us_most = 1e12;

static double clamp(double x, double least, double most)
{
    return x < least ? least : x > most ? most : x;
}

/* ---- the draft ---- */

/* Time of drafting over that of its passes. */
static double around_passes(const struct planner_drafted *drafted)
{
    double passes_us = 0;
    for (int i = 0; i < drafted->n_passes && i <= DRAFT_MAX; i++) {
        passes_us += (double)drafted->pass_us[i];
    }
    if (passes_us <= 0) return 1;
    return clamp((double)drafted->draft_us / passes_us, 1, around_most);
}

/* The first pass says what reading costs if it has read a long text. A few tokens more teach
 * nothing: they cost one larger pass and not the time of one token each. */
static void observe_first_reading(struct planner_model *m, const struct planner_drafted *drafted,
                                  double us)
{
    int lanes = drafted->pass_lanes[0];
    int more = drafted->first_pass_tokens - planner_caught_up(m) * lanes;
    if (more < READ_LEAST || m->draft.largest == 0) return;
    planner_curve_fit(&m->draft);
    double left_us = us - planner_curve_at(&m->draft, lanes + drafted->pass_expected[0]);
    if (left_us > 0) planner_time_add(&m->read, left_us / more);
}

/* The rows of a pass; 0 where its time is not that of a pass. A token that is read ahead, or a
 * mask, has a row of logits like that of a lane, so a pass takes as long with one more of these as
 * with one more lane. */
static int pass_rows(const struct planner_model *m, const struct planner_drafted *drafted, int i)
{
    if (drafted->pass_grows[i]) return 0;
    if (i > 0) return drafted->pass_lanes[i] + drafted->pass_expected[i];
    int n_most = planner_caught_up(m) * drafted->pass_lanes[0];
    bool is_caught_up = drafted->first_pass_tokens <= n_most;
    return is_caught_up ? drafted->first_pass_tokens + drafted->pass_expected[0] : 0;
}

/* Neighbouring passes of equal size are one measurement, because a slow round slows them all. */
static void observe_passes(struct planner_model *m, const struct planner_drafted *drafted,
                           double around, uint64_t at)
{
    int n_passes = drafted->n_passes <= DRAFT_MAX ? drafted->n_passes : DRAFT_MAX + 1;
    for (int i = 0, n; i < n_passes; i += n) {
        int rows = pass_rows(m, drafted, i);
        double us = 0;
        for (n = 0; i + n < n_passes && pass_rows(m, drafted, i + n) == rows; n++) {
            us += (double)drafted->pass_us[i + n];
        }
        if (rows > 0) planner_curve_add(&m->draft, rows, around * us / n, at);
    }
}

static void observe_draft(struct planner_model *m, const struct planner_drafted *drafted,
                          uint64_t at)
{
    double around = around_passes(drafted);
    observe_passes(m, drafted, around, at);
    if (drafted->n_passes > 0) {
        observe_first_reading(m, drafted, around * (double)drafted->pass_us[0]);
    }
    if (drafted->n_read >= READ_LEAST && drafted->read_us > 0) {
        planner_time_add(&m->read, (double)drafted->read_us / drafted->n_read);
    }
}

/* ---- rounds ---- */

/* Only rounds with planned lanes earn credit for probes, because only they make them: a share of
 * the time of all rounds would be more than probe_ratio of theirs. */
static void earn_credit(struct planner *p)
{
    double most = fmax(CREDIT_ROUNDS * p->plain_us, p->wanted_us);
    double ratio = p->n_rounds <= SEARCH_ROUNDS ? probe_ratio : late_probe_ratio;
    double earned_us = ratio * p->planned_us;
    if (p->trial_us < p->trial_wanted_us) { /* half of it is saved for a trial */
        earned_us /= 2;
        p->trial_us += earned_us;
    }
    p->credit_us = fmin(p->credit_us + earned_us, most);
    p->planned_us = 0;
}

/* Learns the ratio of prompts. They have one of their own, because the table of steps is for rows
 * of which all are asked about, and follows prompts slowly. */
static void observe_prompts(struct planner *p, const struct planner_round *round)
{
    double decoding_us = planner_curve_at(&p->step, round->n_rows - round->n_prompt);
    double expected_us = planner_curve_at(&p->step, round->n_rows) - decoding_us;
    if (expected_us <= 0) return;
    double step_us = (double)(round->step_us - round->features_step_us);
    double ratio = (step_us - decoding_us) / expected_us;
    ratio = clamp(ratio, 1 / prompt_ratio_most, prompt_ratio_most);
    if (p->prompt_ratio <= 0) p->prompt_ratio = 1;
    p->prompt_ratio += prompt_weight * (ratio - p->prompt_ratio);
}

static void observe_step(struct planner *p, const struct planner_round *round)
{
    double step_us = (double)(round->step_us - round->features_step_us);
    double rest_us = (double)(round->round_us - round->step_us - round->features_wire_us);
    for (int m = 0; m < PLANNER_MODELS; m++) {
        rest_us -= (double)(round->models[m].draft_us + round->models[m].read_us);
    }
    int wanted = round->n_rows - round->n_prompt, *count = &p->n_plain;
    if (!round->has_prompt || planner_is_decoding(round->n_rows, round->n_prompt)) {
        planner_curve_add(&p->step, round->n_rows, step_us, p->n_rounds);
        if (wanted > round->n_lanes) count = &p->n_guessed;
        if (*count < COUNTED_ROUNDS) ++*count;
    } else if (round->n_rows > PLANNER_ROWS_EXACT) {
        observe_prompts(p, round);
        planner_curve_add_weakly(&p->step, round->n_rows, step_us, p->n_rounds);
    } else {
        return;
    }
    if (round->n_prompt <= wanted) planner_curve_add(&p->rest, wanted, rest_us, p->n_rounds);
}

void planner_observe_round(struct planner *p, const struct planner_round *round)
{
    if (!round->is_timed) return;
    p->n_rounds++;
    if (p->n_rounds % FADE_ROUNDS == 0) {
        planner_reasons_fade(&p->reasons);
    }
    for (int m = 0; m < PLANNER_MODELS; m++) {
        if (p->n_rounds % FADE_ROUNDS == 0) planner_grow_fade(&p->models[m].grown);
        observe_draft(&p->models[m], &round->models[m], p->n_rounds);
    }
    if (round->n_features > 0) {
        double us = (double)(round->features_step_us + round->features_wire_us);
        planner_time_add(&p->feature, us / round->n_features);
    }
    if (round->n_rows > 0) observe_step(p, round);
    earn_credit(p);
}

/* ---- lanes ---- */

int planner_own_k(const struct planner_sequence *seq, int k_max)
{
    int k = seq->k_heuristic ? seq->k_heuristic : HEURISTIC_FIRST;
    if (k_max <= 0) return 0;
    return seq->strategy == STRATEGY_HEURISTIC && k < k_max ? k : k_max;
}

static void observe_heuristic(struct planner_sequence *seq, int k_now, int n_accepted)
{
    int k = seq->k_heuristic ? seq->k_heuristic : HEURISTIC_FIRST;
    if (k_now == 0) return;
    k = n_accepted == k_now ? k + 2 : k - 1;
    seq->k_heuristic = k < 1 ? 1 : k > DRAFT_MAX ? DRAFT_MAX : k;
}

void planner_observe_siblings(struct planner *p, struct planner_sequence *seq, int model,
                              const struct planner_offer *offer, int n, int kept)
{
    int drafter = planner_drafter_of(offer, model);
    planner_sibling_observe(&p->siblings[drafter], &seq->sibling_trust[drafter], n, kept);
}

static void observe_commit(struct planner_sequence *seq, int n_tokens)
{
    for (int i = 0; i < PLANNER_MODELS; i++) {
        planner_counts_fade(&seq->counts[i], n_tokens);
    }
    for (int i = 0; i < PLANNER_SOURCES; i++) {
        planner_trust_fade(&seq->trust[i], n_tokens);
    }
    for (int i = 0; i < PLANNER_DRAFTERS; i++) {
        planner_trust_fade(&seq->sibling_trust[i], n_tokens);
    }
}

void planner_observe_untaken(struct planner *p, struct planner_sequence *seq,
                             const struct planner_offer *offer, int n_tested, int n_right)
{
    planner_offer_observe(&p->reasons, &seq->trust[offer->finder], offer, n_tested, n_right);
}

void planner_observe_branch(struct planner *p, struct planner_sequence *seq,
                            const struct planner_branch *branch, int n_tested, int n_right,
                            int n_added)
{
    planner_observe_untaken(p, seq, &branch->offer, n_tested, n_right);
    planner_offer_observe_branch(&p->reasons, branch, n_added);
}

void planner_observe_offer(struct planner *p, struct planner_sequence *seq,
                           const struct planner_offer *offer, int k, int n_accepted)
{
    observe_heuristic(seq, k, n_accepted);
    observe_commit(seq, n_accepted + 1);
    planner_offer_observe(&p->reasons, &seq->trust[offer->finder], offer, k, n_accepted);
}

void planner_observe_lane(struct planner *p, struct planner_sequence *seq, int model, int k,
                          int n_accepted)
{
    observe_heuristic(seq, k, n_accepted);
    observe_commit(seq, n_accepted + 1);
    planner_counts_add(&seq->counts[model], k, n_accepted, 1);
    if (k > 0) seq->is_on_trial[model] = false;
    /* Under a threshold only guesses that the draft was sure of are tested, so they say nothing of
     * other sequences. */
    if (seq->strategy != STRATEGY_THRESHOLD) {
        planner_counts_add(&p->models[model].counts, k, n_accepted, keep_test);
    }
}

/* ---- calibrations and tables ---- */

/* True if a time of so many rows or more is known as well as a calibration knows it. */
static bool is_well_known(const struct planner_curve *c, int rows)
{
    for (int i = planner_knot_of(rows); i < PLANNER_KNOTS; i++) {
        if (c->knots[i].shape.n >= KEPT_TIMES) return true;
    }
    return false;
}

/* Keeps a time that rounds have measured as often, because the rows of a calibration have no text
 * before them. */
static void calibrate(struct planner *p, struct planner_curve *c, int rows, double us)
{
    if (c->knots[planner_knot_of(rows)].shape.n < KEPT_TIMES) {
        planner_curve_set(c, rows, us, KEPT_TIMES);
    }
    for (int m = 0; m < PLANNER_MODELS && is_well_known(&p->step, 2); m++) {
        if (is_well_known(&p->models[m].draft, 1)) p->is_calibrated = true;
    }
}

void planner_calibrate_step(struct planner *p, int n_rows, double us)
{
    calibrate(p, &p->step, n_rows, us);
}

void planner_calibrate_draft(struct planner *p, int model, int n_lanes, double us)
{
    struct planner_model *m = &p->models[model];
    calibrate(p, &m->draft, n_lanes * (1 + m->lane_rows), us);
}

static void curve_get(const struct planner_curve *c, struct planner_point *points)
{
    int n = 0;
    for (int i = 0; i < PLANNER_KNOTS; i++) {
        const struct planner_knot *knot = &c->knots[i];
        points[i] = (struct planner_point){0};
        if (knot->shape.n == 0) continue;
        points[n++] =
            (struct planner_point){knot->rows, c->scale_us * knot->shape.us, knot->shape.n};
    }
}

static bool is_sane(double x, double least, double most)
{
    return x >= least && x <= most; /* NaN is not */
}

static void curve_set(struct planner_curve *c, const struct planner_point *points)
{
    *c = (struct planner_curve){0};
    for (int i = 0; i < PLANNER_KNOTS; i++) {
        const struct planner_point *point = &points[i];
        if (point->n < 1 || !is_sane(point->rows, 1, PLANNER_ROWS_MAX)) continue;
        if (!is_sane(point->us, 1, us_most)) continue;
        planner_curve_set(c, point->rows, point->us, point->n < KEPT_TIMES ? point->n : KEPT_TIMES);
    }
}

void planner_tables_get(const struct planner *p, struct planner_tables *tables)
{
    for (int m = 0; m < PLANNER_MODELS; m++) {
        curve_get(&p->models[m].draft, tables->draft[m]);
        tables->read_us[m] = p->models[m].read.n ? p->models[m].read.us : 0;
    }
    curve_get(&p->step, tables->step);
    curve_get(&p->rest, tables->rest);
}

void planner_tables_set(struct planner *p, const struct planner_tables *tables)
{
    curve_set(&p->step, tables->step);
    curve_set(&p->rest, tables->rest);
    p->is_calibrated = false;
    for (int m = 0; m < PLANNER_MODELS; m++) {
        struct planner_model *model = &p->models[m];
        double us = tables->read_us[m];
        curve_set(&model->draft, tables->draft[m]);
        model->read = (struct planner_time){0};
        if (is_sane(us, 0, us_most) && us > 0) model->read = (struct planner_time){us, KEPT_TIMES};
        p->is_calibrated |= model->draft.largest > 0 && p->step.largest > 1;
    }
}

/* ---- reporting ---- */

_Static_assert((int)TIME_POINTS_MAX == (int)PLANNER_KNOTS, "a table has a point for each knot");

static void list_times(const struct planner_point *points, struct time_table *table)
{
    table->n = 0;
    for (int i = 0; i < PLANNER_KNOTS; i++) {
        if (points[i].n == 0) continue;
        table->points[table->n++] = (struct time_point){(float)points[i].rows, (float)points[i].us};
    }
}

int planner_first_model(const struct planner *p, const struct planner_sequence *seq)
{
    int first = 0;
    for (int m = 1; m < PLANNER_MODELS; m++) {
        const struct planner_counts *one = seq ? &seq->counts[m] : &p->models[m].counts;
        const struct planner_counts *most = seq ? &seq->counts[first] : &p->models[first].counts;
        if (one->tested[0] > most->tested[0]) first = m;
    }
    return first;
}

void planner_times(const struct planner *p, struct time_tables *times)
{
    struct planner_tables tables;
    planner_tables_get(p, &tables);
    list_times(tables.draft[planner_first_model(p, NULL)], &times->draft);
    list_times(tables.step, &times->step);
    list_times(tables.rest, &times->rest);
}

/* The fit of a curve may be a few rounds old, and a report wants the newest one. */
static float newest_us(const struct planner_curve *c, int rows, float *slope_us)
{
    struct planner_curve copy = *c;
    planner_curve_fit(&copy);
    if (slope_us) *slope_us = (float)copy.slope_us;
    return (float)planner_curve_at(&copy, rows);
}

/* A guess; where one pass makes all of them, one of a chain of typical length. */
static float guess_us(const struct planner_model *m)
{
    int n = m->is_parallel ? TYPICAL_K : 1;
    return newest_us(&m->draft, n + m->lane_rows, NULL) / (float)n;
}

struct estimates planner_estimates(const struct planner *p, const struct planner_sequence *seq)
{
    int first = planner_first_model(p, seq);
    const struct planner_model *m = &p->models[first];
    const struct planner_counts *counts = seq ? &seq->counts[first] : &m->counts;
    struct planner_prior prior;
    planner_prior_of(&m->counts, PLANNER_FIRST_ALPHA, &prior);
    struct planner_chain chain = planner_chain_begin(counts, &prior);
    float row_us = 0;
    struct estimates e = {
        .n_rounds = p->n_rounds < INT32_MAX ? (int)p->n_rounds : INT32_MAX,
        .draft_us = guess_us(m),
        .read_us = (float)m->read.us,
        .step_us = newest_us(&p->step, 1, &row_us),
        .rtt_us = newest_us(&p->rest, 1, NULL),
        .alpha = (float)planner_counts_mean(counts),
    };
    e.row_us = row_us;
    for (int i = 0; i < DRAFT_MAX; i++) {
        e.alpha_at[i] = seq ? planner_chain_next(&chain) : prior.alpha[i];
        if (counts->tested[i] > 0) e.n_positions = i + 1;
    }
    return e;
}
