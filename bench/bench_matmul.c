/* Speed of the packed matmul as decoding needs it: bytes of weights per second compared with what
 * the machine can read in the same minute.
 *
 * Weights are cold: the matrices of a shape fill more than 1 GiB of huge pages, and the kernel and
 * the reading loop both use them in turn. Read bandwidth is the best of the loops of bench_read.h
 * over the same pages with the same threads; the best one is found anew for each shape and number
 * of threads. A ratio is the median of at least 20 pairs of slices, kernel and reading in turn
 * (bench_util.h). `hot` is the kernel on 32 KiB of weights that never leave the cache: when it is
 * close to `weights`, the sums are the limit and not memory.
 *
 * With --weights int8 or int4 the rows are quantized beforehand, so their time is not included.
 *
 *   bench_matmul [--quick] [--threads 1,2] [--kernels auto] [--weights bf16] */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/team.h"
#include "bench/bench_read.h"
#include "bench/bench_util.h"
#include "bench/options.h"
#include "model/backend/cpu/kernels/kernels.h"
#include "model/backend/cpu/kernels/quant_matrix.h"

enum { ROWS_MAX = 64, THREADS_LIST_MAX = 8, SLICE_US = 25000, HOT_K = 256, HOT_REPEATS = 64 };

static const size_t pool_bytes = (size_t)1152 << 20;

struct shape {
    int n_in, n_out;
};

struct settings {
    bool quick;
    int n_threads;
    int32_t threads[THREADS_LIST_MAX];
    const char *kernels;
    int form; /* enum weight_form: an index of forms */
};

/* One arm: a way to pass over the matrices of a pool, one after the other. */
struct pass {
    struct team *team;
    const struct kernels *kernels; /* NULL: read only */
    int read;
    int n_rows;
    enum weight_form form;
    uint16_t *data;            /* n_matrices matrices of one shape */
    struct packed_matrix w;    /* bf16 */
    struct quant_matrix quant; /* int8, int4 */
    uint8_t *groups;           /* quantized rows */
    int n_matrices, next, repeats;
    const uint16_t *in;
    float *out;
};

/* Rows are quantized as many at once as are multiplied at once. */
static void pass_rows(struct pass *p, int n_rows)
{
    const struct quant_rows rows = {p->form, p->in,     (size_t)p->w.n_in,
                                    n_rows,  p->w.n_in, p->groups};
    p->n_rows = n_rows;
    if (p->kernels && p->form != WEIGHTS_BF16) {
        p->kernels->quant->quantize(&rows, 0, p->quant.n_groups);
    }
}

static int pass_blocks(const struct pass *p)
{
    return p->form == WEIGHTS_BF16 ? p->w.n_blocks : p->quant.n_blocks;
}

static size_t pass_bytes(const struct pass *p)
{
    return p->form == WEIGHTS_BF16 ? packed_matrix_bytes(p->w.n_in, p->w.n_out)
                                   : quant_matrix_bytes(p->form, p->w.n_in, p->w.n_out);
}

static void pass_read(const struct pass *p, int first_block, int end_block)
{
    size_t block_bytes = pass_bytes(p) / (size_t)pass_blocks(p);
    const uint8_t *data = (const uint8_t *)p->w.data + (size_t)first_block * block_bytes;
    size_t n_bytes = (size_t)(end_block - first_block) * block_bytes;
    bench_read(p->read, data, n_bytes);
}

static void pass_member(void *arg, int member, int n_members)
{
    const struct pass *p = arg;
    int begin, end;
    team_range(pass_blocks(p), 1, member, n_members, &begin, &end);
    for (int i = 0; i < p->repeats; i++) {
        if (p->kernels && p->form != WEIGHTS_BF16) {
            const struct quant_call call = {p->groups, p->out, (size_t)p->w.n_out,
                                            p->n_rows, begin,  end};
            p->kernels->quant->matmul(&p->quant, &call);
        } else if (p->kernels) {
            const struct matmul_call call = {
                p->in, (size_t)p->w.n_in, p->out, (size_t)p->w.n_out, p->n_rows, begin, end};
            p->kernels->matmul(&p->w, &call);
        } else {
            pass_read(p, begin, end);
        }
    }
}

/* Passes over the next matrix; returns gigabytes of weights. */
static double pass_run(void *arg)
{
    struct pass *p = arg;
    size_t bytes = pass_bytes(p);
    p->w.data = p->data + (size_t)p->next * (bytes / sizeof(uint16_t));
    p->quant.data = (uint8_t *)p->w.data;
    p->next = (p->next + 1) % p->n_matrices;
    team_run(p->team, pass_member, p);
    return 1e-9 * (double)bytes * p->repeats;
}

static void pass_shape(struct pass *p, struct shape shape)
{
    p->w = (struct packed_matrix){.n_in = shape.n_in,
                                  .n_out = shape.n_out,
                                  .n_blocks = (shape.n_out + KERNEL_COLUMNS - 1) / KERNEL_COLUMNS};
    p->quant = quant_matrix_of(p->form, NULL, shape.n_in, shape.n_out);
    p->n_matrices = (int)(pool_bytes / pass_bytes(p));
    p->next = 0;
    p->repeats = 1;
}

static int best_read(struct pass *p)
{
    struct sample_quartiles rates[BENCH_READS];
    int best = bench_best_read(&(struct timed_arm){pass_run, p}, &p->read, SLICE_US, rates);
    printf("  reading:");
    for (int i = 0; i < BENCH_READS; i++) {
        printf("  %s %.1f [%.1f %.1f] GB/s", bench_read_names[i], rates[i].median, rates[i].low,
               rates[i].high);
    }
    printf("\n");
    return best;
}

/* GB/s when the weights stay in the cache: every thread works on one block. */
static double hot_rate(const struct pass *cold)
{
    struct pass p = *cold;
    double rates[BENCH_PAIRS_MIN];
    pass_shape(&p, (struct shape){HOT_K, KERNEL_COLUMNS * team_size(p.team)});
    pass_rows(&p, cold->n_rows);
    p.n_matrices = 1;
    p.repeats = HOT_REPEATS;
    for (int i = 0; i < BENCH_PAIRS_MIN; i++) {
        rates[i] = bench_rate(&(struct timed_arm){pass_run, &p}, SLICE_US / 10);
    }
    return sample_quartiles(rates, BENCH_PAIRS_MIN).median;
}

static void bench_shape(struct pass *matmul, struct shape shape, const int *rows, int n_counts)
{
    pass_shape(matmul, shape);
    struct pass reading = *matmul;
    reading.kernels = NULL;
    printf("%d x %d, %d thread%s, %d matrices of %zu MiB\n", shape.n_in, shape.n_out,
           team_size(matmul->team), team_size(matmul->team) > 1 ? "s" : "", matmul->n_matrices,
           pass_bytes(matmul) >> 20);
    double operations_per_byte = 2.0 * shape.n_in * shape.n_out / (double)pass_bytes(matmul);
    reading.read = best_read(&reading);
    printf("   M   weights GB/s   read GB/s   weights / read [quartiles]   GFLOP/s   hot GB/s\n");
    for (int i = 0; i < n_counts; i++) {
        pass_rows(matmul, rows[i]);
        struct bench_pairs pairs =
            bench_compare(&(struct timed_arm){pass_run, matmul},
                          &(struct timed_arm){pass_run, &reading}, BENCH_PAIRS_MIN, SLICE_US);
        printf("  %2d   %12.1f   %9.1f   %10.2f  [%.2f %.2f]         %9.0f   %8.1f\n", rows[i],
               pairs.a.median, pairs.b.median, pairs.ratio.median, pairs.ratio.low,
               pairs.ratio.high, pairs.a.median * operations_per_byte * rows[i], hot_rate(matmul));
        fflush(stdout);
    }
}

static int bench_threads(struct pass *pass, const struct settings *settings, int n_threads,
                         struct error *err)
{
    static const struct shape shapes[] = {
        {4096, 4096}, {4096, 14336}, {14336, 4096}, {2048, 2048}, {2048, 8192}};
    static const int rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 16, ROWS_MAX};
    static const int rows_quick[] = {1, 2, 4, 6, 8, 16};
    int rc = 0;
    TRY(team_open(&pass->team, n_threads, 1000, err));
    int n_shapes = settings->quick ? 1 : (int)(sizeof shapes / sizeof *shapes);
    for (int i = 0; i < n_shapes; i++) {
        if (settings->quick) {
            bench_shape(pass, shapes[i], rows_quick, (int)(sizeof rows_quick / sizeof *rows_quick));
        } else {
            bench_shape(pass, shapes[i], rows, (int)(sizeof rows / sizeof *rows));
        }
    }
    team_close(pass->team);
    pass->team = NULL;
out:
    return rc;
}

/* bf16 of about +-1/64 .. 1/32. The values do not matter, but zeros and denormals would. */
static void fill_weights(uint16_t *data, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t hash = (uint32_t)i * 2654435761u >> 16;
        data[i] = (uint16_t)(0x3c80u | (hash & 0x807fu));
    }
}

static int bench_run(const struct settings *settings, struct error *err)
{
    int rc = 0;
    const size_t k_max = 14336;
    uint16_t *in = NULL;
    float *out = NULL;
    struct pass pass = {.form = (enum weight_form)settings->form};
    TRY(kernels_find(&pass.kernels, settings->kernels, err));
    TRY(mem_pages(&pass.data, pool_bytes, err));
    TRY(mem_array(&in, ROWS_MAX * k_max, sizeof *in, err));
    TRY(mem_array(&out, ROWS_MAX * k_max, sizeof *out, err));
    TRY(mem_array(&pass.groups, ROWS_MAX * k_max / QUANT_GROUP, QUANT_ROW_GROUP_BYTES, err));
    fill_weights(pass.data, pool_bytes / sizeof *pass.data);
    fill_weights(in, ROWS_MAX * k_max);
    pass.in = in;
    pass.out = out;
    printf("kernels %s, %s\n", pass.kernels->name, weight_form_name(pass.form));
    for (int i = 0; i < settings->n_threads; i++) {
        TRY(bench_threads(&pass, settings, settings->threads[i], err));
    }
out:
    mem_pages_free(pass.data, pool_bytes);
    free(in);
    free(out);
    free(pass.groups);
    return rc;
}

int main(int argc, char **argv)
{
    static const char *const forms[] = {"bf16", "int8", "int4"};
    struct settings s = {.n_threads = 2, .threads = {1, 2}, .kernels = "auto"};
    const struct bench_option options[] = {
        {"quick", 'q', NULL, "One shape and a few row counts", .flag = &s.quick},
        {"threads", 't', "LIST", "Numbers of threads (1,2)", 1, 64,
         .list = {s.threads, &s.n_threads, THREADS_LIST_MAX}},
        {"weights", 'w', "FORM", "bf16, int8 or int4 (bf16)", .word = {&s.form, forms, 3}},
        {"kernels", 'k', "NAME", "auto, avx512, avx2 or plain (auto)", .text = &s.kernels},
        {0},
    };
    const struct bench_command command = {.doc = "Speed of the packed matmul.", .options = options};
    struct error err = {0};
    bench_parse(argc, argv, &command);
    if (bench_run(&s, &err)) {
        fprintf(stderr, "bench_matmul: %s\n", err.text);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
