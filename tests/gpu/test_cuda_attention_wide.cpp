/* Attention with wide tiles of query vectors has the bits that narrow tiles have: for lanes of
 * ragged lengths side by side, prompts and decoding lanes in one step, windows, capped scores, rows
 * that see their whole lane, paths of trees, and all widths of heads. Every byte of a KV cache is a
 * NaN until it is written. */
#include "model/backend/cuda/attention/wide.cuh"
#include "tests/gpu/attention_world.h"

/* A comparison of both kinds of tiles. */
struct wide_case {
    struct attention_shape shape;
    int window;
    bool has_extras, is_varied, sees_lane;
};

/* A prompt from the start, one from the middle of a block on, a verified guess, a decoding lane,
 * one whose last tile is narrow. */
static const struct piece mixed[] = {
    {0, 0, 75}, {1, 235, 37}, {2, 500, 14}, {3, 777, 1}, {4, 510, 33}};
enum { N_MIXED = 5, MIXED_ROWS = 160, PARTITIONS = 4 };

static void expect_tiles(struct rig *rig, bool is_wide)
{
    struct backend_cuda *cuda = backend_cuda_of(rig->cuda);
    int n_wide = host_input(rig, cuda->inputs.counts)[STEP_COUNT_WIDE];
    EXPECT(rig, (n_wide > 0) == is_wide, "%d wide tiles", n_wide);
    EXPECT(rig, cuda->size.has_wide == is_wide, "the size says otherwise");
    EXPECT(rig, n_wide < host_input(rig, cuda->inputs.counts)[STEP_COUNT_TILES],
           "all %d tiles are wide", n_wide);
}

static void open_mixed(struct world *w, struct rig *rig, const struct wide_case *c)
{
    int n_positions[N_MIXED];
    for (int i = 0; i < N_MIXED; i++) {
        n_positions[i] = mixed[i].position + mixed[i].n;
    }
    world_open(w, rig, c->shape, n_positions, N_MIXED, c->has_extras);
    w->window = c->window;
    w->sees_lane = c->sees_lane;
    if (c->is_varied) world_vary(w, c->shape.head_dim / 2 - 2);
}

/* Runs the mixed step with a block for each partition; returns what the blocks left in scratch
 * memory: n floats, which are 0 where they wrote nothing. */
static float *partials_of(struct rig *rig, const struct world *w, struct cache *c, bool is_narrow,
                          size_t *n, uint16_t *out)
{
    struct backend_cuda *cuda = backend_cuda_of(rig->cuda);
    const struct forced forced = {PARTITIONS, false, is_narrow};
    int n_sms = cuda->n_sms;
    cuda->n_sms = 1 << 20;                         /* tiles alone do not keep it busy */
    feed(rig, w, c, mixed, N_MIXED, &forced, out); /* makes the room */
    size_t bytes = cuda->scratch_bytes / sizeof(float) * sizeof(float);
    float *partials = static_cast<float *>(calloc(1, bytes));
    rig->cuda->ops->upload(rig->cuda, cuda->scratch, partials, bytes);
    feed(rig, w, c, mixed, N_MIXED, &forced, out);
    device_read(rig, partials, cuda->scratch, bytes);
    *n = bytes / sizeof(float);
    cuda->n_sms = n_sms;
    return partials;
}

/* Maxima, sums and values of each partition have the same bits in fp32. */
static void expect_same_partials(struct rig *rig, const struct world *w, struct cache *c,
                                 uint16_t *out)
{
    size_t n = 0, n_narrow = 0, n_written = 0, n_other = 0;
    float *narrow = partials_of(rig, w, c, true, &n_narrow, out);
    float *wide = partials_of(rig, w, c, false, &n, out);
    EXPECT(rig, n == n_narrow, "scratch memory has %zu and %zu floats", n, n_narrow);
    for (size_t i = 0; i < n && n == n_narrow; i++) {
        n_written += narrow[i] != 0;
        n_other += memcmp(&narrow[i], &wide[i], sizeof *wide) != 0;
    }
    EXPECT(rig, n_written >= times(MIXED_ROWS, w->q_dim), "only %zu partials", n_written);
    EXPECT(rig, n_other == 0, "E %d, G %d, window %d: %zu of %zu partials have other bits",
           w->shape.head_dim, w->shape.n_heads / w->shape.n_kv_heads, w->window, n_other,
           n_written);
    free(narrow), free(wide);
}

static void wide_tiles_have_the_bits_of_narrow_ones(struct rig *rig, const struct wide_case *c)
{
    struct world w;
    const struct forced narrow = {1, true, true}, in_turn = {1, true, false};
    open_mixed(&w, rig, c);
    struct cache cpu = cache_open(&w, rig, false), cuda = cache_open(&w, rig, true);
    uint16_t *want = new_out(&w, MIXED_ROWS), *got = new_out(&w, MIXED_ROWS);
    feed_history(rig, &w, &cuda, mixed, N_MIXED);
    feed(rig, &w, &cuda, mixed, N_MIXED, &in_turn, got);
    expect_tiles(rig, true);
    feed(rig, &w, &cuda, mixed, N_MIXED, &narrow, want);
    expect_same(rig, &w, got, want, MIXED_ROWS, "wide tiles, partitions one after the other");
    expect_same_partials(rig, &w, &cuda, got);
    expect_same(rig, &w, got, want, MIXED_ROWS, "wide tiles, each partition by itself");
    feed_history(rig, &w, &cpu, mixed, N_MIXED);
    feed(rig, &w, &cpu, mixed, N_MIXED, NULL, want);
    expect_near(rig, &w, got, want, MIXED_ROWS);
    free(want), free(got);
    cache_close(&cpu, rig), cache_close(&cuda, rig);
    world_close(&w, rig);
}

/* Beside a prompt there is a lane whose guesses are a tree of three paths, of which two have more
 * rows than half a wide tile. */
static void paths_of_trees_have_the_bits_of_narrow_tiles(struct rig *rig, int window)
{
    enum { GUESSES = 16, COMMITTED = 3, ROWS = 60 + COMMITTED + GUESSES };
    static const struct attention_shape shape = {8, 1, 64, 0};
    static const int32_t parents[GUESSES] = {-1, 0, 1, 2, 3, 4, 5, 1, 7, 8, 9, 10, 11, 12, -1, 14};
    static const struct piece pieces[] = {{0, 90, 60}, {1, 254, COMMITTED + GUESSES}};
    static const int n_positions[] = {150, 254 + COMMITTED + GUESSES, 8 * KV_BLOCK_TOKENS};
    const struct forced narrow = {1, true, true}, in_turn = {1, true, false};
    struct world w;
    struct tree_layout layout;
    struct attention_tree tree;
    struct error err;
    world_open(&w, rig, shape, n_positions, 3, true);
    w.window = window;
    MUST(tree_layout_init(&layout, parents, GUESSES, &err), err);
    struct cache c = cache_open(&w, rig, true);
    uint16_t *want = new_out(&w, ROWS), *got = new_out(&w, ROWS);
    feed_history(rig, &w, &c, pieces, 2);
    struct world_step s;
    world_step_open(&s, &w, pieces, 2);
    attention_tree_place(&tree, &layout, s.tables[1], w.sequences[2].blocks, pieces[1].position,
                         COMMITTED);
    s.lanes[1].tree = &tree;
    run_on_cuda(rig, &w, &s, &c, NULL, got);
    expect_tiles(rig, true);
    run_on_cuda(rig, &w, &s, &c, &narrow, want);
    expect_same(rig, &w, got, want, ROWS, "wide tiles of a tree");
    run_on_cuda(rig, &w, &s, &c, &in_turn, got);
    expect_same(rig, &w, got, want, ROWS, "wide tiles of a tree, partitions in turn");
    world_step_close(&s);
    free(want), free(got);
    cache_close(&c, rig);
    world_close(&w, rig);
}

/* A score that is not a number spoils its own row alone, and in the same way. */
static void rows_without_numbers_stay_alone(struct rig *rig)
{
    static const struct attention_shape shape = {4, 1, 64, 0};
    static const struct piece prompt = {0, 200, 80};
    static const int n_positions = 280, bad = 30;
    const struct forced narrow = {1, true, true}, in_turn = {1, true, false};
    struct world w;
    world_open(&w, rig, shape, &n_positions, 1, false);
    struct cache c = cache_open(&w, rig, true);
    uint16_t *good = new_out(&w, prompt.n), *want = new_out(&w, prompt.n);
    uint16_t *got = new_out(&w, prompt.n);
    feed_history(rig, &w, &c, &prompt, 1);
    feed(rig, &w, &c, &prompt, 1, NULL, good);
    w.sequences[0].qkv[times(prompt.position + bad, w.qkv_dim)] = NAN;
    feed(rig, &w, &c, &prompt, 1, &in_turn, got);
    feed(rig, &w, &c, &prompt, 1, &narrow, want);
    expect_same(rig, &w, got, want, prompt.n, "a row of NaN");
    for (int row = 0; row < prompt.n; row++) {
        bool is_same = memcmp(got + times(row, w.q_dim), good + times(row, w.q_dim),
                              static_cast<size_t>(w.q_dim) * sizeof *got) == 0;
        EXPECT(rig, is_same == (row != bad), "row %d", row);
    }
    free(good), free(want), free(got);
    cache_close(&c, rig);
    world_close(&w, rig);
}

enum { WEIGHT_THREADS = 128, WEIGHT_BLOCKS = 16, WEIGHTS_EACH = 256 };

/* Each thread compares weights of random scores, and of scores around the least that counts. */
static __global__ void compare_weights(int *n_different, int *n_zero)
{
    uint32_t state = blockIdx.x * WEIGHT_THREADS + threadIdx.x + 1;
    grid_dependency_launch();
    grid_dependency_wait();
    for (int i = 0; i < WEIGHTS_EACH; i++) {
        state = state * 1664525u + 1013904223u;
        float below = static_cast<float>(state >> 8) * (i % 2 ? 0x1p-18f : 0x1p-22f);
        if (i % 8 == 0)
            below = 87.33f + static_cast<float>(static_cast<int>(state >> 16)) * 0x1p-20f;
        if (i % 8 == 1)
            below = 87.33f - static_cast<float>(static_cast<int>(state >> 16)) * 0x1p-20f;
        float scale = i % 4 ? 0.08838835f : 1.0f, max = i % 3 ? 3.7f : 0.0f;
        float score = (max - below) / scale;
        if (scale * score - max > 0) continue;
        float got = wide_weight(score, scale, max), want = device_exp(scale * score - max);
        if (__float_as_uint(got) != __float_as_uint(want)) atomicAdd(n_different, 1);
        if (want == 0) atomicAdd(n_zero, 1);
    }
}

/* The short form of exp has its bits. */
static void weights_are_exp(struct rig *rig)
{
    const int all = WEIGHT_BLOCKS * WEIGHT_THREADS * WEIGHTS_EACH;
    int counts[2] = {};
    int *device = static_cast<int *>(device_open(rig, counts, sizeof counts));
    cuda_launch(backend_cuda_of(rig->cuda), "weights", compare_weights, dim3(WEIGHT_BLOCKS),
                dim3(WEIGHT_THREADS), 0, device, device + 1);
    device_read(rig, counts, device, sizeof counts);
    EXPECT(rig, counts[0] == 0, "%d of %d weights have other bits", counts[0], all);
    EXPECT(rig, counts[1] > all / 16 && counts[1] < all / 2, "%d weights are 0", counts[1]);
    device_close(rig, device);
}

int main(int argc, char **argv)
{
    static const struct wide_case cases[] = {
        {{8, 2, 64, 0}, 0, true, false, false},    {{4, 1, 128, 0}, 0, false, false, false},
        {{4, 1, 80, 0}, 100, true, false, false},  {{4, 2, 256, 0}, 0, false, true, false},
        {{8, 2, 128, 0}, 300, false, true, false}, {{3, 1, 16, 0}, 0, true, false, true},
        {{10, 1, 32, 0}, 40, false, false, false}, {{4, 4, 64, 0}, 257, true, false, true},
        {{6, 2, 96, 0}, 0, true, true, false},     {{2, 1, 128, 0}, 1, true, false, false},
        {{4, 2, 48, 0}, 256, false, true, true},   {{4, 1, 256, 0}, 30, true, false, true}};
    struct rig rig;
    rig_open(&rig, argc, argv);
    weights_are_exp(&rig);
    for (int i = 0; i < (rig.is_small ? 4 : 12); i++) {
        wide_tiles_have_the_bits_of_narrow_ones(&rig, &cases[i]);
    }
    paths_of_trees_have_the_bits_of_narrow_tiles(&rig, 0);
    if (!rig.is_small) paths_of_trees_have_the_bits_of_narrow_tiles(&rig, 70);
    rows_without_numbers_stay_alone(&rig);
    return rig_close(&rig);
}
