/* How fast a prompt is read: one step of N tokens from position 0, of which the last row is wanted.
 *
 *   bench_prompt [--model MODEL] [--tokens N,N,...] [--repeats N] [--device cpu] [--weights bf16]
 *                [--kernels auto] [--threads N]
 *
 * TFLOP/s counts two operations for each weight (the head's for one row) and token. The operations
 * of attention are not counted, though its time is. On the CPU each step is followed by slices of
 * the reading loop and of the register loop with as many threads, and the share of the limit is
 * printed (bench/limits.h), which is multiplying but for the shortest prompts. On a GPU, compare it
 * with bench_ceilings. */
#include <stdio.h>

#include "bench/bench_util.h"
#include "bench/limits.h"
#include "bench/options.h"
#include "model/model.h"

enum { LIMIT_SLICE_US = 250000, SHOW_SLICE_US = 10000, LENGTHS_MAX = 16 };

/* The arms of a round. On a device there is only the first. */
enum { PROMPT, READING, MULTIPLYING, ARMS };

struct settings {
    const char *model;
    struct backend_options backend;
    int32_t n_tokens[LENGTHS_MAX];
    int n_lengths, n_repeats;
};

/* An arm: the prompt over and over. */
struct prompt_arm {
    struct model *model;
    struct forward_lane lane;
};

static double run_prompt(void *arg)
{
    const struct prompt_arm *arm = arg;
    const struct forward_row last = {0, arm->lane.n_tokens - 1};
    struct error err;
    if (model_forward(arm->model, &arm->lane, 1, &last, 1, &err) || model_wait(arm->model, &err)) {
        fprintf(stderr, "bench_prompt: %s\n", err.text);
        exit(EXIT_FAILURE);
    }
    return 1;
}

static void measure(struct prompt_arm *arm, const struct settings *s, const struct backend *be,
                    struct bench_limits *limits, struct bench_cost cost)
{
    static double rates[ARMS][BENCH_PAIRS_MAX];
    static const int64_t slices_us[ARMS] = {
        [READING] = LIMIT_SLICE_US, [MULTIPLYING] = LIMIT_SLICE_US};
    const struct timed_arm arms[ARMS] = {[PROMPT] = {run_prompt, arm},
                                         [READING] = {bench_limits_read, limits},
                                         [MULTIPLYING] = {bench_limits_multiply, limits}};
    int n = s->n_repeats, n_tokens = arm->lane.n_tokens;
    run_prompt(arm); /* warm-up */
    bench_rounds(arms, slices_us, be->ops->is_host ? ARMS : READING, n, rates);
    struct bench_share share = {.bound = BOUND_READING};
    if (be->ops->is_host) {
        share = bench_share(cost, rates[PROMPT], rates[READING], rates[MULTIPLYING], n);
    }
    struct sample_quartiles rate = sample_quartiles(rates[PROMPT], n);
    printf("%d tokens of %s on %s, %s, %d threads: %.2f ms (%.2f to %.2f)", n_tokens, s->model,
           be->ops->arithmetic, be->ops->kernels(be), s->backend.n_threads, 1e3 / rate.median,
           1e3 / rate.high, 1e3 / rate.low);
    printf(", %.0f tokens/s, %.3f TFLOP/s", n_tokens * rate.median,
           1e-3 * cost.gflop * rate.median);
    if (be->ops->is_host) {
        printf(", %.2f (%.2f to %.2f) of %s", share.ratio.median, share.ratio.low, share.ratio.high,
               bench_bound_name(share.bound));
    }
    printf("\n");
    fflush(stdout);
}

static int run(const struct settings *s, struct error *err)
{
    int n_most = 0, n_blocks, rc = 0;
    struct checkpoint *ck = NULL;
    struct backend *be = NULL;
    struct model *model = NULL;
    struct bench_limits limits = {.team = NULL};
    int32_t *tokens = NULL, *blocks = NULL;
    for (int i = 0; i < s->n_lengths; i++) {
        n_most = s->n_tokens[i] > n_most ? s->n_tokens[i] : n_most;
    }
    n_blocks = n_most / KV_BLOCK_TOKENS + 1;
    const struct model_options mo = {
        .n_kv_blocks = n_blocks, .max_tokens = n_most, .max_rows = 1, .max_lanes = 1};
    TRY(mem_array(&tokens, (size_t)n_most, sizeof *tokens, err));
    TRY(mem_array(&blocks, (size_t)n_blocks, sizeof *blocks, err));
    TRY(checkpoint_open(&ck, s->model, err));
    const struct model_config *cfg = checkpoint_config(ck);
    struct backend_options options_of_model = s->backend;
    options_of_model.stored = cfg->stored;
    TRY(backend_open(&be, &options_of_model, err));
    TRY(model_open(&model, ck, comm_single(), be, &mo, err));
    size_t weight_bytes = model_weight_bytes(model);
    for (int i = 0; i < n_most; i++) {
        tokens[i] = (int32_t)((uint32_t)i * 2654435761u % (uint32_t)cfg->vocab_size);
    }
    for (int i = 0; i < n_blocks; i++) {
        blocks[i] = i;
    }
    if (be->ops->is_host) {
        TRY(bench_limits_open(&limits, s->backend.n_threads, be->ops->kernels(be), be->ops->form,
                              err));
        TRY(bench_limits_fill(&limits, weight_bytes, err));
        bench_limits_show(&limits, SHOW_SLICE_US);
    }
    for (int i = 0; i < s->n_lengths; i++) {
        struct prompt_arm arm = {model, {0, s->n_tokens[i], tokens, blocks, NULL}};
        measure(&arm, s, be, &limits, bench_step_cost(cfg, weight_bytes, s->n_tokens[i], 1));
    }
out:
    bench_limits_close(&limits);
    model_close(model);
    if (be) be->ops->close(be);
    checkpoint_close(ck);
    free(tokens);
    free(blocks);
    return rc;
}

int main(int argc, char **argv)
{
    struct settings s = {.model = "synthetic:qwen2.5-0.5b,seed=1",
                         .n_tokens = {256},
                         .n_lengths = 1,
                         .n_repeats = BENCH_PAIRS_MIN};
    const struct bench_option options[] = {
        {"model", 'm', "MODEL", "default synthetic:qwen2.5-0.5b,seed=1", .text = &s.model},
        {"tokens", 'n', "LIST", "lengths of the prompt; default 256", 1, 32768,
         .list = {s.n_tokens, &s.n_lengths, LENGTHS_MAX}},
        {"repeats", 'r', "N", "default 20", 1, BENCH_PAIRS_MAX, .number = &s.n_repeats},
        {0},
    };
    const struct bench_command command = {.options = options, .backend = &s.backend};
    struct error err = {0};
    bench_parse(argc, argv, &command);
    if (run(&s, &err)) {
        fprintf(stderr, "bench_prompt: %s\n", err.text);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
