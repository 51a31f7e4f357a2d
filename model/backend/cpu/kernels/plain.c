/* Kernels in plain C, for any machine, with or without fma. The product of two bf16 has 16 bits, so
 * it is exact in fp32 unless it under- or overflows, and then multiply and add equal the fused
 * step. A run in which some product does not fit is repeated, lane by lane, in double. Nothing here
 * depends on the floating-point mode, because denormals are recognised by their bits. */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { TILE_ROWS_MAX = 2, QUARTERS = 4 };
#define VEC_BYTES 16
#define TILE_ROWS 2
#define LINE_ROWS 2
#define WIDE_ROWS 0
#define TILES   \
    TILE(1, 64) \
    TILE(2, 64)
#define SCORE_LANES    16
#define ATTENTION_ROWS 2
#define ATTENTION_TILES      \
    ATTENTION_TILE(1, 1, 16) \
    ATTENTION_TILE(2, 1, 16)
#define WHOLE_K 0 /* because a repetition should be short */

#include "model/backend/cpu/kernels/exact.h"

typedef float quad_f __attribute__((vector_size(16)));
typedef int32_t quad_i __attribute__((vector_size(16)));
typedef uint32_t quad_u __attribute__((vector_size(16)));

static const int32_t least_normal = 0x00800000;
static const uint32_t sign_bit = 0x80000000u, magnitude_bits = 0x7fffffffu;

/* A weight with denormals flushed, and where it is not zero. */
struct factor {
    quad_f value;
    quad_i present;
};

INLINE_ALWAYS struct factor factor_of(quad_u bits)
{
    quad_i present = (quad_i)(bits & magnitude_bits) >= least_normal;
    return (struct factor){(quad_f)(bits & ((quad_u)present | sign_bit)), present};
}

INLINE_ALWAYS quad_f quad_flush(quad_f x)
{
    quad_i normal = (quad_i)((quad_u)x & magnitude_bits) >= least_normal;
    return (quad_f)((quad_u)x & ((quad_u)normal | sign_bit));
}

/* One step; `misfit` collects the lanes whose product under- or overflowed. */
INLINE_ALWAYS quad_f quad_step(quad_f acc, const struct factor *w, uint32_t x_bits, quad_i *misfit)
{
    struct factor x = factor_of((quad_u){x_bits, x_bits, x_bits, x_bits});
    quad_f product = w->value * x.value;
    quad_i size = (quad_i)((quad_u)product & magnitude_bits);
    *misfit |= ((size < least_normal) | (size == 0x7f800000)) & w->present & x.present;
    return quad_flush(acc + product);
}

/* 16 columns of n_rows rows; false when a product did not fit. */
INLINE_ALWAYS bool lanes_run(int n_rows, const struct dots *d, const uint16_t *w,
                             quad_f acc[TILE_ROWS_MAX][QUARTERS])
{
    quad_i misfit = {0};
    const uint16_t *x = d->x;
    for (int pair = 0; pair < d->n_pairs; pair++) {
#pragma GCC unroll 8
        for (int j = 0; j < QUARTERS; j++) {
            quad_u pairs;
            memcpy(&pairs, w + 8 * j, sizeof pairs);
            struct factor odd = factor_of(pairs & 0xffff0000u), even = factor_of(pairs << 16);
#pragma GCC unroll 8
            for (int i = 0; i < n_rows; i++) {
                uint32_t x_pair = dots_word(x + (size_t)i * d->x_stride);
                acc[i][j] = quad_step(acc[i][j], &odd, x_pair & 0xffff0000u, &misfit);
                acc[i][j] = quad_step(acc[i][j], &even, x_pair << 16, &misfit);
            }
        }
        w += d->w_step;
        x += d->x_step;
    }
    return !(misfit[0] | misfit[1] | misfit[2] | misfit[3]);
}

INLINE_ALWAYS void lanes_tile(int n_rows, const struct dots *d, const uint16_t *w, float *out)
{
    quad_f acc[TILE_ROWS_MAX][QUARTERS];
#pragma GCC unroll 8
    for (int i = 0; i < n_rows; i++) {
#pragma GCC unroll 8
        for (int j = 0; j < QUARTERS; j++) {
            memcpy(&acc[i][j], out + (size_t)i * d->acc_stride + 4 * j, sizeof acc[i][j]);
            acc[i][j] = quad_flush(acc[i][j]);
        }
    }
    bool fits = lanes_run(n_rows, d, w, acc);
    for (int i = 0; i < n_rows; i++) {
        float *row = out + (size_t)i * d->acc_stride;
        if (fits) {
            memcpy(row, acc[i], sizeof acc[i]);
            continue;
        }
        for (int column = 0; column < 16; column++) {
            column_exact(row + column, w + 2 * column, d->x + (size_t)i * d->x_stride, d);
        }
    }
}

INLINE_ALWAYS void dot_tile(int n_rows, int n_columns, const struct dots *d)
{
    for (int j = 0; j < n_columns / 16; j++) {
        lanes_tile(n_rows, d, d->w + 32 * j, d->acc + 16 * j);
    }
}

/* Attention's chains go vector by vector, or block by block, through dot_tile. */
INLINE_ALWAYS void score_tile(int n_queries, int n_vectors, const struct score_dots *d)
{
    for (int i = 0; i < n_vectors; i++) {
        const struct dots dots = score_vector(n_queries, i, d);
        dot_tile(n_queries, 16, &dots);
    }
}

INLINE_ALWAYS void value_tile(int n_queries, int n_columns, const struct value_dots *d)
{
    for (int b = 0; b < d->n_blocks; b++) {
        const struct dots dots = value_block(b, d);
        dot_tile(n_queries, n_columns, &dots);
    }
}

static unsigned dots_begin(void)
{
    return 0;
}

static void dots_end(unsigned mode)
{
    (void)mode;
}

#include "model/backend/cpu/kernels/variant.h"

const struct kernels kernels_plain = KERNELS_TABLE("plain", &kernels_quant_plain);
