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
static double gain_per_token(const struct planner *p, const struct planner_sequence *seq,
                             int n_lanes)
{
    struct planner_chain chain = planner_chain_begin(&seq->counts, &p->prior);
    int rows_most = planner_near(most(p->step.largest_own, n_lanes));
    double plain = planner_curve_at(&p->step, n_lanes) + planner_curve_at(&p->rest, n_lanes);
    double one = plain / n_lanes, survival = 1, tokens = 1, gain = 0;
    for (int k = 1; k <= DRAFT_MAX && n_lanes + k <= rows_most; k++) {
        survival *= (double)planner_chain_next(&chain);
        tokens += survival;
        int all = n_lanes * (k + 1);
        double alone = planner_curve_at(&p->step, n_lanes + k) +
                       planner_curve_at(&p->rest, n_lanes + k) + planner_guesses_us(p, 1, k);
        gain = fmax(gain, one - (alone - (n_lanes - 1) * one) / tokens);
        if (all > rows_most) continue;
        double together = planner_curve_at(&p->step, all) + planner_curve_at(&p->rest, all) +
                          planner_guesses_us(p, n_lanes, k);
        gain = fmax(gain, one - together / (n_lanes * tokens));
    }
    return gain;
}

/* A draft of which nothing is known, or that seems to be of no use, is read for when the credit
 * pays it: otherwise nobody would notice that it has become useful. */
static bool answer_reading(struct planner *p, const struct planner_sequence *seq, int n_missed,
                           int n_left, int n_lanes)
{
    bool is_known = p->draft.largest > 0 && p->step.largest > 0;
    double price_us = planner_catch_up_us(p, n_missed);
    double gain_us = is_known ? gain_per_token(p, seq, most(n_lanes, 1)) : 0;
    if (gain_us > 0) return gain_us * least(n_left, PLANNER_HORIZON) > price_us;
    return p->step.largest > 0 && n_left > n_missed / MISSED_MOST && planner_pay(p, price_us);
}

bool planner_wants_reading(struct planner *p, struct planner_sequence *seq, int n_missed,
                           int n_left, int n_lanes)
{
    bool is_kept = seq->asked_at > 0 &&
                   (seq->wants_reading || p->n_rounds + 1 - seq->asked_at < ANSWER_ROUNDS);
    if (n_missed <= planner_caught_up(p)) {
        seq->wants_reading = false;
        seq->asked_at = 0;
        return true;
    }
    if (is_kept) return seq->wants_reading;
    planner_refresh(p);
    seq->asked_at = p->n_rounds + 1;
    seq->wants_reading = answer_reading(p, seq, n_missed, n_left, n_lanes);
    return seq->wants_reading;
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

int planner_reading_within(struct planner *p, int n_rows, double share, int at_least, int at_most)
{
    planner_refresh(p);
    if (p->read.n == 0 || p->step.largest == 0) return at_least;
    double n = share * careful_us(p, n_rows, 0) / p->read.us;
    return (int)fmin(fmax(n, at_least), at_most);
}
