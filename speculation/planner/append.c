/* Which found guesses are worth a row. The constants are choices and not measurements. */
#include "speculation/planner/append.h"

#include <math.h>

#include "speculation/planner/cost.h"

/* Logarithm of predicted tokens over time: what all of them together must promise. */
static const double least_value = 0.003;
/* Chance: a guess that is committed more seldom is never made. */
static const double least_survival = 0.01;

static const struct planner_offer appended = {.finder = PLANNER_APPENDED};

static struct planner_offer offer_of(int evidence)
{
    struct planner_offer offer = appended;
    offer.evidence = evidence;
    return offer;
}

void planner_observe_append(struct planner *p, struct planner_sequence *seq, int evidence, int n,
                            int n_accepted)
{
    const struct planner_offer offer = offer_of(evidence);
    planner_offer_observe(&p->reasons, &seq->trust[PLANNER_APPENDED], &offer, n, n_accepted);
}

/* A lane while guesses are added: its next one. */
struct appending {
    struct planner_chain chain;
    double survival, tokens; /* of the next guess; expected without it */
    double gain;             /* of the next guess; 0 = there is none */
    int n, n_known;
};

static void go_on(struct appending *a)
{
    a->gain = 0;
    if (a->n >= a->n_known || a->n >= PLANNER_APPEND_MAX) return;
    a->survival *= (double)planner_chain_next(&a->chain);
    if (a->survival >= least_survival) a->gain = log1p(a->survival / a->tokens);
}

/* After the guesses of the draft. */
static void begin(struct planner *p, const struct planner_append_lane *lane, struct appending *a)
{
    struct planner_chain draft =
        planner_chain_begin(&lane->seq->counts[lane->model], &p->models[lane->model].prior);
    const struct planner_offer offer = offer_of(lane->evidence);
    *a = (struct appending){.survival = 1, .tokens = 1, .n_known = lane->n_known};
    for (int i = 0; i < lane->k && i < DRAFT_MAX; i++) {
        a->survival *= (double)planner_chain_next(&draft);
        a->tokens += a->survival;
    }
    a->chain = planner_offer_chain(&p->reasons, &lane->seq->trust[PLANNER_APPENDED], &offer);
    go_on(a);
}

static int best_of(const struct appending *a, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++) {
        if (a[i].gain > a[best].gain) best = i;
    }
    return best;
}

static double round_us(const struct planner *p, const struct planner_append_load *load, int n)
{
    return load->draft_us + planner_curve_at(&p->step, load->n_rows + n) +
           planner_curve_at(&p->rest, load->n_wanted + n);
}

/* Adds guess after guess, the one that gains most first, and keeps as many as are worth most. */
void planner_append(struct planner *p, struct planner_append_lane *lanes, int n_lanes,
                    const struct planner_append_load *load)
{
    struct appending appending[PLANNER_LANES_MAX];
    int measured = p->step.largest_own > load->n_rows ? p->step.largest_own : load->n_rows;
    int n_most = p->step.largest > 0 ? planner_near(measured) - load->n_rows : 0;
    double plain_us = round_us(p, load, 0), gain = 0, best = least_value;
    for (int i = 0; i < n_lanes; i++) {
        begin(p, &lanes[i], &appending[i]);
        lanes[i].n = 0;
    }
    for (int n = 1; n <= n_most && n_lanes > 0; n++) {
        struct appending *next = &appending[best_of(appending, n_lanes)];
        if (next->gain <= 0) break;
        gain += next->gain;
        next->tokens += next->survival;
        next->n++;
        go_on(next);
        double value = gain - load->n_lanes * log(round_us(p, load, n) / plain_us);
        if (value <= best) continue;
        best = value;
        for (int i = 0; i < n_lanes; i++) {
            lanes[i].n = appending[i].n;
        }
    }
}
