/* Measures the cost of a step of K + 1 rows compared with a step of one row: the price of
 * verification.
 *
 *   bench_step [--model MODEL] [--device cpu] [--weights bf16] [--kernels auto] [--threads N]
 *              [--context N] [--rows R,R,...] [--lanes N] [--pairs N]
 *              [--slice MS]
 *
 * One rank in this process feeds R tokens at position `context` over and over, shared out over N
 * lanes or, with fewer tokens, one to a lane; each step overwrites the one before because the
 * position stays the same. For every R the arms "R rows" and "1 row" alternate in slices of half a
 * second, or of --slice. The ratio is the time of R rows over the time of 1 row, the median of the
 * pairs with quartiles.
 *
 * On the CPU each pair is followed by slices of the reading loop and of the register loop with as
 * many threads (bench/limits.h). Printed are the share that 1 row has of its limit, which is
 * reading the weights once, and the share that R rows have of theirs, which is multiplying when R
 * is large. On a device, the host's own time of a step is printed instead: until the device has all
 * of it, and what is left when the device is done, which is asking for answers to all rows and
 * reading them. */
#include <stdio.h>
#include <string.h>

#include "bench/bench_util.h"
#include "bench/limits.h"
#include "bench/options.h"
#include "model/model.h"

enum {
    ROWS_MAX = 512,
    LIST_MAX = 32,
    BLOCKS_MAX = 1 << 17,
    ANSWERS = 50,   /* that are timed */
    ANSWER_IDS = 8, /* named by a draw's wish, as many as a draft keeps of q */
    ARENA_BYTES = 64 << 20,
    STEP_SLICE_MS = 500,
    LIMIT_SLICE_US = 100000
};

/* The arms of a round. On a device there are only the first two. */
enum { ONE_ROW, MANY_ROWS, READING, MULTIPLYING, ARMS };

struct settings {
    const char *model;
    struct backend_options backend;
    int context, n_lanes, n_pairs, slice_ms;
    int32_t rows[LIST_MAX];
    int n_rows;
};

/* One arm: a step of n rows at position `context`. */
struct step_arm {
    struct model *model;
    struct forward_lane lanes[ROWS_MAX];
    struct forward_row rows[ROWS_MAX];
    int n, n_lanes;
    int64_t host_ns; /* until model_forward returned, of all steps */
    int n_steps;
};

static double run_step(void *arg)
{
    struct step_arm *arm = arg;
    struct error err;
    int64_t start = clock_now_ns();
    int rc = model_forward(arm->model, arm->lanes, arm->n_lanes, arm->rows, arm->n, &err);
    arm->host_ns += clock_now_ns() - start;
    arm->n_steps++;
    if (rc || model_wait(arm->model, &err)) {
        fprintf(stderr, "bench_step: %s\n", err.text);
        exit(EXIT_FAILURE);
    }
    return 1;
}

/* Blocks of a lane's table. */
static int table_blocks(const struct settings *s)
{
    return (s->context + ROWS_MAX) / KV_BLOCK_TOKENS + 1;
}

static void fill_arm(struct step_arm *arm, struct model *model, const struct settings *s, int n,
                     const int32_t *tokens, const int32_t *blocks)
{
    *arm = (struct step_arm){.model = model, .n = n, .n_lanes = s->n_lanes < n ? s->n_lanes : n};
    for (int i = 0, row = 0; i < arm->n_lanes; i++) {
        int first = row;
        row = (int)((int64_t)n * (i + 1) / arm->n_lanes);
        arm->lanes[i] = (struct forward_lane){s->context, row - first, tokens + first,
                                              blocks + (size_t)i * (size_t)table_blocks(s), NULL};
        for (int r = first; r < row; r++) {
            arm->rows[r] = (struct forward_row){i, r - first};
        }
    }
}

/* Times the answers to all rows of the arm's last step, in microseconds. */
static double time_answers(const struct step_arm *arm, const struct row_wish *wish)
{
    static struct row_query queries[ROWS_MAX];
    static struct arena arena;
    struct error err;
    const struct shard *shard = model_shard(arm->model);
    size_t n_slices = (size_t)arm->n * (size_t)shard->n_local;
    int rc = arena.base ? 0 : arena_open(&arena, ARENA_BYTES, &err);
    int64_t start = 0, took = 0;
    for (int i = 0; i < arm->n; i++) {
        queries[i] = (struct row_query){i, wish};
    }
    for (int i = 0; i < ANSWERS && !rc; i++) {
        arena_reset(&arena);
        struct slice_row *out = arena_take(&arena, n_slices, sizeof *out);
        start = clock_now_ns();
        rc = model_answer(arm->model, queries, arm->n, &arena, out, &err);
        took += clock_now_ns() - start;
    }
    if (rc) {
        fprintf(stderr, "bench_step: %s\n", err.text);
        exit(EXIT_FAILURE);
    }
    return 1e-3 * (double)took / ANSWERS;
}

static void show_host(const struct step_arm *arm)
{
    static const int32_t ids[ANSWER_IDS] = {1, 20, 300, 301, 302, 303, 304, 305};
    const struct row_wish best = {.n_best = 1};
    const struct row_wish draw = {.n_ids = ANSWER_IDS,
                                  .ids = ids,
                                  .n_temperatures = 1,
                                  .temperatures = {1},
                                  .outside = true,
                                  .at = {1, 2, 3}};
    double best_us = time_answers(arm, &best);
    printf("\n       of a step the host takes %.1f us until the device has all of it; then answers "
           "take %.1f us (the best) or %.1f us (a draw)",
           1e-3 * (double)arm->host_ns / arm->n_steps, best_us, time_answers(arm, &draw));
}

/* Settings that all lines of a run share. */
struct steps {
    struct model *model;
    const struct model_config *cfg;
    const struct settings *settings;
    bool is_host;
    struct bench_limits limits; /* of the host */
    double rates[ARMS][BENCH_PAIRS_MAX];
};

/* The share that the arm of n rows has of its limit. */
static void show_share(const struct steps *s, int arm, int n)
{
    struct bench_cost cost = bench_step_cost(s->cfg, model_weight_bytes(s->model), n, n);
    struct bench_share share = bench_share(cost, s->rates[arm], s->rates[READING],
                                           s->rates[MULTIPLYING], s->settings->n_pairs);
    printf("  %.2f (%.2f to %.2f) of %-11s", share.ratio.median, share.ratio.low, share.ratio.high,
           bench_bound_name(share.bound));
}

static void compare_rows(struct steps *s, int n_rows, const int32_t *tokens, const int32_t *blocks)
{
    const int64_t slice_us = 1000 * (int64_t)s->settings->slice_ms;
    const int64_t slices_us[ARMS] = {slice_us, slice_us, LIMIT_SLICE_US, LIMIT_SLICE_US};
    static struct step_arm one, many;
    int n = s->settings->n_pairs;
    fill_arm(&one, s->model, s->settings, 1, tokens, blocks);
    fill_arm(&many, s->model, s->settings, n_rows, tokens, blocks);
    const struct timed_arm arms[ARMS] = {[ONE_ROW] = {run_step, &one},
                                         [MANY_ROWS] = {run_step, &many},
                                         [READING] = {bench_limits_read, &s->limits},
                                         [MULTIPLYING] = {bench_limits_multiply, &s->limits}};
    bench_rounds(arms, slices_us, s->is_host ? ARMS : READING, n, s->rates);
    struct sample_quartiles ratio = bench_ratio(s->rates[ONE_ROW], s->rates[MANY_ROWS], n);
    double sorted[ARMS][BENCH_PAIRS_MAX], median[ARMS];
    memcpy(sorted, s->rates, sizeof sorted);
    for (int i = 0; i < ARMS; i++) {
        median[i] = sample_quartiles(sorted[i], n).median;
    }
    printf("%5d  %12.3f  %12.3f  %.3f (%.3f to %.3f)  %8.2f", n_rows, 1e3 / median[MANY_ROWS],
           1e3 / median[ONE_ROW], ratio.median, ratio.low, ratio.high,
           1e-9 * (double)model_weight_bytes(s->model) * median[ONE_ROW]);
    if (s->is_host) {
        show_share(s, ONE_ROW, 1);
        show_share(s, MANY_ROWS, n_rows);
    } else {
        show_host(&many);
    }
    printf("\n");
    fflush(stdout);
}

static void compare(struct steps *s, const int32_t *tokens, const int32_t *blocks)
{
    if (s->is_host) bench_limits_show(&s->limits, LIMIT_SLICE_US / 5);
    printf("%5s  %12s  %12s  %-24s %9s%s\n", "rows", "ms", "1 row: ms", "time over 1 row",
           "1 row: GB/s", s->is_host ? "  1 row: share of its limit          rows: share" : "");
    for (int i = 0; i < s->settings->n_rows; i++) {
        compare_rows(s, s->settings->rows[i], tokens, blocks);
    }
}

/* Fills the KV of every lane up to `context`. */
static int read_context(struct model *model, const struct settings *s, const int32_t *blocks,
                        const int32_t *tokens, struct error *err)
{
    int rc = 0;
    for (int i = 0; i < s->n_lanes; i++) {
        for (int pos = 0; pos < s->context && !rc; pos += ROWS_MAX) {
            int n = s->context - pos < ROWS_MAX ? s->context - pos : ROWS_MAX;
            const struct forward_lane lane = {pos, n, tokens,
                                              blocks + (size_t)i * (size_t)table_blocks(s), NULL};
            rc = model_forward(model, &lane, 1, NULL, 0, err);
        }
    }
    return rc;
}

int main(int argc, char **argv)
{
    struct settings s = {.model = "synthetic:qwen2.5-0.5b,seed=1",
                         .context = 256,
                         .n_lanes = 1,
                         .slice_ms = STEP_SLICE_MS,
                         .n_pairs = BENCH_PAIRS_MIN,
                         .rows = {2, 4, 5, 6, 7, 8},
                         .n_rows = 6};
    const struct bench_option options[] = {
        {"model", 'm', "MODEL", "default synthetic:qwen2.5-0.5b,seed=1", .text = &s.model},
        {"context", 'c', "N", "positions before the step; default 256", 1, 32768,
         .number = &s.context},
        {"rows", 'r', "LIST", "1 to 512 each; default 2,4,5,6,7,8", 1, ROWS_MAX,
         .list = {s.rows, &s.n_rows, LIST_MAX}},
        {"lanes", 'l', "N", "that the rows are shared out over; default 1", 1, ROWS_MAX,
         .number = &s.n_lanes},
        {"pairs", 'p', "N", "pairs of slices; default 20", 2, BENCH_PAIRS_MAX,
         .number = &s.n_pairs},
        {"slice", 's', "MS", "milliseconds of a slice; default 500", 1, 10000,
         .number = &s.slice_ms},
        {0},
    };
    const struct bench_command command = {.options = options, .backend = &s.backend};
    static int32_t blocks[BLOCKS_MAX], tokens[ROWS_MAX];
    static struct steps steps;
    struct error err = {0};
    struct checkpoint *ck = NULL;
    struct backend *be = NULL;
    struct model *model = NULL;
    int rc = 0;
    bench_parse(argc, argv, &command);
    for (int i = 0; i < BLOCKS_MAX; i++) {
        blocks[i] = i;
    }
    const struct model_options mo = {.n_kv_blocks = s.n_lanes * table_blocks(&s),
                                     .max_tokens = ROWS_MAX,
                                     .max_rows = ROWS_MAX,
                                     .max_lanes = s.n_lanes};
    if (mo.n_kv_blocks > BLOCKS_MAX) {
        fprintf(stderr, "bench_step: %d lanes of %d positions are more than %d blocks of KV\n",
                s.n_lanes, s.context, BLOCKS_MAX);
        return 2;
    }
    TRY(checkpoint_open(&ck, s.model, &err));
    for (int i = 0; i < ROWS_MAX; i++) {
        tokens[i] = (5 + 7 * i) % checkpoint_config(ck)->vocab_size;
    }
    s.backend.stored = checkpoint_config(ck)->stored;
    TRY(backend_open(&be, &s.backend, &err));
    int64_t start_ns = clock_now_ns();
    TRY(model_open(&model, ck, comm_single(), be, &mo, &err));
    double load_s = 1e-9 * (double)(clock_now_ns() - start_ns);
    TRY(read_context(model, &s, blocks, tokens, &err));
    printf("%s, %zu MB of weights, kernels %s, %d threads, context %d, loaded in %.2f s\n", s.model,
           model_weight_bytes(model) >> 20, be->ops->kernels(be), s.backend.n_threads, s.context,
           load_s);
    steps.model = model;
    steps.cfg = checkpoint_config(ck);
    steps.settings = &s;
    steps.is_host = be->ops->is_host;
    if (steps.is_host) {
        TRY(bench_limits_open(&steps.limits, s.backend.n_threads, be->ops->kernels(be),
                              be->ops->form, &err));
        TRY(bench_limits_fill(&steps.limits, model_weight_bytes(model), &err));
    }
    compare(&steps, tokens, blocks);
out:
    if (rc) fprintf(stderr, "bench_step: %s\n", err.text);
    bench_limits_close(&steps.limits);
    model_close(model);
    if (be) be->ops->close(be);
    checkpoint_close(ck);
    return rc ? 1 : 0;
}
