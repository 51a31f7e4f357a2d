/* Tiles of rows, and the rows of activations as the tiles read them; included by variant.h. */
#pragma once

#include "model/backend/cpu/kernels/kernels.h"
#include "model/backend/cpu/kernels/tile.h"

typedef void tile_fn(const struct dots *d);

#define TILE(rows, columns)                       \
    static void tile_##rows(const struct dots *d) \
    {                                             \
        dot_tile(rows, columns, d);               \
    }
TILES
#undef TILE

/* For each number of rows the tile, and how many of a block's 64 columns it does in one pass. */
#define TILE(rows, columns) [rows] = {tile_##rows, columns},
static const struct {
    tile_fn *run;
    int n_columns;
} tiles[TILE_ROWS + 1] = {TILES};
#undef TILE

static int share_size(int n, int n_shares, int share)
{
    return n / n_shares + (share < n % n_shares);
}

/* Tiles of up to LINE_ROWS rows read whole cache lines of a block one after the other, which is
 * faster as long as memory is the limit. */
static int tiles_of(int n_rows)
{
    int most = n_rows <= 2 * LINE_ROWS ? LINE_ROWS : TILE_ROWS;
    return (n_rows + most - 1) / most;
}

enum {
    PAIR_WORDS = WIDE_ROWS ? 2 : 1, /* of a row and a pair of k: odd and even fp32, or both bf16 */
    PAIR_STEP = 2 * PAIR_WORDS      /* the same in elements of bf16 */
};

/* A single tile is read fast enough as it is, unless it must be widened. */
static size_t panel_words(int n, int n_in)
{
    return tiles_of(n) > 1 || WIDE_ROWS ? (size_t)n * (size_t)n_in / 2 * PAIR_WORDS : 0;
}

/* The pair at `in` as a panel holds it. Two words are written as one. */
static inline void pair_store(uint32_t *out, const uint16_t *in)
{
    uint32_t pair = dots_word(in);
    if (WIDE_ROWS) {
        uint64_t both = (uint64_t)pair << 48 | (pair & 0xffff0000u);
        memcpy(out, &both, sizeof both);
    } else {
        *out = pair;
    }
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "of two words, the lower comes first");

/* out = [n_pairs][n_rows] pairs */
static void panel_fill(uint32_t *out, const uint16_t *in, size_t stride, int n_rows, int n_pairs)
{
    for (int row = 0; row < n_rows; row++) {
        for (int pair = 0; pair < n_pairs; pair++) {
            pair_store(out + (pair * n_rows + row) * PAIR_WORDS, in + 2 * pair);
        }
        in += stride;
    }
}

static void fill_panels(const struct matmul_rows *rows, int first_pair, int end_pair)
{
    int n_tiles = tiles_of(rows->n);
    size_t row = 0;
    for (int i = 0; i < n_tiles; i++) {
        int n_rows = share_size(rows->n, n_tiles, i);
        size_t words = (size_t)n_rows * PAIR_WORDS;
        uint32_t *panel = rows->panels + row * (size_t)(rows->n_in / 2) * PAIR_WORDS;
        panel_fill(panel + (size_t)first_pair * words,
                   rows->in + row * rows->stride + 2 * (size_t)first_pair, rows->stride, n_rows,
                   end_pair - first_pair);
        row += (size_t)n_rows;
    }
}
