/* The operands of a tile of dot chains. Each variant has its own dot_tile for it. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Steps and strides are counted in elements. */
struct dots {
    const uint16_t *w; /* n_pairs times [vectors][16 columns][2 k] bf16 */
    size_t w_step;     /* from one pair of k to the next */
    const uint16_t *x; /* activations: bf16, or where a variant has them widened, fp32 */
    size_t x_stride;   /* from row to row */
    size_t x_step;     /* from one pair of k to the next */
    int n_pairs;
    float *acc; /* [rows][columns], read and written */
    size_t acc_stride;
    /* Prefetch of one line for each vector of a pair, into the first- and the second-level cache,
     * and how far these addresses move with each pair. Both may point past the end, where they have
     * no effect. */
    const uint16_t *near, *far;
    size_t near_step, far_step;
};

/* Scores of a tile of queries against some vectors of K, each of SCORE_LANES positions, which the
 * variant's file defines. */
struct score_dots {
    const uint16_t *const *k, *const *ahead, *const *far; /* [vectors] [n_pairs], 32 apart */
    const uint16_t *q;                                    /* as x of struct dots */
    size_t q_stride, q_step;
    int n_pairs; /* of e */
    float *out;  /* [queries][vectors][SCORE_LANES] */
    size_t out_stride;
};

/* Weighted values of a tile of queries: n_blocks V blocks of n_pairs pairs of positions each,
 * columns from `first` on. */
struct value_dots {
    const uint16_t *const *v, *const *ahead, *const *far; /* [n_blocks] [n_pairs][step / 2][2] */
    size_t first, step; /* elements: of the first column, of a pair */
    int n_blocks, n_pairs;
    const uint16_t *p; /* as x of struct dots */
    size_t p_stride, p_step;
    float *acc; /* [queries][16 * vectors], read and written */
    size_t acc_stride;
};

/* Blocks of K that one tile of queries after the other reads, and of V that one tile reads for some
 * columns after the others. */
enum { SCORE_BLOCKS = 4, VALUE_BLOCKS = 8 };

static inline uint32_t dots_word(const uint16_t *x)
{
    uint32_t word;
    memcpy(&word, x, sizeof word);
    return word;
}

static inline void dots_prefetch(const uint16_t *near, const uint16_t *far)
{
    __builtin_prefetch(far, 0, 2);
    __builtin_prefetch(near, 0, 3);
}

#define INLINE_ALWAYS static inline __attribute__((always_inline))
