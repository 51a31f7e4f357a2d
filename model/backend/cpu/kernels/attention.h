/* Attention's two products over KV blocks; included by variant.h. The variant's file has
 *   SCORE_LANES                       positions of a vector of K: a block, or a part of it
 *   score_tile(queries, vectors, d)   sums of a tile of queries against some vectors of K
 *   value_tile(queries, columns, d)   sums over all V blocks for some of V's columns
 * with their sums in registers, and the sizes that fill these for each number of queries:
 * ATTENTION_TILES is ATTENTION_TILE(queries, vectors, columns) for 1 .. ATTENTION_ROWS queries. */
#pragma once

#include "model/backend/cpu/kernels/panels.h"

enum {
    QUERIES_AT_ONCE = 36, /* that one tile after the other reads */
    BLOCK_VECTORS = KERNEL_LANES / SCORE_LANES,
    SCORE_VECTORS = SCORE_BLOCKS * BLOCK_VECTORS
};

typedef void score_fn(const struct score_dots *d);
typedef void value_fn(const struct value_dots *d);

#define ATTENTION_TILE(queries, vectors, columns)               \
    static void score_##queries(const struct score_dots *d)     \
    {                                                           \
        score_tile(queries, vectors, d);                        \
    }                                                           \
    static void score_two_##queries(const struct score_dots *d) \
    {                                                           \
        score_tile(queries, 2, d);                              \
    }                                                           \
    static void score_one_##queries(const struct score_dots *d) \
    {                                                           \
        score_tile(queries, 1, d);                              \
    }                                                           \
    static void value_##queries(const struct value_dots *d)     \
    {                                                           \
        value_tile(queries, columns, d);                        \
    }                                                           \
    static void value_one_##queries(const struct value_dots *d) \
    {                                                           \
        value_tile(queries, KERNEL_LANES, d);                   \
    }
ATTENTION_TILES
#undef ATTENTION_TILE

#define ATTENTION_TILE(queries, vectors, columns)                           \
    [queries] = {score_##queries, score_two_##queries, score_one_##queries, \
                 value_##queries, value_one_##queries, vectors,             \
                 columns},
static const struct {
    score_fn *score, *score_two, *score_one; /* n_vectors vectors, two, one */
    value_fn *value, *value_one;             /* n_columns columns, one vector */
    int n_vectors, n_columns;
} attention_tiles[ATTENTION_ROWS + 1] = {ATTENTION_TILES};
#undef ATTENTION_TILE

static int attention_tiles_of(int n_queries)
{
    return (n_queries + ATTENTION_ROWS - 1) / ATTENTION_ROWS;
}

/* The rows of a tile as dot_tile takes them: n rows of n_pairs pairs of bf16, widened into `wide`
 * where the variant wants that. */
struct tile_rows {
    const uint16_t *data;
    size_t stride, step;
};

static struct tile_rows tile_rows(const uint16_t *rows, size_t stride, int n, int n_pairs,
                                  uint32_t *wide)
{
    if (!WIDE_ROWS) return (struct tile_rows){rows, stride, 2};
    panel_fill(wide, rows, stride, n, n_pairs);
    return (struct tile_rows){(const uint16_t *)wide, PAIR_STEP, (size_t)n * PAIR_STEP};
}

/* Some blocks of K as vectors. */
struct score_vectors {
    const uint16_t *at[SCORE_VECTORS], *ahead[SCORE_VECTORS], *far[SCORE_VECTORS];
    int n;
};

static void list_vectors(struct score_vectors *list, const struct kv_parts *k, int first, int n)
{
    list->n = n * BLOCK_VECTORS;
    for (int i = 0; i < list->n; i++) {
        int block = first + i / BLOCK_VECTORS, at = i % BLOCK_VECTORS * 2 * SCORE_LANES;
        list->at[i] = k->at[block] + at;
        list->ahead[i] = k->ahead[block] + at;
        list->far[i] = k->far[block] + at;
    }
}

/* Some blocks of K for one tile of queries. */
static void score_blocks(struct score_dots d, int queries, const struct score_vectors *k,
                         bool is_first)
{
    float *out = d.out;
    for (int i = 0, n; i < k->n; i += n) {
        score_fn *run = attention_tiles[queries].score;
        n = attention_tiles[queries].n_vectors;
        if (k->n - i < n) {
            n = k->n - i < 2 ? 1 : 2;
            run = n == 2 ? attention_tiles[queries].score_two : attention_tiles[queries].score_one;
        }
        d.k = k->at + i;
        d.ahead = is_first ? k->ahead + i : d.k;
        d.far = is_first ? k->far + i : d.k;
        d.out = out + i * SCORE_LANES;
        run(&d);
    }
}

/* The blocks stay in the first-level cache while one tile of queries after the other passes over
 * them. The first tile prefetches. */
static void scores_of(const struct query_rows *q, const struct kv_parts *k, int head_dim,
                      float *out, size_t out_stride)
{
    uint32_t wide[WIDE_ROWS ? QUERIES_AT_ONCE * QUERY_LEN_MAX : 1];
    struct tile_rows rows[QUERIES_AT_ONCE];
    int n_tiles = attention_tiles_of(q->n);
    for (int i = 0, first = 0; i < n_tiles; i++) {
        int queries = share_size(q->n, n_tiles, i);
        rows[i] = tile_rows(q->data + (size_t)first * q->stride, q->stride, queries, head_dim / 2,
                            WIDE_ROWS ? wide + first * head_dim : wide);
        first += queries;
    }
    for (int b = 0, n; b < k->n; b += n) {
        struct score_vectors vectors;
        n = k->n - b < SCORE_BLOCKS ? k->n - b : SCORE_BLOCKS;
        list_vectors(&vectors, k, b, n);
        for (int i = 0, first = 0; i < n_tiles; i++) {
            int queries = share_size(q->n, n_tiles, i);
            const struct score_dots d = {.q = rows[i].data,
                                         .q_stride = rows[i].stride,
                                         .q_step = rows[i].step,
                                         .n_pairs = head_dim / 2,
                                         .out = out + (size_t)first * out_stride + b * KERNEL_LANES,
                                         .out_stride = out_stride};
            score_blocks(d, queries, &vectors, i == 0);
            first += queries;
        }
    }
}

static void scores(const struct query_rows *q, const struct kv_parts *k, int head_dim, float *out,
                   size_t out_stride)
{
    unsigned mode = dots_begin();
    for (int i = 0; i < q->n; i += QUERIES_AT_ONCE) {
        int n = q->n - i < QUERIES_AT_ONCE ? q->n - i : QUERIES_AT_ONCE;
        const struct query_rows part = {q->data + (size_t)i * q->stride, q->stride, n};
        scores_of(&part, k, head_dim, out + (size_t)i * out_stride, out_stride);
    }
    dots_end(mode);
}

/* V blocks first .. first + n of one tile of queries, for all columns. */
static void value_blocks(struct value_dots d, int queries, const struct kv_parts *v, bool is_first,
                         int first, int n, int head_dim)
{
    const uint16_t *const *at = v->at + first;
    float *acc = d.acc;
    d.v = at;
    d.ahead = is_first ? v->ahead + first : at;
    d.far = is_first ? v->far + first : at;
    d.n_blocks = n;
    d.p += (size_t)(first * d.n_pairs) * d.p_step;
    for (int e = 0, columns; e < head_dim; e += columns) {
        columns = attention_tiles[queries].n_columns;
        int left = head_dim - e - columns; /* no part of a vector of 16 may remain */
        if (left < 0 || left == KERNEL_LANES / 2) columns = KERNEL_LANES;
        d.first = 2 * (size_t)e;
        d.acc = acc + e;
        (columns > KERNEL_LANES ? attention_tiles[queries].value
                                : attention_tiles[queries].value_one)(&d);
    }
}

/* Where a tile needs several passes for all columns, they go over a few blocks at a time, so that V
 * is read once and in its order, and what was prefetched is there in time. */
static void weighted_sum(const struct query_rows *p, const struct kv_parts *v, int n_pairs,
                         int head_dim, float *acc, size_t acc_stride)
{
    uint32_t wide[WIDE_ROWS ? ATTENTION_ROWS * QUERY_LEN_MAX : 1];
    const uint16_t *weights = p->data;
    int n_tiles = attention_tiles_of(p->n);
    unsigned mode = dots_begin();
    for (int i = 0; i < n_tiles; i++) {
        int queries = share_size(p->n, n_tiles, i);
        struct tile_rows rows = tile_rows(weights, p->stride, queries, n_pairs * v->n, wide);
        const struct value_dots d = {.step = 2 * (size_t)head_dim,
                                     .n_pairs = n_pairs,
                                     .p = rows.data,
                                     .p_stride = rows.stride,
                                     .p_step = rows.step,
                                     .acc = acc,
                                     .acc_stride = acc_stride};
        int step = head_dim <= attention_tiles[queries].n_columns ? v->n : VALUE_BLOCKS;
        for (int b = 0; b < v->n; b += step) {
            value_blocks(d, queries, v, i == 0, b, v->n - b < step ? v->n - b : step, head_dim);
        }
        weights += (size_t)queries * p->stride;
        acc += (size_t)queries * acc_stride;
    }
    dots_end(mode);
}
