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
    bool is_due = p->draft.is_new || p->step.is_new || p->rest.is_new ||
                  p->n_rounds - p->fitted_at >= FIT_ROUNDS;
    if (is_due) {
        planner_curve_fit(&p->draft);
        planner_curve_fit(&p->step);
        planner_curve_fit(&p->rest);
        p->fitted_at = p->n_rounds;
    }
    planner_prior_of(&p->counts, PLANNER_FIRST_ALPHA, &p->prior);
}

double planner_catch_up_us(const struct planner *p, int n_missed)
{
    double one = planner_curve_at(&p->draft, 1 + p->lane_rows);
    if (p->draft.largest == 0) one = first_draft_ratio * planner_curve_at(&p->step, 1);
    one = p->read.n ? p->read.us : one / READ_SPEED;
    int more = n_missed - planner_caught_up(p);
    return more > 0 ? more * one : 0;
}

double planner_pass_us(const struct planner *p, double rows)
{
    int whole = (int)rows;
    double us = planner_curve_at(&p->draft, whole), part = rows - whole;
    return part > 0 ? us + part * (planner_curve_at(&p->draft, whole + 1) - us) : us;
}

double planner_guesses_us(const struct planner *p, int n_lanes, int k)
{
    if (p->is_parallel) return planner_curve_at(&p->draft, n_lanes * (p->lane_rows + k));
    return k * planner_curve_at(&p->draft, n_lanes);
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
