/* What a tile of dot chains works on; every variant has its own dot_tile for it. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Steps and strides are counted in elements. */
struct dots {
    const uint16_t *w; /* n_pairs times [vectors][16 columns][2 k] bf16 */
    size_t w_step;     /* from one pair of k to the next */
    const uint16_t *x; /* a row's pairs follow each other */
    size_t x_stride;   /* from row to row */
    int n_pairs;
    float *acc; /* [rows][16 * vectors], read and written */
    size_t acc_stride;
    /* Prefetch of one line for each vector of a pair, into the first- and the second-level cache,
     * and how far these move with each pair. Both may point past the end, where they do nothing. */
    const uint16_t *near, *far;
    size_t near_step, far_step;
};

static inline uint32_t dots_x_pair(const uint16_t *x)
{
    uint32_t pair;
    memcpy(&pair, x, sizeof pair);
    return pair;
}

static inline void dots_prefetch(const uint16_t *near, const uint16_t *far)
{
    __builtin_prefetch(far, 0, 2);
    __builtin_prefetch(near, 0, 3);
}

#define INLINE_ALWAYS static inline __attribute__((always_inline))
