/* What a step of K + 1 rows costs against a step of one row: the price of verification.
 *
 *   bench_step [--model MODEL] [--device cpu] [--weights bf16] [--threads N] [--context N]
 *              [--rows R,R,...] [--pairs N]
 *
 * One rank in this process feeds R tokens at position `context` over and over (position is the truth:
 * each step overwrites the last). For every R the arms "R rows" and "1 row" alternate in slices of half
 * a second; the ratio is time of R rows over time of 1 row, the median of the pairs with quartiles. Also
 * printed: weight bytes per second at one row and, on a device, the host's own time of a step. */
#include <argp.h>
#include <stdio.h>
#include <string.h>

#include "base/options.h"
#include "bench/bench_util.h"
#include "model/backend/options.h"
#include "model/model.h"

enum { ROWS_MAX = 32, BLOCKS_MAX = 8192 };

struct settings {
    const char *model;
    struct backend_options backend;
    int context, n_pairs;
    int32_t rows[ROWS_MAX];
    int n_rows;
};

static const struct argp_option options[] = {
    {"model", 'm', "MODEL", 0, "default synthetic:qwen2.5-0.5b,seed=1", 0},
    {"context", 'c', "N", 0, "positions before the step; default 256", 0},
    {"rows", 'r', "LIST", 0, "default 2,4,5,6,7,8", 0},
    {"pairs", 'p', "N", 0, "pairs of slices; default 20", 0},
    {0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct settings *s = state->input;
    struct error err;
    int rc = 0;
    switch (key) {
    case 'm':
        s->model = arg;
        break;
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &s->backend;
        break;
    case 'c':
        rc = options_int(&s->context, "--context", arg, 1, 32768, &err);
        break;
    case 'r':
        rc = options_int_list(s->rows, &s->n_rows, ROWS_MAX, "--rows", arg,
                              (struct options_range){1, ROWS_MAX}, &err);
        break;
    case 'p':
        rc = options_int(&s->n_pairs, "--pairs", arg, 2, BENCH_PAIRS_MAX, &err);
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    if (rc) argp_failure(state, 2, 0, "%s", err.text);
    return 0;
}

/* One arm: a step of n rows at position `context`. */
struct step_arm {
    struct model *model;
    struct forward_lane lane;
    struct forward_row rows[ROWS_MAX];
    int n;
    int64_t host_ns; /* until model_forward returned, of all steps */
    int n_steps;
};

static double run_step(void *arg)
{
    struct step_arm *arm = arg;
    struct error err;
    int64_t start = clock_now_ns();
    int rc = model_forward(arm->model, &arm->lane, 1, arm->rows, arm->n, &err);
    arm->host_ns += clock_now_ns() - start;
    arm->n_steps++;
    if (rc || model_wait(arm->model, &err)) {
        fprintf(stderr, "bench_step: %s\n", err.text);
        exit(EXIT_FAILURE);
    }
    return 1;
}

static void fill_arm(struct step_arm *arm, struct model *model, int context, int n,
                     const int32_t *tokens, const int32_t *blocks)
{
    *arm = (struct step_arm){.model = model, .lane = {context, n, tokens, blocks}, .n = n};
    for (int i = 0; i < n; i++) {
        arm->rows[i] = (struct forward_row){0, i};
    }
}

static void compare(struct model *model, bool is_host, const struct settings *s,
                    const int32_t *tokens, const int32_t *blocks)
{
    double bytes = (double)model_weight_bytes(model);
    printf("%5s  %12s  %12s  %s\n", "rows", "ms", "1 row: ms", "time over 1 row (quartiles)");
    for (int i = 0; i < s->n_rows; i++) {
        struct step_arm one, many;
        fill_arm(&one, model, s->context, 1, tokens, blocks);
        fill_arm(&many, model, s->context, s->rows[i], tokens, blocks);
        const struct bench_arm a = {run_step, &one}, b = {run_step, &many};
        struct bench_pairs pairs = bench_compare(&a, &b, s->n_pairs, 500000);
        printf("%5d  %12.3f  %12.3f  %.3f (%.3f to %.3f), 1 row reads %.2f GB/s of weights\n",
               s->rows[i], 1e3 / pairs.b.median, 1e3 / pairs.a.median, pairs.ratio.median,
               pairs.ratio.low, pairs.ratio.high, bytes * pairs.a.median * 1e-9);
        if (!is_host) {
            printf("       of a step the host takes %.1f us until the device has all of it\n",
                   1e-3 * (double)many.host_ns / many.n_steps);
        }
        fflush(stdout);
    }
}

/* Fills the KV up to `context`. */
static int read_context(struct model *model, const struct settings *s, const int32_t *blocks,
                        const int32_t *tokens, struct error *err)
{
    int rc = 0;
    for (int pos = 0; pos < s->context && !rc; pos += ROWS_MAX) {
        int n = s->context - pos < ROWS_MAX ? s->context - pos : ROWS_MAX;
        const struct forward_lane lane = {pos, n, tokens, blocks};
        rc = model_forward(model, &lane, 1, NULL, 0, err);
    }
    return rc;
}

int main(int argc, char **argv)
{
    struct settings s = {.model = "synthetic:qwen2.5-0.5b,seed=1",
                         .context = 256,
                         .n_pairs = BENCH_PAIRS_MIN,
                         .rows = {2, 4, 5, 6, 7, 8},
                         .n_rows = 6};
    const struct argp_child children[] = {{&backend_argp, 0, NULL, 0}, {0}};
    const struct argp argp = {.options = options, .parser = parse_option, .children = children};
    static int32_t blocks[BLOCKS_MAX], tokens[ROWS_MAX];
    struct error err = {0};
    struct checkpoint *ck = NULL;
    struct backend *be = NULL;
    struct model *model = NULL;
    int rc = 0;
    backend_options_init(&s.backend);
    argp_parse(&argp, argc, argv, 0, NULL, &s);
    for (int i = 0; i < BLOCKS_MAX; i++) {
        blocks[i] = i;
    }
    for (int i = 0; i < ROWS_MAX; i++) {
        tokens[i] = 5 + 7 * i;
    }
    const struct model_options mo = {.n_kv_blocks = (s.context + ROWS_MAX) / KV_BLOCK_TOKENS + 1,
                                     .max_tokens = ROWS_MAX,
                                     .max_rows = ROWS_MAX,
                                     .max_lanes = 1};
    TRY(checkpoint_open(&ck, s.model, &err));
    s.backend.stored = checkpoint_config(ck)->stored;
    TRY(backend_open(&be, &s.backend, &err));
    TRY(model_open(&model, ck, comm_single(), be, &mo, &err));
    TRY(read_context(model, &s, blocks, tokens, &err));
    printf("%s, %zu MB of weights, kernels %s, %d threads, context %d\n", s.model,
           model_weight_bytes(model) >> 20, be->ops->kernels(be), s.backend.n_threads, s.context);
    compare(model, be->ops->is_host, &s, tokens, blocks);
out:
    if (rc) fprintf(stderr, "bench_step: %s\n", err.text);
    model_close(model);
    if (be) be->ops->close(be);
    checkpoint_close(ck);
    return rc ? 1 : 0;
}
