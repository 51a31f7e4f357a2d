/* Attention's two products over KV blocks; included by impl.h. A tile is up to TILE_ROWS queries
 * against SCORE_BLOCKS blocks of K, or against VALUE_VECTORS vectors of V's columns over all
 * blocks, with its sums in registers. A variant with too few registers for that runs the chains
 * block by block. */
#pragma once

enum { QUERIES_AT_ONCE = 36 /* a multiple of TILE_ROWS: what one tile after the other reads */ };

#ifndef OWN_ATTENTION_TILES

INLINE_ALWAYS void score_tile(int n_queries, int n_blocks, const struct score_dots *d)
{
    for (int b = 0; b < n_blocks; b++) {
        float *out = d->out + b * KERNEL_LANES;
        const struct dots dots = {.w = d->k[b],
                                  .w_step = VECTOR_STEP,
                                  .x = d->q,
                                  .x_stride = d->q_stride,
                                  .x_step = d->q_step,
                                  .n_pairs = d->n_pairs,
                                  .acc = out,
                                  .acc_stride = d->out_stride,
                                  .near = d->ahead[b],
                                  .near_step = VECTOR_STEP,
                                  .far = d->k[b]};
        for (int i = 0; i < n_queries; i++) {
            memset(out + (size_t)i * d->out_stride, 0, sizeof(float) * KERNEL_LANES);
        }
        dot_tile(n_queries, KERNEL_LANES, &dots);
    }
}

INLINE_ALWAYS void value_tile(int n_queries, int n_vectors, const struct value_dots *d)
{
    for (int b = 0; b < d->n_blocks; b++) {
        for (int v = 0; v < n_vectors; v++) {
            size_t at = d->first + (size_t)(v * VECTOR_STEP);
            const struct dots dots = {.w = d->v[b] + at,
                                      .w_step = d->step,
                                      .x = d->p + (size_t)(b * d->n_pairs) * d->p_step,
                                      .x_stride = d->p_stride,
                                      .x_step = d->p_step,
                                      .n_pairs = d->n_pairs,
                                      .acc = d->acc + v * KERNEL_LANES,
                                      .acc_stride = d->acc_stride,
                                      .near = d->ahead[b] + at,
                                      .near_step = d->step,
                                      .far = d->v[b]};
            dot_tile(n_queries, KERNEL_LANES, &dots);
        }
    }
}

#endif

typedef void score_fn(const struct score_dots *d);
typedef void value_fn(const struct value_dots *d);

#define ATTENTION_TILE(queries)                                 \
    static void score_##queries(const struct score_dots *d)     \
    {                                                           \
        score_tile(queries, SCORE_BLOCKS, d);                   \
    }                                                           \
    static void score_one_##queries(const struct score_dots *d) \
    {                                                           \
        score_tile(queries, 1, d);                              \
    }                                                           \
    static void value_##queries(const struct value_dots *d)     \
    {                                                           \
        value_tile(queries, VALUE_VECTORS, d);                  \
    }                                                           \
    static void value_one_##queries(const struct value_dots *d) \
    {                                                           \
        value_tile(queries, 1, d);                              \
    }

ATTENTION_TILE(1)
ATTENTION_TILE(2)
#if TILE_ROWS >= 4
ATTENTION_TILE(3)
ATTENTION_TILE(4)
#endif
#if TILE_ROWS >= 6
ATTENTION_TILE(5)
ATTENTION_TILE(6)
#endif
#if TILE_ROWS >= 7
ATTENTION_TILE(7)
#endif

static const struct {
    score_fn *score, *score_one; /* SCORE_BLOCKS blocks, one */
    value_fn *value, *value_one; /* VALUE_VECTORS vectors, one */
} attention_tiles[TILE_ROWS + 1] = {
    [1] = {score_1, score_one_1, value_1, value_one_1},
    [2] = {score_2, score_one_2, value_2, value_one_2},
#if TILE_ROWS >= 4
    [3] = {score_3, score_one_3, value_3, value_one_3},
    [4] = {score_4, score_one_4, value_4, value_one_4},
#endif
#if TILE_ROWS >= 6
    [5] = {score_5, score_one_5, value_5, value_one_5},
    [6] = {score_6, score_one_6, value_6, value_one_6},
#endif
#if TILE_ROWS >= 7
    [7] = {score_7, score_one_7, value_7, value_one_7},
#endif
};

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

/* The blocks stay in the first-level cache while one tile of queries after the other passes over
 * them. The first tile prefetches. */
static void scores_of(const struct query_rows *q, const struct kv_parts *k, int head_dim,
                      float *out, size_t out_stride)
{
    uint32_t wide[WIDE_ROWS ? QUERIES_AT_ONCE * QUERY_LEN_MAX : 1];
    struct tile_rows rows[QUERIES_AT_ONCE / TILE_ROWS];
    int n_tiles = tiles_of(q->n);
    for (int i = 0, first = 0; i < n_tiles; i++) {
        int queries = share_size(q->n, n_tiles, i);
        rows[i] = tile_rows(q->data + (size_t)first * q->stride, q->stride, queries, head_dim / 2,
                            WIDE_ROWS ? wide + first * head_dim : wide);
        first += queries;
    }
    for (int b = 0, n; b < k->n; b += n) {
        n = k->n - b >= SCORE_BLOCKS && q->n > STREAM_QUERIES ? SCORE_BLOCKS : 1;
        struct score_dots d = {.k = k->at + b,
                               .ahead = k->ahead + b,
                               .n_pairs = head_dim / 2,
                               .out = out + b * KERNEL_LANES,
                               .out_stride = out_stride};
        for (int i = 0; i < n_tiles; i++) {
            int queries = share_size(q->n, n_tiles, i);
            d.q = rows[i].data;
            d.q_stride = rows[i].stride;
            d.q_step = rows[i].step;
            (n == SCORE_BLOCKS ? attention_tiles[queries].score
                               : attention_tiles[queries].score_one)(&d);
            d.out += (size_t)queries * out_stride;
            d.ahead = d.k;
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

static void weighted_sum(const struct query_rows *p, const struct kv_parts *v, int n_pairs,
                         int head_dim, float *acc, size_t acc_stride)
{
    uint32_t wide[WIDE_ROWS ? TILE_ROWS * QUERY_LEN_MAX : 1];
    const int columns = VALUE_VECTORS * KERNEL_LANES;
    const uint16_t *weights = p->data;
    int n_tiles = tiles_of(p->n);
    unsigned mode = dots_begin();
    for (int i = 0; i < n_tiles; i++) {
        int queries = share_size(p->n, n_tiles, i);
        struct tile_rows rows = tile_rows(weights, p->stride, queries, n_pairs * v->n, wide);
        for (int e = 0, n; e < head_dim; e += n) {
            n = head_dim - e >= columns ? columns : KERNEL_LANES;
            const struct value_dots d = {.v = v->at,
                                         .ahead = i == 0 ? v->ahead : v->at,
                                         .first = 2 * (size_t)e,
                                         .step = 2 * (size_t)head_dim,
                                         .n_blocks = v->n,
                                         .n_pairs = n_pairs,
                                         .p = rows.data,
                                         .p_stride = rows.stride,
                                         .p_step = rows.step,
                                         .acc = acc + e,
                                         .acc_stride = acc_stride};
            (n == columns ? attention_tiles[queries].value
                          : attention_tiles[queries].value_one)(&d);
        }
        weights += (size_t)queries * p->stride;
        acc += (size_t)queries * acc_stride;
    }
    dots_end(mode);
}
