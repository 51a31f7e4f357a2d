/* Times whole steps of a synthetic model on this machine's GPU, as they are and with kinds of
 * operations left out. So it shows what the kernels between the matmuls cost a step, which is more
 * or less than they take by themselves, because kernels overlap. What a step without all of them
 * computes is of no use, but its matmuls read the same weights. Steps are replayed as graphs and
 * follow each other without a wait; the first column is one step at a time, as bench_step has it.
 * Shares are those of the time in which a copy on the device moves as many bytes. Not a test.
 *
 *   time_cuda_step [--model MODEL] [--weights fp8] [--rows N,N,...] [--context N] [--steps N] */
#include <algorithm>
#include <chrono>

#include "tests/gpu/matmul_rig.h"
#include "tests/gpu/timing.h"

/* Headers of C that no other C++ includes. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
extern "C" {
#include "comm/comm.h"
#include "model/checkpoint/checkpoint.h"
#include "model/model.h"
}
#pragma GCC diagnostic pop

enum { ROWS_TIMED_MAX = 256, BLOCKS_MAX = 4096 };

/* Kinds of operations that can be left out. */
enum { NORMS = 1, STORES = 2, ATTENTION = 4, MATMULS = 8 };

static const struct {
    const char *name;
    unsigned without;
} columns[] = {{"all", 0},
               {"-norms", NORMS},
               {"-store", STORES},
               {"-attention", ATTENTION},
               {"matmuls", NORMS | STORES | ATTENTION},
               {"-matmuls", MATMULS}};

static struct backend_ops kept; /* the backend's own operations */
static unsigned without;

static void matmul_or_not(struct backend *be, const struct matrix *m, const uint16_t *in,
                          size_t in_stride, float *out, size_t out_stride, int n)
{
    if (!(without & MATMULS)) kept.matmul(be, m, in, in_stride, out, out_stride, n);
}

static void matmul_slices_or_not(struct backend *be, const struct matrix *slices, int n_slices,
                                 const uint16_t *in, size_t in_stride, int n,
                                 struct slice_sums *sums)
{
    sums->n_parts = n_slices;
    sums->stride = static_cast<size_t>(kept.capacity(be, n)) * static_cast<size_t>(slices->n_out);
    if (!(without & MATMULS)) kept.matmul_slices(be, slices, n_slices, in, in_stride, n, sums);
}

static void matmul_gated_or_not(struct backend *be, const struct gated_mlp *args)
{
    if (!(without & MATMULS)) kept.matmul_gated(be, args);
}

static void residual_norm_or_not(struct backend *be, const struct residual_norm *args)
{
    if (!(without & NORMS)) kept.residual_norm(be, args);
}

static void attention_store_or_not(struct backend *be, const struct attention_shape *shape,
                                   const struct attention_input *input,
                                   const struct backend_step *step, float *qkv, uint16_t *q,
                                   uint16_t *kv)
{
    if (!(without & STORES)) kept.attention_store(be, shape, input, step, qkv, q, kv);
}

static void attention_or_not(struct backend *be, const struct attention_shape *shape,
                             const struct backend_step *step, const struct attention_rule *rule,
                             const uint16_t *q, const uint16_t *kv, uint16_t *out)
{
    if (!(without & ATTENTION)) kept.attention(be, shape, step, rule, q, kv, out);
}

static void take_over(struct backend_cuda *be)
{
    kept = be->ops;
    be->ops.matmul = matmul_or_not;
    be->ops.matmul_slices = matmul_slices_or_not;
    be->ops.matmul_gated = matmul_gated_or_not;
    be->ops.residual_norm = residual_norm_or_not;
    be->ops.attention_store = attention_store_or_not;
    be->ops.attention = attention_or_not;
}

/* ---- a model ---- */

struct timed {
    struct rig *rig;
    struct model *model;
    int context, n_steps;
    int32_t tokens[ROWS_TIMED_MAX], blocks[BLOCKS_MAX];
    struct forward_row rows[ROWS_TIMED_MAX];
};

static void run_step(struct timed *t, int position, int n, int n_rows)
{
    const struct forward_lane lane = {position, n, t->tokens, t->blocks, NULL};
    struct error err = {};
    MUST(model_forward(t->model, &lane, 1, t->rows, n_rows, &err), err);
}

/* Milliseconds of a step of n rows: n_steps that follow each other on the device, or the median of
 * as many that are waited for one by one. */
static double step_ms(struct timed *t, int n, bool is_alone)
{
    struct error err = {};
    std::vector<double> ms;
    for (int i = -3; i < t->n_steps; i++) {
        auto start = std::chrono::steady_clock::now();
        run_step(t, t->context, n, n);
        MUST(model_wait(t->model, &err), err);
        std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
        if (i >= 0) ms.push_back(took.count());
        if (i == -1 && !is_alone) break;
    }
    if (is_alone) {
        std::sort(ms.begin(), ms.end());
        return ms[ms.size() / 2];
    }
    auto steps = [&] {
        for (int i = 0; i < t->n_steps; i++)
            run_step(t, t->context, n, n);
    };
    return static_cast<double>(device_ms(t->rig, steps)) / t->n_steps;
}

static void time_rows(struct timed *t, int n, double least_ms)
{
    struct backend_cuda *be = backend_cuda_of(t->rig->cuda);
    std::vector<double> ms;
    without = 0;
    ms.push_back(step_ms(t, n, true));
    for (const auto &column : columns) {
        without = column.without;
        cuda_forget_recordings(be);
        ms.push_back(step_ms(t, n, false));
    }
    without = 0;
    cuda_forget_recordings(be);
    printf("%4d rows, ms   ", n);
    for (double one : ms)
        printf(" %10.3f", one);
    printf("\n          share ");
    for (size_t i = 0; i + 1 < ms.size(); i++)
        printf(" %10.3f", least_ms / ms[i]);
    printf("\n");
    fflush(stdout);
}

static void open_model(struct timed *t, struct checkpoint *ck)
{
    struct error err = {};
    struct model_options options = {};
    options.n_kv_blocks = (t->context + ROWS_TIMED_MAX) / KV_BLOCK_TOKENS + 1;
    options.max_tokens = options.max_rows = ROWS_TIMED_MAX;
    options.max_lanes = 1;
    MUST(model_open(&t->model, ck, comm_single(), t->rig->cuda, &options, &err), err);
    for (int i = 0; i < BLOCKS_MAX; i++)
        t->blocks[i] = i;
    for (int i = 0; i < ROWS_TIMED_MAX; i++) {
        t->tokens[i] = (5 + 7 * i) % checkpoint_config(ck)->vocab_size;
        t->rows[i] = {0, i};
    }
    for (int position = 0; position < t->context; position += ROWS_TIMED_MAX) {
        run_step(t, position, std::min<int>(ROWS_TIMED_MAX, t->context - position), 0);
    }
}

int main(int argc, char **argv)
{
    static struct rig rig;
    static struct timed t;
    struct error err = {};
    struct checkpoint *ck = NULL;
    const char *model = "synthetic:llama-3.1-8b,seed=1";
    std::vector<int> counts = {1, 6, 16};
    t.rig = &rig;
    t.context = 256;
    t.n_steps = 20;
    rig_open(&rig, 1, argv);
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--weights") == 0 && strcmp(argv[i + 1], "fp8") == 0) open_fp8(&rig);
        if (strcmp(argv[i], "--model") == 0) model = argv[i + 1];
        if (strcmp(argv[i], "--context") == 0) t.context = std::min(atoi(argv[i + 1]), 32768);
        if (strcmp(argv[i], "--steps") == 0) t.n_steps = std::max(atoi(argv[i + 1]), 1);
        if (strcmp(argv[i], "--rows") == 0) counts = counts_of(argv[i + 1], ROWS_TIMED_MAX);
    }
    double copy = copy_rate(&rig);
    MUST(checkpoint_open(&ck, model, &err), err);
    backend_cuda_of(rig.cuda)->options.no_graphs = false;
    take_over(backend_cuda_of(rig.cuda));
    open_model(&t, ck);
    double least_ms = static_cast<double>(model_weight_bytes(t.model)) / copy * 1e-6;
    printf("%s, %.2f GB of weights, context %d; a copy moves %.0f GB/s, so %.3f ms\n", model,
           static_cast<double>(model_weight_bytes(t.model)) * 1e-9, t.context, copy, least_ms);
    printf("                  one alone");
    for (const auto &column : columns)
        printf(" %10s", column.name);
    printf("\n");
    for (int n : counts)
        time_rows(&t, n, least_ms);
    model_close(t.model);
    checkpoint_close(ck);
    return rig_close(&rig);
}
