/* Times that several choices of the planner need. */
#include "speculation/planner/cost.h"

enum {
    /* Tokens of a long text that the draft is assumed to read in the time of one pass until
     * reading was measured. */
    READ_SPEED = 8,
    /* Rows for one of a prompt: with fewer the step is not one of decoding. */
    PROMPT_SHARE = 8,
    /* Rounds between fits of the times, where none is urgent. */
    FIT_ROUNDS = 4
};

/* Ratio: a pass of the draft over a plain step, until a pass was measured. */
static const double first_draft_ratio = 0.25;

void planner_refresh(struct planner *p)
{
    bool is_due = p->step.is_new || p->rest.is_new || p->n_rounds - p->fitted_at >= FIT_ROUNDS;
    for (int m = 0; m < PLANNER_MODELS; m++) {
        is_due = is_due || p->models[m].draft.is_new;
    }
    for (int m = 0; m < PLANNER_MODELS; m++) {
        struct planner_model *model = &p->models[m];
        if (is_due) planner_curve_fit(&model->draft);
        planner_prior_of(&model->counts, PLANNER_FIRST_ALPHA, &model->prior);
    }
    if (is_due) {
        planner_curve_fit(&p->step);
        planner_curve_fit(&p->rest);
        p->fitted_at = p->n_rounds;
    }
}

double planner_catch_up_us(const struct planner *p, int model, int n_missed)
{
    const struct planner_model *m = &p->models[model];
    double one = planner_curve_at(&m->draft, 1 + m->lane_rows);
    if (m->draft.largest == 0) one = first_draft_ratio * planner_curve_at(&p->step, 1);
    one = m->read.n ? m->read.us : one / READ_SPEED;
    int more = n_missed - planner_caught_up(m);
    return more > 0 ? more * one : 0;
}

double planner_pass_us(const struct planner_model *model, double rows)
{
    int whole = (int)rows;
    double us = planner_curve_at(&model->draft, whole), part = rows - whole;
    return part > 0 ? us + part * (planner_curve_at(&model->draft, whole + 1) - us) : us;
}

double planner_guesses_us(const struct planner_model *model, int n_lanes, int k)
{
    if (model->is_parallel)
        return planner_curve_at(&model->draft, n_lanes * (model->lane_rows + k));
    return k * planner_curve_at(&model->draft, n_lanes);
}

int planner_near(int measured)
{
    return measured * 3 / 2 + 1;
}

bool planner_is_decoding(int n_rows, int n_prompt)
{
    return n_prompt <= n_rows / PROMPT_SHARE;
}

bool planner_pay(struct planner *p, double price_us)
{
    if (price_us > p->credit_us) {
        p->wanted_us = price_us; /* the credit may grow to this */
        return false;
    }
    if (price_us > 0) p->credit_us -= price_us;
    p->wanted_us = 0;
    return true;
}
