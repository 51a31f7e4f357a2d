/* Attention over a long context: for one row, bytes of KV per second compared with what the machine
 * can read; for the K + 1 rows of a verification, sums per second compared with what its cores can
 * add.
 *
 *   bench_attention [--positions N] [--rows 1,6] [--threads 1,2] [--heads H] [--kv-heads K]
 *                   [--head-dim E] [--order rising] [--kernels auto]
 *
 * Attention and the reading loop both use in turn the KV of enough layers to fill 512 MiB. The
 * reading loop is the best of bench_read.h; the peak is the dot kernel on weights that stay in the
 * cache. Blocks are numbered as a pool gives them to one text (rising), or as if other texts had
 * the blocks in between (scattered). Each ratio is the median of at least 20 pairs of slices
 * (bench_util.h). */
#include <stdio.h>
#include <string.h>

#include "base/team.h"
#include "bench/bench_read.h"
#include "bench/bench_util.h"
#include "bench/options.h"
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

enum { RISING, SCATTERED, ORDERS };
static const char *const orders[ORDERS] = {"rising", "scattered"};

static const size_t pool_bytes = (size_t)512 << 20;

struct settings {
    int n_positions;
    int n_rows, n_threads;
    int32_t rows[LIST_MAX], threads[LIST_MAX];
    struct attention_shape shape;
    int order; /* of the blocks: an index of orders */
    const char *kernels;
};

struct setup {
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
    int read; /* which reading loop */
};

/* Attends to one layer; returns its gigabytes of KV. */
static double run_attention(void *arg)
{
    struct setup *w = arg;
    const struct attention_lane lane = {0, w->n_rows, w->n_positions - w->n_rows, w->blocks};
    const struct backend_step step = {.n = w->n_rows, .lanes = &lane, .n_lanes = 1};
    w->layer = (w->layer + 1) % w->n_layers;
    w->be->ops->attention(w->be, &w->shape, &step, w->q,
                          w->kv + (size_t)w->layer * (w->layer_bytes / sizeof *w->kv), w->out);
    return 1e-9 * (double)w->layer_bytes;
}

static void read_member(void *arg, int member, int n_members)
{
    const struct setup *w = arg;
    size_t share = w->layer_bytes / (size_t)n_members;
    const uint8_t *data = (const uint8_t *)w->kv + (size_t)w->layer * w->layer_bytes;
    bench_read(w->read, data + (size_t)member * share, share);
}

static double run_read(void *arg)
{
    struct setup *w = arg;
    w->layer = (w->layer + 1) % w->n_layers;
    team_run(w->team, read_member, w);
    return 1e-9 * (double)w->layer_bytes;
}

/* Dots of a matrix that stays in the first-level cache: TFLOP. */
static void peak_member(void *arg, int member, int n_members)
{
    const struct setup *w = arg;
    (void)n_members;
    struct packed_matrix m = {.data = w->kv + (size_t)member * PEAK_IN * PEAK_OUT,
                              .n_in = PEAK_IN,
                              .n_out = PEAK_OUT,
                              .n_blocks = PEAK_OUT / KERNEL_COLUMNS};
    float out[PEAK_ROWS * PEAK_OUT];
    uint32_t panels[PEAK_ROWS * PEAK_IN];
    const struct matmul_rows rows = {.in = w->q, .n = PEAK_ROWS, .n_in = PEAK_IN, .panels = panels};
    const struct matmul_call call = {
        .rows = &rows, .out = out, .out_stride = PEAK_OUT, .end_block = m.n_blocks};
    if (w->kernels->panel_words(PEAK_ROWS, PEAK_IN)) {
        w->kernels->fill_panels(&rows, 0, PEAK_IN / 2);
    }
    for (int i = 0; i < PEAK_TIMES; i++) {
        w->kernels->matmul(&m, &call);
    }
}

static double run_peak(void *arg)
{
    struct setup *w = arg;
    team_run(w->team, peak_member, w);
    return 2e-12 * PEAK_TIMES * PEAK_ROWS * PEAK_IN * PEAK_OUT * team_size(w->team);
}

static void show(struct setup *w)
{
    const struct timed_arm attention = {run_attention, w}, read = {run_read, w},
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

/* Fills x with small ordinary numbers. */
static void fill(uint16_t *x, size_t n)
{
    uint32_t state = 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (uint16_t)(0x3c00u + (state >> 25) + (state >> 31 << 15));
    }
}

static int open_setup(struct setup *w, const struct settings *s, struct error *err)
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
    for (int i = n_blocks - 1; i > 0 && s->order == SCATTERED; i--) {
        int other = (int)((uint32_t)i * 2654435761u % (uint32_t)(i + 1)), block = w->blocks[i];
        w->blocks[i] = w->blocks[other];
        w->blocks[other] = block;
    }
out:
    return rc;
}

static int run(const struct settings *s, struct error *err)
{
    struct setup w = {0};
    int rc = 0;
    TRY(open_setup(&w, s, err));
    printf("%d positions, %d heads, %d kv heads, width %d, %s kernels, blocks %s\n", s->n_positions,
           s->shape.n_heads, s->shape.n_kv_heads, s->shape.head_dim, w.kernels->name,
           orders[s->order]);
    printf("threads rows  KV GB/s read GB/s  ratio               TFLOP/s     peak  ratio\n");
    for (int t = 0; t < s->n_threads; t++) {
        const struct backend_cpu_options options = {.kernels = s->kernels,
                                                    .n_threads = s->threads[t]};
        TRY(backend_cpu_open(&w.be, &options, err));
        TRY(team_open(&w.team, s->threads[t], 200, err));
        w.read = bench_best_read(&(struct timed_arm){run_read, &w}, &w.read, SLICE_US / 5, NULL);
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

int main(int argc, char **argv)
{
    struct settings s = {.n_positions = 32768,
                         .n_rows = 2,
                         .rows = {1, 6},
                         .n_threads = 2,
                         .threads = {1, 2},
                         .shape = {.n_heads = 32, .n_kv_heads = 8, .head_dim = 64},
                         .kernels = "auto"};
    const struct bench_option options[] = {
        {"positions", 'n', "N", "of the context; default 32768", 64, 1 << 20,
         .number = &s.n_positions},
        {"rows", 'r', "LIST", "1 to 64 each; default 1,6", 1, 64,
         .list = {s.rows, &s.n_rows, LIST_MAX}},
        {"threads", 't', "LIST", "default 1,2", 1, 256,
         .list = {s.threads, &s.n_threads, LIST_MAX}},
        {"heads", 0, "H", "default 32", 1, 256, .number = &s.shape.n_heads},
        {"kv-heads", 0, "K", "default 8", 1, 256, .number = &s.shape.n_kv_heads},
        {"head-dim", 0, "E", "a multiple of 16 up to 256; default 64", 16, 256,
         .number = &s.shape.head_dim},
        {"order", 0, "ORDER", "of the blocks: rising (default) or scattered",
         .word = {&s.order, orders, ORDERS}},
        {"kernels", 0, "NAME", "auto, avx512, avx2, plain", .text = &s.kernels},
        {0},
    };
    const struct bench_command command = {.options = options};
    struct error err = {0};
    bench_parse(argc, argv, &command);
    if (run(&s, &err)) {
        fprintf(stderr, "bench_attention: %s\n", err.text);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
