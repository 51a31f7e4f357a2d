/* Sequences with KV caches on both backends, which steps of any pieces feed, for the tests of
 * attention. Every byte of a cache is a NaN until it is written, and block tables are scattered. */
#pragma once

#include "tests/gpu/rig.h"

enum { LANES_MAX = 6, STALE = 0xff, WORLD_SLICES = 2 /* of the sums of squares */ };

/* A sequence: its raw projections at all positions, and its block table. */
struct sequence {
    int n_positions;
    float *qkv;        /* [n_positions][QKV] */
    int32_t *blocks;   /* scattered */
    int32_t unwritten; /* a block that no table has */
};

struct world {
    struct attention_shape shape;
    struct attention_input input; /* host memory, for the CPU */
    struct attention_input device_input;
    int window; /* 0: none */
    bool sees_lane;
    float softcap; /* 0: none */
    int n_ropes;
    bool has_whole_norms, has_query_scale;
    struct sequence sequences[LANES_MAX];
    int n_sequences, n_blocks, qkv_dim, q_dim;
    float *bias, *norms; /* [QKV] each */
    float *device_bias, *device_norms;
    struct weight embedding;
    float embedding_row[16];
};

/* The KV cache of one of the two backends. */
struct cache {
    uint16_t *kv;
    size_t bytes;
    bool on_cuda;
};

/* Rows of a step: n of sequence `of` from `position` on. */
struct piece {
    int of, position, n;
};

/* Changes of a test to how a step is run; 0 changes nothing. */
struct forced {
    int n_partitions;
    bool is_busy;   /* a device so small that a few tiles keep it busy */
    bool is_narrow; /* no wide tiles */
};

static inline size_t times(int a, int b)
{
    return static_cast<size_t>(a) * static_cast<size_t>(b);
}

static inline void world_open(struct world *w, struct rig *rig, struct attention_shape shape,
                              const int *n_positions, int n_sequences, bool has_extras)
{
    *w = {};
    w->shape = shape;
    w->n_ropes = 1;
    w->n_sequences = n_sequences;
    w->q_dim = shape.n_heads * shape.head_dim;
    w->qkv_dim = w->q_dim + 2 * shape.n_kv_heads * shape.head_dim;
    for (int i = 0; i < n_sequences; i++) {
        w->n_blocks += (n_positions[i] + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS + 1;
    }
    w->shape.n_blocks = w->n_blocks;
    for (int i = 0, at = 0; i < n_sequences; i++) {
        struct sequence *s = &w->sequences[i];
        int n = (n_positions[i] + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
        s->n_positions = n_positions[i];
        s->qkv = rig_numbers(rig, times(n_positions[i], w->qkv_dim), 2);
        s->blocks = static_cast<int32_t *>(malloc(times(n, sizeof *s->blocks)));
        for (int b = 0; b <= n; b++) { /* every number once: descending, evens before odds */
            int k = at + b, half = (w->n_blocks + 1) / 2;
            int32_t block = w->n_blocks - 1 - (k < half ? 2 * k : 2 * (k - half) + 1);
            *(b < n ? &s->blocks[b] : &s->unwritten) = block;
        }
        at += n + 1;
    }
    w->bias = rig_numbers(rig, static_cast<size_t>(w->qkv_dim), 1);
    w->norms = rig_numbers(rig, static_cast<size_t>(w->qkv_dim), 2);
    w->device_bias = device_floats(rig, w->bias, static_cast<size_t>(w->qkv_dim));
    w->device_norms = device_floats(rig, w->norms, static_cast<size_t>(w->qkv_dim));
    w->embedding.dtype = DTYPE_F32;
    w->embedding.n_rows = 1;
    w->embedding.n_cols = 16;
    w->embedding.data = reinterpret_cast<const uint8_t *>(w->embedding_row);
    w->input.norm_eps = 1e-6f;
    w->input.rope_half = shape.head_dim / 2;
    w->device_input = w->input;
    if (!has_extras) return;
    w->input.qkv_bias = w->bias;
    w->input.q_norm = w->norms;
    w->input.k_norm = w->norms + shape.head_dim;
    w->device_input.qkv_bias = w->device_bias;
    w->device_input.q_norm = w->device_norms;
    w->device_input.k_norm = w->device_norms + shape.head_dim;
}

/* Norms over all heads, another table of rotations, of which rope_half pairs rotate, a scale of q
 * and capped scores. */
static inline void world_vary(struct world *w, int rope_half)
{
    w->has_whole_norms = w->has_query_scale = true;
    w->softcap = 3;
    w->n_ropes = 2;
    for (struct attention_input *input : {&w->input, &w->device_input}) {
        const float *norms = input == &w->input ? w->norms : w->device_norms;
        input->qkv_bias = NULL;
        input->q_norm = norms;
        input->k_norm = norms + w->q_dim;
        input->q_width = w->q_dim;
        input->k_width = w->shape.n_kv_heads * w->shape.head_dim;
        input->rope = 1;
        input->rope_half = rope_half;
    }
}

static inline struct attention_rule world_rule(const struct world *w)
{
    float scale = 1.0f / sqrtf(static_cast<float>(w->shape.head_dim));
    return {w->window, scale, w->softcap, w->sees_lane};
}

/* The input of a step, with the sums of squares of qkv where the world has norms over all heads.
 * `sums` has room for them on the side of the backend. */
static inline struct attention_input world_input(const struct world *w, struct backend *be,
                                                 const struct attention_input *input,
                                                 const float *qkv, int n, struct slice_sums *sums)
{
    struct attention_input out = *input;
    if (!w->has_whole_norms) return out;
    const struct qk_squares args = {
        qkv, n, WORLD_SLICES, input->q_width / WORLD_SLICES, input->k_width / WORLD_SLICES, 0};
    be->ops->qk_squares(be, &w->shape, &args, sums);
    out.squares = sums;
    return out;
}

static inline void world_close(struct world *w, struct rig *rig)
{
    for (int i = 0; i < w->n_sequences; i++) {
        free(w->sequences[i].qkv);
        free(w->sequences[i].blocks);
    }
    device_close(rig, w->device_bias);
    device_close(rig, w->device_norms);
    free(w->bias);
    free(w->norms);
}

static inline struct cache cache_open(const struct world *w, struct rig *rig, bool on_cuda)
{
    struct cache c = {NULL, kv_layer_bytes(&w->shape), on_cuda};
    c.kv = static_cast<uint16_t *>(malloc(c.bytes));
    memset(c.kv, STALE, c.bytes);
    if (on_cuda) {
        uint16_t *host = c.kv;
        c.kv = static_cast<uint16_t *>(device_open(rig, host, c.bytes));
        free(host);
    }
    return c;
}

static inline void cache_close(struct cache *c, struct rig *rig)
{
    if (c->on_cuda) {
        device_close(rig, c->kv);
    } else {
        free(c->kv);
    }
}

/* A step and the host memory it points to. */
struct world_step {
    struct backend_step step;
    struct attention_lane lanes[LANES_MAX];
    int32_t *tables[LANES_MAX];
    int32_t *tokens;
    float *cos, *sin, *qkv, *query_scale;
};

/* A piece's block table, in which the blocks that are out of the window of all rows have been given
 * up: the block that is there instead is never written. */
static inline int32_t *world_table(const struct world *w, const struct piece *piece)
{
    const struct sequence *s = &w->sequences[piece->of];
    int n = (s->n_positions + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    int32_t *table = static_cast<int32_t *>(malloc(times(n, sizeof *table)));
    for (int i = 0; i < n; i++) {
        bool is_out = i < attention_first(piece->position, w->window) / KV_BLOCK_TOKENS;
        table[i] = is_out ? s->unwritten : s->blocks[i];
    }
    return table;
}

static inline void world_step_open(struct world_step *s, const struct world *w,
                                   const struct piece *pieces, int n_pieces)
{
    int half = w->shape.head_dim / 2, row = 0;
    *s = {};
    for (int i = 0; i < n_pieces; i++) {
        s->tables[i] = world_table(w, &pieces[i]);
        s->lanes[i] = {row, pieces[i].n, pieces[i].position, s->tables[i], NULL};
        row += pieces[i].n;
    }
    s->tokens = static_cast<int32_t *>(calloc(static_cast<size_t>(row), sizeof *s->tokens));
    size_t angles = times(row, half) * static_cast<size_t>(w->n_ropes), at = 0;
    s->cos = static_cast<float *>(malloc(angles * sizeof(float)));
    s->sin = static_cast<float *>(malloc(angles * sizeof(float)));
    s->query_scale = static_cast<float *>(malloc(times(row, sizeof(float))));
    s->qkv = static_cast<float *>(malloc(times(row, w->qkv_dim) * sizeof(float)));
    row = 0;
    for (int i = 0; i < n_pieces; i++) {
        const struct sequence *q = &w->sequences[pieces[i].of];
        for (int t = 0; t < pieces[i].n; t++, row++) {
            int pos = pieces[i].position + t;
            memcpy(s->qkv + times(row, w->qkv_dim), q->qkv + times(pos, w->qkv_dim),
                   static_cast<size_t>(w->qkv_dim) * sizeof(float));
            for (int k = 0; k < half * w->n_ropes; k++, at++) {
                float angle = static_cast<float>(pos) / static_cast<float>(1 + 3 * k);
                s->cos[at] = cosf(angle);
                s->sin[at] = sinf(angle);
            }
            s->query_scale[row] = 1 + 0.125f * static_cast<float>(pos % 5);
        }
    }
    s->step = {};
    s->step.embedding = &w->embedding;
    s->step.tokens = s->tokens;
    s->step.n = row;
    s->step.lanes = s->lanes;
    s->step.n_lanes = n_pieces;
    s->step.shape = &w->shape;
    s->step.cos = s->cos;
    s->step.sin = s->sin;
    s->step.n_ropes = w->n_ropes;
    if (w->has_query_scale) s->step.query_scale = s->query_scale;
}

static inline void world_step_close(struct world_step *s)
{
    for (int i = 0; i < LANES_MAX; i++) {
        free(s->tables[i]);
    }
    free(s->tokens);
    free(s->cos);
    free(s->sin);
    free(s->qkv);
    free(s->query_scale);
}

/* A step's tiles as a test has changed them, on the device. */
struct forced_tiles {
    struct step_tile *tiles;
    int32_t *counts;
};

/* Where the host has what the kernels of the step under way read at `input`. */
template <typename T> static inline const T *host_input(struct rig *rig, const T *input)
{
    const struct inputs_memory *memory = backend_cuda_of(rig->cuda)->memory;
    return reinterpret_cast<const T *>(reinterpret_cast<const uint8_t *>(input) -
                                       static_cast<const uint8_t *>(memory->device) +
                                       static_cast<const uint8_t *>(memory->host));
}

/* Cuts all lanes into tiles of STEP_TILE_QUERIES. */
static inline struct forced_tiles force_narrow(struct rig *rig, int group)
{
    struct backend_cuda *cuda = backend_cuda_of(rig->cuda);
    const struct step_lane *lanes = host_input(rig, cuda->inputs.lanes);
    int32_t counts[STEP_COUNTS];
    int n = 0, most = cuda->size.n_rows * ((group + STEP_TILE_QUERIES - 1) / STEP_TILE_QUERIES);
    struct step_tile *tiles =
        static_cast<struct step_tile *>(malloc(times(most, sizeof(struct step_tile))));
    memcpy(counts, host_input(rig, cuda->inputs.counts), sizeof counts);
    for (int i = 0; i < counts[STEP_COUNT_LANES]; i++) {
        for (int first = 0; first < lanes[i].n_rows * group; first += STEP_TILE_QUERIES) {
            tiles[n++] = {i, first};
        }
    }
    cuda->size.n_tiles = counts[STEP_COUNT_TILES] = n;
    cuda->size.has_wide = false;
    counts[STEP_COUNT_WIDE] = 0;
    struct forced_tiles out = {};
    out.tiles = static_cast<struct step_tile *>(device_open(rig, tiles, times(n, sizeof *tiles)));
    out.counts = static_cast<int32_t *>(device_open(rig, counts, sizeof counts));
    cuda->inputs.tiles = out.tiles;
    cuda->inputs.counts = out.counts;
    free(tiles);
    return out;
}

static inline void forced_tiles_close(struct forced_tiles *tiles, struct rig *rig)
{
    if (tiles->tiles) device_close(rig, tiles->tiles);
    if (tiles->counts) device_close(rig, tiles->counts);
}

static inline void force(struct rig *rig, const struct forced *forced)
{
    struct backend_cuda *cuda = backend_cuda_of(rig->cuda);
    if (forced && forced->n_partitions) cuda->size.n_partitions = forced->n_partitions;
    if (forced && forced->is_busy) cuda->n_sms = 1;
}

static inline void run_on_cuda(struct rig *rig, const struct world *w, const struct world_step *s,
                               struct cache *c, const struct forced *forced, uint16_t *out)
{
    const struct backend_ops *ops = rig->cuda->ops;
    int n = s->step.n, padded = ops->capacity(rig->cuda, n);
    int n_sms = backend_cuda_of(rig->cuda)->n_sms;
    size_t q_bytes = times(padded, w->q_dim) * sizeof(uint16_t);
    float *qkv = device_floats(rig, NULL, times(padded, w->qkv_dim));
    uint16_t *q = static_cast<uint16_t *>(device_open(rig, NULL, q_bytes));
    uint16_t *attended = static_cast<uint16_t *>(device_open(rig, NULL, q_bytes));
    struct slice_sums squares = {device_floats(rig, NULL, times(2 * WORLD_SLICES, padded)), 0, 0};
    ops->upload(rig->cuda, qkv, s->qkv, times(n, w->qkv_dim) * sizeof(float));
    const struct attention_rule rule = world_rule(w);
    rig_begin(rig, &s->step);
    force(rig, forced);
    struct forced_tiles tiles = {};
    if (forced && forced->is_narrow) {
        tiles = force_narrow(rig, w->shape.n_heads / w->shape.n_kv_heads);
    }
    const struct attention_input input =
        world_input(w, rig->cuda, &w->device_input, qkv, n, &squares);
    ops->attention_store(rig->cuda, &w->shape, &input, &s->step, qkv, q, c->kv);
    if (out) ops->attention(rig->cuda, &w->shape, &s->step, &rule, q, c->kv, attended);
    rig_end(rig);
    backend_cuda_of(rig->cuda)->n_sms = n_sms;
    if (out) device_read(rig, out, attended, times(n, w->q_dim) * sizeof *out);
    forced_tiles_close(&tiles, rig);
    device_close(rig, qkv);
    device_close(rig, squares.data);
    device_close(rig, q);
    device_close(rig, attended);
}

/* Feeds the pieces as one step; out[n][H E], NULL: only into the cache. */
static inline void feed(struct rig *rig, const struct world *w, struct cache *c,
                        const struct piece *pieces, int n_pieces, const struct forced *forced,
                        uint16_t *out)
{
    struct world_step s;
    world_step_open(&s, w, pieces, n_pieces);
    if (c->on_cuda) {
        run_on_cuda(rig, w, &s, c, forced, out);
    } else {
        const struct backend_ops *ops = rig->cpu->ops;
        const struct attention_rule rule = world_rule(w);
        uint16_t *q = static_cast<uint16_t *>(malloc(times(s.step.n, w->q_dim) * sizeof *q));
        struct slice_sums squares = {
            static_cast<float *>(malloc(times(2 * WORLD_SLICES, s.step.n) * sizeof(float))), 0, 0};
        const struct attention_input input =
            world_input(w, rig->cpu, &w->input, s.qkv, s.step.n, &squares);
        ops->attention_store(rig->cpu, &w->shape, &input, &s.step, s.qkv, q, c->kv);
        if (out) ops->attention(rig->cpu, &w->shape, &s.step, &rule, q, c->kv, out);
        free(q), free(squares.data);
    }
    world_step_close(&s);
}

/* Feeds everything before the pieces' positions into the cache. */
static inline void feed_history(struct rig *rig, const struct world *w, struct cache *c,
                                const struct piece *pieces, int n_pieces)
{
    for (int i = 0; i < n_pieces; i++) {
        const struct piece history = {pieces[i].of, 0, pieces[i].position};
        if (history.n > 0) feed(rig, w, c, &history, 1, NULL, NULL);
    }
}

static inline uint16_t *new_out(const struct world *w, int n)
{
    return static_cast<uint16_t *>(calloc(times(n, w->q_dim), sizeof(uint16_t)));
}

/* v lies within 2 (3 with a bias), so the rounding of a weight or of the result is within 2^-8 of
 * that. With q/k norm a bf16 of q or k may be rounded the other way, which moves a score. */
static inline void expect_near(struct rig *rig, const struct world *w, const uint16_t *got,
                               const uint16_t *want, int n)
{
    float tolerance = w->input.q_norm ? 0x1p-6f : 0x1p-8f;
    for (size_t i = 0; i < times(n, w->q_dim); i++) {
        float g = num_bf16_to_float(got[i]), x = num_bf16_to_float(want[i]);
        EXPECT(rig, rig_near(g, x, tolerance * (1 + fabsf(x))),
               "E %d, G %d, window %d, row %zu, column %zu: %g, wanted %g", w->shape.head_dim,
               w->shape.n_heads / w->shape.n_kv_heads, w->window, i / static_cast<size_t>(w->q_dim),
               i % static_cast<size_t>(w->q_dim), static_cast<double>(g), static_cast<double>(x));
    }
}

static inline void expect_same(struct rig *rig, const struct world *w, const uint16_t *got,
                               const uint16_t *want, int n, const char *what)
{
    for (int row = 0; row < n; row++) {
        EXPECT(rig,
               memcmp(got + times(row, w->q_dim), want + times(row, w->q_dim),
                      static_cast<size_t>(w->q_dim) * sizeof *got) == 0,
               "E %d, G %d, window %d: %s, row %d", w->shape.head_dim,
               w->shape.n_heads / w->shape.n_kv_heads, w->window, what, row);
    }
}
