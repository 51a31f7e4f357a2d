/* The work of a variant that is done in 16 lanes: norms, activations, and the weights of attention;
 * included by variant.h. */
#pragma once

#include <stdbool.h>
#include <string.h>

#include "model/backend/cpu/kernels/vector.h"
#include "model/numerics/exp_coefficients.h"
#include "model/numerics/numerics.h"

static inline vec_f vec_select(vec_i mask, vec_f yes, vec_f no)
{
    return (vec_f)((mask & (vec_i)yes) | (~mask & (vec_i)no));
}

#ifdef OWN_LANES

static inline vec_f vec_exp(vec_f x)
{
    return (vec_f)own_exp((__m512)x);
}

#else

/* Lane by lane num_exp. */
static inline vec_f vec_exp(vec_f x)
{
    vec_i fits = (x >= EXP_LEAST) & (x <= EXP_MOST);
    vec_f safe = (vec_f)((vec_i)x & fits);
    vec_f n = (safe * EXP_LOG2_E + EXP_ROUND) - EXP_ROUND;
    vec_f r = safe - n * EXP_LN2;
    r = r - n * EXP_LN2_LOW;
    vec_f y;
    EXP_POLYNOMIAL(y, r);
    vec_i whole = __builtin_convertvector(n, vec_i);
    vec_i half = whole >> 1;
    y = y * (vec_f)((half + 127) << 23) * (vec_f)((whole - half + 127) << 23);
    /* Outside: 0 below, infinity above, NaN stays. */
    vec_f rest = vec_select(x > 0.0f, vec_all(INFINITY), (vec_f)((vec_i)x & (x != x)));
    return vec_select(fits, y, rest);
}

#endif

/* Lane by lane num_float_to_bf16. */
static inline void vec_store_bf16(uint16_t *h, vec_f x)
{
    vec_u bits = (vec_u)x;
    vec_u nan = (vec_u)((vec_i)(bits & 0x7fffffffu) > 0x7f800000);
    vec_u rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    vec_u quiet = bits >> 16 | 0x40u;
    vec_h v = __builtin_convertvector((nan & quiet) | (~nan & rounded), vec_h);
    memcpy(h, &v, sizeof v);
}

/* As vec_store_bf16, but only for numbers: rounding a NaN might overflow. */
static inline void vec_store_bf16_number(uint16_t *h, vec_f x)
{
#ifdef OWN_STORE_BF16
    own_store_bf16(h, (__m512)x);
#else
    vec_u bits = (vec_u)x;
    vec_h v = __builtin_convertvector((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16, vec_h);
    memcpy(h, &v, sizeof v);
#endif
}

/* The fixed tree: lane i + lane i + 8, then + 4, + 2, + 1. */
static inline float lanes_sum(float lanes[KERNEL_LANES])
{
    float eight[8], four[4];
    for (int i = 0; i < 8; i++) {
        eight[i] = lanes[i] + lanes[i + 8];
    }
    for (int i = 0; i < 4; i++) {
        four[i] = eight[i] + eight[i + 4];
    }
    return (four[0] + four[2]) + (four[1] + four[3]);
}

/* Element i belongs to lane i % 16. */
static float squares(const float *x, int n)
{
    float lanes[KERNEL_LANES];
    vec_f sums[VECS] = {{0}};
    int i = 0;
    for (; i + KERNEL_LANES <= n; i += KERNEL_LANES) {
        for (int v = 0; v < VECS; v++) {
            vec_f part = vec_load(x + i + v * VEC_LANES);
            sums[v] += part * part;
        }
    }
    memcpy(lanes, sums, sizeof lanes);
    for (; i < n; i++) {
        lanes[i % KERNEL_LANES] += x[i] * x[i];
    }
    return lanes_sum(lanes);
}

/* 1 / sqrt(mean of squares + eps). */
static float norm_factor(const float *x, float eps, int n)
{
    return 1.0f / sqrtf(squares(x, n) / (float)n + eps);
}

static void rmsnorm(const float *x, const float *weight, float eps, int n, uint16_t *h)
{
    float factor = norm_factor(x, eps, n);
    for (int i = 0; i < n; i += VEC_LANES) {
        vec_store_bf16(h + i, vec_load(x + i) * factor * vec_load(weight + i));
    }
}

static void rmsnorm_head(float *x, const float *weight, float eps, int n)
{
    float factor = norm_factor(x, eps, n);
    for (int i = 0; i < n; i++) {
        x[i] = x[i] * factor * weight[i];
    }
}

static void swiglu(const float *gate, const float *up, int n, uint16_t *h)
{
    int i = 0;
    for (; i + VEC_LANES <= n; i += VEC_LANES) {
        vec_f g = vec_load(gate + i);
        vec_store_bf16(h + i, g / (1.0f + vec_exp(-g)) * vec_load(up + i));
    }
    for (; i < n; i++) {
        h[i] = num_float_to_bf16(gate[i] / (1.0f + num_exp(-gate[i])) * up[i]);
    }
}

static void geglu(const float *gate, const float *up, int n, uint16_t *h)
{
    int i = 0;
    for (; i + VEC_LANES <= n; i += VEC_LANES) {
        vec_f g = vec_load(gate + i);
        vec_f z = GELU_SLOPE * (g + GELU_CUBE * (g * g * g));
        vec_store_bf16(h + i, g / (1.0f + vec_exp(z)) * vec_load(up + i));
    }
    for (; i < n; i++) {
        h[i] = num_float_to_bf16(num_gelu_tanh(gate[i]) * up[i]);
    }
}

static void softcap(float *x, int n, float factor, float cap)
{
    int i = 0;
    for (; i + VEC_LANES <= n; i += VEC_LANES) {
        vec_f t = 1.0f - 2.0f / (1.0f + vec_exp(2.0f * (vec_load(x + i) * factor)));
        vec_f y = cap * t;
        memcpy(x + i, &y, sizeof y);
    }
    for (; i < n; i++) {
        x[i] = cap * num_tanh(x[i] * factor);
    }
}

/* Returns the same mask, but the compiler no longer knows that it came from a comparison. It would
 * make selections of what is meant as one bitwise operation, and they cost three. */
static inline vec_i vec_opaque(vec_i mask)
{
#ifdef OUTRIDER_X86
    __asm__("" : "+v"(mask));
#endif
    return mask;
}

/* vec_exp of numbers up to 0, also -inf, with half the work: 2^n is never out of range. */
static inline vec_f vec_exp_nonpositive(vec_f x)
{
    vec_i below = vec_opaque(x < EXP_LEAST);
    vec_f safe = (vec_f)(~below & (vec_i)x);
    vec_f shifted = safe * EXP_LOG2_E + EXP_ROUND; /* its lowest bits are those of n */
    vec_f n = shifted - EXP_ROUND;
    vec_f r = safe - n * EXP_LN2;
    r = r - n * EXP_LN2_LOW;
    vec_f y;
    EXP_POLYNOMIAL(y, r);
    y = y * (vec_f)(((vec_u)shifted << 23) + (127u << 23));
    return (vec_f)(~below & (vec_i)y);
}

/* vec_exp(x - max), but 0 where x is -inf, even when max is -inf, too. */
static inline vec_f vec_weight(vec_f x, float max)
{
    vec_i none = x == -INFINITY;
    return (vec_f)((vec_i)vec_exp(x - max) & ~none);
}

/* The next line to prefetch, and how many are left from there on. */
struct line_cursor {
    const uint16_t *const *part;
    const uint16_t *line, *end; /* in that part */
    size_t part_len;
    int n_left;
};

static inline void prefetch_lines(struct line_cursor *soon, int n)
{
    if (soon->n_left < n) n = soon->n_left;
    soon->n_left -= n;
    for (; n > 0; n--) {
        __builtin_prefetch(soon->line, 0, 3);
        soon->line += LINE_STEP;
        if (soon->line == soon->end && (n > 1 || soon->n_left > 0)) {
            soon->line = *++soon->part;
            soon->end = soon->line + soon->part_len;
        }
    }
}

static bool vec_any(vec_i mask)
{
    uint64_t words[VEC_BYTES / 8], any = 0;
    memcpy(words, &mask, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        any |= words[i];
    }
    return any != 0;
}

/* exp_sum of anything. */
static float exp_sum_any(const float *s, float scale, float max, int n, uint16_t *p)
{
    float lanes[KERNEL_LANES];
    vec_f sums[VECS] = {{0}};
    for (int i = 0; i < n; i += KERNEL_LANES) {
        for (int v = 0; v < VECS; v++) {
            vec_f e = vec_weight(vec_load(s + i + v * VEC_LANES) * scale, max);
            vec_store_bf16(p + i + v * VEC_LANES, e);
            sums[v] += e;
        }
    }
    memcpy(lanes, sums, sizeof lanes);
    return lanes_sum(lanes);
}

/* Differences to a maximum are not positive. Where one is, or is not a number, the work is
 * repeated. */
static float exp_sum(const float *s, float scale, float max, int n, uint16_t *p,
                     const struct kv_ahead *ahead)
{
    float lanes[KERNEL_LANES];
    vec_f sums[VECS] = {{0}};
    vec_i other = {0};
    struct line_cursor soon = {0};
    if (ahead && ahead->n_lines > 0) {
        soon.part = ahead->parts + ahead->first_line / ahead->part_lines;
        soon.part_len = (size_t)ahead->part_lines * LINE_STEP;
        soon.line = *soon.part + (size_t)(ahead->first_line % ahead->part_lines) * LINE_STEP;
        soon.end = *soon.part + soon.part_len;
        soon.n_left = ahead->n_lines;
    }
    int step = (soon.n_left * KERNEL_LANES + n - 1) / n;
    for (int i = 0; i < n; i += KERNEL_LANES) {
        prefetch_lines(&soon, step);
        for (int v = 0; v < VECS; v++) {
            vec_f x = vec_load(s + i + v * VEC_LANES) * scale - max;
            vec_f e = vec_exp_nonpositive(x);
            other |= vec_opaque(~(x <= 0.0f));
            vec_store_bf16_number(p + i + v * VEC_LANES, e);
            sums[v] += e;
        }
    }
    if (vec_any(other)) return exp_sum_any(s, scale, max, n, p);
    memcpy(lanes, sums, sizeof lanes);
    return lanes_sum(lanes);
}

#ifdef OWN_LANES

static float max_of(const float *s, int n)
{
    return own_max_of(s, n);
}

#else

static float max_of(const float *s, int n)
{
    float lanes[KERNEL_LANES], max = -INFINITY;
    vec_f best[VECS];
    for (int v = 0; v < VECS; v++) {
        best[v] = vec_all(-INFINITY);
    }
    for (int i = 0; i < n; i += KERNEL_LANES) {
        for (int v = 0; v < VECS; v++) {
            vec_f x = vec_load(s + i + v * VEC_LANES);
            best[v] = vec_select(x > best[v], x, best[v]);
        }
    }
    memcpy(lanes, best, sizeof lanes);
    for (int i = 0; i < KERNEL_LANES; i++) {
        if (lanes[i] > max) max = lanes[i];
    }
    return max + 0.0f;
}

#endif
