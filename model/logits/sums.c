/* The sums of a slice (docs/design.md section 5). Every sum has one order: 16 float lanes over a
 * chunk of up to 1024 columns, the lanes by a binary tree, the chunks in double, ascending. Buckets
 * are sums of integers, which have no order. */
#include <math.h>
#include <string.h>

#include "model/logits/internal.h"
#include "model/numerics/exp_coefficients.h"
#include "model/numerics/numerics.h"
#include "model/numerics/variants.h"

enum { LANES = 16, SCATTER_LANES = 4 };

/* num_exp for x <= 0, bit for bit. Below its limit the argument is clamped and the result masked,
 * in integers, so that no compiler sees a branch and loops over it vectorize. */
static inline float exp_nonpositive(float x)
{
    int32_t limit = (int32_t)(num_float_to_bits(-EXP_LEAST));
    int32_t magnitude = (int32_t)(num_float_to_bits(x) & 0x7fffffffu);
    int32_t kept = magnitude < limit ? magnitude : limit;
    float clamped = -num_bits_to_float((uint32_t)kept);
    float shifted = clamped * EXP_LOG2_E + EXP_ROUND;
    float n = shifted - EXP_ROUND;
    float r = clamped - n * EXP_LN2;
    r = r - n * EXP_LN2_LOW;
    float y;
    EXP_POLYNOMIAL(y, r);
    int32_t whole = (int32_t)n;
    int32_t half = whole >> 1;
    y = y * num_bits_to_float((uint32_t)(half + 127) << 23) *
        num_bits_to_float((uint32_t)(whole - half + 127) << 23);
    uint32_t mask = magnitude > limit ? 0 : UINT32_MAX;
    return num_bits_to_float(num_float_to_bits(y) & mask);
}

/* Sum of values[n], n a multiple of LANES. */
VARIANTS static float lanes_sum(const float *values, int n)
{
    float lane[LANES] = {0};
    for (int i = 0; i < n; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            lane[l] += values[i + l];
        }
    }
    for (int half = LANES / 2; half > 0; half /= 2) {
        for (int l = 0; l < half; l++) {
            lane[l] += lane[l + half];
        }
    }
    return lane[0];
}

static int round_up_lanes(int n)
{
    return (n + LANES - 1) / LANES * LANES;
}

/* e[i] = exp((logits[i] - max) / t), padded with zeros to whole lanes. */
VARIANTS static void chunk_exp(const float *logits, int n, float max, float inverse_t,
                               float *restrict e)
{
    for (int i = 0; i < n; i++) {
        e[i] = exp_nonpositive((logits[i] - max) * inverse_t);
    }
    for (int i = n; i < round_up_lanes(n); i++) {
        e[i] = 0;
    }
}

/* out[i] = e[i] ln e[i], padded like e. */
VARIANTS static void chunk_exp_log(const float *logits, int n, float max, float inverse_t,
                                   const float *e, float *restrict out)
{
    for (int i = 0; i < n; i++) {
        float x = (logits[i] - max) * inverse_t;
        out[i] = e[i] * (x >= EXP_LEAST ? x : EXP_LEAST); /* e is 0 below; -inf * 0 would be NaN */
    }
    for (int i = n; i < round_up_lanes(n); i++) {
        out[i] = 0;
    }
}

/* Zeroes the columns of the list in the chunk that begins at column first; false when it holds
 * none. */
static bool chunk_mask(const struct slice_work *work, int first, float *e)
{
    bool any = false;
    int n_words = (work->item->n_cols + MASK_BITS - 1) / MASK_BITS;
    int begin = first / MASK_BITS, end = begin + SUM_CHUNK / MASK_BITS;
    for (int w = begin; w < n_words && w < end; w++) {
        for (uint64_t bits = work->mask[w]; bits; bits &= bits - 1) {
            e[w * MASK_BITS + __builtin_ctzll(bits) - first] = 0;
            any = true;
        }
    }
    return any;
}

static int chunk_width(const struct slice_work *work, int first)
{
    int left = work->item->n_cols - first;
    return left < SUM_CHUNK ? left : SUM_CHUNK;
}

/* places[i] is the bucket of logits[i], counted down from that of the max; ROW_BUCKETS: none. With
 * x = logit / step and `above` = one more than the whole part of the largest x, the whole part of
 * above - x is the place, and above - x > 0, so that it can be clamped as an integer. A logit on
 * the edge of two buckets may count for either: buckets only say how much to ask for. */
VARIANTS static void chunk_places(const float *logits, int n, float steps_per_unit, float above,
                                  int32_t *restrict places)
{
    int32_t most = (int32_t)num_float_to_bits((float)ROW_BUCKETS);
    for (int i = 0; i < n; i++) {
        int32_t bits = (int32_t)num_float_to_bits(above - logits[i] * steps_per_unit);
        bits = bits < most ? bits : most;
        bits = bits > 0 ? bits : 0;
        places[i] = (int32_t)num_bits_to_float((uint32_t)bits);
    }
}

VARIANTS static void chunk_amounts(const float *e, int n, int32_t *restrict amounts)
{
    for (int i = 0; i < n; i++) {
        amounts[i] = (int32_t)(e[i] * (float)(1 << ROW_MASS_BITS));
    }
}

/* Adds a chunk to the part's buckets. Neighbours go to tables of their own, because an addition to
 * a bucket has to wait for the last one to the same. */
static void chunk_buckets(const struct slice_work *work, int first, int n, const float *e,
                          uint64_t table[SCATTER_LANES][ROW_BUCKETS + 1])
{
    const struct row_wish *wish = work->item->wish;
    int32_t places[SUM_CHUNK], amounts[SUM_CHUNK];
    float steps_per_unit = (float)ROW_BUCKET_SHARE * (1.0f / wish->temperatures[0]);
    float above = (float)row_bucket(work->row.max, wish->temperatures[0]) + 1.0f;
    bool is_mass = wish->buckets == ROW_BUCKETS_MASS;
    chunk_places(work->item->logits + first, n, steps_per_unit, above, places);
    if (is_mass) chunk_amounts(e, n, amounts);
    for (int i = 0; i < n; i++) {
        table[i % SCATTER_LANES][places[i]] += is_mass ? (uint64_t)amounts[i] : 1;
    }
}

static void store_buckets(struct slice_work *work, int part,
                          uint64_t table[SCATTER_LANES][ROW_BUCKETS + 1])
{
    uint64_t *buckets = work->buckets + (size_t)part * ROW_BUCKETS;
    for (int b = 0; b < ROW_BUCKETS; b++) {
        buckets[b] = table[0][b] + table[1][b] + table[2][b] + table[3][b];
    }
}

/* The sums at temperatures[0] of the chunk whose e was computed. e is spoilt. */
static void chunk_first_sums(struct slice_work *work, int first, int n, float *e, float sum)
{
    const struct row_wish *wish = work->item->wish;
    int c = first / SUM_CHUNK;
    if (wish->entropy) {
        float e_log_e[SUM_CHUNK];
        chunk_exp_log(work->item->logits + first, n, work->row.max, 1.0f / wish->temperatures[0], e,
                      e_log_e);
        work->sums[SUM_EXP_LOG][c] = (double)lanes_sum(e_log_e, round_up_lanes(n));
    }
    if (wish->outside) {
        bool any = chunk_mask(work, first, e);
        work->sums[SUM_OUTSIDE][c] = (double)(any ? lanes_sum(e, round_up_lanes(n)) : sum);
    }
}

void slice_sum(struct slice_work *work, int part, int begin, int end)
{
    const struct row_wish *wish = work->item->wish;
    uint64_t table[SCATTER_LANES][ROW_BUCKETS + 1];
    float e[SUM_CHUNK];
    if (wish->buckets) memset(table, 0, sizeof table);
    for (int first = begin; first < end; first += SUM_CHUNK) {
        int n = chunk_width(work, first);
        for (int k = wish->n_temperatures - 1; k >= 0; k--) {
            chunk_exp(work->item->logits + first, n, work->row.max, 1.0f / wish->temperatures[k],
                      e);
            float sum = lanes_sum(e, round_up_lanes(n));
            work->sums[SUM_EXP + k][first / SUM_CHUNK] = (double)sum;
            if (k > 0) continue;
            if (wish->buckets) chunk_buckets(work, first, n, e, table);
            chunk_first_sums(work, first, n, e, sum);
        }
    }
    if (wish->buckets) store_buckets(work, part, table);
}

/* One token outside of the list, by inverse CDF over the chunks and then inside of one. A column
 * without mass is never drawn, whatever the rounding. */
static int outside_draw(const struct slice_work *work)
{
    const struct answer_item *item = work->item;
    const double *mass = work->sums[SUM_OUTSIDE];
    double left =
        rng_uniform(&item->wish->at, RNG_OUTSIDE, (uint32_t)item->slice) * work->row.outside_sum;
    float e[SUM_CHUNK];
    int chosen = -1;
    for (int c = 0; c < work->n_chunks; c++) {
        if (!(mass[c] > 0)) continue;
        if (chosen >= 0) left -= mass[chosen];
        chosen = c;
        if (left < mass[c]) break;
    }
    if (chosen < 0) return -1;
    int first = chosen * SUM_CHUNK, n = chunk_width(work, first), column = -1;
    chunk_exp(item->logits + first, n, work->row.max, 1.0f / item->wish->temperatures[0], e);
    chunk_mask(work, first, e);
    double sum = 0;
    for (int i = 0; i < n && !(left < sum); i++) {
        if (!(e[i] > 0)) continue;
        sum += (double)e[i];
        column = first + i;
    }
    return column;
}

/* The parts' buckets as numbers, up to the last that is not 0. */
static void add_buckets(struct slice_work *work)
{
    bool is_mass = work->item->wish->buckets == ROW_BUCKETS_MASS;
    double unit = is_mass ? 1.0 / (1 << ROW_MASS_BITS) : 1;
    for (int b = 0; b < ROW_BUCKETS; b++) {
        uint64_t sum = 0;
        for (int part = 0; part < work->n_parts; part++) {
            sum += work->buckets[(size_t)part * ROW_BUCKETS + (size_t)b];
        }
        work->to.buckets[b] = (float)((double)sum * unit);
        if (sum > 0) work->row.n_buckets = b + 1;
    }
    work->row.buckets = work->to.buckets;
}

static double sum_chunks(const struct slice_work *work, int kind)
{
    double sum = 0;
    for (int c = 0; c < work->n_chunks; c++) {
        sum += work->sums[kind][c];
    }
    return sum;
}

void slice_add(struct slice_work *work)
{
    const struct row_wish *wish = work->item->wish;
    struct slice_row *row = &work->row;
    for (int k = 0; k < wish->n_temperatures; k++) {
        row->sum_exp[k] = sum_chunks(work, SUM_EXP + k);
    }
    if (wish->entropy) row->sum_exp_log = sum_chunks(work, SUM_EXP_LOG);
    if (wish->buckets) add_buckets(work);
    if (!wish->outside) return;
    row->outside_sum = sum_chunks(work, SUM_OUTSIDE);
    int column = outside_draw(work);
    if (column < 0) return;
    row->outside_id = work->item->first_id + column;
    row->outside_logit = work->item->logits[column];
}
