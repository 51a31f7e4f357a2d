/* The one source of the integer kernels, included once by each variant's file, which defines before
 * it
 *   quant_tile(rows, form, d)   sums and chains of a tile of rows, always inlined with constants
 *   QUANT_TILE_ROWS             rows of the largest tile, at most 8
 *
 * A block of 32 columns is two vectors of 16. For up to a tile of rows, a block is read in one pass
 * with its accumulators in registers; every vector of weights is loaded once for all rows. With
 * more rows, the groups are taken in chunks that stay in the first-level cache, as in impl.h: the
 * accumulators rest in `park` in between, which changes no bit. */
#include <stdbool.h>
#include <string.h>

#include "model/backend/cpu/kernels/quant_tile.h"

enum {
    PARK_ROWS = 64,      /* rows whose accumulators are parked together: 8 KiB */
    CHUNK_BYTES = 18432, /* weights of a chunk */
    AHEAD_BYTES = 8192,  /* how far the prefetch of a single pass runs ahead */
    NEAR_BYTES = 2048,   /* the same for the second hop */
    LINE_BYTES = 64
};

typedef void quant_tile_fn(const struct quant_dots *d);

#define QUANT_TILE(rows)                                \
    static void int8_##rows(const struct quant_dots *d) \
    {                                                   \
        quant_tile(rows, WEIGHTS_INT8, d);              \
    }                                                   \
    static void int4_##rows(const struct quant_dots *d) \
    {                                                   \
        quant_tile(rows, WEIGHTS_INT4, d);              \
    }

QUANT_TILE(1)
QUANT_TILE(2)
#if QUANT_TILE_ROWS >= 4
QUANT_TILE(3)
QUANT_TILE(4)
#endif
#if QUANT_TILE_ROWS >= 8
QUANT_TILE(5)
QUANT_TILE(6)
QUANT_TILE(7)
QUANT_TILE(8)
#endif

/* [rows][form is int4] */
static quant_tile_fn *const quant_tiles[QUANT_TILE_ROWS + 1][2] = {
    [1] = {int8_1, int4_1}, [2] = {int8_2, int4_2},
#if QUANT_TILE_ROWS >= 4
    [3] = {int8_3, int4_3}, [4] = {int8_4, int4_4},
#endif
#if QUANT_TILE_ROWS >= 8
    [5] = {int8_5, int4_5}, [6] = {int8_6, int4_6}, [7] = {int8_7, int4_7}, [8] = {int8_8, int4_8},
#endif
};

/* As two_hops in impl.h: an Intel core needs two hops, a Zen core one. */
static bool quant_two_hops(void)
{
#ifdef OUTRIDER_X86
    return __builtin_cpu_is("intel");
#else
    return false;
#endif
}

/* A block and the rows that pass over it together. */
struct quant_pass {
    enum weight_form form;
    const uint8_t *w;
    const struct quant_group *in;
    size_t in_stride;
    int n_groups, n_rows, n_tiles;
    float *park; /* [n_rows][32] */
};

static int rows_of_tile(const struct quant_pass *p, int tile)
{
    return p->n_rows / p->n_tiles + (tile < p->n_rows % p->n_tiles);
}

/* Runs all tiles over n_groups groups from first_group on. They divide the prefetch of as many
 * bytes among them. */
static void quant_chunk(const struct quant_pass *p, int first_group, int n_groups)
{
    size_t bytes = quant_group_bytes(p->form);
    int lines = (int)(bytes / LINE_BYTES), halves = 2 * p->n_tiles;
    int shared_lines = (lines + halves - 1) / halves;
    struct quant_dots d = {
        .w = p->w + (size_t)first_group * bytes, .x_stride = p->in_stride, .n_groups = n_groups};
    const uint8_t *ahead = d.w + (p->n_tiles == 1 ? AHEAD_BYTES : (size_t)n_groups * bytes);
    bool hops = quant_two_hops();
    int row = 0;
    for (int i = 0; i < p->n_tiles; i++) {
        d.x = p->in + (size_t)row * p->in_stride + first_group;
        d.acc = p->park + (size_t)row * QUANT_COLUMNS;
        d.near = hops ? d.w + NEAR_BYTES : ahead;
        d.near_lines = hops ? (lines + 1) / 2 : shared_lines;
        d.far = ahead;
        d.far_lines = hops ? shared_lines : 0;
        quant_tiles[rows_of_tile(p, i)][p->form == WEIGHTS_INT4](&d);
        ahead += (size_t)n_groups * (size_t)(2 * shared_lines * LINE_BYTES);
        row += rows_of_tile(p, i);
    }
}

static void quant_pass_run(struct quant_pass *p, float *out, size_t out_stride, int n_columns)
{
    p->n_tiles = (p->n_rows + QUANT_TILE_ROWS - 1) / QUANT_TILE_ROWS;
    memset(p->park, 0, sizeof(float) * (size_t)p->n_rows * QUANT_COLUMNS);
    int step = CHUNK_BYTES / (int)quant_group_bytes(p->form);
    if (p->n_tiles == 1) step = p->n_groups;
    for (int group = 0; group < p->n_groups; group += step) {
        quant_chunk(p, group, p->n_groups - group < step ? p->n_groups - group : step);
    }
    for (int row = 0; row < p->n_rows; row++) {
        memcpy(out + (size_t)row * out_stride, p->park + (size_t)row * QUANT_COLUMNS,
               sizeof(float) * (size_t)n_columns);
    }
}

static void quant_matmul(const struct quant_matrix *w, const struct quant_call *call)
{
    _Alignas(64) float park[PARK_ROWS * QUANT_COLUMNS];
    size_t block_bytes = (size_t)w->n_groups * quant_group_bytes(w->form);
    for (int block = call->first_block; block < call->end_block; block++) {
        int column = block * QUANT_COLUMNS;
        int n_columns = w->n_out - column < QUANT_COLUMNS ? w->n_out - column : QUANT_COLUMNS;
        for (int row = 0; row < call->n_rows; row += PARK_ROWS) {
            int n_left = call->n_rows - row;
            struct quant_pass pass = {.form = w->form,
                                      .w = w->data + (size_t)block * block_bytes,
                                      .in = call->in + (size_t)row * call->in_stride,
                                      .in_stride = call->in_stride,
                                      .n_groups = w->n_groups,
                                      .n_rows = n_left < PARK_ROWS ? n_left : PARK_ROWS,
                                      .park = park};
            quant_pass_run(&pass, call->out + (size_t)row * call->out_stride + column,
                           call->out_stride, n_columns);
        }
    }
}

/* ---- activations ---- */

/* Loops of a known length become vectors. The operations of a lane are the same in all variants. */
static void group_quantize(int offset, const uint16_t *in, struct quant_group *out)
{
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    uint32_t largest = 0;
    int32_t sum = 0;
    for (int i = 0; i < QUANT_GROUP; i++) {
        uint32_t size = in[i] & 0x7fffu;
        largest = size > largest ? size : largest;
    }
    float most = num_bf16_to_float((uint16_t)largest);
    *out = (struct quant_group){0};
    if (largest >= 0x7f80u) out->scale = NAN;
    if (largest >= 0x7f80u || most < 0x1p-100f) return;
    float factor = 127.0f / most;
    for (int i = 0; i < QUANT_GROUP; i++) {
        float x = num_bf16_to_float(in[i]) * factor + shift;
        int32_t q = (int32_t)num_float_to_bits(x) - 0x4b400000;
        out->q[i] = (int8_t)q;
        sum += q;
    }
    out->scale = most / 127.0f;
    out->start = -offset * sum;
}

static void quantize(enum weight_form form, const uint16_t *in, int n, struct quant_group *out)
{
    int offset = form == WEIGHTS_INT8 ? 128 : 8, k = 0;
    for (; k + QUANT_GROUP <= n; k += QUANT_GROUP) {
        group_quantize(offset, in + k, out++);
    }
    if (k == n) return;
    uint16_t rest[QUANT_GROUP] = {0};
    memcpy(rest, in + k, (size_t)(n - k) * sizeof *in);
    group_quantize(offset, rest, out);
}

#define KERNELS_QUANT_TABLE                          \
    {                                                \
        .quantize = quantize, .matmul = quant_matmul \
    }
