/* The best column of a slice under Gumbel noise, without the noise of most columns. The noise of
 * four tokens is one call of Philox, and the exact score of a token takes two logarithms in double.
 * Both are left out where an upper bound shows that the column cannot win; addition is monotone, so
 * the result is exact. */
#include <float.h>
#include <math.h>

#include "model/logits/internal.h"
#include "model/numerics/numerics.h"
#include "model/numerics/variants.h"

enum { GROUP = 4, GROUPS = 32, BATCH = GROUP * GROUPS, BLOCK_GROUPS = SELECT_BLOCK / GROUP };

#define LN2 0.69314718055994531
/* An upper bound of num_gumbel for any bits: with u = (bits + 0.5) / 2^32, -log u >= 1 - u, so
 * -log(-log u) <= -log(1 - u) <= 33 ln 2; the rest covers the rounding to float. */
#define NOISE_MOST (33 * LN2 + 1e-5)
/* Between these temperatures the bounds in float hold. */
#define FLOAT_T_MIN 1e-6f
#define FLOAT_T_MAX 1e6f

/* Groups of four tokens whose noise is wanted, and their logits. */
struct noise_batch {
    int n;
    uint32_t groups[GROUPS];     /* token / 4 */
    float logits[GROUP][GROUPS]; /* [token % 4]; -inf: not of the columns that are looked at */
};

struct noise_scan {
    const struct slice_work *work;
    int begin, end; /* columns */
    float temperature;
    struct noisy_best best;
    struct noise_batch batch;
};

struct noisy_best noise_better(struct noisy_best a, struct noisy_best b)
{
    if (a.column < 0 || b.column < 0) return a.column < 0 ? b : a;
    bool b_wins = b.score > a.score || (b.score == a.score && b.column < a.column);
    return b_wins ? b : a;
}

/* bits[w][i] = word w of Philox for groups[i]: rng_coupled_four in lanes. */
VARIANTS static void noise_bits(const struct rng_address *at, const uint32_t groups[GROUPS],
                                uint32_t bits[GROUP][GROUPS])
{
    uint32_t key_low = (uint32_t)at->seed, key_high = (uint32_t)(at->seed >> 32);
    for (int i = 0; i < GROUPS; i++) {
        bits[0][i] = at->position;
        bits[1][i] = 0;
        bits[2][i] = RNG_COUPLED;
        bits[3][i] = groups[i];
    }
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < GROUPS; i++) {
            uint64_t p0 = (uint64_t)0xD2511F53u * bits[0][i];
            uint64_t p1 = (uint64_t)0xCD9E8D57u * bits[2][i];
            bits[0][i] = (uint32_t)(p1 >> 32) ^ bits[1][i] ^ key_low;
            bits[1][i] = (uint32_t)p1;
            bits[2][i] = (uint32_t)(p0 >> 32) ^ bits[3][i] ^ key_high;
            bits[3][i] = (uint32_t)p0;
        }
        key_low += 0x9E3779B9u;
        key_high += 0xBB67AE85u;
    }
}

/* bounds[i] is no less than logits[i] / t + num_gumbel(bits[i]), but for the rounding that
 * score_allowance covers. With m = ~bits / 2 rounded down, 1 - u = (~bits + 0.5) / 2^32 is at least
 * (m + 0.25) / 2^31. Of y = m + 0.25 as a float, its bits as a number over 2^23, less 127, are at
 * most log2 y, because log2(1 + f) >= f. So -log(1 - u) <= (31 + 127) ln 2 - bits * ln 2 / 2^23.
 * Returns the largest. */
VARIANTS static float score_bounds(const float *logits, const uint32_t *bits, float inverse_t,
                                   float *restrict bounds)
{
    int32_t most = INT32_MIN;
    for (int i = 0; i < BATCH; i++) {
        float y = (float)(int32_t)(~bits[i] >> 1) + 0.25f;
        float noise = (float)((31 + 127) * LN2) -
                      (float)(int32_t)num_float_to_bits(y) * (float)(LN2 / (1 << 23));
        bounds[i] = logits[i] * inverse_t + noise;
        int32_t key = select_order_key(bounds[i]);
        most = key > most ? key : most;
    }
    return select_order_float(most);
}

/* The most by which a bound may fall short of a score near `best`: a few roundings of numbers of
 * its size and of those of the noise, each below 2^-23 of them. */
static double score_allowance(double best)
{
    return 1e-6 * (fabs(best) + 2 * 31 + 127);
}

/* True if the column is on the wish's list, which noise leaves out. */
static bool is_listed(const struct noise_scan *scan, int column)
{
    const struct slice_work *work = scan->work;
    return work->item->wish->n_ids > 0 &&
           (work->mask[column / MASK_BITS] >> (column % MASK_BITS) & 1);
}

static void offer_column(struct noise_scan *scan, int column, uint32_t bits)
{
    float logit = scan->work->item->logits[column];
    if (is_listed(scan, column) || !(logit > -INFINITY)) return;
    const struct noisy_best one = {row_noisy_score(logit, scan->temperature, bits), column};
    scan->best = noise_better(scan->best, one);
}

static void flush_batch(struct noise_scan *scan)
{
    const struct answer_item *item = scan->work->item;
    struct noise_batch *batch = &scan->batch;
    uint32_t bits[GROUP][GROUPS];
    float bounds[BATCH];
    for (int i = batch->n; i < GROUPS; i++) {
        batch->groups[i] = 0;
        for (int w = 0; w < GROUP; w++) {
            batch->logits[w][i] = -INFINITY;
        }
    }
    noise_bits(&item->wish->at, batch->groups, bits);
    bool is_float = scan->temperature >= FLOAT_T_MIN && scan->temperature <= FLOAT_T_MAX;
    double best = scan->best.column < 0 ? -HUGE_VAL : scan->best.score;
    float wanted = (float)(best - score_allowance(best) - 1e-6 * fabs(best)), most = INFINITY;
    if (is_float) most = score_bounds(batch->logits[0], bits[0], 1.0f / scan->temperature, bounds);
    batch->n = 0;
    if (most < wanted) return;
    for (int i = 0; i < BATCH; i++) {
        if (is_float && bounds[i] < wanted) continue;
        if (!(batch->logits[i / GROUPS][i % GROUPS] > -INFINITY)) continue;
        int token = (int)batch->groups[i % GROUPS] * GROUP + i / GROUPS;
        offer_column(scan, token - item->first_id, bits[i / GROUPS][i % GROUPS]);
    }
}

/* A logit that a column must have to win; -inf: any. */
static float least_logit(const struct noise_scan *scan)
{
    if (scan->best.column < 0) return -INFINITY;
    double least = (scan->best.score - NOISE_MOST) * (double)scan->temperature;
    least -= fabs(least) * 1e-6 + (double)FLT_MIN; /* so that 0 does not part -0 from 0 */
    return fabs(least) < (double)FLT_MAX ? (float)least : -INFINITY;
}

/* The logits of a block by token % 4, and the largest of each group as order keys. */
VARIANTS static void block_groups(const float *logits, float lanes[GROUP][BLOCK_GROUPS],
                                  int32_t tops[BLOCK_GROUPS])
{
    for (int g = 0; g < BLOCK_GROUPS; g++) {
        int32_t top = INT32_MIN;
        for (int w = 0; w < GROUP; w++) {
            float logit = logits[g * GROUP + w];
            int32_t key = select_order_key(logit);
            lanes[w][g] = logit;
            top = key > top ? key : top;
        }
        tops[g] = top;
    }
}

/* add_groups for a whole block that begins where a group does, with room for it in the batch. */
static void add_block(struct noise_scan *scan, int first, float least)
{
    struct noise_batch *batch = &scan->batch;
    float lanes[GROUP][BLOCK_GROUPS];
    int32_t tops[BLOCK_GROUPS], least_key = select_order_key(least);
    uint32_t group = (uint32_t)(scan->work->item->first_id + first) / GROUP;
    block_groups(scan->work->item->logits + first, lanes, tops);
    int n = batch->n;
    for (int g = 0; g < BLOCK_GROUPS; g++) {
        batch->groups[n] = group + (uint32_t)g;
        for (int w = 0; w < GROUP; w++) {
            batch->logits[w][n] = lanes[w][g];
        }
        n += tops[g] >= least_key;
    }
    batch->n = n;
    if (n > GROUPS - BLOCK_GROUPS) flush_batch(scan);
}

/* Adds the groups of columns first .. end that can win. */
static void add_groups(struct noise_scan *scan, int first, int end, float least)
{
    const struct answer_item *item = scan->work->item;
    struct noise_batch *batch = &scan->batch;
    int group = (item->first_id + first) / GROUP;
    for (int column = group * GROUP - item->first_id; column < end; column += GROUP, group++) {
        float top = -INFINITY;
        for (int w = 0; w < GROUP; w++) {
            bool is_seen = column + w >= scan->begin && column + w < scan->end;
            float logit = is_seen ? item->logits[column + w] : -INFINITY;
            batch->logits[w][batch->n] = logit;
            top = logit > top ? logit : top;
        }
        batch->groups[batch->n] = (uint32_t)group;
        batch->n += top >= least;
        if (batch->n == GROUPS) flush_batch(scan);
    }
}

static int32_t block_top(const struct slice_work *work, int first)
{
    return first + SELECT_BLOCK <= work->item->n_cols ? work->tops[first / SELECT_BLOCK]
                                                      : INT32_MAX;
}

/* The column of the largest logit: with any noise it is a score to begin with. */
static int top_column(const struct noise_scan *scan)
{
    const float *logits = scan->work->item->logits;
    int best_first = scan->begin, best = scan->begin;
    for (int first = scan->begin; first < scan->end; first += SELECT_BLOCK) {
        if (first + SELECT_BLOCK > scan->work->item->n_cols) break;
        if (block_top(scan->work, first) > block_top(scan->work, best_first)) best_first = first;
    }
    for (int c = best_first; c < scan->end && c < best_first + SELECT_BLOCK; c++) {
        if (logits[c] > logits[best] || c == best_first) best = c;
    }
    return best;
}

struct noisy_best noise_best(const struct slice_work *work, int begin, int end)
{
    const struct row_wish *wish = work->item->wish;
    struct noise_scan scan = {.work = work,
                              .begin = begin,
                              .end = end,
                              .temperature = wish->temperatures[0],
                              .best = {.column = -1}};
    if (begin == end) return scan.best;
    int top = top_column(&scan);
    uint32_t token = (uint32_t)(work->item->first_id + top);
    offer_column(&scan, top, rng_coupled_bits(wish->at.seed, wish->at.position, token));
    for (int first = begin; first < end; first += SELECT_BLOCK) {
        float least = least_logit(&scan);
        if (block_top(work, first) < select_order_key(least)) continue;
        int block_end = first + SELECT_BLOCK < end ? first + SELECT_BLOCK : end;
        if (block_end - first == SELECT_BLOCK && work->item->first_id % GROUP == 0) {
            add_block(&scan, first, least);
        } else {
            add_groups(&scan, first, block_end, least);
        }
    }
    flush_batch(&scan);
    return scan.best;
}
