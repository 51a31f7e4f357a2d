/* Attention over a long context: bytes of KV per second over what the machine can read, for one row; sums
 * per second over what its cores can add, for the K + 1 rows of a verification.
 *
 *   bench_attention [--positions N] [--rows 1,6] [--threads 1,2] [--heads H] [--kv-heads K]
 *                   [--head-dim E] [--order rising] [--kernels auto]
 *
 * The KV of enough layers to fill 512 MiB is used in turn, by attention and by the reading loop alike.
 * The reading loop is the best of bench_read.h; the peak is the dot kernel on weights
 * that stay in the cache. Blocks are numbered as a pool gives them to one text (rising), or one text's
 * blocks lie between those of others (scattered). Each ratio is the median of at least 20 pairs of slices (bench_util.h). */
#include <argp.h>
#include <stdio.h>
#include <string.h>

#include "base/options.h"
#include "bench/bench_read.h"
#include "bench/bench_util.h"
#include "model/backend/backend.h"
#include "model/backend/cpu/cpu.h"
#include "model/backend/cpu/kernels/kernels.h"

enum {
    LIST_MAX = 8,
    SLICE_US = 50000,
    PEAK_ROWS = 7,
    PEAK_IN = 256,
    PEAK_OUT = 64,
    PEAK_TIMES = 40
};

static const size_t pool_bytes = (size_t)512 << 20;

struct settings {
    int n_positions;
    int n_rows, n_threads;
    int32_t rows[LIST_MAX], threads[LIST_MAX];
    struct attention_shape shape;
    bool is_scattered;
    const char *kernels;
};

struct world {
    struct backend *be;
    struct team *team;
    const struct kernels *kernels;
    struct attention_shape shape;
    uint16_t *kv; /* [n_layers] */
    size_t layer_bytes;
    int n_layers, layer;
    int32_t *blocks;
    uint16_t *q, *out;
    int n_positions, n_rows;
    int read; /* which loop */
};

/* One layer; returns its gigabytes of KV. */
static double run_attention(void *arg)
{
    struct world *w = arg;
    const struct attention_lane lane = {0, w->n_rows, w->n_positions - w->n_rows, w->blocks};
    const struct backend_step step = {.n = w->n_rows, .lanes = &lane, .n_lanes = 1};
    w->layer = (w->layer + 1) % w->n_layers;
    w->be->ops->attention(w->be, &w->shape, &step, w->q,
                          w->kv + (size_t)w->layer * (w->layer_bytes / sizeof *w->kv), w->out);
    return 1e-9 * (double)w->layer_bytes;
}

static void read_member(void *arg, int member, int n_members)
{
    const struct world *w = arg;
    size_t share = w->layer_bytes / (size_t)n_members;
    const uint8_t *data = (const uint8_t *)w->kv + (size_t)w->layer * w->layer_bytes;
    bench_read(w->read, data + (size_t)member * share, share);
}

static double run_read(void *arg)
{
    struct world *w = arg;
    w->layer = (w->layer + 1) % w->n_layers;
    team_run(w->team, read_member, w);
    return 1e-9 * (double)w->layer_bytes;
}

/* Dots of a matrix that stays in the first-level cache: TFLOP. */
static void peak_member(void *arg, int member, int n_members)
{
    const struct world *w = arg;
    (void)n_members;
    struct packed_matrix m = {.data = w->kv + (size_t)member * PEAK_IN * PEAK_OUT,
                              .n_in = PEAK_IN,
                              .n_out = PEAK_OUT,
                              .n_blocks = PEAK_OUT / KERNEL_COLUMNS};
    float out[PEAK_ROWS * PEAK_OUT];
    for (int i = 0; i < PEAK_TIMES; i++) {
        w->kernels->matmul(&m, w->q, 0, out, PEAK_OUT, PEAK_ROWS, 0, m.n_blocks);
    }
}

static double run_peak(void *arg)
{
    struct world *w = arg;
    team_run(w->team, peak_member, w);
    return 2e-12 * PEAK_TIMES * PEAK_ROWS * PEAK_IN * PEAK_OUT * team_size(w->team);
}

/* The best reading loop for this number of threads. */
static void choose_read(struct world *w)
{
    double best = 0;
    int best_read = 0;
    for (w->read = 0; w->read < BENCH_READS; w->read++) {
        double rate = bench_rate(&(struct bench_arm){run_read, w}, 4 * SLICE_US);
        if (rate > best) best_read = w->read;
        if (rate > best) best = rate;
    }
    w->read = best_read;
}

static void show(struct world *w)
{
    const struct bench_arm attention = {run_attention, w}, read = {run_read, w},
                           peak = {run_peak, w};
    struct bench_pairs bytes = bench_compare(&attention, &read, BENCH_PAIRS_MIN, SLICE_US);
    struct bench_pairs sums = bench_compare(&attention, &peak, BENCH_PAIRS_MIN, SLICE_US);
    /* A pass over one layer: two products, two operations each. */
    double tflop =
        4e-12 * w->n_rows * w->shape.n_heads * (double)w->n_positions * w->shape.head_dim;
    double per_gb = tflop / (1e-9 * (double)w->layer_bytes);
    printf("%7d %4d %9.1f %9.1f %6.2f (%.2f-%.2f) %9.3f %8.3f %6.2f (%.2f-%.2f)\n",
           team_size(w->team), w->n_rows, bytes.a.median, bytes.b.median, bytes.ratio.median,
           bytes.ratio.low, bytes.ratio.high, sums.a.median * per_gb, sums.b.median,
           sums.ratio.median * per_gb, sums.ratio.low * per_gb, sums.ratio.high * per_gb);
    fflush(stdout);
}

/* Small ordinary numbers. */
static void fill(uint16_t *x, size_t n)
{
    uint32_t state = 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (uint16_t)(0x3c00u + (state >> 25) + (state >> 31 << 15));
    }
}

static int open_world(struct world *w, const struct settings *s, struct error *err)
{
    int rc = 0, n_blocks = (s->n_positions + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    size_t q_len = (size_t)64 * (size_t)(s->shape.n_heads * s->shape.head_dim);
    w->shape = s->shape;
    w->n_positions = s->n_positions;
    w->shape.n_blocks = n_blocks;
    w->layer_bytes = kv_layer_bytes(&w->shape);
    w->n_layers = (int)(pool_bytes / w->layer_bytes) + 1;
    TRY(kernels_find(&w->kernels, s->kernels, err));
    TRY(mem_pages(&w->kv, (size_t)w->n_layers * w->layer_bytes, err));
    TRY(mem_array(&w->blocks, (size_t)n_blocks, sizeof *w->blocks, err));
    TRY(mem_array(&w->q, q_len, sizeof *w->q, err));
    TRY(mem_array(&w->out, q_len, sizeof *w->out, err));
    fill(w->kv, (size_t)w->n_layers * (w->layer_bytes / sizeof *w->kv));
    fill(w->q, q_len);
    for (int i = 0; i < n_blocks; i++) {
        w->blocks[i] = i;
    }
    for (int i = n_blocks - 1; i > 0 && s->is_scattered; i--) {
        int other = (int)((uint32_t)i * 2654435761u % (uint32_t)(i + 1)), block = w->blocks[i];
        w->blocks[i] = w->blocks[other];
        w->blocks[other] = block;
    }
out:
    return rc;
}

static int run(const struct settings *s, struct error *err)
{
    struct world w = {0};
    int rc = 0;
    TRY(open_world(&w, s, err));
    printf("%d positions, %d heads, %d kv heads, width %d, %s kernels, blocks %s\n", s->n_positions,
           s->shape.n_heads, s->shape.n_kv_heads, s->shape.head_dim, w.kernels->name,
           s->is_scattered ? "scattered" : "rising");
    printf("threads rows  KV GB/s read GB/s  ratio               TFLOP/s     peak  ratio\n");
    for (int t = 0; t < s->n_threads; t++) {
        const struct backend_cpu_options options = {.kernels = s->kernels,
                                                    .n_threads = s->threads[t]};
        TRY(backend_cpu_open(&w.be, &options, err));
        TRY(team_open(&w.team, s->threads[t], 200, err));
        choose_read(&w);
        for (int r = 0; r < s->n_rows; r++) {
            w.n_rows = s->rows[r];
            show(&w);
        }
        w.be->ops->close(w.be);
        team_close(w.team);
    }
out:
    if (w.kv) mem_pages_free(w.kv, (size_t)w.n_layers * w.layer_bytes);
    free(w.blocks);
    free(w.q);
    free(w.out);
    return rc;
}

enum { OPT_KERNELS = 256, OPT_HEADS, OPT_KV_HEADS, OPT_HEAD_DIM, OPT_ORDER };

static const struct argp_option options[] = {
    {"positions", 'n', "N", 0, "of the context; default 32768", 0},
    {"rows", 'r', "LIST", 0, "1 to 64 each; default 1,6", 0},
    {"threads", 't', "LIST", 0, "default 1,2", 0},
    {"heads", OPT_HEADS, "H", 0, "default 32", 0},
    {"kv-heads", OPT_KV_HEADS, "K", 0, "default 8", 0},
    {"head-dim", OPT_HEAD_DIM, "E", 0, "a multiple of 16 up to 256; default 64", 0},
    {"order", OPT_ORDER, "ORDER", 0, "of the blocks: rising (default) or scattered", 0},
    {"kernels", OPT_KERNELS, "NAME", 0, "auto, avx512, avx2, plain", 0},
    {0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct settings *s = state->input;
    struct error err;
    int rc = 0;
    switch (key) {
    case 'n':
        rc = options_int(&s->n_positions, "--positions", arg, 64, 1 << 20, &err);
        break;
    case 'r':
        rc = options_int_list(s->rows, &s->n_rows, LIST_MAX, "--rows", arg,
                              (struct options_range){1, 64}, &err);
        break;
    case 't':
        rc = options_int_list(s->threads, &s->n_threads, LIST_MAX, "--threads", arg,
                              (struct options_range){1, 256}, &err);
        break;
    case OPT_HEADS:
        rc = options_int(&s->shape.n_heads, "--heads", arg, 1, 256, &err);
        break;
    case OPT_KV_HEADS:
        rc = options_int(&s->shape.n_kv_heads, "--kv-heads", arg, 1, 256, &err);
        break;
    case OPT_HEAD_DIM:
        rc = options_int(&s->shape.head_dim, "--head-dim", arg, 16, 256, &err);
        break;
    case OPT_ORDER:
        s->is_scattered = strcmp(arg, "scattered") == 0;
        if (!s->is_scattered && strcmp(arg, "rising") != 0) {
            rc = error_set(&err, ERR_ARGUMENT, "--order %s: it is rising or scattered", arg);
        }
        break;
    case OPT_KERNELS:
        s->kernels = arg;
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    if (rc) argp_failure(state, 2, 0, "%s", err.text);
    return 0;
}

int main(int argc, char **argv)
{
    struct settings s = {.n_positions = 32768,
                         .n_rows = 2,
                         .rows = {1, 6},
                         .n_threads = 2,
                         .threads = {1, 2},
                         .shape = {.n_heads = 32, .n_kv_heads = 8, .head_dim = 64},
                         .kernels = "auto"};
    const struct argp argp = {.options = options, .parser = parse_option};
    struct error err = {0};
    argp_parse(&argp, argc, argv, 0, NULL, &s);
    if (run(&s, &err)) {
        fprintf(stderr, "bench_attention: %s\n", err.text);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
