/* Time of a round from the times that were learned. */
#include "speculation/planner/sum.h"

#include <math.h>

#include "base/least.h"
#include "speculation/planner/cost.h"

double planner_step_us(const struct planner *p, const struct planner_base *base, int n_guesses)
{
    return planner_curve_at(&p->step, base->rows + n_guesses) +
           planner_curve_at(&p->rest, base->wanted + n_guesses) - base->prompt_us;
}

/* Time of a round that drafts for draft_us. */
static double round_us(const struct planner *p, const struct planner_base *base, double draft_us,
                       int n_guesses)
{
    return draft_us + planner_step_us(p, base, n_guesses);
}

/* Adds the tokens that the passes of a model read for lanes of other strategies. */
static void add_other_passes(const struct planner *p, int model, const struct planner_load *load,
                             int passes[DRAFT_MAX])
{
    for (int i = 0; i < DRAFT_MAX; i++) {
        const struct planner_model *m = &p->models[model];
        int rows = i == 0 ? 1 + m->lane_rows : 1;
        passes[planner_pass_of(m, i)] += load->n_guessing[model][i] * rows;
    }
}

struct planner_base planner_base_of(const struct planner *p, int n_lanes,
                                    const struct planner_load *load)
{
    int rows = load->n_rows + n_lanes;
    struct planner_base base = {
        .rows = rows,
        .wanted = rows - load->n_prompt,
        .n_pairs = load->n_rows_max - rows,
        .near_pairs = planner_near(most(p->step.largest_own, rows)) - rows,
        .n_lanes = n_lanes + load->n_decoding + load->n_waiting,
        .n_waiting = load->n_waiting,
    };
    base.prompt_us = planner_curve_at(&p->step, rows) - planner_curve_at(&p->step, base.wanted);
    for (int m = 0; m < PLANNER_MODELS; m++) {
        const struct planner_curve *draft = &p->models[m].draft;
        int passes[DRAFT_MAX] = {0};
        add_other_passes(p, m, load, passes);
        base.near_fed[m] = planner_near(draft->largest) - passes[0];
        for (int i = 0; i < DRAFT_MAX && passes[i] > 0; i++) {
            base.draft_us += planner_curve_at(draft, passes[i]);
        }
    }
    base.features_us = load->n_features * p->feature.us;
    base.us = round_us(p, &base, base.draft_us, 0) + base.features_us;
    return base;
}

struct planner_sum planner_sum_begin(const struct planner *p, const struct planner_base *base,
                                     const struct planner_load *load)
{
    struct planner_sum sum = {
        .p = p,
        .base = base,
        .draft_us = base->draft_us,
        .features_us = base->features_us,
        .us = base->us,
    };
    for (int m = 0; m < PLANNER_MODELS; m++) {
        int passes[DRAFT_MAX] = {0};
        add_other_passes(p, m, load, passes);
        for (int i = 0; i < DRAFT_MAX; i++) {
            sum.passes[m][i] = passes[i];
        }
    }
    return sum;
}

/* Reading what was missed is paid by the tokens to come, as many as there are. */
double planner_missed_us(const struct planner *p, const struct planner_lane *lane)
{
    double left = lane->n_left < 1 ? 1 : least(lane->n_left, PLANNER_HORIZON);
    return planner_catch_up_us(p, lane->model, planner_lane_draft(lane)->n_missed) / left;
}

static void add_guess(struct planner_sum *sum, const struct planner_lane *lane,
                      const struct planner_pair *pair)
{
    sum->gain += (double)pair->gain;
    sum->n_guesses++;
    if (lane->has_features) sum->features_us += sum->p->feature.us;
    sum->us = round_us(sum->p, sum->base, sum->draft_us, sum->n_guesses) + sum->features_us;
}

/* Adds rows to a pass of a model; returns how much longer it takes. */
static double widen(struct planner_sum *sum, int model, int pass, double rows)
{
    const struct planner_model *m = &sum->p->models[model];
    double before_us = planner_pass_us(m, sum->passes[model][pass]);
    sum->passes[model][pass] += rows;
    return planner_pass_us(m, sum->passes[model][pass]) - before_us;
}

/* The passes of one guess more: its own, or a row of the first one, which makes it or may save its
 * own. */
static double add_pass(struct planner_sum *sum, const struct planner_lane *lane, int position)
{
    int model = lane->model;
    const struct planner_model *m = &sum->p->models[model];
    const struct planner_drafting *draft = planner_lane_draft(lane);
    double *passes = sum->passes[model];
    int rows = position == 0 ? most(least(draft->n_missed, planner_caught_up(m)), 1) : 1;
    if (position == 0) rows += m->lane_rows;
    double staged = (double)draft->staged[position];
    if (staged <= 0) return widen(sum, model, planner_pass_of(m, position), rows);
    double us = widen(sum, model, 0, 1) + widen(sum, model, position, 1 - staged);
    double own_us = planner_pass_us(m, passes[position] + staged) -
                    planner_pass_us(m, passes[position] - 1 + staged);
    if (us < own_us) return us;
    passes[0] -= 1;
    passes[position] += staged;
    return own_us;
}

void planner_sum_add(struct planner_sum *sum, const struct planner_lane *lane,
                     const struct planner_pair *pair)
{
    double survival = (double)pair->survival;
    const struct planner_model *m = &sum->p->models[lane->model];
    if (pair->rank == PLANNER_GROWN) {
        sum->draft_us += widen(sum, lane->model, planner_pass_of(m, pair->position), pair->rows);
    }
    if (lane->offer || pair->rank > 0) {
        add_guess(sum, lane, pair);
        return;
    }
    sum->draft_us += add_pass(sum, lane, pair->position);
    if (planner_lane_draft(lane)->n_missed > planner_caught_up(m)) {
        double tokens = survival + (pair->position == 0 ? 1 : 0);
        sum->draft_us += tokens * planner_missed_us(sum->p, lane);
    }
    add_guess(sum, lane, pair);
}
