/* attention_store and attention of the CUDA backend: compared with the CPU backend on the same
 * inputs, and bit for bit with themselves for a row alone and in a batch, a prompt in chunks, and
 * partitions in scratch memory or one after the other. Every byte of a KV cache is a NaN until it
 * is written. */
#include "tests/gpu/attention_world.h"

extern "C" {
#include "model/backend/cpu/kv.h"
}

/* Ragged lanes: one that has just begun, one that crosses a block, one that crosses a partition,
 * one that ends where a partition does, one after two partitions. */
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

/* The rows of a step of ragged lanes (varied with rope_half unless that is negative) agree with the
 * CPU's, and have the same bits for both ways through the partitions and for each row fed alone, or
 * each lane where its rows see each other. */
static void attention_is_the_cpus_and_keeps_its_bits(struct rig *rig, struct attention_shape shape,
                                                     bool has_extras, int window, int rope_half,
                                                     bool sees_lane)
{
    struct world w;
    open_ragged(&w, rig, shape, has_extras);
    w.window = window;
    w.sees_lane = sees_lane;
    if (rope_half >= 0) world_vary(&w, rope_half);
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

    const struct forced in_turn = {1, false, false}, wide = {16, false, false};
    const struct forced busy = {0, true, false};
    feed(rig, &w, &cuda, ragged, N_RAGGED, &in_turn, again);
    expect_same(rig, &w, again, got, RAGGED_ROWS, "partitions one after the other");
    feed(rig, &w, &cuda, ragged, N_RAGGED, &busy, again);
    expect_same(rig, &w, again, got, RAGGED_ROWS, "tiles enough for the device");
    feed(rig, &w, &cuda, ragged, N_RAGGED, &wide, again);
    expect_same(rig, &w, again, got, RAGGED_ROWS, "more padded partitions");
    for (int i = 0, row = 0; i < N_RAGGED; i++) {
        int n = sees_lane ? ragged[i].n : 1;
        for (int t = 0; t < ragged[i].n; t += n, row += n) {
            const struct piece one = {ragged[i].of, ragged[i].position + t, n};
            feed(rig, &w, &alone, &one, 1, NULL, again + times(row, w.q_dim));
        }
    }
    expect_same(rig, &w, again, got, RAGGED_ROWS, sees_lane ? "a lane alone" : "a row alone");
    free(want), free(got), free(again);
    cache_close(&cpu, rig), cache_close(&cuda, rig), cache_close(&alone, rig);
    world_close(&w, rig);
}

/* A prompt's rows have the same bits in chunks of 1 and 7 and all at once. */
static void a_prompt_keeps_its_bits_in_chunks(struct rig *rig, struct attention_shape shape,
                                              int n_positions, int window)
{
    static const int chunks[] = {1000, 64, 7, 1};
    struct world w;
    world_open(&w, rig, shape, &n_positions, 1, true);
    w.window = window;
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

/* Where the device keeps a value. */
static size_t k_index(const struct world *w, int block, int head, int offset, int e)
{
    size_t at = (times(block, w->shape.n_kv_heads) + static_cast<size_t>(head)) * 2 *
                times(KV_BLOCK_TOKENS, w->shape.head_dim);
    return at + times(offset, w->shape.head_dim) + static_cast<size_t>(e);
}

static size_t v_index(const struct world *w, int block, int head, int offset, int e)
{
    size_t at = times(offset / 2 % 4, w->shape.head_dim) + static_cast<size_t>(e);
    return k_index(w, block, head, 0, 0) + times(KV_BLOCK_TOKENS, w->shape.head_dim) + 4 * at +
           static_cast<size_t>(offset / 8 * 2 + offset % 2);
}

/* Compares the values of one position in the CPU's layout and in the device's; counts them. */
static size_t expect_position(struct rig *rig, const struct world *w, const uint16_t *cpu,
                              const uint16_t *cuda, int block, int offset)
{
    int head_dim = w->shape.head_dim;
    for (int head = 0; head < w->shape.n_kv_heads; head++) {
        struct cpu_kv_place place = cpu_kv_at(&w->shape, block, head);
        for (int e = 0; e < head_dim; e++) {
            size_t k = place.k + (times(e / 2, KV_BLOCK_TOKENS) + static_cast<size_t>(offset)) * 2 +
                       static_cast<size_t>(e % 2);
            size_t v = place.v + (times(offset / 2, head_dim) + static_cast<size_t>(e)) * 2 +
                       static_cast<size_t>(offset % 2);
            EXPECT(rig, cuda[k_index(w, block, head, offset, e)] == cpu[k], "K of head %d, e %d",
                   head, e);
            EXPECT(rig, cuda[v_index(w, block, head, offset, e)] == cpu[v], "V of head %d, e %d",
                   head, e);
        }
    }
    return times(2 * w->shape.n_kv_heads, head_dim);
}

/* Without a norm both backends do the same operations, so the device's cache has the CPU's bits in
 * its own places. Nothing else is written, in particular not by padded rows. */
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

/* Steps of one size on a backend that records: the first is launched, the second recorded, later
 * ones replayed, each with its own rows, lanes and positions. */
struct recorder {
    struct rig rig; /* its device backend keeps recordings */
    float *qkv;
    uint16_t *q, *out;
    int n_replayed, n_again;
    bool spoils; /* waits for the stream in mid-step, which ends any recording */
};

static void run_recorded(struct recorder *r, const struct world *w, const struct world_step *s,
                         struct cache *c, uint16_t *out)
{
    const struct backend_ops *ops = r->rig.cuda->ops;
    struct error err = {};
    bool replayed = false, again = true;
    const struct attention_rule rule = world_rule(w);
    ops->upload(r->rig.cuda, r->qkv, s->qkv, times(s->step.n, w->qkv_dim) * sizeof(float));
    MUST(ops->begin(r->rig.cuda, &s->step, &replayed, &err), err);
    while (again) {
        if (!replayed) {
            ops->attention_store(r->rig.cuda, &w->shape, &w->device_input, &s->step, r->qkv, r->q,
                                 c->kv);
            if (r->spoils) cudaStreamSynchronize(backend_cuda_of(r->rig.cuda)->stream);
            ops->attention(r->rig.cuda, &w->shape, &s->step, &rule, r->q, c->kv, r->out);
        }
        MUST(ops->end(r->rig.cuda, &again, &err), err);
        r->n_again += again;
    }
    r->n_replayed += replayed;
    device_read(&r->rig, out, r->out, times(s->step.n, w->q_dim) * sizeof *out);
}

static void a_replayed_step_is_the_step_launched(struct rig *rig, struct attention_shape shape,
                                                 int window, bool spoils)
{
    enum { STEPS = 4, PIECES = 4, ROWS = 16 };
    static const struct piece steps[STEPS][PIECES] = {
        {{4, 517, 4}, {2, 250, 5}},
        {{2, 250, 9}, {4, 517, 4}, {0, 0, 2}},
        {{1, 14, 5}, {4, 517, 4}, {3, 511, 1}, {0, 0, 1}},
        {{4, 517, 3}, {1, 14, 5}, {2, 252, 7}},
    };
    static const int n_rows[STEPS] = {9, 15, 11, 15}, n_pieces[STEPS] = {2, 3, 4, 3};
    struct world w;
    open_ragged(&w, rig, shape, true);
    w.window = window;
    struct cache plain = cache_open(&w, rig, true), kept = cache_open(&w, rig, true);
    struct recorder r = {*rig, NULL, NULL, NULL, 0, 0, spoils};
    uint16_t *want = new_out(&w, ROWS), *got = new_out(&w, ROWS);
    r.rig.cuda = rig_cuda(true);
    r.qkv = device_floats(rig, NULL, times(ROWS, w.qkv_dim));
    r.q = static_cast<uint16_t *>(device_open(rig, NULL, times(ROWS, w.q_dim) * sizeof *r.q));
    r.out = static_cast<uint16_t *>(device_open(rig, NULL, times(ROWS, w.q_dim) * sizeof *r.q));
    feed_history(rig, &w, &plain, ragged, N_RAGGED);
    feed_history(rig, &w, &kept, ragged, N_RAGGED);
    for (int i = 0; i < STEPS; i++) {
        struct world_step s;
        world_step_open(&s, &w, steps[i], n_pieces[i]);
        run_on_cuda(rig, &w, &s, &plain, NULL, want);
        run_recorded(&r, &w, &s, &kept, got);
        expect_same(rig, &w, got, want, n_rows[i], "a recorded step");
        world_step_close(&s);
    }
    /* the first step makes scratch memory grow, which forgets all recordings */
    if (spoils) {
        EXPECT(rig, r.n_replayed == 0 && r.n_again == 1, "%d steps were replayed, %d run again",
               r.n_replayed, r.n_again);
    } else {
        EXPECT(rig, r.n_replayed >= STEPS - 3 && r.n_again == 0,
               "%d steps were replayed, %d run again", r.n_replayed, r.n_again);
    }
    r.rig.cuda->ops->close(r.rig.cuda);
    device_close(rig, r.qkv), device_close(rig, r.q), device_close(rig, r.out);
    free(want), free(got);
    cache_close(&plain, rig), cache_close(&kept, rig);
    world_close(&w, rig);
}

/* More partitions than the merging kernel takes at once; also where a window begins after some. */
static void a_long_lane_merges_all_its_partitions(struct rig *rig, int window, bool sees_lane)
{
    static const struct attention_shape shape = {2, 1, 16, 0};
    static const struct piece tail = {0, 70 * ATTENTION_PARTITION - 2, 4};
    static const int n_positions = tail.position + tail.n;
    static const struct forced in_turn = {1, false, false};
    struct world w;
    world_open(&w, rig, shape, &n_positions, 1, false);
    w.window = window;
    w.sees_lane = sees_lane;
    struct cache cpu = cache_open(&w, rig, false), cuda = cache_open(&w, rig, true);
    uint16_t *want = new_out(&w, tail.n), *got = new_out(&w, tail.n), *again = new_out(&w, tail.n);
    feed_history(rig, &w, &cpu, &tail, 1);
    feed_history(rig, &w, &cuda, &tail, 1);
    feed(rig, &w, &cpu, &tail, 1, NULL, want);
    feed(rig, &w, &cuda, &tail, 1, NULL, got);
    feed(rig, &w, &cuda, &tail, 1, &in_turn, again);
    expect_near(rig, &w, got, want, tail.n);
    expect_same(rig, &w, again, got, tail.n, "many partitions");
    free(want), free(got), free(again);
    cache_close(&cpu, rig), cache_close(&cuda, rig);
    world_close(&w, rig);
}

int main(int argc, char **argv)
{
    static const struct attention_shape shapes[] = {{2, 1, 16, 0},  {4, 4, 64, 0},  {6, 2, 64, 0},
                                                    {4, 1, 96, 0},  {8, 1, 128, 0}, {4, 2, 48, 0},
                                                    {2, 1, 256, 0}, {20, 1, 32, 0}};
    static const int windows[] = {8, 1, 255, 17, 256, 257, 512, 100};
    struct rig rig;
    rig_open(&rig, argc, argv);
    for (int i = 0; i < (rig.is_small ? 3 : 8); i++) {
        bool is_even = i % 2 == 0;
        attention_is_the_cpus_and_keeps_its_bits(&rig, shapes[i], is_even, 0, -1, false);
        attention_is_the_cpus_and_keeps_its_bits(&rig, shapes[i], is_even, windows[i], -1, false);
        attention_is_the_cpus_and_keeps_its_bits(&rig, shapes[i], is_even, is_even ? 0 : windows[i],
                                                 -1, true);
        store_writes_its_positions_and_no_other(&rig, shapes[i]);
    }
    attention_is_the_cpus_and_keeps_its_bits(&rig, shapes[0], false, 20, 0, false);
    attention_is_the_cpus_and_keeps_its_bits(&rig, shapes[5], false, 0, 10, false);
    a_replayed_step_is_the_step_launched(&rig, shapes[2], 0, false);
    a_replayed_step_is_the_step_launched(&rig, shapes[2], 261, false);
    a_replayed_step_is_the_step_launched(&rig, shapes[2], 0, true);
    a_prompt_keeps_its_bits_in_chunks(&rig, shapes[0], rig.is_small ? 90 : 530, 0);
    a_prompt_keeps_its_bits_in_chunks(&rig, shapes[0], rig.is_small ? 90 : 530, 20);
    if (!rig.is_small) {
        a_long_lane_merges_all_its_partitions(&rig, 0, false);
        a_long_lane_merges_all_its_partitions(&rig, 66 * ATTENTION_PARTITION + 5, false);
        a_long_lane_merges_all_its_partitions(&rig, 66 * ATTENTION_PARTITION + 5, true);
        a_prompt_keeps_its_bits_in_chunks(&rig, shapes[4], 300, 0);
        a_prompt_keeps_its_bits_in_chunks(&rig, shapes[4], 300, 40);
        a_prompt_keeps_its_bits_in_chunks(&rig, shapes[0], 530, 258);
    }
    return rig_close(&rig);
}
