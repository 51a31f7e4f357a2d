/* Measures what ranks with a GPU each cost and gain: their sums, and steps of the whole group.
 *
 *   bench_ranks [--model MODEL] [--ranks T] [--device cpu] [--weights bf16] [--kernels auto]
 *               [--threads N] [--context N] [--rows R,R,...] [--steps N] [--repeats N]
 *
 * The ranks are threads of this process. On GPUs they meet over NCCL (OUTRIDER_NCCL_LIBRARY), on
 * the CPU in memory. For every R, all ranks in turn
 *   sum   [R][D] floats by the operation that ends the two halves of a layer, and
 *   step  with R tokens at position `context`, all of whose logits are wanted
 * --steps times without a pause between them, --repeats times over. Printed are the medians of rank
 * 0's time: microseconds of a sum and the bytes that it adds over that time, milliseconds of a
 * step. tests/gpu/many runs it for each number of ranks. */
#include <pthread.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/limits.h"
#include "bench/bench_util.h"
#include "bench/options.h"
#include "comm/comm_nccl.h"
#include "model/backend/backend.h"
#include "model/model.h"

enum { ROWS_MAX = 256, LIST_MAX = 32, REPEATS_MAX = 64, WARM_UP = 3 };

struct settings {
    const char *model;
    struct backend_options backend;
    int n_ranks, context, n_steps, n_repeats;
    int32_t rows[LIST_MAX];
    int n_rows;
};

/* A rank; owned by its thread. */
struct rank {
    const struct settings *settings;
    const struct checkpoint *ck;
    struct comm *comm; /* the base first, then NCCL above it */
    int number;
    struct backend *be;
    struct model *model;
    void *sums; /* [capacity][D] */
    size_t sums_bytes;
    int32_t *tokens, *blocks;
    struct forward_row rows[ROWS_MAX];
};

typedef int once_fn(struct rank *r, int n, struct error *err);

static int connect_ranks(struct rank *r, struct error *err)
{
    const struct comm_nccl_options options = {0};
    struct comm *nccl = NULL;
    int rc = 0;
    struct backend_options backend = r->settings->backend;
    backend.rank = r->number;
    backend.stored = checkpoint_config(r->ck)->stored;
    TRY(backend_open(&r->be, &backend, err));
    if (r->be->ops->is_host || r->comm->size == 1) goto out;
    TRY(comm_nccl_open_take(&nccl, r->comm, r->number, r->comm->size, &options, err));
    r->comm = nccl;
    TRY(comm_nccl_connect(nccl, NULL, err));
out:
    return rc;
}

static int open_rank(struct rank *r, struct error *err)
{
    const struct settings *s = r->settings;
    int n_blocks = (s->context + ROWS_MAX) / KV_BLOCK_TOKENS + 1, rc = 0;
    const struct model_options mo = {
        .n_kv_blocks = n_blocks, .max_tokens = ROWS_MAX, .max_rows = ROWS_MAX, .max_lanes = 1};
    TRY(mem_array(&r->tokens, ROWS_MAX, sizeof *r->tokens, err));
    TRY(mem_array(&r->blocks, (size_t)n_blocks, sizeof *r->blocks, err));
    for (int i = 0; i < ROWS_MAX; i++) {
        r->tokens[i] = (5 + 7 * i) % checkpoint_config(r->ck)->vocab_size;
        r->rows[i] = (struct forward_row){0, i};
    }
    for (int i = 0; i < n_blocks; i++) {
        r->blocks[i] = i;
    }
    TRY(connect_ranks(r, err));
    TRY(model_open(&r->model, r->ck, r->comm, r->be, &mo, err));
    size_t n_rows = (size_t)r->be->ops->capacity(r->be, ROWS_MAX);
    r->sums_bytes = n_rows * (size_t)model_dim(r->model) * sizeof(float);
    TRY(backend_buffer(r->be, &r->sums, r->sums_bytes, err));
    for (int pos = 0; pos < s->context; pos += ROWS_MAX) {
        int n = s->context - pos < ROWS_MAX ? s->context - pos : ROWS_MAX;
        const struct forward_lane lane = {pos, n, r->tokens, r->blocks, NULL};
        TRY(model_forward(r->model, &lane, 1, NULL, 0, err));
    }
out:
    return rc;
}

static int sum_once(struct rank *r, int n, struct error *err)
{
    int dim = model_dim(r->model);
    struct slice_sums sums = {r->sums, (size_t)n * (size_t)dim, 1};
    return r->be->ops->tree_sum(r->be, r->comm, &sums, n, dim, err);
}

static int step_once(struct rank *r, int n, struct error *err)
{
    const struct forward_lane lane = {r->settings->context, n, r->tokens, r->blocks, NULL};
    int rc = model_forward(r->model, &lane, 1, r->rows, n, err);
    return rc ? rc : model_wait(r->model, err);
}

/* Seconds of one call, the median of the repeats. All ranks begin a repeat together. */
static int time_calls(struct rank *r, once_fn *once, int n, double *seconds, struct error *err)
{
    const struct settings *s = r->settings;
    double times[REPEATS_MAX];
    int rc = 0;
    for (int i = 0; i < WARM_UP; i++) {
        TRY(once(r, n, err));
    }
    for (int repeat = 0; repeat < s->n_repeats; repeat++) {
        int all[RANKS_MAX];
        if (!r->be->ops->read(r->be, r->sums, 1)) { /* waits for the device */
            rc = error_set(err, ERR_UNAVAILABLE, "rank %d has lost its device", r->number);
            goto out;
        }
        TRY(comm_exchange(r->comm, &r->number, all, sizeof r->number, err));
        int64_t start = clock_now_ns();
        for (int i = 0; i < s->n_steps; i++) {
            TRY(once(r, n, err));
        }
        if (!r->be->ops->read(r->be, r->sums, 1)) {
            rc = error_set(err, ERR_UNAVAILABLE, "rank %d has lost its device", r->number);
            goto out;
        }
        times[repeat] = 1e-9 * (double)(clock_now_ns() - start) / s->n_steps;
    }
    *seconds = sample_quartiles(times, s->n_repeats).median;
out:
    return rc;
}

static int measure_rows(struct rank *r, int n, struct error *err)
{
    double sum_s = 0, step_s = 0;
    double bytes = (double)n * model_dim(r->model) * (double)sizeof(float);
    int rc = 0;
    if (r->comm->size > 1) TRY(time_calls(r, sum_once, n, &sum_s, err));
    TRY(time_calls(r, step_once, n, &step_s, err));
    if (r->number == 0) {
        if (r->comm->size == 1) printf("%5d  %10s  %8s", n, "-", "-");
        if (r->comm->size > 1) printf("%5d  %10.1f  %8.2f", n, 1e6 * sum_s, 1e-9 * bytes / sum_s);
        printf("  %10.3f\n", 1e3 * step_s);
        fflush(stdout);
    }
out:
    return rc;
}

/* A rank that fails ends the program, because the others would wait for it. */
static void *run_rank(void *arg)
{
    struct rank *r = arg;
    const struct settings *s = r->settings;
    struct error err;
    int rc = open_rank(r, &err);
    if (!rc && r->number == 0) {
        printf("%s, %d ranks, %s, %s, context %d, %zu MB of weights on rank 0\n", s->model,
               s->n_ranks, r->comm->ops->name, r->be->ops->arithmetic, s->context,
               model_weight_bytes(r->model) >> 20);
        printf("%5s  %10s  %8s  %10s\n", "rows", "sum: us", "GB/s", "step: ms");
    }
    for (int i = 0; i < s->n_rows && !rc; i++) {
        rc = measure_rows(r, s->rows[i], &err);
    }
    if (rc) {
        fprintf(stderr, "bench_ranks: rank %d: %s\n", r->number, err.text);
        exit(EXIT_FAILURE);
    }
    r->be->ops->buffer_close(r->be, r->sums, r->sums_bytes);
    model_close(r->model);
    r->be->ops->close(r->be);
    comm_close(r->comm);
    free(r->tokens);
    free(r->blocks);
    return NULL;
}

static int run(const struct settings *s, struct error *err)
{
    static struct rank ranks[RANKS_MAX];
    struct comm *comms[RANKS_MAX] = {comm_single()};
    pthread_t threads[RANKS_MAX];
    struct checkpoint *ck = NULL;
    int rc = 0;
    TRY(checkpoint_open(&ck, s->model, err));
    if (s->n_ranks > 1) TRY(comm_threads_open(comms, s->n_ranks, err));
    for (int i = 0; i < s->n_ranks; i++) {
        ranks[i] = (struct rank){.settings = s, .ck = ck, .comm = comms[i], .number = i};
        if (pthread_create(&threads[i], NULL, run_rank, &ranks[i])) {
            fprintf(stderr, "bench_ranks: no thread for rank %d\n", i);
            exit(EXIT_FAILURE);
        }
    }
    for (int i = 0; i < s->n_ranks; i++) {
        pthread_join(threads[i], NULL);
    }
out:
    checkpoint_close(ck);
    return rc;
}

int main(int argc, char **argv)
{
    struct settings s = {.model = "synthetic:qwen2.5-0.5b,seed=1",
                         .n_ranks = 1,
                         .context = 256,
                         .n_steps = 20,
                         .n_repeats = 9,
                         .rows = {1, 8, 64, 256},
                         .n_rows = 4};
    const struct bench_option options[] = {
        {"model", 'm', "MODEL", "default synthetic:qwen2.5-0.5b,seed=1", .text = &s.model},
        {"ranks", 'T', "T", "1 to 8; default 1", 1, RANKS_MAX, .number = &s.n_ranks},
        {"context", 'c', "N", "positions before the step; default 256", 1, 32768,
         .number = &s.context},
        {"rows", 'r', "LIST", "1 to 256 each; default 1,8,64,256", 1, ROWS_MAX,
         .list = {s.rows, &s.n_rows, LIST_MAX}},
        {"steps", 's', "N", "of a repeat; default 20", 1, 10000, .number = &s.n_steps},
        {"repeats", 'n', "N", "default 9", 1, REPEATS_MAX, .number = &s.n_repeats},
        {0},
    };
    const struct bench_command command = {.options = options, .backend = &s.backend};
    struct error err = {0};
    bench_parse(argc, argv, &command);
    if (run(&s, &err)) {
        fprintf(stderr, "bench_ranks: %s\n", err.text);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
