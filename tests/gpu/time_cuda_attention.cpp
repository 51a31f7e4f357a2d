/* Times attention of one layer of llama-3.1-8b on this machine's GPU: prompts with wide tiles of
 * query vectors and with narrow ones, and decoding lanes. Each line has microseconds and Tflop/s
 * (prompts; only what is seen counts) or GB/s of K and V (lanes). Launches follow each other as in
 * a step. Decoding lanes have so many layers that none is found in the second-level cache. Not a
 * test.
 *
 *   time_cuda_attention [--prompts N,N,...] [--contexts N,N,...] [--lanes N] [--head-dim E]
 *                       [--ms PER_LINE] */
#include "tests/gpu/attention_world.h"
#include "tests/gpu/timing.h"

enum { COUNTS_MAX = 16, LANES_MOST = 256, ROTATED_MIB = 256, COPIES_MAX = 64 };

/* The values of a comma-separated list; returns how many there are. */
static int read_counts(const char *text, int *counts)
{
    int n = 0;
    for (const char *at = text; *at && n < COUNTS_MAX; at += strcspn(at, ",")) {
        at += *at == ',';
        if (atoi(at) > 0) counts[n++] = atoi(at);
    }
    return n;
}

/* A step of lanes of the same shape, its q, and KV of one or more layers. */
struct timed {
    struct rig *rig;
    struct attention_shape shape;
    struct attention_lane lanes[LANES_MOST];
    struct backend_step step;
    int32_t *blocks, *tokens;
    float *angles;
    uint16_t *q, *out, *kv[COPIES_MAX];
    int n_layers;
};

/* Numbers of both signs around 1, made fast. */
static uint16_t *timed_numbers(struct rig *rig, size_t n)
{
    uint16_t *out = static_cast<uint16_t *>(malloc(n * sizeof *out));
    for (size_t i = 0; i < n; i++) {
        rig->state = rig->state * 1664525u + 1013904223u;
        out[i] = static_cast<uint16_t>((rig->state >> 16 & 0x807fu) | 0x3f00u |
                                       (rig->state >> 30 & 1u) << 7);
    }
    return out;
}

/* n_lanes lanes with n rows each at the end of `context` positions. */
static void timed_open(struct timed *t, struct rig *rig, struct attention_shape shape, int n_lanes,
                       int n, int context, struct weight *embedding)
{
    int n_blocks = (context + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS, rows = n_lanes * n;
    *t = {};
    t->rig = rig;
    t->shape = shape;
    t->shape.n_blocks = n_lanes * n_blocks;
    t->blocks = static_cast<int32_t *>(malloc(times(n_lanes, n_blocks) * sizeof *t->blocks));
    for (int i = 0; i < n_lanes; i++) {
        for (int b = 0; b < n_blocks; b++) { /* a lane's blocks lie apart */
            t->blocks[times(i, n_blocks) + static_cast<size_t>(b)] = b * n_lanes + i;
        }
        t->lanes[i] = {i * n, n, context - n, t->blocks + times(i, n_blocks), NULL};
    }
    t->tokens = static_cast<int32_t *>(calloc(static_cast<size_t>(rows), sizeof *t->tokens));
    t->angles = static_cast<float *>(calloc(times(rows, shape.head_dim), sizeof(float)));
    t->step.embedding = embedding;
    t->step.tokens = t->tokens;
    t->step.n = rows;
    t->step.lanes = t->lanes;
    t->step.n_lanes = n_lanes;
    t->step.shape = &t->shape;
    t->step.cos = t->step.sin = t->angles;
    t->step.n_ropes = 1;
    size_t bytes = kv_layer_bytes(&t->shape);
    size_t q_count =
        times(rig->cuda->ops->capacity(rig->cuda, rows), shape.n_heads * shape.head_dim);
    uint16_t *q = timed_numbers(rig, q_count), *kv = timed_numbers(rig, bytes / sizeof *kv);
    t->q = static_cast<uint16_t *>(device_open(rig, q, q_count * sizeof *q));
    t->out = static_cast<uint16_t *>(device_open(rig, NULL, q_count * sizeof *q));
    size_t wanted = n == 1 ? static_cast<size_t>(ROTATED_MIB) << 20 : 1;
    do {
        t->kv[t->n_layers++] = static_cast<uint16_t *>(device_open(rig, kv, bytes));
    } while (t->n_layers < COPIES_MAX && static_cast<size_t>(t->n_layers) * bytes < wanted);
    free(q), free(kv);
}

static void timed_close(struct timed *t)
{
    for (int i = 0; i < t->n_layers; i++) {
        device_close(t->rig, t->kv[i]);
    }
    device_close(t->rig, t->q), device_close(t->rig, t->out);
    free(t->blocks), free(t->tokens), free(t->angles);
}

/* Milliseconds of n launches on the device. */
static float time_launches(struct timed *t, int n)
{
    struct backend *be = t->rig->cuda;
    const struct attention_rule rule = {0, 1.0f / sqrtf(static_cast<float>(t->shape.head_dim)), 0,
                                        false};
    return device_ms(t->rig, [&] {
        for (int i = 0; i < n; i++) {
            be->ops->attention(be, &t->shape, &t->step, &rule, t->q, t->kv[i % t->n_layers],
                               t->out);
        }
    });
}

/* The median of five runs of about a fifth of ms_wanted each. */
static double median_us(struct timed *t, bool is_narrow, float ms_wanted)
{
    enum { RUNS = 5 };
    struct forced_tiles tiles = {};
    float us[RUNS];
    rig_begin(t->rig, &t->step);
    if (is_narrow) tiles = force_narrow(t->rig, t->shape.n_heads / t->shape.n_kv_heads);
    time_launches(t, 1);
    float once = time_launches(t, 1);
    int n = static_cast<int>(ms_wanted / RUNS / (once > 0.001f ? once : 0.001f)) + 1;
    for (int run = 0; run < RUNS; run++) {
        float mine = 1000 * time_launches(t, n) / static_cast<float>(n);
        int at = run;
        for (; at > 0 && us[at - 1] > mine; at--)
            us[at] = us[at - 1];
        us[at] = mine;
    }
    rig_end(t->rig);
    forced_tiles_close(&tiles, t->rig);
    return static_cast<double>(us[RUNS / 2]);
}

static void time_prompt(struct rig *rig, struct attention_shape shape, int n, float ms,
                        struct weight *embedding)
{
    static struct timed t;
    double seen = 0.5 * n * (n + 1.0);
    double flop = 4 * seen * shape.n_heads * shape.head_dim;
    timed_open(&t, rig, shape, 1, n, n, embedding);
    for (bool is_narrow : {false, true}) {
        double us = median_us(&t, is_narrow, ms);
        printf("prompt of %6d, %-6s tiles %10.1f us %8.1f Tflop/s\n", n,
               is_narrow ? "narrow" : "wide", us, flop / us * 1e-6);
    }
    timed_close(&t);
}

static void time_lanes(struct rig *rig, struct attention_shape shape, int n_lanes, int context,
                       float ms, struct weight *embedding)
{
    static struct timed t;
    timed_open(&t, rig, shape, n_lanes, 1, context, embedding);
    double bytes = 4.0 * n_lanes * context * shape.n_kv_heads * shape.head_dim;
    double us = median_us(&t, false, ms);
    printf("%d lanes of 1 row, context %6d %10.1f us %8.0f GB/s\n", n_lanes, context, us,
           bytes / us * 1e-3);
    timed_close(&t);
}

int main(int argc, char **argv)
{
    static struct rig rig;
    static float embedding_row[16];
    int prompts[COUNTS_MAX] = {512, 4096}, n_prompts = 2, contexts[COUNTS_MAX] = {256, 4096};
    int n_contexts = 2, n_lanes = 64;
    struct attention_shape shape = {32, 8, 128, 0};
    struct weight embedding = {};
    float ms = 50;
    rig_open(&rig, 1, argv);
    embedding.dtype = DTYPE_F32;
    embedding.n_rows = 1;
    embedding.n_cols = 16;
    embedding.data = reinterpret_cast<const uint8_t *>(embedding_row);
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--prompts") == 0) n_prompts = read_counts(argv[i + 1], prompts);
        if (strcmp(argv[i], "--contexts") == 0) n_contexts = read_counts(argv[i + 1], contexts);
        if (strcmp(argv[i], "--lanes") == 0) n_lanes = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--head-dim") == 0) shape.head_dim = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--ms") == 0) ms = static_cast<float>(atof(argv[i + 1]));
    }
    if (n_lanes < 1 || n_lanes > LANES_MOST) {
        printf("--lanes %d: there can be 1 to %d\n", n_lanes, LANES_MOST);
        return EXIT_FAILURE;
    }
    for (int i = 0; i < n_prompts; i++) {
        time_prompt(&rig, shape, prompts[i], ms, &embedding);
    }
    for (int i = 0; i < n_contexts; i++) {
        time_lanes(&rig, shape, n_lanes, contexts[i], ms, &embedding);
    }
    return rig_close(&rig);
}
