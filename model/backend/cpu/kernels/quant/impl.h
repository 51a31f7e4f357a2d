/* The one source of the integer kernels, included once by each variant's file, which defines before
 * it
 *   quant_tile(rows, form, d)   sums and chains of a tile of rows, always inlined with constants
 *   QUANT_TILE_ROWS             rows of the largest tile, at most 8
 *   quant_is_wide(form)         whether the form is multiplied with activations of 16 bits
 *   quant_round(in, group)      rounds 32 bf16 to integers
 *   quant_store(form, group, step_stride, q)
 *                               writes a row's integers from q on
 *
 * A block of 32 columns is two vectors of 16. For up to a tile of rows, a block is read in one
 * pass. With more rows, the groups are taken in chunks that stay in the first-level cache while all
 * tiles pass over them, so that weights are read from memory once. The accumulators rest in `park`
 * in between, which changes no bit. A chunk begins with a super-block. */
#include <stdbool.h>
#include <string.h>

#include "model/backend/cpu/kernels/kernels.h"
#include "model/backend/cpu/kernels/quant/tile.h"

enum {
    PARK_ROWS = 288,    /* rows whose accumulators are parked together: 36 KiB */
    CHUNK_BYTES = 9216, /* weights of a chunk; two and a tile's activations fit into 32 KiB */
    AHEAD_BYTES = 8192, /* how far the prefetch of a single tile runs ahead in one hop */
    FAR_BYTES = 4096,   /* the same in two hops, the first of them */
    NEAR_BYTES = 1024,  /* and the second */
    LINE_BYTES = 64
};

typedef void quant_tile_fn(const struct quant_dots *d);

/* The tiles of a form, one for each number of rows. */
#define QUANT_TILE(name, form, rows)                      \
    static void name##_##rows(const struct quant_dots *d) \
    {                                                     \
        quant_tile(rows, form, d);                        \
    }

#if QUANT_TILE_ROWS == 8
#define QUANT_TILES(name, form) \
    QUANT_TILE(name, form, 1)   \
    QUANT_TILE(name, form, 2)   \
    QUANT_TILE(name, form, 3)   \
    QUANT_TILE(name, form, 4)   \
    QUANT_TILE(name, form, 5)   \
    QUANT_TILE(name, form, 6)   \
    QUANT_TILE(name, form, 7)   \
    QUANT_TILE(name, form, 8)
#define QUANT_NAMES(name) \
    NULL, name##_1, name##_2, name##_3, name##_4, name##_5, name##_6, name##_7, name##_8
#elif QUANT_TILE_ROWS == 6
#define QUANT_TILES(name, form) \
    QUANT_TILE(name, form, 1)   \
    QUANT_TILE(name, form, 2)   \
    QUANT_TILE(name, form, 3)   \
    QUANT_TILE(name, form, 4)   \
    QUANT_TILE(name, form, 5)   \
    QUANT_TILE(name, form, 6)
#define QUANT_NAMES(name) NULL, name##_1, name##_2, name##_3, name##_4, name##_5, name##_6
#else
#define QUANT_TILES(name, form) QUANT_TILE(name, form, 1) QUANT_TILE(name, form, 2)
#define QUANT_NAMES(name)       NULL, name##_1, name##_2
#endif

#define QUANT_FORMS(EACH)          \
    EACH(int8, WEIGHTS_INT8)       \
    EACH(int4, WEIGHTS_INT4)       \
    EACH(q4_0, WEIGHTS_Q4_0)       \
    EACH(q4_1, WEIGHTS_Q4_1)       \
    EACH(q5_0, WEIGHTS_Q5_0)       \
    EACH(q5_1, WEIGHTS_Q5_1)       \
    EACH(q8_0, WEIGHTS_Q8_0)       \
    EACH(q2_k, WEIGHTS_Q2_K)       \
    EACH(q3_k, WEIGHTS_Q3_K)       \
    EACH(q4_k, WEIGHTS_Q4_K)       \
    EACH(q5_k, WEIGHTS_Q5_K)       \
    EACH(q6_k, WEIGHTS_Q6_K)       \
    EACH(iq4_nl, WEIGHTS_IQ4_NL)   \
    EACH(iq4_xs, WEIGHTS_IQ4_XS)   \
    EACH(u4_f16, WEIGHTS_U4_F16)   \
    EACH(u4_bf16, WEIGHTS_U4_BF16) \
    EACH(u4_f32, WEIGHTS_U4_F32)   \
    EACH(u8_f32, WEIGHTS_U8_F32)

QUANT_FORMS(QUANT_TILES)

#define QUANT_ROW(name, form) [form] = {QUANT_NAMES(name)},

static quant_tile_fn *const quant_tiles[WEIGHT_FORMS][QUANT_TILE_ROWS + 1] = {
    QUANT_FORMS(QUANT_ROW)};

/* ---- tiles ---- */

/* Tiles are cut as evenly as possible by the number of rows alone. */
static int tiles_of_rows(int n_rows)
{
    return (n_rows + QUANT_TILE_ROWS - 1) / QUANT_TILE_ROWS;
}

static int rows_of_tile(int n_rows, int tile)
{
    int n_tiles = tiles_of_rows(n_rows);
    return n_rows / n_tiles + (tile < n_rows % n_tiles);
}

static int first_row_of_tile(int n_rows, int tile)
{
    int n_tiles = tiles_of_rows(n_rows), n_larger = n_rows % n_tiles;
    return tile * (n_rows / n_tiles) + (tile < n_larger ? tile : n_larger);
}

static int step_bytes(enum weight_form form)
{
    return quant_is_wide(form) ? 8 : 4;
}

static size_t row_group_bytes(enum weight_form form)
{
    return QUANT_HEAD_BYTES + (size_t)(QUANT_STEPS * step_bytes(form));
}

/* ---- matmul ---- */

/* A block and the tiles that pass over it together. */
struct quant_pass {
    const struct quant_matrix *matrix;
    const uint8_t *w;  /* the block */
    const uint8_t *in; /* the panels of all rows of the matmul */
    int n_rows;
    int first_tile, end_tile;
    bool hops;
    float *park; /* [rows of the tiles][32] */
};

/* Runs a tile over n_groups groups from first_group on. */
static void quant_run_tile(const struct quant_pass *p, int tile, struct quant_dots *d,
                           int first_group)
{
    int first_row = first_row_of_tile(p->n_rows, tile), n_rows = rows_of_tile(p->n_rows, tile);
    enum weight_form form = p->matrix->form;
    size_t before =
        (size_t)first_row * (size_t)p->matrix->n_groups + (size_t)n_rows * (size_t)first_group;
    d->x = p->in + before * row_group_bytes(form);
    d->n_first = first_group ? GROUP_SUPER : GROUP_SUPER - p->matrix->first_group;
    d->acc = p->park + (first_row - first_row_of_tile(p->n_rows, p->first_tile)) * QUANT_COLUMNS;
    quant_tiles[form][n_rows](d);
}

/* A single tile passes over the whole block and prefetches ahead of itself. */
static void quant_stream(const struct quant_pass *p)
{
    struct quant_dots d = {.w = p->w,
                           .n_groups = p->matrix->n_groups,
                           .near = p->hops ? NEAR_BYTES : AHEAD_BYTES,
                           .far = p->hops ? FAR_BYTES : 0};
    quant_run_tile(p, p->first_tile, &d, 0);
}

/* Runs all tiles over a chunk. They share the prefetch of the next chunk, in whole lines for each
 * vector of a group; in two hops, the first tile makes the second. */
static void quant_chunk(const struct quant_pass *p, int first_group, int n_groups)
{
    size_t at = quant_group_offset(p->matrix, first_group);
    size_t end_at = quant_group_offset(p->matrix, first_group + n_groups);
    int lines = (int)((end_at - at) / LINE_BYTES), n_tiles = p->end_tile - p->first_tile;
    int n_portions = 2 * n_groups * n_tiles;
    int shared_lines = (lines + n_portions - 1) / n_portions;
    struct quant_dots d = {.w = p->w + at,
                           .n_groups = n_groups,
                           .near = p->hops ? NEAR_BYTES : 0,
                           .next_is_near = !p->hops};
    d.next = p->w + end_at;
    const uint8_t *end = d.next + (end_at - at);
    for (int tile = p->first_tile; tile < p->end_tile; tile++) {
        d.next_lines = d.next < end ? shared_lines : 0;
        quant_run_tile(p, tile, &d, first_group);
        d.next += n_groups * 2 * shared_lines * LINE_BYTES;
        d.near = 0;
    }
}

static void quant_pass_run(const struct quant_pass *p)
{
    const struct quant_matrix *w = p->matrix;
    if (p->end_tile - p->first_tile == 1) {
        quant_stream(p);
        return;
    }
    int step = CHUNK_BYTES / quant_group_bytes(w->form);
    if (group_form_is_super(w->form)) step = most(step / GROUP_SUPER, 1) * GROUP_SUPER;
    for (int group = 0, end; group < w->n_groups; group = end) {
        end = least(group + step - (group ? 0 : w->first_group), w->n_groups);
        quant_chunk(p, group, end - group);
    }
}

/* One block of columns for some tiles of rows. */
static void quant_block(const struct quant_pass *p, const struct quant_call *call, int column,
                        int n_columns)
{
    int first = first_row_of_tile(p->n_rows, p->first_tile);
    int n = first_row_of_tile(p->n_rows, p->end_tile) - first;
    float *out = call->out + (size_t)first * call->out_stride + column;
    memset(p->park, 0, sizeof(float) * (size_t)n * QUANT_COLUMNS);
    quant_pass_run(p);
    for (int row = 0; row < n; row++) {
        memcpy(out + (size_t)row * call->out_stride, p->park + (size_t)row * QUANT_COLUMNS,
               sizeof(float) * (size_t)n_columns);
    }
}

static void quant_matmul(const struct quant_matrix *w, const struct quant_call *call)
{
    _Alignas(64) float park[PARK_ROWS * QUANT_COLUMNS];
    size_t block_bytes = quant_block_bytes(w);
    int n_tiles = tiles_of_rows(call->n_rows), tiles_at_once = PARK_ROWS / QUANT_TILE_ROWS;
    int n_passes = (n_tiles + tiles_at_once - 1) / tiles_at_once;
    struct quant_pass pass = {.matrix = w,
                              .in = call->in,
                              .n_rows = call->n_rows,
                              .hops = kernels_two_hops(),
                              .park = park};
    for (int block = call->first_block; block < call->end_block; block++) {
        int column = block * QUANT_COLUMNS;
        int n_columns = w->n_out - column < QUANT_COLUMNS ? w->n_out - column : QUANT_COLUMNS;
        pass.w = w->data + (size_t)block * block_bytes;
        for (int i = 0; i < n_passes; i++) {
            pass.first_tile = i * n_tiles / n_passes;
            pass.end_tile = (i + 1) * n_tiles / n_passes;
            quant_block(&pass, call, column, n_columns);
        }
    }
}

/* ---- activations ---- */

/* Row `row` of a panel's group `out`. */
static void group_quantize(enum weight_form form, const uint16_t *in, int n_rows, int row,
                           uint8_t *out)
{
    struct quant_group group;
    quant_round(in, &group);
    quant_store_head(&group, n_rows, row, out);
    quant_store(form, &group, n_rows * step_bytes(form),
                out + n_rows * QUANT_HEAD_BYTES + row * step_bytes(form));
}

/* Some groups of a row of a panel; `in` and `out` belong to group 0. */
static void row_quantize(const struct quant_rows *rows, const uint16_t *in, int n_rows, int row,
                         uint8_t *out, int first_group, int end_group)
{
    size_t bytes = (size_t)n_rows * row_group_bytes(rows->form);
    for (int group = first_group; group < end_group; group++) {
        uint16_t rest[QUANT_GROUP] = {0};
        int k = group * QUANT_GROUP;
        const uint16_t *from = in + k;
        if (k + QUANT_GROUP > rows->n_in) {
            memcpy(rest, from, (size_t)(rows->n_in - k) * sizeof *rest);
            from = rest;
        }
        group_quantize(rows->form, from, n_rows, row, out + (size_t)group * bytes);
    }
}

static void quantize(const struct quant_rows *rows, int first_group, int end_group)
{
    size_t n_groups = (size_t)((rows->n_in + QUANT_GROUP - 1) / QUANT_GROUP);
    int n_tiles = tiles_of_rows(rows->n_rows);
    for (int tile = 0; tile < n_tiles; tile++) {
        int n = rows_of_tile(rows->n_rows, tile), first = first_row_of_tile(rows->n_rows, tile);
        uint8_t *panel = rows->out + (size_t)first * n_groups * row_group_bytes(rows->form);
        for (int i = 0; i < n; i++) {
            row_quantize(rows, rows->in + (size_t)(first + i) * rows->in_stride, n, i, panel,
                         first_group, end_group);
        }
    }
}

static bool is_wide(enum weight_form form)
{
    return quant_is_wide(form);
}

#define KERNELS_QUANT_TABLE                                              \
    {                                                                    \
        .is_wide = is_wide, .quantize = quantize, .matmul = quant_matmul \
    }
