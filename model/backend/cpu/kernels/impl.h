/* The one source of the kernels, included once by each variant's file. Before it that file defines
 *   VEC_BYTES                     width of its float vectors
 *   dot_tile(rows, columns, d)    the chains of a tile, always inlined with constant sizes
 *   TILE_ROWS, LINE_ROWS          rows of the largest tile, and of the largest for few rows
 *   TILE_FUNCTIONS, TILE_TABLE    the tiles of matmul: TILE(rows, columns) for each size, and
 *                                 [rows] = {PASS(rows, columns), ...}, 64 columns in all
 *   ATTENTION_ROWS, ATTENTION_TILES, ATTENTION_TABLE   the same for attention.h
 *   WIDE_ROWS                     whether dot_tile takes activations as fp32 and not as bf16
 *   WHOLE_K                       whether a tile may run over all of k at once
 *   dots_begin, dots_end          the floating-point mode of the chains
 * The code here has one order of IEEE additions and multiplications in 16 lanes, so that all
 * variants give the same bits. Only the chains run with denormals flushed.
 *
 * A matmul goes block by block. For up to a tile of rows whose 64 columns fit into registers, a
 * block is read in one pass. Otherwise k is taken in chunks that stay in the first-level cache:
 * every tile of rows runs over the chunk, and its accumulators rest in `park` in between. So the
 * weights are read from memory once for up to PARK_ROWS rows, while their panels and accumulators
 * stream from the second-level cache. Storing and loading a float changes nothing, so an output is
 * one chain either way. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "model/backend/cpu/kernels/kernels.h"
#include "model/numerics/exp_coefficients.h"
#include "model/numerics/numerics.h"

enum {
    VEC_LANES = VEC_BYTES / 4,
    VECS = KERNEL_LANES / VEC_LANES, /* vectors of 16 lanes */
    BLOCK_STEP = 2 * KERNEL_COLUMNS, /* bf16 of a block for one pair of k */
    VECTOR_STEP = 2 * KERNEL_LANES,  /* bf16 of a vector for one pair of k */
    LINE_STEP = 32,                  /* bf16 of a cache line */
    PARK_ROWS = 256,                 /* rows whose accumulators are parked together: 64 KiB */
    PASSES_MAX = 4,                  /* of a tile over a chunk */
    /* Pairs of k that the prefetch of a single pass runs ahead: in one hop, or in the first and in
     * the second of two. */
    ONE_HOP_STEPS = 32,
    FAR_STEPS = 16,
    NEAR_STEPS = 4
};

/* Pairs of k of a chunk: 32 KiB of weights, or 16 where a chunk and the next one must fit into the
 * first-level cache together. */
static int chunk_pairs(void)
{
    return kernels_two_hops() ? 128 : 64;
}

typedef void tile_fn(const struct dots *d);

#define TILE(rows, columns)                                   \
    static void tile_##rows##x##columns(const struct dots *d) \
    {                                                         \
        dot_tile(rows, columns, d);                           \
    }
#define PASS(rows, columns)                \
    {                                      \
        tile_##rows##x##columns, (columns) \
    }

TILE_FUNCTIONS

/* How a tile of so many rows passes over the 64 columns of a block. */
static const struct pass {
    tile_fn *run; /* NULL after the last */
    int n_columns;
} tiles[TILE_ROWS + 1][PASSES_MAX + 1] = {TILE_TABLE};

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

/* ---- panels ---- */

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

/* ---- matmul ---- */

/* A block, and the tiles of rows that pass over it together. */
struct group {
    const struct matmul_rows *rows;
    int first_row, first_tile, end_tile, n_passes; /* n_passes: tile runs over one chunk */
    const uint16_t *w;
    int first_k, n_pairs;
    float *park; /* [rows of the tiles][64] */
};

static int rows_of(const struct matmul_rows *rows, int tile)
{
    return share_size(rows->n, tiles_of(rows->n), tile);
}

static int group_passes(const struct group *g)
{
    int n_passes = 0;
    for (int i = g->first_tile; i < g->end_tile; i++) {
        for (const struct pass *pass = tiles[rows_of(g->rows, i)]; pass->run; pass++) {
            n_passes++;
        }
    }
    return n_passes;
}

/* Where a tile finds its activations. */
static void dots_rows(struct dots *d, const struct matmul_rows *rows, int n_rows, size_t row,
                      size_t k)
{
    if (panel_words(rows->n, rows->n_in)) {
        const uint32_t *panel = rows->panels + row * (size_t)(rows->n_in / 2) * PAIR_WORDS;
        d->x = (const uint16_t *)(panel + k / 2 * (size_t)n_rows * PAIR_WORDS);
        d->x_stride = PAIR_STEP;
        d->x_step = (size_t)n_rows * PAIR_STEP;
    } else {
        d->x = rows->in + row * rows->stride + k;
        d->x_stride = rows->stride;
        d->x_step = 2;
    }
}

/* Runs all tiles over the pairs first_pair .. first_pair + n_pairs. The passes divide the prefetch
 * of as many weights among them, so that the memory is busy all the time. */
static void group_chunk(const struct group *g, int first_pair, int n_pairs)
{
    const uint16_t *w = g->w + (size_t)first_pair * BLOCK_STEP;
    bool hops = kernels_two_hops();
    size_t n_ahead = g->n_passes > 1 ? (size_t)n_pairs : hops ? FAR_STEPS : ONE_HOP_STEPS;
    const uint16_t *ahead = w + n_ahead * BLOCK_STEP;
    const uint16_t *ahead_end = w + 2 * n_ahead * BLOCK_STEP;
    size_t lines = (size_t)(4 + g->n_passes - 1) / (size_t)g->n_passes;
    size_t ahead_step = lines * LINE_STEP;
    struct dots d = {
        .w_step = BLOCK_STEP, .n_pairs = n_pairs, .acc_stride = KERNEL_COLUMNS, .far = g->w};
    size_t row = (size_t)g->first_row;
    float *park = g->park;
    for (int i = g->first_tile; i < g->end_tile; i++) {
        int n_rows = rows_of(g->rows, i), column = 0;
        dots_rows(&d, g->rows, n_rows, row, (size_t)g->first_k + 2 * (size_t)first_pair);
        for (const struct pass *pass = tiles[n_rows]; pass->run; pass++) {
            d.w = w + 2 * (size_t)column;
            d.acc = park + column;
            if (hops) {
                d.near = d.w + NEAR_STEPS * BLOCK_STEP;
                d.near_step = BLOCK_STEP;
                d.far = ahead;
                d.far_step = ahead_step;
            } else {
                d.near = ahead;
                d.near_step = ahead_step;
            }
            pass->run(&d);
            ahead += (size_t)n_pairs * ahead_step;
            if (ahead >= ahead_end) ahead_step = 0;
            column += pass->n_columns;
        }
        row += (size_t)n_rows;
        park += n_rows * KERNEL_COLUMNS;
    }
}

static void group_run(struct group *g, float *out, size_t out_stride, int n_columns)
{
    int n_rows = 0;
    for (int i = g->first_tile; i < g->end_tile; i++) {
        n_rows += rows_of(g->rows, i);
    }
    g->n_passes = group_passes(g);
    memset(g->park, 0, sizeof(float) * (size_t)n_rows * KERNEL_COLUMNS);
    int step = WHOLE_K && g->n_passes == 1 ? g->n_pairs : chunk_pairs();
    for (int pair = 0; pair < g->n_pairs; pair += step) {
        group_chunk(g, pair, g->n_pairs - pair < step ? g->n_pairs - pair : step);
    }
    for (int row = 0; row < n_rows; row++) {
        memcpy(out + (size_t)row * out_stride, g->park + (size_t)row * KERNEL_COLUMNS,
               sizeof(float) * (size_t)n_columns);
    }
    g->first_row += n_rows;
}

static void matmul_blocks(const struct packed_matrix *w, const struct matmul_call *call)
{
    _Alignas(64) float park[PARK_ROWS * KERNEL_COLUMNS];
    int n_tiles = tiles_of(call->rows->n), tiles_at_once = PARK_ROWS / TILE_ROWS;
    for (int block = call->first_block; block < call->end_block; block++) {
        int column = block * KERNEL_COLUMNS;
        int n_columns = w->n_out - column < KERNEL_COLUMNS ? w->n_out - column : KERNEL_COLUMNS;
        struct group g = {.rows = call->rows,
                          .w = w->data + (size_t)block * (size_t)w->n_in * KERNEL_COLUMNS,
                          .first_k = call->first_k,
                          .n_pairs = w->n_in / 2,
                          .park = park};
        for (; g.first_tile < n_tiles; g.first_tile = g.end_tile) {
            g.end_tile = g.first_tile + tiles_at_once;
            if (g.end_tile > n_tiles) g.end_tile = n_tiles;
            group_run(&g, call->out + (size_t)g.first_row * call->out_stride + column,
                      call->out_stride, n_columns);
        }
    }
}

static void matmul(const struct packed_matrix *w, const struct matmul_call *call)
{
    unsigned mode = dots_begin();
    matmul_blocks(w, call);
    dots_end(mode);
}

/* ---- the other dot chains ---- */

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

#include "model/backend/cpu/kernels/attention.h"

/* ---- 16 lanes ---- */

typedef float vec_f __attribute__((vector_size(VEC_BYTES)));
typedef int32_t vec_i __attribute__((vector_size(VEC_BYTES)));
typedef uint32_t vec_u __attribute__((vector_size(VEC_BYTES)));
typedef uint16_t vec_h __attribute__((vector_size(VEC_BYTES / 2)));

static inline vec_f vec_load(const float *x)
{
    vec_f v;
    memcpy(&v, x, sizeof v);
    return v;
}

static inline void vec_store(float *x, vec_f v)
{
    memcpy(x, &v, sizeof v);
}

static inline vec_f vec_all(float x)
{
    return x - (vec_f){0};
}

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

/* The same without NaN, whose rounding might overflow. */
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

/* 1 / sqrt(mean of squares + eps). Element i belongs to lane i % 16. */
static float norm_factor(const float *x, float eps, int n)
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
    return 1.0f / sqrtf(lanes_sum(lanes) / (float)n + eps);
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

/* The same mask, but the compiler no longer knows that it came from a comparison. It would make
 * selections of what is meant as one bitwise operation, and they cost three. */
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

/* The table of the variant that includes this file. */
#define KERNELS_TABLE(text, integers)                                                             \
    {                                                                                             \
        .name = (text), .panel_words = panel_words, .fill_panels = fill_panels, .matmul = matmul, \
        .dot_step = dot_step, .rmsnorm = rmsnorm, .rmsnorm_head = rmsnorm_head, .swiglu = swiglu, \
        .scores = scores, .max = max_of, .exp_sum = exp_sum, .weighted_sum = weighted_sum,        \
        .quant = (integers)                                                                       \
    }
