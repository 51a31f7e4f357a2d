/* The answer of one vocabulary slice (docs/design.md section 5), in plain C: the CPU backend's own
 * and the reference of any other. Every sum has one order: 16 float lanes over a chunk of up to
 * 1024 columns, the lanes by a binary tree, the chunks in double, ascending. */
#include "model/logits/row.h"

#include <math.h>
#include <string.h>

#include "model/logits/select.h"
#include "model/numerics/exp_coefficients.h"
#include "model/numerics/numerics.h"
#include "model/numerics/variants.h"

enum { LANES = 16, CHUNK = 1024, SLICE_ALIGN = 64, MASK_BITS = 64, NOISE_GROUPS = 32 };

/* What the passes over one slice share. mask has a bit per column that is in wish->ids. */
struct slice_work {
    const float *logits;
    int32_t first_id;
    int n_cols;
    int n_chunks;
    uint64_t *mask;      /* NULL: no `outside` */
    double *chunk_mass;  /* [n_chunks] mass outside of the list */
    struct arena *arena; /* for scratch */
};

void row_slice_range(int n_vocab, int n_slices, int slice, int32_t *first_id, int *n_cols)
{
    int64_t width = ((int64_t)n_vocab + n_slices - 1) / n_slices;
    width = (width + SLICE_ALIGN - 1) / SLICE_ALIGN * SLICE_ALIGN;
    int64_t first = width * slice < n_vocab ? width * slice : n_vocab;
    int64_t end = first + width < n_vocab ? first + width : n_vocab;
    *first_id = (int32_t)first;
    *n_cols = (int)(end - first);
}

double row_noisy_score(float logit, float temperature, uint32_t noise_bits)
{
    return (double)logit / (double)temperature + (double)num_gumbel(noise_bits);
}

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

/* Zeroes the columns of the list in chunk c; false when it holds none. */
static bool chunk_mask(const struct slice_work *work, int c, float *e)
{
    bool any = false;
    int n_words = (work->n_cols + MASK_BITS - 1) / MASK_BITS;
    for (int w = c * (CHUNK / MASK_BITS); w < n_words && w < (c + 1) * (CHUNK / MASK_BITS); w++) {
        for (uint64_t bits = work->mask[w]; bits; bits &= bits - 1) {
            e[w * MASK_BITS + __builtin_ctzll(bits) - c * CHUNK] = 0;
            any = true;
        }
    }
    return any;
}

static int chunk_width(const struct slice_work *work, int c)
{
    return c + 1 < work->n_chunks ? CHUNK : work->n_cols - c * CHUNK;
}

int row_slice_failure(const struct slice_row *row, const struct row_wish *wish, struct error *err)
{
    switch (row->code) {
    case ERR_FORMAT:
        return error_set(err, ERR_FORMAT, "%d of the logits from id %d on are NaN or +inf",
                         row->n_bad, (int)row->first_id);
    case ERR_NO_MEMORY:
        return error_set(err, ERR_NO_MEMORY,
                         "there is no room for the answer of slice %d: %d best, %d ids%s",
                         row->slice, wish->n_best, wish->n_ids, wish->full ? ", all logits" : "");
    default:
        return row_wish_check(wish, err);
    }
}

static int count_bad(const struct slice_work *work)
{
    int n_bad = 0;
    for (int i = 0; i < work->n_cols; i++) {
        n_bad += !(work->logits[i] < INFINITY);
    }
    return n_bad;
}

/* Smallest and largest of n >= 1 logits as order keys. */
VARIANTS static void key_range(const float *logits, int n, int32_t *smallest, int32_t *largest)
{
    int32_t low = select_order_key(logits[0]), high = low;
    for (int i = 1; i < n; i++) {
        int32_t key = select_order_key(logits[i]);
        low = key < low ? key : low;
        high = key > high ? key : high;
    }
    *smallest = low;
    *largest = high;
}

/* Finds the largest logit. Errors: ERR_FORMAT NaN or +inf, which are counted. */
static int slice_max(const struct slice_work *work, struct slice_row *row)
{
    int32_t low, high;
    key_range(work->logits, work->n_cols, &low, &high);
    if (low < select_order_key(-INFINITY) || high >= select_order_key(INFINITY)) {
        row->n_bad = count_bad(work);
        return ERR_FORMAT;
    }
    row->max = select_order_float(high);
    return 0;
}

/* The normaliser at temperature k, and at the first one what else is wished of the sums. */
static void slice_sums(const struct slice_work *work, const struct row_wish *wish, int k,
                       struct slice_row *out)
{
    float e[CHUNK], e_log_e[CHUNK];
    float inverse_t = 1.0f / wish->temperatures[k];
    for (int c = 0; c < work->n_chunks; c++) {
        const float *logits = work->logits + (size_t)c * CHUNK;
        int n = chunk_width(work, c);
        chunk_exp(logits, n, out->max, inverse_t, e);
        float sum = lanes_sum(e, round_up_lanes(n));
        out->sum_exp[k] += (double)sum;
        if (k > 0) continue;
        if (wish->entropy) {
            chunk_exp_log(logits, n, out->max, inverse_t, e, e_log_e);
            out->sum_exp_log += (double)lanes_sum(e_log_e, round_up_lanes(n));
        }
        if (wish->outside) {
            bool any = chunk_mask(work, c, e);
            work->chunk_mass[c] = (double)(any ? lanes_sum(e, round_up_lanes(n)) : sum);
            out->outside_sum += work->chunk_mass[c];
        }
    }
}

/* One token outside of the list, by inverse CDF over the chunks and then inside of one. A column
 * without mass is never drawn, whatever the rounding. */
static int32_t outside_draw(const struct slice_work *work, const struct row_wish *wish,
                            const struct slice_row *row)
{
    float e[CHUNK];
    double left = rng_uniform(&wish->at, RNG_OUTSIDE, (uint32_t)row->slice) * row->outside_sum;
    int chosen = -1;
    for (int c = 0; c < work->n_chunks; c++) {
        if (!(work->chunk_mass[c] > 0)) continue;
        if (chosen >= 0) left -= work->chunk_mass[chosen];
        chosen = c;
        if (left < work->chunk_mass[c]) break;
    }
    if (chosen < 0) return -1;
    int n = chunk_width(work, chosen);
    chunk_exp(work->logits + (size_t)chosen * CHUNK, n, row->max, 1.0f / wish->temperatures[0], e);
    chunk_mask(work, chosen, e);
    int32_t id = -1;
    double sum = 0;
    for (int i = 0; i < n && !(left < sum); i++) {
        if (!(e[i] > 0)) continue;
        sum += (double)e[i];
        id = work->first_id + chosen * CHUNK + i;
    }
    return id;
}

/* Scratch and mask of `outside`, which are valid until the caller resets the arena. */
static int outside_begin(struct slice_work *work, const struct row_wish *wish)
{
    size_t n_words = ((size_t)work->n_cols + MASK_BITS - 1) / MASK_BITS;
    work->mask = arena_take(work->arena, n_words, sizeof *work->mask);
    work->chunk_mass = arena_take(work->arena, (size_t)work->n_chunks, sizeof *work->chunk_mass);
    if (!work->mask || !work->chunk_mass) return ERR_NO_MEMORY;
    memset(work->mask, 0, n_words * sizeof *work->mask);
    for (int i = 0; i < wish->n_ids; i++) {
        int64_t column = (int64_t)wish->ids[i] - work->first_id;
        if (column < 0 || column >= work->n_cols) continue;
        work->mask[column / MASK_BITS] |= (uint64_t)1 << (column % MASK_BITS);
    }
    return 0;
}

/* Every wish that sums. A slice of nothing but -inf has no mass, like an empty one. */
static int answer_sums(struct slice_work *work, const struct row_wish *wish, struct slice_row *out)
{
    size_t mark = work->arena->used_bytes;
    int rc = 0;
    if (wish->outside) TRY(outside_begin(work, wish));
    if (out->max > -INFINITY) {
        for (int k = 0; k < wish->n_temperatures; k++) {
            slice_sums(work, wish, k, out);
        }
        if (wish->outside) out->outside_id = outside_draw(work, wish, out);
    }
out:
    work->arena->used_bytes = mark;
    return rc;
}

/* An upper bound of num_gumbel(bits). With k leading ones 1 - u >= 2^-(k + 1), and -log u >= 1 - u,
 * hence -log(-log u) <= (k + 1) ln 2; the rest covers the rounding to float. */
static inline double noise_bound(uint32_t bits)
{
    int n_ones = bits == UINT32_MAX ? 32 : __builtin_clz(~bits);
    return (n_ones + 1) * 0.69314718055994531 + 1e-5;
}

/* bits[w][i] = word w of Philox for group + i: rng_coupled_four for NOISE_GROUPS groups at once, in
 * lanes. */
VARIANTS static void noise_groups(const struct rng_address *at, uint32_t group,
                                  uint32_t bits[4][NOISE_GROUPS])
{
    uint32_t key_low = (uint32_t)at->seed, key_high = (uint32_t)(at->seed >> 32);
    for (uint32_t i = 0; i < NOISE_GROUPS; i++) {
        bits[0][i] = at->position;
        bits[1][i] = 0;
        bits[2][i] = RNG_COUPLED;
        bits[3][i] = group + i;
    }
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < NOISE_GROUPS; i++) {
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

/* Offers columns first..end-1, whose tokens begin in `group`. Noise is computed only for columns
 * that could win. The others could not have won, because addition is monotone, so the result is
 * exact. */
static void offer_noisy_block(struct select_heap *heap, const struct slice_work *work,
                              const struct row_wish *wish, int first, int end, uint32_t group)
{
    int32_t low, top;
    float temperature = wish->temperatures[0];
    key_range(work->logits + first, end - first, &low, &top);
    double most = (double)select_order_float(top) / (double)temperature + noise_bound(UINT32_MAX);
    if (!select_wants(heap, most)) return;
    uint32_t bits[4][NOISE_GROUPS];
    noise_groups(&wish->at, group, bits);
    for (int c = first; c < end; c++) {
        uint32_t token = (uint32_t)(work->first_id + c);
        uint32_t noise = bits[token % 4][token / 4 - group];
        double scaled = (double)work->logits[c] / (double)temperature;
        if (!select_wants(heap, scaled + noise_bound(noise))) continue;
        select_offer(heap, row_noisy_score(work->logits[c], temperature, noise), c);
    }
}

static void offer_noisy(struct select_heap *heap, const struct slice_work *work,
                        const struct row_wish *wish)
{
    int first = 0;
    while (first < work->n_cols) {
        int32_t group = (work->first_id + first) / 4;
        int end = (group + NOISE_GROUPS) * 4 - work->first_id;
        end = end < work->n_cols ? end : work->n_cols;
        offer_noisy_block(heap, work, wish, first, end, (uint32_t)group);
        first = end;
    }
}

static int answer_best(const struct slice_work *work, const struct row_wish *wish,
                       struct slice_row *out)
{
    int n = wish->n_best < work->n_cols ? wish->n_best : work->n_cols;
    if (n == 0) return 0;
    int32_t *ids = arena_take(work->arena, (size_t)n, sizeof *ids);
    float *logits = arena_take(work->arena, (size_t)n, sizeof *logits);
    size_t mark = work->arena->used_bytes;
    struct select_heap heap = {.capacity = n};
    heap.items = arena_take(work->arena, (size_t)n, sizeof *heap.items);
    if (!ids || !logits || !heap.items) return ERR_NO_MEMORY;
    if (wish->best_is_noisy) {
        offer_noisy(&heap, work, wish);
    } else {
        select_offer_logits(&heap, work->logits, work->n_cols, true);
    }
    select_sort_best(&heap);
    for (int i = 0; i < n; i++) {
        ids[i] = work->first_id + heap.items[i].id;
        logits[i] = work->logits[heap.items[i].id];
    }
    work->arena->used_bytes = mark;
    out->n_best = n;
    out->best_ids = ids;
    out->best_logits = logits;
    return 0;
}

static int answer_ids(const struct slice_work *work, const struct row_wish *wish,
                      struct slice_row *out)
{
    float *logits = arena_take(work->arena, (size_t)wish->n_ids, sizeof *logits);
    if (!logits) return ERR_NO_MEMORY;
    for (int i = 0; i < wish->n_ids; i++) {
        int64_t column = (int64_t)wish->ids[i] - work->first_id;
        if (column >= 0 && column < work->n_cols) logits[out->n_ids++] = work->logits[column];
    }
    out->id_logits = logits;
    return 0;
}

static int answer_full(const struct slice_work *work, struct slice_row *out)
{
    float *full = arena_take(work->arena, (size_t)work->n_cols, sizeof *full);
    if (!full) return ERR_NO_MEMORY;
    memcpy(full, work->logits, (size_t)work->n_cols * sizeof *full);
    out->full = full;
    return 0;
}

int row_wish_check(const struct row_wish *wish, struct error *err)
{
    if (wish->n_best < 0 || wish->n_ids < 0) {
        return error_set(err, ERR_ARGUMENT, "a row wish for %d best and %d ids", wish->n_best,
                         wish->n_ids);
    }
    if (wish->n_temperatures < 0 || wish->n_temperatures > ROW_TEMPERATURES_MAX) {
        return error_set(err, ERR_ARGUMENT, "a row wish for %d temperatures, at most %d",
                         wish->n_temperatures, ROW_TEMPERATURES_MAX);
    }
    for (int k = 0; k < wish->n_temperatures; k++) {
        float t = wish->temperatures[k];
        if (!(t > 0 && t < INFINITY && 1.0f / t < INFINITY)) {
            return error_set(err, ERR_ARGUMENT, "a row wish at temperature %g", (double)t);
        }
    }
    bool needs_temperature =
        wish->outside || wish->entropy || (wish->n_best && wish->best_is_noisy);
    if (needs_temperature && wish->n_temperatures == 0) {
        return error_set(err, ERR_ARGUMENT, "a row wish for draws or entropy names no temperature");
    }
    return 0;
}

/* All that is wished of a slice that has columns; a code, without a text. */
static int answer_wish(const struct answer_item *item, struct slice_work *work,
                       struct slice_row *row)
{
    const struct row_wish *wish = item->wish;
    int rc = 0;
    TRY(slice_max(work, row));
    if (wish->n_best > 0) TRY(answer_best(work, wish, row));
    if (wish->n_ids > 0) TRY(answer_ids(work, wish, row));
    if (wish->full) TRY(answer_full(work, row));
    TRY(answer_sums(work, wish, row));
out:
    return rc;
}

int row_slice_answer(const struct answer_item *item, struct arena *arena, struct slice_row *out,
                     struct error *err)
{
    struct slice_row row = {
        .slice = item->slice,
        .first_id = item->first_id,
        .n_cols = item->n_cols,
        .max = -INFINITY,
        .outside_id = -1,
    };
    struct slice_work work = {
        .logits = item->logits,
        .first_id = item->first_id,
        .n_cols = item->n_cols,
        .n_chunks = (item->n_cols + CHUNK - 1) / CHUNK,
        .arena = arena,
    };
    *out = row;
    out->code = row_wish_check(item->wish, err);
    if (!out->code && item->n_cols > 0) out->code = answer_wish(item, &work, &row);
    out->n_bad = row.n_bad;
    if (out->code) return row_slice_failure(out, item->wish, err);
    *out = row;
    return 0;
}
