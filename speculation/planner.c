/* The planner. Its constants are choices and not measurements;
 * tests/unit/speculation/test_planner.c compares the planner that they make with the best fixed K
 * and with plain decoding over simulated texts. */
#include "speculation/planner.h"

#include <math.h>
#include <string.h>

#include "base/limits.h"
#include "speculation/speedup.h"

/* Counts. Each comment begins with the unit. */
enum {
    /* Guesses in the first round of strategy heuristic, as in transformers. */
    HEURISTIC_FIRST = 5,
    /* Guesses in a round that is spent on learning. Two tell more than one of what a guess costs,
     * and lose little where guesses do not stay. */
    LEARN_K = 2,
    /* Timed rounds that a new pair of models needs without guesses, and as many with guesses. The
     * first round of a new pair is not timed, because it reads the prompt, so there are three
     * rounds with guesses in all. Of the first two times of a kind the shorter counts, so a single
     * slow round does no harm. */
    LEARN_ROUNDS = 2,
    /* Guesses of a probe where K = 0 is planned. */
    PROBE_K = 2,
    /* Rounds without a measurement after which a number of rows may be probed. */
    STALE_ROUNDS = 200,
    /* Tokens of a long text that the draft is assumed to read in the time of one guess until
     * reading was measured. */
    READ_SPEED = 8,
    /* Tokens of the shortest text whose reading tells the time per token. A shorter one takes about
     * as long as a single token. */
    READ_LEAST = 16,
    /* Tokens, at most, over which the time that the draft needs to catch up is spread. They are the
     * tokens still to come, but after this many the text may become a different one. */
    HORIZON_TOKENS = 256,
    /* Plain rounds whose time is the limit of unspent credit for probes, so that a long text does
     * not save for a long series of probes. */
    CREDIT_ROUNDS = 2,
    /* Measurements: a new one counts at least 1 / MEMORY_TIMES in a mean, so that the mean can
     * follow. */
    MEMORY_TIMES = 48,
    /* Measurements that a number of rows counts as at most in the line through all of them, so that
     * one that is used all the time does not outvote the others. */
    LINE_TIMES = 8
};

/* Share of the time of planned rounds that probes may cost. */
static const double probe_ratio = 0.01;
/* Ratio: a measurement counts as no more than this times the mean, because a single slow one says
 * nothing of the next. */
static const double clip = 1.5;
/* Weight of one measurement in the scale that all numbers of rows share: about 8 rounds follow a
 * change of load. */
static const double scale_weight = 0.125;
/* Ratio of predicted times per token: a K that takes up to this many times as long as the best one
 * may in truth be the better one, so it is measured again. */
static const double rival_ratio = 1.15;
/* Measurements times rows squared: the evidence for slope 0 before anything was measured.
 * Neighbouring numbers of rows say little of the slope, so more rows look cheap until they are
 * tried. */
static const double flatness = 64;
/* Measurements: when a number of rows was timed once, the line counts as much as two measurements
 * of it. */
static const double line_weight = 2;
/* Measurements: the weight of a number of rows that was never timed when neighbours are
 * averaged. */
static const double unmeasured_weight = 0.1;
/* Probability: before anything was tested, a guess is assumed to stay with this one. */
static const double first_alpha = 0.7;
/* Tests: how many tests first_alpha counts as. */
static const double first_weight = 3;
/* Tests: how many tests the acceptance of the position before counts as at each later position. */
static const double chain_weight = 4;
/* Tests: how many tests the estimate over all sequences counts as in that of one sequence. */
static const double prior_weight = 16;
/* Share that older tests keep with every new test of their position, over all sequences. */
static const double keep_test = 0.998;
/* Share that older tests keep with every committed token, in one sequence. */
static const double keep_token = 0.995;
/* Probability: chances are kept so far from 0 and 1 that their odds stay finite. */
static const double odds_margin = 0.005;
/* Share of the guesses' time that rounds are assumed to wait for at least. */
static const double visible_least = 0.01;

static double clamp(double x, double least, double most)
{
    return x < least ? least : x > most ? most : x;
}

/* ---- times ---- */

/* Outliers are too long and never too short, so of the first two times the shorter counts. */
static void time_add(struct planner_time *t, double us)
{
    if (t->n == 0 || (t->n == 1 && us < t->us)) {
        t->us = us;
    } else if (t->n > 1) {
        int n = t->n < MEMORY_TIMES ? t->n : MEMORY_TIMES;
        t->us += (clamp(us, 0, clip * t->us) - t->us) / n;
    }
    t->n++;
}

/* The line base + slope * rows through the shape; each number of rows counts as often as it was
 * used. */
struct line {
    double base, slope;
};

static struct line curve_line(const struct planner_curve *c)
{
    double w = 0, wx = 0, wy = 0, wxx = 0, wxy = 0;
    for (int rows = 1; rows <= PLANNER_ROWS_MAX; rows++) {
        double weight = clamp(c->shape[rows].n, 0, LINE_TIMES), y = c->shape[rows].us;
        w += weight;
        wx += weight * rows;
        wy += weight * y;
        wxx += weight * rows * rows;
        wxy += weight * rows * y;
    }
    if (w <= 0) return (struct line){0, 0};
    double spread = w * wxx - wx * wx;
    double slope = (w * wxy - wx * wy) / (spread + w * flatness);
    if (slope < 0) slope = 0; /* more rows are never cheaper */
    return (struct line){(wy - slope * wx) / w, slope};
}

/* The time of a number of rows that was used once is mostly the line's; later it is what was
 * measured. */
static double own_or_line(const struct planner_time *own, double on_line)
{
    if (own->n == 0) return on_line;
    double weight = line_weight / own->n;
    return (own->n * own->us + weight * on_line) / (own->n + weight);
}

/* us[rows] for all rows. More rows are never cheaper, so neighbours that say otherwise are
 * averaged, each weighted by how often it was used (pool adjacent violators; Ayer et al. 1955).
 * Without it the planner would choose whichever of many noisy numbers came out smallest by
 * chance. */
static void curve_fit(const struct planner_curve *c, double *us)
{
    const struct line line = curve_line(c);
    double value[PLANNER_ROWS_MAX], weight[PLANNER_ROWS_MAX];
    int length[PLANNER_ROWS_MAX], n = 0;
    for (int rows = 1; rows <= PLANNER_ROWS_MAX; rows++) {
        const struct planner_time *own = &c->shape[rows];
        value[n] = own_or_line(own, fmax(line.base + line.slope * rows, 0));
        weight[n] = own->n < MEMORY_TIMES ? own->n + unmeasured_weight : MEMORY_TIMES;
        length[n++] = 1;
        for (; n > 1 && value[n - 2] > value[n - 1]; n--) {
            double both = weight[n - 2] + weight[n - 1];
            value[n - 2] = (value[n - 2] * weight[n - 2] + value[n - 1] * weight[n - 1]) / both;
            weight[n - 2] = both;
            length[n - 2] += length[n - 1];
        }
    }
    for (int i = 0, rows = 1; i < n; i++) {
        for (int end = rows + length[i]; rows < end; rows++) {
            us[rows] = c->scale_us * value[i];
        }
    }
}

static void curve_add(struct planner_curve *c, int rows, double us)
{
    struct planner_time *own = &c->shape[rows];
    if (us < 1) us = 1;
    if (c->scale_us <= 0) c->scale_us = us;
    if (own->n == 0) { /* otherwise one outlier would rule this number of rows out for good */
        const struct line line = curve_line(c);
        double wanted = c->scale_us * (line.base + line.slope * rows);
        if (wanted > 0) us = fmin(us, clip * wanted);
    }
    if (own->n >= LEARN_ROUNDS) {
        double ratio = clamp(us / (c->scale_us * own->us), 1 / clip, clip);
        c->scale_us *= 1 + scale_weight * (ratio - 1);
    }
    time_add(own, us / c->scale_us);
}

/* us[k]: the time of a round with k guesses, without catching up. */
static void fit_rounds(const struct planner *p, double *us)
{
    double step[PLANNER_ROWS_MAX + 1], rest[PLANNER_ROWS_MAX + 1];
    double visible = p->visible > 0 ? p->visible : 1;
    curve_fit(&p->step, step);
    curve_fit(&p->rest, rest);
    for (int k = 0; k <= DRAFT_MAX; k++) {
        us[k] = k * p->draft.us * visible + step[k + 1] + rest[k + 1];
    }
}

/* The time to read what the draft has missed. Two tokens are left out because every round feeds
 * them anyway: the last guess, if it stayed, and the token after it. */
static double catch_up_us(const struct planner *p, int n_missed)
{
    double one = p->read.n ? p->read.us : p->draft.us / READ_SPEED;
    return n_missed > 2 ? (n_missed - 2) * one : 0;
}

/* ---- acceptance ---- */

static double odds(double p)
{
    p = clamp(p, odds_margin, 1 - odds_margin);
    return p / (1 - p);
}

/* Over all sequences; a position that was tested little is taken to be as the one before it. */
static void global_alpha(const struct planner *p, double *alpha)
{
    double before = first_alpha, weight = first_weight;
    for (int i = 0; i < DRAFT_MAX; i++) {
        const struct planner_counts *c = &p->counts;
        alpha[i] = (c->accepted[i] + weight * before) / (c->tested[i] + weight);
        before = alpha[i];
        weight = chain_weight;
    }
}

/* The chances of one sequence: its own tests, and prior_weight tests of the estimate over all
 * sequences. That estimate is first moved by as much as this sequence's own tests have moved the
 * position before, because a text that is easy at one position is easy at the next. */
static void sequence_alpha(const struct planner *p, const struct planner_sequence *seq,
                           double *alpha)
{
    double all[DRAFT_MAX], shift = 1;
    global_alpha(p, all);
    for (int i = 0; i < DRAFT_MAX; i++) {
        double moved = odds(all[i]) * shift;
        double prior = moved / (1 + moved);
        const struct planner_counts *c = &seq->counts;
        alpha[i] = (c->accepted[i] + prior_weight * prior) / (c->tested[i] + prior_weight);
        shift = odds(alpha[i]) / odds(all[i]);
    }
}

static void counts_keep(struct planner_counts *c, double keep)
{
    for (int i = 0; i < DRAFT_MAX; i++) {
        c->tested[i] *= keep;
        c->accepted[i] *= keep;
    }
}

static void counts_add(struct planner_counts *c, const struct planner_round *round, double keep)
{
    for (int i = 0; i < round->k && i <= round->n_accepted; i++) {
        c->tested[i] = c->tested[i] * keep + 1;
        c->accepted[i] = c->accepted[i] * keep + (i < round->n_accepted ? 1 : 0);
    }
}

/* ---- choosing ---- */

/* What each K is expected to give. */
struct outlook {
    double tokens[DRAFT_MAX + 1];
    double us[DRAFT_MAX + 1];        /* of a round, without catching up */
    double per_token[DRAFT_MAX + 1]; /* with it */
    double catch_up_us;
    int best;
};

/* The times of rows far beyond those that were measured are not known, so K grows by half at
 * most. */
static int most_k(const struct planner *p, int k_max)
{
    int tried = PLANNER_ROWS_MAX - 1;
    while (tried > 1 && !p->step.shape[tried + 1].n) {
        tried--;
    }
    int most = tried + tried / 2 + 1;
    return most < k_max ? most : k_max;
}

static void look_ahead(const struct planner *p, const struct planner_sequence *seq,
                       const struct planner_ask *ask, struct outlook *o)
{
    double alpha[DRAFT_MAX];
    double left = clamp(ask->n_left, 1, HORIZON_TOKENS);
    sequence_alpha(p, seq, alpha);
    o->catch_up_us = catch_up_us(p, ask->n_missed);
    fit_rounds(p, o->us);
    o->best = 0;
    for (int k = 0; k <= most_k(p, ask->k_max); k++) {
        o->tokens[k] = speedup_tokens_at(alpha, k);
        o->per_token[k] = o->us[k] / o->tokens[k] + (k ? o->catch_up_us / left : 0);
        if (o->per_token[k] < o->per_token[o->best]) o->best = k;
    }
}

/* A K of which too little is known, or -1. When the time of a guess is known, plain rounds come
 * first. */
static int learn(const struct planner *p, int k_max)
{
    int least = k_max < LEARN_K ? k_max : LEARN_K, n_guessed = 0;
    for (int rows = 2; rows <= PLANNER_ROWS_MAX; rows++) {
        n_guessed += p->step.shape[rows].n;
    }
    if (p->draft.n == 0) return least;
    if (p->step.shape[1].n < LEARN_ROUNDS) return 0;
    return n_guessed < LEARN_ROUNDS ? least : -1;
}

/* Of those K that may be better than they look, the one that was timed longest ago. They are those
 * that are close to the best one and, four times less often, plain decoding. */
static int stalest_k(const struct planner *p, int k_max, const struct outlook *o)
{
    uint64_t oldest = 0;
    int stalest = o->best;
    for (int k = 0; k <= k_max; k++) {
        uint64_t age = p->n_rounds - p->measured_at[k + 1];
        bool is_rival = o->per_token[k] <= rival_ratio * o->per_token[o->best];
        if (age > oldest && age >= (is_rival ? STALE_ROUNDS : 4 * STALE_ROUNDS) &&
            (is_rival || k == 0)) {
            oldest = age;
            stalest = k;
        }
    }
    return stalest;
}

/* A K that is tried to learn about it, and the time that this is expected to lose against the best
 * one. */
static int probe_k(const struct planner *p, int k_max, const struct outlook *o, double *price_us)
{
    if (o->best == 0) {
        int k = k_max < PROBE_K ? k_max : PROBE_K;
        *price_us = o->catch_up_us + o->us[k] - o->tokens[k] * o->us[0];
        return k;
    }
    int k = stalest_k(p, k_max, o);
    *price_us = o->us[k] - o->tokens[k] * o->per_token[o->best];
    return k;
}

static int choose_planned(struct planner *p, const struct planner_sequence *seq,
                          const struct planner_ask *ask)
{
    struct outlook o;
    double price_us = 0;
    int k = learn(p, ask->k_max);
    if (k >= 0) return k;
    look_ahead(p, seq, ask, &o);
    k = probe_k(p, most_k(p, ask->k_max), &o, &price_us);
    if (k == o.best) return k;
    if (price_us > p->credit_us) {
        p->wanted_us = price_us; /* the credit may grow to this */
        return o.best;
    }
    if (price_us > 0) p->credit_us -= price_us;
    p->wanted_us = 0;
    return k;
}

int planner_choose(struct planner *p, const struct planner_sequence *seq,
                   const struct planner_ask *ask)
{
    int k = seq->k_heuristic ? seq->k_heuristic : HEURISTIC_FIRST;
    if (ask->k_max <= 0) return 0;
    if (seq->strategy == STRATEGY_PLANNED) return choose_planned(p, seq, ask);
    if (seq->strategy == STRATEGY_HEURISTIC) return k < ask->k_max ? k : ask->k_max;
    return ask->k_max;
}

/* ---- learning ---- */

/* Guesses that were made while the round before was verified cost this round nothing. */
static void observe_visible(struct planner *p, const struct planner_round *round)
{
    double all_us = round->k * p->draft.us;
    if (all_us <= 0) return;
    double share = clamp(round->n_ahead ? (double)round->draft_us / all_us : 1, 0, 1);
    if (p->visible <= 0) p->visible = 1;
    p->visible = fmax(p->visible + (share - p->visible) / MEMORY_TIMES, visible_least);
}

/* Learns the time of a guess from rounds without catching up, and the time per token of reading
 * from rounds that read a long text before their guesses. Rounds in between teach nothing: a few
 * tokens more cost one larger step and not the time of one token each. */
static void observe_draft(struct planner *p, const struct planner_round *round)
{
    double us = (double)round->draft_us;
    if (round->k > 0 && round->n_missed <= 2) observe_visible(p, round);
    int n_drafted = round->k - round->n_ahead;
    if (n_drafted <= 0) return;
    if (round->n_missed <= 2) {
        time_add(&p->draft, us / n_drafted);
    } else if (round->n_missed >= READ_LEAST && p->draft.n) {
        time_add(&p->read, fmax(us - round->k * p->draft.us, 0) / round->n_missed);
    } else if (round->n_missed >= READ_LEAST) {
        p->first_read_us = us;
        p->n_first_read = round->n_missed;
        p->n_first_drafted = round->k;
    }
    if (p->n_first_read && p->draft.n) {
        double left_us = p->first_read_us - p->n_first_drafted * p->draft.us;
        time_add(&p->read, fmax(left_us, 0) / p->n_first_read);
        p->n_first_read = 0;
    }
}

/* Only planned rounds earn credit for probes, because only they make them: a share of the time of
 * all rounds would be more than probe_ratio of theirs. */
static void earn_credit(struct planner *p, int k)
{
    double us[DRAFT_MAX + 1];
    fit_rounds(p, us);
    double most = fmax(CREDIT_ROUNDS * us[0], p->wanted_us);
    p->credit_us = fmin(p->credit_us + probe_ratio * us[k], most);
}

static void observe_times(struct planner *p, const struct planner_round *round)
{
    int rows = round->k + 1;
    if (!round->is_timed) return;
    p->n_rounds++;
    p->measured_at[rows] = p->n_rounds;
    curve_add(&p->step, rows, (double)round->step_us);
    curve_add(&p->rest, rows, (double)(round->round_us - round->draft_us - round->step_us));
}

static void observe_heuristic(struct planner_sequence *seq, const struct planner_round *round)
{
    int k = seq->k_heuristic ? seq->k_heuristic : HEURISTIC_FIRST;
    if (round->k == 0) return;
    k = round->n_accepted == round->k ? k + 2 : k - 1;
    seq->k_heuristic = k < 1 ? 1 : k > DRAFT_MAX ? DRAFT_MAX : k;
}

void planner_observe(struct planner *p, struct planner_sequence *seq,
                     const struct planner_round *round)
{
    observe_draft(p, round);
    observe_times(p, round);
    if (round->is_timed && seq->strategy == STRATEGY_PLANNED) earn_credit(p, round->k);
    observe_heuristic(seq, round);
    counts_keep(&seq->counts, pow(keep_token, round->n_accepted + 1));
    counts_add(&seq->counts, round, 1);
    /* Under a threshold only guesses that the draft was sure of are tested, so they say nothing of
     * other sequences. */
    if (seq->strategy != STRATEGY_THRESHOLD) counts_add(&p->counts, round, keep_test);
}

/* ---- reporting ---- */

static float mean_alpha(const struct planner_counts *c)
{
    double tested = 0, accepted = 0;
    for (int i = 0; i < DRAFT_MAX; i++) {
        tested += c->tested[i];
        accepted += c->accepted[i];
    }
    return tested > 0 ? (float)clamp(accepted / tested, 0, 1) : 0;
}

struct estimates planner_estimates(const struct planner *p, const struct planner_sequence *seq)
{
    const struct line step = curve_line(&p->step);
    const struct planner_counts *counts = seq ? &seq->counts : &p->counts;
    double alpha[DRAFT_MAX], step_us[PLANNER_ROWS_MAX + 1], rest_us[PLANNER_ROWS_MAX + 1];
    curve_fit(&p->step, step_us);
    curve_fit(&p->rest, rest_us);
    struct estimates e = {
        .n_rounds = p->n_rounds < INT32_MAX ? (int)p->n_rounds : INT32_MAX,
        .draft_us = (float)p->draft.us,
        .read_us = (float)p->read.us,
        .step_us = (float)step_us[1],
        .row_us = (float)(p->step.scale_us * step.slope),
        .rtt_us = (float)rest_us[1],
        .alpha = mean_alpha(counts),
    };
    seq ? sequence_alpha(p, seq, alpha) : global_alpha(p, alpha);
    for (int i = 0; i < DRAFT_MAX; i++) {
        e.alpha_at[i] = (float)alpha[i];
        if (counts->tested[i] > 0) e.n_positions = i + 1;
    }
    return e;
}
