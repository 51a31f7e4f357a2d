/* Attention's two products over KV blocks; included by impl.h. The variant's file has
 *   score_tile(queries, blocks, d)    sums of a tile of queries against some K blocks
 *   value_tile(queries, columns, d)   sums over all V blocks for some of V's columns
 * with their sums in registers, and the sizes that fill these for each number of queries:
 * ATTENTION_TILE and ATTENTION_ENTRY(queries, blocks, columns). */
#pragma once

enum { QUERIES_AT_ONCE = 36 /* that one tile after the other reads */ };

typedef void score_fn(const struct score_dots *d);
typedef void value_fn(const struct value_dots *d);

#define ATTENTION_TILE(queries, blocks, columns)                \
    static void score_##queries(const struct score_dots *d)     \
    {                                                           \
        score_tile(queries, blocks, d);                         \
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
#define ATTENTION_ENTRY(queries, blocks, columns)                                             \
    {                                                                                         \
        score_##queries, score_one_##queries, value_##queries, value_one_##queries, (blocks), \
            (columns)                                                                         \
    }

ATTENTION_TILES

static const struct {
    score_fn *score, *score_one; /* n_blocks blocks, one */
    value_fn *value, *value_one; /* n_columns columns, one vector */
    int n_blocks, n_columns;
} attention_tiles[ATTENTION_ROWS + 1] = {ATTENTION_TABLE};

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

/* Blocks first .. end for one tile of queries. */
static void score_blocks(struct score_dots d, int queries, const struct kv_parts *k, bool is_first,
                         int first, int end)
{
    float *out = d.out;
    for (int b = first, n; b < end; b += n) {
        n = end - b >= attention_tiles[queries].n_blocks ? attention_tiles[queries].n_blocks : 1;
        d.k = k->at + b;
        d.ahead = is_first ? k->ahead + b : d.k;
        d.out = out + b * KERNEL_LANES;
        (n > 1 ? attention_tiles[queries].score : attention_tiles[queries].score_one)(&d);
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
        n = k->n - b < SCORE_BLOCKS ? k->n - b : SCORE_BLOCKS;
        for (int i = 0, first = 0; i < n_tiles; i++) {
            int queries = share_size(q->n, n_tiles, i);
            const struct score_dots d = {.q = rows[i].data,
                                         .q_stride = rows[i].stride,
                                         .q_step = rows[i].step,
                                         .n_pairs = head_dim / 2,
                                         .out = out + (size_t)first * out_stride,
                                         .out_stride = out_stride};
            score_blocks(d, queries, k, i == 0, b, b + n);
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
static void value_blocks(struct value_dots d, int queries, const struct kv_parts *v,
                         const uint16_t *const *ahead, int first, int n, int head_dim)
{
    const uint16_t *const *at = v->at + first;
    float *acc = d.acc;
    d.v = at;
    d.ahead = ahead + first;
    d.n_blocks = n;
    d.p += (size_t)(first * d.n_pairs) * d.p_step;
    for (int e = 0, columns; e < head_dim; e += columns) {
        columns = attention_tiles[queries].n_columns;
        if (head_dim - e < columns) columns = KERNEL_LANES;
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
            value_blocks(d, queries, v, i == 0 ? v->ahead : v->at, b,
                         v->n - b < step ? v->n - b : step, head_dim);
        }
        weights += (size_t)queries * p->stride;
        acc += (size_t)queries * acc_stride;
    }
    dots_end(mode);
}
