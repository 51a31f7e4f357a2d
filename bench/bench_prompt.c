/* How fast a prompt is read: one step of N tokens from position 0, of which the last row is wanted.
 *
 *   bench_prompt [--model MODEL] [--tokens N] [--repeats N] [--device cpu] [--threads N]
 *
 * TFLOP/s counts two operations for each weight (the head's for one row) and token. The operations
 * of attention are not counted, though its time is. On a GPU, compare it with bench_ceilings. */
#include <stdio.h>

#include "bench/bench_util.h"
#include "bench/options.h"
#include "model/model.h"

struct settings {
    const char *model;
    struct backend_options backend;
    int n_tokens, n_repeats;
};

/* Operations of the matrices: the head works on one row. */
static double operations(const struct model_config *cfg, int n_tokens)
{
    double dim = cfg->dim, heads = (double)cfg->n_heads * cfg->head_dim;
    double kv = 2.0 * cfg->n_kv_heads * cfg->head_dim;
    double layer = dim * (2 * heads + kv) + 3 * dim * cfg->ffn_dim;
    return 2 * (cfg->n_layers * layer * n_tokens + dim * cfg->vocab_size);
}

static int measure(struct model *model, const struct settings *s, const int32_t *tokens,
                   const int32_t *blocks, struct sample_quartiles *seconds, struct error *err)
{
    double times[BENCH_PAIRS_MAX];
    const struct forward_lane lane = {0, s->n_tokens, tokens, blocks};
    const struct forward_row last = {0, s->n_tokens - 1};
    int rc = 0;
    for (int i = -1; i < s->n_repeats; i++) { /* -1: warm-up */
        int64_t start = clock_now_ns();
        TRY(model_forward(model, &lane, 1, &last, 1, err));
        TRY(model_wait(model, err));
        if (i >= 0) times[i] = (double)(clock_now_ns() - start) * 1e-9;
    }
    *seconds = sample_quartiles(times, s->n_repeats);
out:
    return rc;
}

static int run(const struct settings *s, struct error *err)
{
    int n_blocks = s->n_tokens / KV_BLOCK_TOKENS + 1, rc = 0;
    struct checkpoint *ck = NULL;
    struct backend *be = NULL;
    struct model *model = NULL;
    int32_t *tokens = NULL, *blocks = NULL;
    struct sample_quartiles seconds;
    const struct model_options mo = {
        .n_kv_blocks = n_blocks, .max_tokens = s->n_tokens, .max_rows = 1, .max_lanes = 1};
    TRY(mem_array(&tokens, (size_t)s->n_tokens, sizeof *tokens, err));
    TRY(mem_array(&blocks, (size_t)n_blocks, sizeof *blocks, err));
    TRY(checkpoint_open(&ck, s->model, err));
    struct backend_options options_of_model = s->backend;
    options_of_model.stored = checkpoint_config(ck)->stored;
    TRY(backend_open(&be, &options_of_model, err));
    TRY(model_open(&model, ck, comm_single(), be, &mo, err));
    for (int i = 0; i < s->n_tokens; i++) {
        tokens[i] =
            (int32_t)((uint32_t)i * 2654435761u % (uint32_t)checkpoint_config(ck)->vocab_size);
    }
    for (int i = 0; i < n_blocks; i++) {
        blocks[i] = i;
    }
    TRY(measure(model, s, tokens, blocks, &seconds, err));
    printf("%d tokens of %s on %s, %s, %d threads: %.2f ms (%.2f to %.2f), %.0f tokens/s, %.3f "
           "TFLOP/s\n",
           s->n_tokens, s->model, be->ops->arithmetic, be->ops->kernels(be), s->backend.n_threads,
           1e3 * seconds.median, 1e3 * seconds.low, 1e3 * seconds.high,
           s->n_tokens / seconds.median,
           operations(checkpoint_config(ck), s->n_tokens) / seconds.median * 1e-12);
out:
    model_close(model);
    if (be) be->ops->close(be);
    checkpoint_close(ck);
    free(tokens);
    free(blocks);
    return rc;
}

int main(int argc, char **argv)
{
    struct settings s = {
        .model = "synthetic:qwen2.5-0.5b,seed=1", .n_tokens = 256, .n_repeats = BENCH_PAIRS_MIN};
    const struct bench_option options[] = {
        {"model", 'm', "MODEL", "default synthetic:qwen2.5-0.5b,seed=1", .text = &s.model},
        {"tokens", 'n', "N", "of the prompt; default 256", 1, 32768, .number = &s.n_tokens},
        {"repeats", 'r', "N", "default 20", 1, BENCH_PAIRS_MAX, .number = &s.n_repeats},
        {0},
    };
    const struct bench_command command = {
        .options = options, .backend = &s.backend, .backend_title = "Where it runs:"};
    struct error err = {0};
    bench_parse(argc, argv, &command);
    if (run(&s, &err)) {
        fprintf(stderr, "bench_prompt: %s\n", err.text);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
