/* Attention over a long context, and its share of what bounds it (bench/limits.h): of the time that
 * this machine needs to read the KV once, which bounds one row, or of the time that it needs for
 * the products of all rows, which bounds the K + 1 rows of a verification.
 *
 *   bench_attention [--positions N] [--rows 1,6] [--threads 1,2] [--heads H] [--kv-heads K]
 *                   [--head-dim E] [--order rising] [--kernels auto] [--rounds 40]
 *
 * Attention and the reading loop use in turn the KV of enough layers to fill 512 MiB, or twice the
 * last-level cache. The peak is the register loop for bf16, whatever the form of the weights, since
 * the KV is bf16. Blocks are numbered as a pool gives them to one text (rising), or as if other
 * texts had the blocks in between (scattered). Attention, reading loop and register loop follow
 * each other in slices of the same round; a ratio is the median of the rounds (bench_util.h). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/bench_util.h"
#include "bench/limits.h"
#include "bench/options.h"
#include "model/backend/backend.h"
#include "model/backend/cpu/cpu.h"

enum { LIST_MAX = 8, ROWS_MAX = 64, SLICE_US = 15000, ROUNDS = 40 };

enum { RISING, SCATTERED, ORDERS };
static const char *const orders[ORDERS] = {"rising", "scattered"};

struct settings {
    int n_positions, n_rounds;
    int n_rows, n_threads;
    int32_t rows[LIST_MAX], threads[LIST_MAX];
    struct attention_shape shape;
    int order; /* of the blocks: an index of orders */
    const char *kernels;
};

struct setup {
    struct backend *be;
    struct bench_limits limits; /* its memory is the KV */
    struct attention_shape shape;
    uint16_t *kv; /* [n_layers] */
    size_t layer_bytes;
    int n_layers;
    int32_t *blocks;
    uint16_t *q, *out;
    int n_positions, n_rows, n_rounds;
};

/* The cost of one layer: two products of two operations each. */
static struct bench_cost layer_cost(const struct setup *w)
{
    double products = (double)w->n_rows * w->shape.n_heads * w->n_positions * w->shape.head_dim;
    return (struct bench_cost){1e-9 * (double)w->layer_bytes, 4e-9 * products};
}

/* Attends to the next layer; returns layers. */
static double run_attention(void *arg)
{
    struct setup *w = arg;
    const struct attention_lane lane = {0, w->n_rows, w->n_positions - w->n_rows, w->blocks, NULL};
    const struct backend_step step = {.n = w->n_rows, .lanes = &lane, .n_lanes = 1};
    const struct attention_rule rule = {.scale = 1.0f / sqrtf((float)w->shape.head_dim)};
    size_t layer = (size_t)bench_limits_next(&w->limits);
    w->be->ops->attention(w->be, &w->shape, &step, &rule, w->q,
                          w->kv + layer * (w->layer_bytes / sizeof *w->kv), w->out);
    return 1;
}

static void show(struct setup *w, int n_threads)
{
    static double rates[3][BENCH_PAIRS_MAX];
    const int64_t slices_us[] = {SLICE_US, SLICE_US, SLICE_US / 3};
    const struct timed_arm arms[] = {
        {run_attention, w}, {bench_limits_read, &w->limits}, {bench_limits_multiply, &w->limits}};
    int n = w->n_rounds;
    bench_rounds(arms, slices_us, 3, n, rates);
    struct bench_cost cost = layer_cost(w);
    struct bench_share share = bench_share(cost, rates[0], rates[1], rates[2], n);
    double layers = sample_quartiles(rates[0], n).median;
    printf("%7d %4d %9.1f %9.1f %11.1f %9.1f  %-11s  %5.2f [%.2f %.2f]\n", n_threads, w->n_rows,
           layers * cost.gb, sample_quartiles(rates[1], n).median, layers * cost.gflop,
           sample_quartiles(rates[2], n).median, bench_bound_name(share.bound), share.ratio.median,
           share.ratio.low, share.ratio.high);
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
    size_t q_len = (size_t)ROWS_MAX * (size_t)(s->shape.n_heads * s->shape.head_dim);
    w->shape = s->shape;
    w->n_positions = s->n_positions;
    w->n_rounds = s->n_rounds;
    w->shape.n_blocks = n_blocks;
    w->layer_bytes = kv_layer_bytes(&w->shape);
    w->n_layers = (int)(bench_cold_bytes((size_t)512 << 20) / w->layer_bytes) + 1;
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

static int run_threads(struct setup *w, const struct settings *s, int n_threads, struct error *err)
{
    int rc = 0;
    const struct backend_cpu_options options = {.kernels = s->kernels, .n_threads = n_threads};
    TRY(backend_cpu_open(&w->be, &options, err));
    TRY(bench_limits_open(&w->limits, n_threads, w->be->ops->kernels(w->be), WEIGHTS_BF16, err));
    bench_limits_lend(&w->limits, w->kv, w->layer_bytes, w->n_layers);
    printf("kernels %s, %d thread%s\n", w->be->ops->kernels(w->be), n_threads,
           n_threads > 1 ? "s" : "");
    bench_limits_show(&w->limits, SLICE_US);
    printf("threads rows  KV GB/s read GB/s     GFLOP/s      peak  limit        share of it\n");
    for (int i = 0; i < s->n_rows; i++) {
        w->n_rows = s->rows[i];
        show(w, n_threads);
    }
out:
    bench_limits_close(&w->limits);
    if (w->be) w->be->ops->close(w->be);
    w->be = NULL;
    return rc;
}

static int run(const struct settings *s, struct error *err)
{
    struct setup w = {0};
    int rc = 0;
    TRY(open_setup(&w, s, err));
    printf("%d positions, %d heads, %d kv heads, width %d, blocks %s\n", s->n_positions,
           s->shape.n_heads, s->shape.n_kv_heads, s->shape.head_dim, orders[s->order]);
    for (int i = 0; i < s->n_threads; i++) {
        TRY(run_threads(&w, s, s->threads[i], err));
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
                         .n_rounds = ROUNDS,
                         .n_rows = 2,
                         .rows = {1, 6},
                         .n_threads = 2,
                         .threads = {1, 2},
                         .shape = {.n_heads = 32, .n_kv_heads = 8, .head_dim = 64},
                         .kernels = "auto"};
    const struct bench_option options[] = {
        {"positions", 'n', "N", "of the context; default 32768", 64, 1 << 20,
         .number = &s.n_positions},
        {"rows", 'r', "LIST", "1 to 64 each; default 1,6", 1, ROWS_MAX,
         .list = {s.rows, &s.n_rows, LIST_MAX}},
        {"threads", 't', "LIST", "default 1,2", 1, 256,
         .list = {s.threads, &s.n_threads, LIST_MAX}},
        {"heads", 0, "H", "default 32", 1, 256, .number = &s.shape.n_heads},
        {"kv-heads", 0, "K", "default 8", 1, 256, .number = &s.shape.n_kv_heads},
        {"head-dim", 0, "E", "a multiple of 16 up to 256; default 64", 16, 256,
         .number = &s.shape.head_dim},
        {"order", 0, "ORDER", "of the blocks: rising (default) or scattered",
         .word = {&s.order, orders, ORDERS}},
        {"kernels", 0, "NAME", "of this CPU, or auto (default)", .text = &s.kernels},
        {"rounds", 0, "N", "slices of each arm in a line; default 40", 2, BENCH_PAIRS_MAX,
         .number = &s.n_rounds},
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
