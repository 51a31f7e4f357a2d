/* Decides what the draft should read, and how long a step may become. */
#include <math.h>

#include "base/least.h"
#include "speculation/planner/cost.h"

enum {
    /* Rounds for which the answer whether reading pays is kept. */
    ANSWER_ROUNDS = 16,
    /* Tokens that the draft has missed for one that may still come, at most, where it reads for a
     * probe. */
    MISSED_MOST = 8
};

/* ---- reading ---- */

/* The time that a token of this sequence saves, at best, when it may guess: alone in its passes, or
 * in the company of lanes like it. */
static double gain_per_token(const struct planner *p, const struct planner_sequence *seq, int model,
                             int n_lanes)
{
    const struct planner_model *m = &p->models[model];
    struct planner_chain chain = planner_chain_begin(&seq->counts[model], &m->prior);
    int rows_most = planner_near(most(p->step.largest_own, n_lanes));
    double plain = planner_curve_at(&p->step, n_lanes) + planner_curve_at(&p->rest, n_lanes);
    double one = plain / n_lanes, survival = 1, tokens = 1, gain = 0;
    for (int k = 1; k <= DRAFT_MAX && n_lanes + k <= rows_most; k++) {
        survival *= (double)planner_chain_next(&chain);
        tokens += survival;
        int all = n_lanes * (k + 1);
        double alone = planner_curve_at(&p->step, n_lanes + k) +
                       planner_curve_at(&p->rest, n_lanes + k) + planner_guesses_us(m, 1, k);
        gain = fmax(gain, one - (alone - (n_lanes - 1) * one) / tokens);
        if (all > rows_most) continue;
        double together = planner_curve_at(&p->step, all) + planner_curve_at(&p->rest, all) +
                          planner_guesses_us(m, n_lanes, k);
        gain = fmax(gain, one - together / (n_lanes * tokens));
    }
    return gain;
}

/* The time that a model saves over the tokens to come, less that of reading what it has missed.
 * Where its times, or those of steps, are not known, it saves none. */
static double promise_of(const struct planner *p, const struct planner_sequence *seq,
                         const struct planner_missed *missed, int model)
{
    bool is_known = p->models[model].draft.largest > 0 && p->step.largest > 0;
    double gain_us = is_known ? gain_per_token(p, seq, model, most(missed->n_lanes, 1)) : 0;
    return gain_us * least(missed->n_left, PLANNER_HORIZON) -
           planner_catch_up_us(p, model, missed->n_missed[model]);
}

/* From what was saved for trials, or from the credit of other probes. */
static bool pay_trial(struct planner *p, double price_us)
{
    if (price_us <= p->trial_us) {
        p->trial_us -= price_us;
    } else if (price_us <= p->credit_us) {
        p->credit_us -= price_us;
    } else {
        p->trial_wanted_us = price_us;
        return false;
    }
    p->trial_wanted_us = 0;
    return true;
}

/* A model of which nothing is known, or that seems to be of no use or of less use than another one,
 * is read for when the credit pays it: otherwise nobody would notice that it has become useful. */
static bool answer_reading(struct planner *p, struct planner_sequence *seq,
                           const struct planner_missed *missed)
{
    int model = missed->model, n_missed = missed->n_missed[model];
    double promised_us = promise_of(p, seq, missed, model);
    double price_us = planner_catch_up_us(p, model, n_missed);
    bool is_useful = promised_us + price_us > 0, has_other = false;
    for (int m = 0; m < PLANNER_MODELS; m++) {
        if (m == model || !missed->may_guess[m]) continue;
        double other_us = promise_of(p, seq, missed, m);
        has_other = true;
        is_useful &= other_us < promised_us || (other_us == promised_us && model < m);
    }
    if (seq->is_on_trial[model]) return true; /* it was paid with the features */
    if (is_useful) return promised_us > 0;
    bool may_try = p->step.largest > 0 && missed->n_left > n_missed / MISSED_MOST;
    bool is_paid = may_try && (has_other ? pay_trial(p, price_us) : planner_pay(p, price_us));
    seq->is_on_trial[model] = is_paid && has_other; /* a lone model is probed as before */
    return is_paid;
}

bool planner_wants_reading(struct planner *p, struct planner_sequence *seq,
                           const struct planner_missed *missed)
{
    int m = missed->model;
    bool *wants = &seq->wants_reading[m];
    uint64_t *asked_at = &seq->asked_at[m];
    bool is_kept = *asked_at > 0 && (*wants || p->n_rounds + 1 - *asked_at < ANSWER_ROUNDS);
    if (missed->n_missed[m] <= planner_caught_up(&p->models[m])) {
        *wants = false;
        *asked_at = 0;
        return true;
    }
    if (is_kept) return *wants;
    planner_refresh(p);
    *asked_at = p->n_rounds + 1;
    *wants = answer_reading(p, seq, missed);
    return *wants;
}

/* ---- features ---- */

/* Ratio of predicted times per token that guesses must promise to be made, as in share.c. */
static const double worth_ratio = 1.02;

/* The time that the model's guesses are expected to save with each token, beyond those of others,
 * the cost of its features and what is too little to be made. */
static double features_worth_us(const struct planner *p, const struct planner_sequence *seq,
                                const struct planner_missed *missed)
{
    int n_lanes = most(missed->n_lanes, 1);
    double plain_us = planner_curve_at(&p->step, n_lanes) + planner_curve_at(&p->rest, n_lanes);
    double others_us = plain_us / n_lanes * (1 - 1 / worth_ratio);
    for (int m = 0; m < PLANNER_MODELS; m++) {
        bool may_guess =
            m != missed->model && missed->may_guess[m] && promise_of(p, seq, missed, m) > 0;
        if (may_guess) others_us = fmax(others_us, gain_per_token(p, seq, m, n_lanes));
    }
    return gain_per_token(p, seq, missed->model, n_lanes) - others_us - p->feature.us;
}

bool planner_wants_features(struct planner *p, struct planner_sequence *seq,
                            const struct planner_missed *missed)
{
    int m = missed->model;
    bool is_kept =
        seq->features_asked_at > 0 && p->n_rounds + 1 - seq->features_asked_at < ANSWER_ROUNDS;
    bool is_known = p->models[m].draft.largest > 0 && p->step.largest > 0 && p->rest.largest > 0 &&
                    p->feature.n > 0;
    if (is_kept || !is_known || seq->is_on_trial[m]) return true;
    planner_refresh(p);
    seq->features_asked_at = p->n_rounds + 1;
    if (features_worth_us(p, seq, missed) > 0) return true;
    int n_left = missed->n_missed[m] + least(missed->n_left, PLANNER_HORIZON);
    double price_us = n_left * p->feature.us + planner_catch_up_us(p, m, missed->n_missed[m]);
    seq->is_on_trial[m] = pay_trial(p, price_us);
    return seq->is_on_trial[m];
}

/* ---- how long a step, and the reading before it, may become ---- */

/* The step of so many rows as part of a round whose other times are rest_us. */
static double careful_us(const struct planner *p, int rows, double rest_us)
{
    double measured = planner_curve_at(&p->step, least(rows, p->step.largest));
    if (rows > p->step.largest) measured *= (double)rows / p->step.largest;
    return measured + rest_us;
}

/* Rows, low .. high, of a step within the limit, in a round whose other times are rest_us. */
static int rows_within(const struct planner *p, int n_rows, double factor, double rest_us, int low,
                       int high)
{
    double limit = factor * careful_us(p, n_rows, rest_us);
    while (low < high) {
        int middle = low + (high - low + 1) / 2;
        if (careful_us(p, middle, rest_us) <= limit) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return least(low, high);
}

int planner_rows_within(struct planner *p, int n_rows, double factor, int at_least, int at_most)
{
    planner_refresh(p);
    if (p->step.largest == 0) return least(at_least, at_most);
    return rows_within(p, n_rows, factor, planner_curve_at(&p->rest, n_rows), at_least, at_most);
}

int planner_rows_alone(struct planner *p, double factor, int at_least, int at_most)
{
    planner_refresh(p);
    if (p->step.largest == 0) return least(at_least, at_most);
    return rows_within(p, 1, factor, 0, at_least, at_most);
}

int planner_reading_within(struct planner *p, int model, int n_rows, double share, int at_least,
                           int at_most)
{
    const struct planner_time *read = &p->models[model].read;
    planner_refresh(p);
    if (read->n == 0 || p->step.largest == 0) return at_least;
    double n = share * careful_us(p, n_rows, 0) / read->us;
    return (int)fmin(fmax(n, at_least), at_most);
}
