/* Makes the table of a variant from its parts; included once by each variant's file. Before it that
 * file defines, or includes tile_frame.h, which has the tiles,
 *   VEC_BYTES                     width of its float vectors
 *   dot_tile(rows, columns, d)    the chains of a tile, always inlined with constant sizes
 *   TILE_ROWS, LINE_ROWS          rows of the largest tile, and of the largest for few rows
 *   TILES                         TILE(rows, columns) for each number of rows, 16, 32 or 64
 *                                 columns in a pass
 *   ATTENTION_ROWS, ATTENTION_TILES, SCORE_LANES, score_tile, value_tile: see attention.h
 *   WIDE_ROWS                     whether dot_tile takes activations as fp32 and not as bf16
 *   WHOLE_K                       whether a tile may run over all of k at once
 *   dots_begin, dots_end          the floating-point mode of the chains
 * and it may define OWN_LANES and OWN_STORE_BF16 (lanes.h).
 * The code here has one order of IEEE additions and multiplications in 16 lanes, so that all
 * variants give the same bits. Only the chains run with denormals flushed. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "model/backend/cpu/kernels/kernels.h"
#include "model/numerics/numerics.h"

enum {
    VECTOR_STEP = 2 * KERNEL_LANES, /* bf16 of a vector for one pair of k */
    LINE_STEP = 32                  /* bf16 of a cache line */
};

#include "model/backend/cpu/kernels/attention.h"
#include "model/backend/cpu/kernels/fp8.h"
#include "model/backend/cpu/kernels/lanes.h"
#include "model/backend/cpu/kernels/matmul.h"

static void vector_1(const struct dots *d)
{
    dot_tile(1, KERNEL_LANES, d);
}

static void dot_step(float acc[16], const uint16_t w[32], uint32_t x_pair)
{
    uint16_t x[2];
    uint32_t words[PAIR_WORDS];
    memcpy(x, &x_pair, sizeof x);
    pair_store(words, x);
    unsigned mode = dots_begin();
    vector_1(&(struct dots){.w = w,
                            .w_step = VECTOR_STEP,
                            .x = (const uint16_t *)words,
                            .n_pairs = 1,
                            .acc = acc,
                            .near = w,
                            .far = w});
    dots_end(mode);
}

/* The table of the variant that includes this file. */
#define KERNELS_TABLE(text, integers)                                                             \
    {                                                                                             \
        .name = (text), .panel_words = panel_words, .fill_panels = fill_panels, .matmul = matmul, \
        .fp8_matmul = fp8_matmul, .dot_step = dot_step, .rmsnorm = rmsnorm,                       \
        .rmsnorm_head = rmsnorm_head, .squares = squares, .swiglu = swiglu, .geglu = geglu,       \
        .softcap = softcap, .scores = scores, .max = max_of, .exp_sum = exp_sum,                  \
        .weighted_sum = weighted_sum, .quant = (integers)                                         \
    }
