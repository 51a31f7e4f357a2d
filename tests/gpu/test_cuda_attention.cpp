/* attention_store and attention of the CUDA backend: against the CPU backend on the same inputs, and bit
 * for bit against themselves: a row alone and in company, a prompt in chunks, partitions in scratch or
 * one after the other. Every byte of a KV cache is a NaN until it is written. */
#include "tests/gpu/cuda_rig.h"

enum { LANES_MAX = 6, STALE = 0xff };

/* A sequence: its raw projections at all positions, and its block table. */
struct sequence {
    int n_positions;
    float *qkv;      /* [n_positions][QKV] */
    int32_t *blocks; /* scattered */
};

struct world {
    struct attention_shape shape;
    struct attention_input input; /* host memory, for the CPU */
    struct attention_input device_input;
    struct sequence sequences[LANES_MAX];
    int n_sequences, n_blocks, qkv_dim, q_dim;
    float *bias, *norms; /* [QKV], [2][E] */
    float *device_bias, *device_norms;
    struct weight embedding;
    float embedding_row[16];
};

/* One side's KV cache. */
struct cache {
    uint16_t *kv;
    size_t bytes;
    bool on_cuda;
};

/* Rows of a step: n of sequence `of` from `position` on. */
struct piece {
    int of, position, n;
};

/* How a step is to be run other than the plan says; 0 leaves it. */
struct forced {
    int n, n_partitions;
};

static size_t times(int a, int b)
{
    return static_cast<size_t>(a) * static_cast<size_t>(b);
}

static void world_open(struct world *w, struct rig *rig, struct attention_shape shape,
                       const int *n_positions, int n_sequences, bool has_extras)
{
    *w = {};
    w->shape = shape;
    w->n_sequences = n_sequences;
    w->q_dim = shape.n_heads * shape.head_dim;
    w->qkv_dim = w->q_dim + 2 * shape.n_kv_heads * shape.head_dim;
    for (int i = 0; i < n_sequences; i++) {
        w->n_blocks += (n_positions[i] + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS + 1;
    }
    for (int i = 0, at = 0; i < n_sequences; i++) {
        struct sequence *s = &w->sequences[i];
        int n = (n_positions[i] + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
        s->n_positions = n_positions[i];
        s->qkv = rig_numbers(rig, times(n_positions[i], w->qkv_dim), 2);
        s->blocks = static_cast<int32_t *>(malloc(times(n, sizeof *s->blocks)));
        for (int b = 0; b < n; b++) { /* every number once: backwards, evens before odds */
            int k = at + b, half = (w->n_blocks + 1) / 2;
            s->blocks[b] = w->n_blocks - 1 - (k < half ? 2 * k : 2 * (k - half) + 1);
        }
        at += n + 1;
    }
    w->bias = rig_numbers(rig, static_cast<size_t>(w->qkv_dim), 1);
    w->norms = rig_numbers(rig, times(2, shape.head_dim), 2);
    w->device_bias = device_floats(rig, w->bias, static_cast<size_t>(w->qkv_dim));
    w->device_norms = device_floats(rig, w->norms, times(2, shape.head_dim));
    w->embedding.dtype = DTYPE_F32;
    w->embedding.n_rows = 1;
    w->embedding.n_cols = 16;
    w->embedding.data = reinterpret_cast<const uint8_t *>(w->embedding_row);
    if (!has_extras) return;
    w->input = {w->bias, w->norms, w->norms + shape.head_dim, 1e-6f};
    w->device_input = {w->device_bias, w->device_norms, w->device_norms + shape.head_dim, 1e-6f};
}

static void world_close(struct world *w, struct rig *rig)
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

static struct cache cache_open(const struct world *w, struct rig *rig, bool on_cuda)
{
    struct cache c = {NULL, kv_layer_bytes(&w->shape, w->n_blocks), on_cuda};
    c.kv = static_cast<uint16_t *>(malloc(c.bytes));
    memset(c.kv, STALE, c.bytes);
    if (on_cuda) {
        uint16_t *host = c.kv;
        c.kv = static_cast<uint16_t *>(device_open(rig, host, c.bytes));
        free(host);
    }
    return c;
}

static void cache_close(struct cache *c, struct rig *rig)
{
    if (c->on_cuda) {
        device_close(rig, c->kv);
    } else {
        free(c->kv);
    }
}

/* A step's host side. */
struct world_step {
    struct backend_step step;
    struct attention_lane lanes[LANES_MAX];
    int32_t *tokens;
    float *cos, *sin, *qkv;
};

static void world_step_open(struct world_step *s, const struct world *w, const struct piece *pieces,
                            int n_pieces)
{
    int half = w->shape.head_dim / 2, row = 0;
    *s = {};
    for (int i = 0; i < n_pieces; i++) {
        s->lanes[i] = {row, pieces[i].n, pieces[i].position, w->sequences[pieces[i].of].blocks};
        row += pieces[i].n;
    }
    s->tokens = static_cast<int32_t *>(calloc(static_cast<size_t>(row), sizeof *s->tokens));
    s->cos = static_cast<float *>(malloc(times(row, half) * sizeof(float)));
    s->sin = static_cast<float *>(malloc(times(row, half) * sizeof(float)));
    s->qkv = static_cast<float *>(malloc(times(row, w->qkv_dim) * sizeof(float)));
    row = 0;
    for (int i = 0; i < n_pieces; i++) {
        const struct sequence *q = &w->sequences[pieces[i].of];
        for (int t = 0; t < pieces[i].n; t++, row++) {
            int pos = pieces[i].position + t;
            memcpy(s->qkv + times(row, w->qkv_dim), q->qkv + times(pos, w->qkv_dim),
                   static_cast<size_t>(w->qkv_dim) * sizeof(float));
            for (int k = 0; k < half; k++) {
                float angle = static_cast<float>(pos) / static_cast<float>(1 + 3 * k);
                s->cos[times(row, half) + static_cast<size_t>(k)] = cosf(angle);
                s->sin[times(row, half) + static_cast<size_t>(k)] = sinf(angle);
            }
        }
    }
    s->step = {&w->embedding, s->tokens, row,    s->lanes, n_pieces,
               &w->shape,     s->cos,    s->sin, NULL,     0};
}

static void world_step_close(struct world_step *s)
{
    free(s->tokens);
    free(s->cos);
    free(s->sin);
    free(s->qkv);
}

static void force(struct rig *rig, const struct forced *forced)
{
    struct backend_cuda *cuda = backend_cuda_of(rig->cuda);
    if (forced && forced->n) cuda->key.n = forced->n;
    if (forced && forced->n_partitions) cuda->key.n_partitions = forced->n_partitions;
}

static void run_on_cuda(struct rig *rig, const struct world *w, const struct world_step *s,
                        struct cache *c, const struct forced *forced, uint16_t *out)
{
    const struct backend_ops *ops = rig->cuda->ops;
    int n = s->step.n, padded = ops->capacity(rig->cuda, n);
    size_t q_bytes = times(padded, w->q_dim) * sizeof(uint16_t);
    float *qkv = device_floats(rig, NULL, times(padded, w->qkv_dim));
    uint16_t *q = static_cast<uint16_t *>(device_open(rig, NULL, q_bytes));
    uint16_t *attended = static_cast<uint16_t *>(device_open(rig, NULL, q_bytes));
    ops->upload(rig->cuda, qkv, s->qkv, times(n, w->qkv_dim) * sizeof(float));
    rig_begin(rig, &s->step);
    force(rig, forced);
    ops->attention_store(rig->cuda, &w->shape, &w->device_input, &s->step, qkv, q, c->kv);
    if (out) ops->attention(rig->cuda, &w->shape, &s->step, q, c->kv, attended);
    rig_end(rig);
    if (out) device_read(rig, out, attended, times(n, w->q_dim) * sizeof *out);
    device_close(rig, qkv);
    device_close(rig, q);
    device_close(rig, attended);
}

/* Feeds the pieces as one step; out[n][H E], NULL: only into the cache. */
static void feed(struct rig *rig, const struct world *w, struct cache *c,
                 const struct piece *pieces, int n_pieces, const struct forced *forced,
                 uint16_t *out)
{
    struct world_step s;
    world_step_open(&s, w, pieces, n_pieces);
    if (c->on_cuda) {
        run_on_cuda(rig, w, &s, c, forced, out);
    } else {
        const struct backend_ops *ops = rig->cpu->ops;
        uint16_t *q = static_cast<uint16_t *>(malloc(times(s.step.n, w->q_dim) * sizeof *q));
        ops->attention_store(rig->cpu, &w->shape, &w->input, &s.step, s.qkv, q, c->kv);
        if (out) ops->attention(rig->cpu, &w->shape, &s.step, q, c->kv, out);
        free(q);
    }
    world_step_close(&s);
}

/* Everything before the pieces' positions goes into the cache. */
static void feed_history(struct rig *rig, const struct world *w, struct cache *c,
                         const struct piece *pieces, int n_pieces)
{
    for (int i = 0; i < n_pieces; i++) {
        const struct piece history = {pieces[i].of, 0, pieces[i].position};
        if (history.n > 0) feed(rig, w, c, &history, 1, NULL, NULL);
    }
}

static uint16_t *new_out(const struct world *w, int n)
{
    return static_cast<uint16_t *>(calloc(times(n, w->q_dim), sizeof(uint16_t)));
}

/* v lies within 2 (3 with a bias), so the rounding of a weight or of the result is within 2^-8 of that;
 * with q/k norm a bf16 of q or k may fall to the other side, which moves a score. */
static void expect_near(struct rig *rig, const struct world *w, const uint16_t *got,
                        const uint16_t *want, int n)
{
    float tolerance = w->input.q_norm ? 0x1p-6f : 0x1p-8f;
    for (size_t i = 0; i < times(n, w->q_dim); i++) {
        float g = num_bf16_to_float(got[i]), x = num_bf16_to_float(want[i]);
        EXPECT(rig, rig_near(g, x, tolerance * (1 + fabsf(x))),
               "E %d, G %d, row %zu, column %zu: %g, wanted %g", w->shape.head_dim,
               w->shape.n_heads / w->shape.n_kv_heads, i / static_cast<size_t>(w->q_dim),
               i % static_cast<size_t>(w->q_dim), static_cast<double>(g), static_cast<double>(x));
    }
}

static void expect_same(struct rig *rig, const struct world *w, const uint16_t *got,
                        const uint16_t *want, int n, const char *what)
{
    for (int row = 0; row < n; row++) {
        EXPECT(rig,
               memcmp(got + times(row, w->q_dim), want + times(row, w->q_dim),
                      static_cast<size_t>(w->q_dim) * sizeof *got) == 0,
               "E %d, G %d: %s, row %d", w->shape.head_dim, w->shape.n_heads / w->shape.n_kv_heads,
               what, row);
    }
}

/* Ragged lanes: a young one, one crossing a block, one crossing a partition, one that ends with one, one
 * with two behind it. */
static const struct piece ragged[] = {{0, 0, 3}, {1, 14, 5}, {2, 250, 9}, {3, 511, 1}, {4, 517, 4}};
enum { N_RAGGED = 5, RAGGED_ROWS = 22 };

static void open_ragged(struct world *w, struct rig *rig, struct attention_shape shape,
                        bool has_extras)
{
    int n_positions[N_RAGGED];
    for (int i = 0; i < N_RAGGED; i++) {
        n_positions[i] = ragged[i].position + ragged[i].n;
    }
    world_open(w, rig, shape, n_positions, N_RAGGED, has_extras);
}

/* The rows of a step of ragged lanes: what the CPU says; the same bits by either way through the
 * partitions, and for each row fed alone. */
static void attention_is_the_cpus_and_keeps_its_bits(struct rig *rig, struct attention_shape shape,
                                                     bool has_extras)
{
    struct world w;
    open_ragged(&w, rig, shape, has_extras);
    struct cache cpu = cache_open(&w, rig, false), cuda = cache_open(&w, rig, true);
    struct cache alone = cache_open(&w, rig, true);
    uint16_t *want = new_out(&w, RAGGED_ROWS), *got = new_out(&w, RAGGED_ROWS);
    uint16_t *again = new_out(&w, RAGGED_ROWS);
    feed_history(rig, &w, &cpu, ragged, N_RAGGED);
    feed_history(rig, &w, &cuda, ragged, N_RAGGED);
    feed_history(rig, &w, &alone, ragged, N_RAGGED);
    feed(rig, &w, &cpu, ragged, N_RAGGED, NULL, want);
    feed(rig, &w, &cuda, ragged, N_RAGGED, NULL, got);
    expect_near(rig, &w, got, want, RAGGED_ROWS);

    const struct forced in_turn = {PLAN_RECORD_ROWS + 8, 0}, wide = {0, 16};
    feed(rig, &w, &cuda, ragged, N_RAGGED, &in_turn, again);
    expect_same(rig, &w, again, got, RAGGED_ROWS, "partitions one after the other");
    feed(rig, &w, &cuda, ragged, N_RAGGED, &wide, again);
    expect_same(rig, &w, again, got, RAGGED_ROWS, "a larger bucket of partitions");
    for (int i = 0, row = 0; i < N_RAGGED; i++) {
        for (int t = 0; t < ragged[i].n; t++, row++) {
            const struct piece one = {ragged[i].of, ragged[i].position + t, 1};
            feed(rig, &w, &alone, &one, 1, NULL, again + times(row, w.q_dim));
        }
    }
    expect_same(rig, &w, again, got, RAGGED_ROWS, "a row alone");
    free(want), free(got), free(again);
    cache_close(&cpu, rig), cache_close(&cuda, rig), cache_close(&alone, rig);
    world_close(&w, rig);
}

/* A prompt's rows have the same bits in chunks of 1, 7 and all at once. */
static void a_prompt_keeps_its_bits_in_chunks(struct rig *rig, struct attention_shape shape,
                                              int n_positions)
{
    static const int chunks[] = {1000, 64, 7, 1};
    struct world w;
    world_open(&w, rig, shape, &n_positions, 1, true);
    uint16_t *out[4];
    for (int i = 0; i < 4; i++) {
        struct cache c = cache_open(&w, rig, true);
        out[i] = new_out(&w, n_positions);
        for (int pos = 0; pos < n_positions; pos += chunks[i]) {
            const struct piece piece = {
                0, pos, n_positions - pos < chunks[i] ? n_positions - pos : chunks[i]};
            feed(rig, &w, &c, &piece, 1, NULL, out[i] + times(pos, w.q_dim));
        }
        if (i > 0) expect_same(rig, &w, out[i], out[0], n_positions, "a prompt in chunks");
        cache_close(&c, rig);
    }
    struct cache cpu = cache_open(&w, rig, false);
    const struct piece whole = {0, 0, n_positions};
    feed(rig, &w, &cpu, &whole, 1, NULL, out[1]);
    expect_near(rig, &w, out[0], out[1], n_positions);
    for (int i = 0; i < 4; i++) {
        free(out[i]);
    }
    cache_close(&cpu, rig);
    world_close(&w, rig);
}

/* Where a value of position `pos` lies. */
static size_t k_index(const struct world *w, int block, int head, int offset, int e)
{
    size_t at = (times(block, w->shape.n_kv_heads) + static_cast<size_t>(head)) * 2 *
                times(KV_BLOCK_TOKENS, w->shape.head_dim);
    return at + times(offset, w->shape.head_dim) + static_cast<size_t>(e);
}

static size_t v_index(const struct world *w, int block, int head, int offset, int e)
{
    return k_index(w, block, head, 0, 0) + times(KV_BLOCK_TOKENS, w->shape.head_dim) +
           (times(offset / 2, w->shape.head_dim) + static_cast<size_t>(e)) * 2 +
           static_cast<size_t>(offset % 2);
}

/* The values of one position in the CPU's layout and in the device's; counts them. */
static size_t expect_position(struct rig *rig, const struct world *w, const uint16_t *cpu,
                              const uint16_t *cuda, int block, int offset)
{
    int head_dim = w->shape.head_dim;
    for (int head = 0; head < w->shape.n_kv_heads; head++) {
        for (int e = 0; e < head_dim; e++) {
            size_t k = k_index(w, block, head, 0, 0) +
                       (times(e / 2, KV_BLOCK_TOKENS) + static_cast<size_t>(offset)) * 2 +
                       static_cast<size_t>(e % 2);
            EXPECT(rig, cuda[k_index(w, block, head, offset, e)] == cpu[k], "K of head %d, e %d",
                   head, e);
            size_t v = v_index(w, block, head, offset, e);
            EXPECT(rig, cuda[v] == cpu[v], "V of head %d, e %d", head, e);
        }
    }
    return times(2 * w->shape.n_kv_heads, head_dim);
}

/* Without a norm both sides do the same operations: the cache has the CPU's bits in its own places, and
 * nothing else is written, by padded rows least of all. */
static void store_writes_its_positions_and_no_other(struct rig *rig, struct attention_shape shape)
{
    struct world w;
    open_ragged(&w, rig, shape, true);
    w.input.q_norm = w.input.k_norm = w.device_input.q_norm = w.device_input.k_norm = NULL;
    struct cache cpu = cache_open(&w, rig, false), cuda = cache_open(&w, rig, true);
    feed(rig, &w, &cpu, ragged, N_RAGGED, NULL, NULL);
    feed(rig, &w, &cuda, ragged, N_RAGGED, NULL, NULL);
    uint16_t *got = static_cast<uint16_t *>(malloc(cuda.bytes));
    device_read(rig, got, cuda.kv, cuda.bytes);
    size_t n_written = 0, n_changed = 0;
    for (int i = 0; i < N_RAGGED; i++) {
        for (int pos = ragged[i].position; pos < ragged[i].position + ragged[i].n; pos++) {
            int block = w.sequences[ragged[i].of].blocks[pos / KV_BLOCK_TOKENS];
            n_written += expect_position(rig, &w, cpu.kv, got, block, pos % KV_BLOCK_TOKENS);
        }
    }
    for (size_t i = 0; i < cuda.bytes / sizeof *got; i++) {
        n_changed += got[i] != 0xffff;
    }
    EXPECT(rig, n_changed == n_written, "%zu values changed, %zu stored", n_changed, n_written);
    free(got);
    cache_close(&cpu, rig), cache_close(&cuda, rig);
    world_close(&w, rig);
}

int main(int argc, char **argv)
{
    static const struct attention_shape shapes[] = {{2, 1, 16},  {4, 4, 64},  {6, 2, 64},
                                                    {4, 1, 96},  {8, 1, 128}, {4, 2, 48},
                                                    {2, 1, 256}, {20, 1, 32}};
    struct rig rig;
    rig_open(&rig, argc, argv);
    for (int i = 0; i < (rig.is_small ? 3 : 8); i++) {
        attention_is_the_cpus_and_keeps_its_bits(&rig, shapes[i], i % 2 == 0);
        store_writes_its_positions_and_no_other(&rig, shapes[i]);
    }
    a_prompt_keeps_its_bits_in_chunks(&rig, shapes[0], rig.is_small ? 90 : 530);
    if (!rig.is_small) a_prompt_keeps_its_bits_in_chunks(&rig, shapes[4], 300);
    return rig_close(&rig);
}
