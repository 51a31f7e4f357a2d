/* Choosing: how many guesses each lane makes. Learning is in speculation/planner_learn.c. The
 * constants are choices and not measurements; tests/unit/speculation/test_planner.c and
 * test_planner_load.c compare the planner that they make with the best fixed K and with plain
 * decoding over simulated texts. */
#include "speculation/planner.h"

#include <math.h>

/* Counts. Each comment begins with the unit. */
enum {
    /* Guesses of a lane in a round that is spent on learning. Two tell more than one of what a
     * guess costs, and lose little where guesses do not stay. */
    LEARN_K = 2,
    /* Lanes that guess in such a round. */
    LEARN_LANES = 4,
    /* Timed rounds that a new pair of models needs without guesses, and as many with guesses. The
     * round that reads a prompt is not among them. Of the first two times of a kind the shorter
     * counts, so a single slow round does no harm. */
    LEARN_ROUNDS = 2,
    /* Guesses of a probe where none are planned. */
    PROBE_K = 2,
    /* Rounds without a measurement after which a number of rows may be probed. */
    STALE_ROUNDS = 200,
    /* Tokens of a long text that the draft is assumed to read in the time of one pass until
     * reading was measured. */
    READ_SPEED = 8,
    /* Tokens that every pass reads anyway: the last guess, if it stayed, and the token after it. */
    CAUGHT_UP = 2,
    /* Tokens, at most, over which the time that the draft needs to catch up is spread. They are the
     * tokens still to come, but after this many the text may become a different one. */
    HORIZON_TOKENS = 256,
    /* Rounds for which the answer whether reading pays is kept. */
    ANSWER_ROUNDS = 16,
    /* Rounds between fits of the times, where none is urgent. */
    FIT_ROUNDS = 4
};

/* Ratio of predicted times per token: a number of guesses that takes up to this many times as long
 * as the best one may in truth be the better one, so it is measured again. */
static const double rival_ratio = 1.15;
/* Chance: a guess that is committed more seldom is never made. */
static const double least_survival = 0.01;
/* Tests: a lane with this many recent ones is probed only if it is twice as cheap as one without.
 * What is known already is worth less. */
static const double probe_evidence = 4;
/* Ratio: a pass of the draft over a plain step, until a pass was measured. */
static const double first_draft_ratio = 0.25;
/* Depths that are tried where several lanes guess. One lane that is surer than all others would
 * otherwise have all its guesses, at one pass each, before the others have their first. */
static const int depths[] = {DRAFT_MAX, 1, 2, 3, 4, 6, 8, 11};
enum { N_DEPTHS = sizeof depths / sizeof *depths };

static int least(int a, int b)
{
    return a < b ? a : b;
}

static int most(int a, int b)
{
    return a > b ? a : b;
}

/* ---- what a round costs ---- */

static void refresh(struct planner *p)
{
    bool is_due = p->draft.is_new || p->step.is_new || p->rest.is_new ||
                  p->n_rounds - p->fitted_at >= FIT_ROUNDS;
    if (is_due) {
        planner_curve_fit(&p->draft);
        planner_curve_fit(&p->step);
        planner_curve_fit(&p->rest);
        p->fitted_at = p->n_rounds;
    }
    planner_prior_of(&p->counts, &p->prior);
}

/* The time to read what the draft has missed, in addition to what every pass reads anyway. */
static double catch_up_us(const struct planner *p, int n_missed)
{
    double one = planner_curve_at(&p->draft, 1);
    if (p->draft.largest == 0) one = first_draft_ratio * planner_curve_at(&p->step, 1);
    one = p->read.n ? p->read.us : one / READ_SPEED;
    return n_missed > CAUGHT_UP ? (n_missed - CAUGHT_UP) * one : 0;
}

/* A round without the guesses of planned lanes, and what limits them. */
struct base {
    int rows, wanted;     /* fed; those that somebody wants, which the prompts' are not */
    int n_pairs, n_lanes; /* that may guess, at most */
    double tokens, us;    /* expected; us without what prompts add to the step */
    double draft_us;      /* of us: passes of other lanes */
    double prompt_us;
    double visible;
};

/* Times far beyond what was measured are not known, so rows grow by half at most. */
static int grown(int measured, int now)
{
    return most(measured, now) * 3 / 2 + 1;
}

static double step_us(const struct planner *p, const struct base *base, int n_guesses)
{
    return planner_curve_at(&p->step, base->rows + n_guesses) +
           planner_curve_at(&p->rest, base->wanted + n_guesses) - base->prompt_us;
}

/* The lanes that choose their K themselves commit what all sequences would. */
static void add_others(const struct planner *p, const struct planner_load *load, struct base *base)
{
    double survival = 1;
    for (int i = 0; i < DRAFT_MAX && load->n_guessing[i] > 0; i++) {
        survival *= p->prior.alpha[i];
        base->tokens += load->n_guessing[i] * survival;
        base->draft_us += base->visible * planner_curve_at(&p->draft, load->n_guessing[i]);
    }
}

static struct base base_of(const struct planner *p, int n_lanes, const struct planner_load *load)
{
    int rows = load->n_rows + n_lanes;
    struct base base = {
        .rows = rows,
        .wanted = rows - load->n_prompt,
        .n_pairs = least(load->n_rows_max, grown(p->step.largest_own, rows)) - rows,
        .n_lanes = grown(p->draft.largest, 0) - load->n_guessing[0],
        .tokens = n_lanes + load->n_decoding,
        .visible = load->is_alone && p->visible > 0 ? p->visible : 1,
    };
    base.prompt_us = planner_curve_at(&p->step, rows) - planner_curve_at(&p->step, base.wanted);
    add_others(p, load, &base);
    base.us = base.draft_us + step_us(p, &base, 0);
    return base;
}

/* ---- the order of the pairs ---- */

/* Guess `position` of a lane, and the chance that it is committed. */
struct pair {
    float survival;
    short lane, position;
};

/* All pairs in descending survival: a heap holds the next one of each lane. */
struct order {
    struct pair pairs[PLANNER_LANES_MAX * DRAFT_MAX];
    int n_pairs;
    struct pair heap[PLANNER_LANES_MAX];
    int n_heap;
    struct planner_chain chains[PLANNER_LANES_MAX];
};

/* Puts a pair where the root is missing. */
static void heap_settle(struct order *order, int at, struct pair pair)
{
    for (int child = 2 * at + 1; child < order->n_heap; child = 2 * at + 1) {
        if (child + 1 < order->n_heap &&
            order->heap[child + 1].survival > order->heap[child].survival) {
            child++;
        }
        if (order->heap[child].survival <= pair.survival) break;
        order->heap[at] = order->heap[child];
        at = child;
    }
    order->heap[at] = pair;
}

static void begin_order(const struct planner *p, const struct planner_lane *lanes, int n_lanes,
                        struct order *order)
{
    order->n_heap = order->n_pairs = 0;
    for (int i = 0; i < least(n_lanes, PLANNER_LANES_MAX); i++) {
        if (lanes[i].k_max <= 0) continue;
        order->chains[i] = planner_chain_begin(&lanes[i].seq->counts);
        double survival = planner_chain_next(&order->chains[i], &p->prior);
        order->heap[order->n_heap++] = (struct pair){(float)survival, (short)i, 0};
    }
    for (int i = order->n_heap / 2 - 1; i >= 0; i--) {
        heap_settle(order, i, order->heap[i]);
    }
}

/* The root becomes its lane's next guess, or leaves. */
static void advance(const struct planner *p, const struct planner_lane *lanes, struct order *order)
{
    struct pair pair = order->heap[0];
    pair.position++;
    if (pair.position < least(lanes[pair.lane].k_max, DRAFT_MAX)) {
        pair.survival *= (float)planner_chain_next(&order->chains[pair.lane], &p->prior);
        heap_settle(order, 0, pair);
    } else {
        pair = order->heap[--order->n_heap];
        if (order->n_heap) heap_settle(order, 0, pair);
    }
}

/* At most n_first lanes have a first guess. */
static void sort_pairs(const struct planner *p, const struct planner_lane *lanes, int n_lanes,
                       int n_first, struct order *order)
{
    begin_order(p, lanes, n_lanes, order);
    while (order->n_heap && (double)order->heap[0].survival >= least_survival) {
        if (order->heap[0].position == 0 && n_first-- <= 0) {
            struct pair last = order->heap[--order->n_heap];
            if (order->n_heap) heap_settle(order, 0, last);
            continue;
        }
        order->pairs[order->n_pairs++] = order->heap[0];
        advance(p, lanes, order);
    }
}

/* ---- the best number of guesses ---- */

/* Adds up a round while guesses are handed out. */
struct sum {
    const struct planner *p;
    const struct base *base;
    double tokens, draft_us, us;
    int n_guesses;
    int passes[DRAFT_MAX]; /* tokens that each pass of the draft reads */
};

static struct sum sum_begin(const struct planner *p, const struct base *base,
                            const struct planner_load *load)
{
    struct sum sum = {
        .p = p,
        .base = base,
        .tokens = base->tokens,
        .draft_us = base->draft_us,
        .us = base->us,
    };
    for (int i = 0; i < DRAFT_MAX; i++) {
        sum.passes[i] = load->n_guessing[i];
    }
    return sum;
}

/* Reading what was missed is paid by the tokens to come, as many as there are. */
static double missed_us(const struct planner *p, const struct planner_lane *lane)
{
    double left = lane->n_left < 1 ? 1 : least(lane->n_left, HORIZON_TOKENS);
    return catch_up_us(p, lane->n_missed) / left;
}

static void sum_add(struct sum *sum, const struct planner_lane *lane, const struct pair *pair)
{
    const struct planner_curve *draft = &sum->p->draft;
    int *pass = &sum->passes[pair->position], before = *pass;
    double survival = (double)pair->survival;
    *pass += pair->position == 0 && lane->n_missed >= CAUGHT_UP ? CAUGHT_UP : 1;
    sum->draft_us +=
        sum->base->visible * (planner_curve_at(draft, *pass) - planner_curve_at(draft, before));
    if (lane->n_missed > CAUGHT_UP) {
        double tokens = survival + (pair->position == 0 ? 1 : 0);
        sum->draft_us += tokens * missed_us(sum->p, lane);
    }
    sum->tokens += survival;
    sum->n_guesses++;
    sum->us = sum->draft_us + step_us(sum->p, sum->base, sum->n_guesses);
}

/* The first n pairs of `order` that are less deep than depth. */
struct choice {
    int depth, n;
    double tokens, us;
};

static bool is_better(double tokens, double us, const struct choice *than)
{
    return tokens * than->us > than->tokens * us;
}

/* Takes pair after pair. It ends where the pairs that are left, each of them with the chance of
 * this one, could not make up for the time any more. */
static void try_depth(struct sum sum, const struct planner_lane *lanes, const struct order *order,
                      int depth, struct choice *best)
{
    for (int i = 0; i < order->n_pairs && sum.n_guesses < sum.base->n_pairs; i++) {
        const struct pair *pair = &order->pairs[i];
        if (pair->position >= depth) continue;
        sum_add(&sum, &lanes[pair->lane], pair);
        if (is_better(sum.tokens, sum.us, best)) {
            *best = (struct choice){depth, sum.n_guesses, sum.tokens, sum.us};
            continue;
        }
        int left = least(order->n_pairs - i, sum.base->n_pairs - sum.n_guesses);
        if (!is_better(sum.tokens + left * (double)pair->survival, sum.us, best)) break;
    }
}

static struct choice choose_best(const struct sum *plain, const struct planner_lane *lanes,
                                 const struct order *order)
{
    struct choice best = {DRAFT_MAX, 0, plain->tokens, plain->us};
    int deepest = 0, n_depths = 1;
    for (int i = 0; i < order->n_pairs; i++) {
        deepest = most(deepest, order->pairs[i].position + 1);
        if (order->pairs[i].lane != order->pairs[0].lane) n_depths = N_DEPTHS;
    }
    for (int i = 0; i < n_depths; i++) {
        if (i == 0 || depths[i] < deepest) try_depth(*plain, lanes, order, depths[i], &best);
    }
    return best;
}

/* ---- probes ---- */

/* Of those numbers of guesses that may be better than they look, the one whose rows were timed
 * longest ago. They are those that are close to the best one and, four times less often, plain
 * decoding. */
static struct choice stalest(struct sum sum, const struct planner_lane *lanes,
                             const struct order *order, const struct choice *best)
{
    struct choice found = *best;
    uint64_t oldest = 0;
    for (int i = -1; i < order->n_pairs && sum.n_guesses < sum.base->n_pairs; i++) {
        if (i >= 0) {
            if (order->pairs[i].position >= best->depth) continue;
            sum_add(&sum, &lanes[order->pairs[i].lane], &order->pairs[i]);
        }
        int knot = planner_knot_of(sum.base->rows + sum.n_guesses);
        uint64_t age = sum.p->n_rounds - sum.p->step.knots[knot].at;
        bool is_rival = sum.us * best->tokens <= rival_ratio * best->us * sum.tokens;
        if (age > oldest && age >= (is_rival ? STALE_ROUNDS : 4 * STALE_ROUNDS) &&
            (is_rival || i < 0)) {
            oldest = age;
            found = (struct choice){best->depth, sum.n_guesses, sum.tokens, sum.us};
        }
    }
    return found;
}

/* Whether the credit pays for a probe. */
static bool pay(struct planner *p, double price_us)
{
    if (price_us > p->credit_us) {
        p->wanted_us = price_us; /* the credit may grow to this */
        return false;
    }
    if (price_us > 0) p->credit_us -= price_us;
    p->wanted_us = 0;
    return true;
}

static void probe_around(struct planner *p, const struct sum *plain,
                         const struct planner_lane *lanes, const struct order *order,
                         struct choice *best)
{
    struct choice other = stalest(*plain, lanes, order, best);
    if (other.n == best->n) return;
    double price_us = other.us - other.tokens * best->us / best->tokens;
    if (pay(p, price_us)) *best = other;
}

/* The lane in which two guesses tell the most for their price. */
static int probe_lane(const struct planner *p, const struct sum *plain,
                      const struct planner_lane *lanes, int n_lanes)
{
    double pass_us = planner_curve_at(&p->draft, 1), best = 0;
    double us = step_us(p, plain->base, PROBE_K) - step_us(p, plain->base, 0) + PROBE_K * pass_us;
    int found = -1;
    for (int i = 0; i < n_lanes; i++) {
        if (lanes[i].k_max <= 0) continue;
        double evidence = probe_evidence + lanes[i].seq->counts.tested[0];
        double dearness = (us + catch_up_us(p, lanes[i].n_missed)) * evidence;
        if (found >= 0 && dearness >= best) continue;
        best = dearness;
        found = i;
    }
    return found;
}

/* Where no guesses are planned, one lane makes a few. Its reading is a price of this round
 * alone. */
static void probe_one(struct planner *p, struct sum sum, struct planner_lane *lanes, int n_lanes)
{
    int at = probe_lane(p, &sum, lanes, n_lanes);
    if (at < 0) return;
    struct planner_lane caught_up = lanes[at];
    struct planner_chain chain = planner_chain_begin(&lanes[at].seq->counts);
    int k = least(least(lanes[at].k_max, PROBE_K), sum.base->n_pairs);
    double plain = sum.us / sum.tokens, survival = 1;
    caught_up.n_missed = least(lanes[at].n_missed, CAUGHT_UP);
    for (int i = 0; i < k; i++) {
        survival *= planner_chain_next(&chain, &p->prior);
        const struct pair pair = {(float)survival, (short)at, (short)i};
        sum_add(&sum, &caught_up, &pair);
    }
    double price_us = sum.us - sum.tokens * plain + catch_up_us(p, lanes[at].n_missed);
    if (k > 0 && pay(p, price_us)) {
        lanes[at].k = k;
        p->planned_us = sum.us;
    }
}

/* ---- handing out ---- */

/* Whether times of which too little is known are measured in this round; *k is then what a lane
 * may guess. When the time of a pass is known, plain rounds come first. */
static bool learns(const struct planner *p, int *k)
{
    *k = LEARN_K;
    if (p->is_calibrated) return false;
    if (p->draft.largest == 0) return true;
    if (p->n_plain < LEARN_ROUNDS) *k = 0;
    return p->n_plain < LEARN_ROUNDS || p->n_guessed < LEARN_ROUNDS;
}

/* Only lanes whose draft has little to read teach what a guess costs. */
static int hand_out_learning(struct planner_lane *lanes, int n_lanes, int k, int n_pairs)
{
    int n = 0;
    for (int i = 0; i < n_lanes && n < LEARN_LANES && n_pairs > 0; i++) {
        if (lanes[i].n_missed > least(PLANNER_LEARN_MISSED, lanes[i].n_left)) continue;
        lanes[i].k = most(least(least(k, lanes[i].k_max), n_pairs), 0);
        n_pairs -= lanes[i].k;
        n += lanes[i].k > 0 ? 1 : 0;
    }
    return n;
}

static void hand_out(const struct order *order, const struct choice *choice,
                     struct planner_lane *lanes)
{
    for (int i = 0, n = 0; n < choice->n; i++) {
        const struct pair *pair = &order->pairs[i];
        if (pair->position >= choice->depth) continue;
        lanes[pair->lane].k = pair->position + 1;
        n++;
    }
}

static void share_planned(struct planner *p, const struct base *base, struct planner_lane *lanes,
                          int n_lanes, const struct planner_load *load)
{
    struct order order;
    const struct sum plain = sum_begin(p, base, load);
    sort_pairs(p, lanes, n_lanes, base->n_lanes, &order);
    struct choice best = choose_best(&plain, lanes, &order);
    if (best.n > 0) {
        probe_around(p, &plain, lanes, &order, &best);
        hand_out(&order, &best, lanes);
        p->planned_us = best.us;
    } else {
        probe_one(p, plain, lanes, n_lanes);
    }
}

void planner_share(struct planner *p, struct planner_lane *lanes, int n_lanes,
                   const struct planner_load *load)
{
    int k = 0, n_may = 0;
    refresh(p);
    for (int i = 0; i < n_lanes; i++) {
        lanes[i].k = 0;
        n_may += lanes[i].k_max > 0 ? 1 : 0;
    }
    const struct base base = base_of(p, n_lanes, load);
    p->planned_us = n_lanes > 0 ? base.us : 0;
    p->plain_us = base.us;
    if (n_may == 0 || base.n_pairs <= 0) return;
    if (learns(p, &k) && (k == 0 || hand_out_learning(lanes, n_lanes, k, base.n_pairs) > 0)) return;
    if (p->draft.largest > 0 && p->step.largest > 0) share_planned(p, &base, lanes, n_lanes, load);
}

/* ---- reading ---- */

/* The time that a token of this sequence saves, at best, when it may guess: alone in its passes, or
 * in the company of lanes like it. */
static double gain_per_token(const struct planner *p, const struct planner_sequence *seq,
                             int n_lanes)
{
    struct planner_chain chain = planner_chain_begin(&seq->counts);
    int rows_most = grown(p->step.largest_own, n_lanes);
    double plain = planner_curve_at(&p->step, n_lanes) + planner_curve_at(&p->rest, n_lanes);
    double one = plain / n_lanes, survival = 1, tokens = 1, gain = 0;
    double visible = n_lanes == 1 && p->visible > 0 ? p->visible : 1;
    for (int k = 1; k <= DRAFT_MAX && n_lanes + k <= rows_most; k++) {
        survival *= planner_chain_next(&chain, &p->prior);
        tokens += survival;
        int all = n_lanes * (k + 1);
        double alone = planner_curve_at(&p->step, n_lanes + k) +
                       planner_curve_at(&p->rest, n_lanes + k) +
                       k * visible * planner_curve_at(&p->draft, 1);
        gain = fmax(gain, one - (alone - (n_lanes - 1) * one) / tokens);
        if (all > rows_most) continue;
        double together = planner_curve_at(&p->step, all) + planner_curve_at(&p->rest, all) +
                          k * visible * planner_curve_at(&p->draft, n_lanes);
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
    double price_us = catch_up_us(p, n_missed);
    double gain_us = is_known ? gain_per_token(p, seq, most(n_lanes, 1)) : 0;
    if (gain_us > 0) return gain_us * least(n_left, HORIZON_TOKENS) > price_us;
    return p->step.largest > 0 && n_left > n_missed / READ_SPEED && pay(p, price_us);
}

bool planner_wants_reading(struct planner *p, struct planner_sequence *seq, int n_missed,
                           int n_left, int n_lanes)
{
    bool is_kept = seq->asked_at > 0 &&
                   (seq->wants_reading || p->n_rounds + 1 - seq->asked_at < ANSWER_ROUNDS);
    if (n_missed <= CAUGHT_UP) {
        seq->wants_reading = false;
        seq->asked_at = 0;
        return true;
    }
    if (is_kept) return seq->wants_reading;
    refresh(p);
    seq->asked_at = p->n_rounds + 1;
    seq->wants_reading = answer_reading(p, seq, n_missed, n_left, n_lanes);
    return seq->wants_reading;
}

/* ---- how long a step may become ---- */

/* The step of so many rows as part of a round whose other times are rest_us. */
static double careful_us(const struct planner *p, int rows, double rest_us)
{
    double measured = planner_curve_at(&p->step, least(rows, p->step.largest));
    if (rows > p->step.largest) measured *= (double)rows / p->step.largest;
    return measured + rest_us;
}

int planner_rows_within(struct planner *p, int n_rows, double factor, int at_least, int at_most)
{
    int low = at_least, high = at_most;
    refresh(p);
    if (p->step.largest == 0) return least(low, high);
    double rest_us = planner_curve_at(&p->rest, n_rows);
    double limit = factor * careful_us(p, n_rows, rest_us);
    while (low < high) {
        int middle = low + (high - low + 1) / 2;
        if (careful_us(p, middle, rest_us) <= limit) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return least(low, at_most);
}
