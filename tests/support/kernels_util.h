/* Helpers that the tests of the kernels share: the variants that this machine can run, numbers of
 * all kinds, and equality of bits. Two NaN count as equal, whatever their payload. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "model/backend/cpu/kernels/kernels.h"
#include "model/numerics/numerics.h"
#include "tests/support/check_util.h"

static const struct kernels *variants[KERNELS_MAX];
static int n_variants;
static uint64_t state;

/* splitmix64 */
static inline uint64_t next_random(void)
{
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static inline int next_below(int n)
{
    return (int)(next_random() % (uint64_t)n);
}

static inline void setup(void)
{
    struct error err = {0};
    n_variants = 0;
    state = 20261120;
    for (int i = 0; kernels_name(i); i++) {
        const struct kernels *kernels;
        int rc = kernels_find(&kernels, kernels_name(i), &err);
        ck_assert_msg(rc == 0 || rc == ERR_UNSUPPORTED, "%s", err.text);
        if (rc == 0) variants[n_variants++] = kernels;
    }
    ck_assert_int_ge(n_variants, 1);
}

/* As setup, with each way of streaming memory, whatever this CPU is. */
static inline void setup_one_hop(void)
{
    setup();
    kernels_force_hops(1);
}

static inline void setup_two_hops(void)
{
    setup();
    kernels_force_hops(2);
}

/* Kinds of bf16: ordinary, any bits, near the least normal, huge, a choice of edges, products near
 * 2^-126. */
enum { KIND_ORDINARY, KIND_ANY, KIND_TINY, KIND_HUGE, KIND_EDGE, KIND_UNDERFLOW, N_KINDS };

static inline uint16_t random_bf16(int kind)
{
    static const uint16_t edges[] = {0,      0x8000, 0x7f80, 0xff80, 0x7fc0, 0x7f81, 0xff81,
                                     1,      0x8001, 0x007f, 0x0080, 0x8080, 0x3f80, 0xbf80,
                                     0x7f7f, 0xff7f, 0x1f80, 0x2000, 0x3f00};
    uint64_t v = next_random();
    int exponent = 0;
    switch (kind) {
    case KIND_ANY:
        return (uint16_t)v;
    case KIND_EDGE:
        return edges[(v >> 20) % (sizeof edges / sizeof *edges)];
    case KIND_TINY:
        exponent = (int)(v >> 20) % 130;
        break;
    case KIND_HUGE:
        exponent = 180 + (int)(v >> 40) % 76;
        break;
    case KIND_UNDERFLOW:
        exponent = 58 + (int)(v >> 40) % 10;
        break;
    default:
        exponent = 117 + (int)(v >> 40) % 12;
    }
    return (uint16_t)((v & 0x807f) | (unsigned)(exponent & 0xff) << 7);
}

static inline void fill_bf16(uint16_t *x, size_t n, int kind)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = random_bf16(kind);
    }
}

static inline void fill_floats(float *x, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = scale * ((float)(next_random() >> 40) * 0x1p-23f - 1.0f);
    }
}

static inline bool same(float a, float b)
{
    return (a != a && b != b) || num_float_to_bits(a) == num_float_to_bits(b);
}

static inline void check_same(const float *a, const float *b, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++) {
        ck_assert_msg(same(a[i], b[i]), "%s: element %zu is %a, not %a", what, i, (double)a[i],
                      (double)b[i]);
    }
}
