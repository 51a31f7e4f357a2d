/* Speed of the packed matmul, and its share of what bounds it (bench/limits.h): of the time that
 * this machine needs to read the weights once, or of the time that it needs to multiply them with
 * all rows, whichever is longer.
 *
 *   bench_matmul [--quick] [--hot] [--threads 1,2] [--rows 1,6,64] [--kernels auto]
 *                [--weights q4_k] [--rounds 40]
 *
 * Weights are cold: the matrices of a shape fill more than 1 GiB of huge pages, and the kernel and
 * the reading loop take them in turn. Kernel, reading loop and register loop follow each other in
 * slices of the same round with the same threads, so that all meet the same clock frequency and the
 * same neighbours. A ratio is the median of the rounds (bench_util.h).
 *
 * `hot` is the kernel on 32 KiB of weights (bf16; less of others) that never leave the cache. Its
 * limit is the multiply peak alone. --hot prints nothing else.
 *
 * Rows are prepared for the kernels beforehand, so the time for it is not included. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/threads/team.h"
#include "bench/bench_util.h"
#include "bench/limits.h"
#include "bench/options.h"
#include "model/backend/cpu/kernels/kernels.h"
#include "model/backend/cpu/kernels/quant/matrix.h"

enum {
    ROWS_MAX = 256,
    K_MAX = 14336,
    LIST_MAX = 16,
    ROUNDS = 40,
    SLICE_US = 5000, /* short, so that a round is over before the conditions change */
    HOT_SLICE_US = 500,
    HOT_ROUNDS = 5, /* for each of the cold ones */
    HOT_K = 256,
    HOT_ROWS = 512, /* that one job multiplies, in repetitions of a call */
    HOT_REPEATS_MAX = 64,
    HOT_POOL_BYTES = 4 << 20
};

struct shape {
    int n_in, n_out;
};

struct settings {
    bool quick, only_hot;
    int n_threads, n_rows, n_rounds;
    int32_t threads[LIST_MAX], rows[LIST_MAX];
    const char *kernels;
    int form; /* an index of form_names */
};

/* An arm: calls of the kernel. */
struct pass {
    const struct kernels *kernels;
    struct bench_limits *limits; /* its team, and which matrix is next */
    uint16_t *pool;              /* cold matrices of one shape */
    size_t pool_bytes;
    enum weight_form form;
    int n_rows, n_rounds;
    bool is_hot;               /* one matrix, which stays in the cache */
    struct packed_matrix w;    /* bf16 */
    struct quant_matrix quant; /* of integers */
    uint8_t *groups;           /* quantized rows */
    int repeats;               /* of a call */
    const uint16_t *in;        /* [ROWS_MAX][n_in] */
    uint32_t *panels;          /* of bf16 */
    float *out;
};

/* ---- calls of the kernels ---- */

/* The rows of bf16, and their panels. */
static struct matmul_rows rows_of(const struct pass *p)
{
    return (struct matmul_rows){p->in, (size_t)p->w.n_in, p->n_rows, p->w.n_in, p->panels};
}

/* Does what is done once for all blocks of columns. */
static void prepare_rows(struct pass *p)
{
    if (p->form == WEIGHTS_BF16) {
        const struct matmul_rows rows = rows_of(p);
        if (p->kernels->panel_words(rows.n, rows.n_in)) {
            p->kernels->fill_panels(&rows, 0, rows.n_in / 2);
        }
        return;
    }
    const struct quant_rows rows = {p->form,   p->in,     (size_t)p->w.n_in,
                                    p->n_rows, p->w.n_in, p->groups};
    p->kernels->quant->quantize(&rows, 0, p->quant.n_groups);
}

static void multiply_rows(const struct pass *p, int begin, int end)
{
    if (p->form == WEIGHTS_BF16) {
        const struct matmul_rows rows = rows_of(p);
        const struct matmul_call call = {.rows = &rows,
                                         .out = p->out,
                                         .out_stride = (size_t)p->w.n_out,
                                         .first_block = begin,
                                         .end_block = end};
        p->kernels->matmul(&p->w, &call);
    } else {
        const struct quant_call call = {p->groups, p->out, (size_t)p->w.n_out,
                                        p->n_rows, begin,  end};
        p->kernels->quant->matmul(&p->quant, &call);
    }
}

/* ---- the arm ---- */

static int pass_blocks(const struct pass *p)
{
    return p->form == WEIGHTS_BF16 ? p->w.n_blocks : p->quant.n_blocks;
}

static size_t pass_bytes(const struct pass *p)
{
    return p->form == WEIGHTS_BF16 ? packed_matrix_bytes(p->w.n_in, p->w.n_out)
                                   : quant_matrix_bytes(&p->quant);
}

/* The cost of one call. */
static struct bench_cost pass_cost(const struct pass *p)
{
    return (struct bench_cost){.gb = p->is_hot ? 0 : 1e-9 * (double)pass_bytes(p),
                               .gflop = 2e-9 * p->w.n_in * p->w.n_out * p->n_rows};
}

static void pass_member(void *arg, int member, int n_members)
{
    const struct pass *p = arg;
    int begin, end;
    team_range(pass_blocks(p), 1, member, n_members, &begin, &end);
    for (int i = 0; i < p->repeats; i++) {
        multiply_rows(p, begin, end);
    }
}

static void pass_use(struct pass *p, int matrix)
{
    p->w.data = p->pool + (size_t)matrix * (pass_bytes(p) / sizeof *p->pool);
    p->quant.data = (uint8_t *)p->w.data;
}

/* Passes over the next matrix; returns calls. */
static double pass_run(void *arg)
{
    struct pass *p = arg;
    if (!p->is_hot) pass_use(p, bench_limits_next(p->limits));
    team_run(p->limits->team, pass_member, p);
    return p->repeats;
}

static void pass_shape(struct pass *p, struct shape shape)
{
    p->w = (struct packed_matrix){.n_in = shape.n_in,
                                  .n_out = shape.n_out,
                                  .n_blocks = (shape.n_out + KERNEL_COLUMNS - 1) / KERNEL_COLUMNS};
    p->quant = quant_matrix_of(p->form, NULL, shape.n_in, shape.n_out, 0);
    p->repeats = 1;
}

static void pass_rows(struct pass *p, int n_rows)
{
    p->n_rows = n_rows;
    prepare_rows(p);
}

/* ---- what is printed ---- */

static void show_quartiles(const char *before, struct sample_quartiles q)
{
    printf("%s%5.2f [%.2f %.2f]", before, q.median, q.low, q.high);
}

/* Rate and share of the peak with weights in the cache: every thread works on 64 columns. */
static void show_hot(const struct pass *cold, int n_rows)
{
    static double rates[2][BENCH_PAIRS_MAX];
    const int64_t slices_us[] = {HOT_SLICE_US, HOT_SLICE_US};
    struct pass p = *cold;
    p.is_hot = true;
    pass_shape(&p, (struct shape){HOT_K, KERNEL_COLUMNS * team_size(p.limits->team)});
    pass_use(&p, 0);
    pass_rows(&p, n_rows);
    p.repeats = n_rows * HOT_REPEATS_MAX < HOT_ROWS ? HOT_REPEATS_MAX : 1 + (HOT_ROWS - 1) / n_rows;
    const struct timed_arm arms[] = {{pass_run, &p}, {bench_limits_multiply, p.limits}};
    int n = HOT_ROUNDS * p.n_rounds < BENCH_PAIRS_MAX ? HOT_ROUNDS * p.n_rounds : BENCH_PAIRS_MAX;
    bench_rounds(arms, slices_us, 2, n, rates);
    struct bench_cost cost = pass_cost(&p);
    struct bench_share share = bench_share(cost, rates[0], NULL, rates[1], n);
    printf("  %11.1f  %9.1f", cost.gflop * sample_quartiles(rates[0], n).median,
           sample_quartiles(rates[1], n).median);
    show_quartiles("  ", share.ratio);
}

static void show_cold(struct pass *p, int n_rows)
{
    static double rates[3][BENCH_PAIRS_MAX];
    const int64_t slices_us[] = {SLICE_US, SLICE_US, SLICE_US};
    const struct timed_arm arms[] = {
        {pass_run, p}, {bench_limits_read, p->limits}, {bench_limits_multiply, p->limits}};
    int n = p->n_rounds;
    pass_rows(p, n_rows);
    bench_rounds(arms, slices_us, 3, n, rates);
    struct bench_cost cost = pass_cost(p);
    struct bench_share share = bench_share(cost, rates[0], rates[1], rates[2], n);
    double over_read = cost.gb * bench_ratio(rates[0], rates[1], n).median;
    double calls = sample_quartiles(rates[0], n).median;
    printf("  %8.1f  %7.1f  %5.2f  %9.1f  %9.1f  %-11s", calls * cost.gb,
           sample_quartiles(rates[1], n).median, over_read, calls * cost.gflop,
           sample_quartiles(rates[2], n).median, bench_bound_name(share.bound));
    show_quartiles("  ", share.ratio);
}

static void show_rows(struct pass *p, const struct settings *s)
{
    for (int i = 0; i < s->n_rows; i++) {
        printf("%4d", s->rows[i]);
        if (!s->only_hot) show_cold(p, s->rows[i]);
        show_hot(p, s->rows[i]);
        printf("\n");
        fflush(stdout);
    }
}

static const char *hot_head = "  hot GFLOP/s       peak  share of it";

static void bench_shape(struct pass *p, struct shape shape, const struct settings *s)
{
    pass_shape(p, shape);
    size_t bytes = pass_bytes(p);
    bench_limits_lend(p->limits, p->pool, bytes, (int)(p->pool_bytes / bytes));
    printf("%d x %d, %d matrices of %zu MiB\n", shape.n_in, shape.n_out, p->limits->n_portions,
           bytes >> 20);
    bench_limits_show(p->limits, SLICE_US);
    printf(
        "   M  weights     read  ratio    GFLOP/s       peak  limit        share of it       %s\n",
        hot_head);
    show_rows(p, s);
}

static int bench_threads(struct pass *p, const struct settings *s, int n_threads, struct error *err)
{
    static const struct shape shapes[] = {
        {4096, 4096}, {4096, 14336}, {14336, 4096}, {2048, 2048}, {2048, 8192}};
    struct bench_limits limits = {.team = NULL};
    int rc = 0, n_shapes = s->quick ? 1 : (int)(sizeof shapes / sizeof *shapes);
    TRY(bench_limits_open(&limits, n_threads, p->kernels->name, p->form, err));
    p->limits = &limits;
    printf("kernels %s, %s, %d thread%s, peak of %s in registers\n", p->kernels->name,
           weight_form_name(p->form), n_threads, n_threads > 1 ? "s" : "", limits.peak->loop);
    if (s->only_hot) {
        printf("   M%s\n", hot_head);
        show_rows(p, s);
    }
    for (int i = 0; i < n_shapes && !s->only_hot; i++) {
        bench_shape(p, shapes[i], s);
    }
out:
    bench_limits_close(&limits);
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

/* In the order of form_names. */
static const enum weight_form forms[] = {
    WEIGHTS_BF16, WEIGHTS_INT8,   WEIGHTS_INT4,   WEIGHTS_Q4_0,   WEIGHTS_Q4_1,   WEIGHTS_Q5_0,
    WEIGHTS_Q5_1, WEIGHTS_Q8_0,   WEIGHTS_Q2_K,   WEIGHTS_Q3_K,   WEIGHTS_Q4_K,   WEIGHTS_Q5_K,
    WEIGHTS_Q6_K, WEIGHTS_IQ4_NL, WEIGHTS_IQ4_XS, WEIGHTS_U4_F16, WEIGHTS_U4_F32, WEIGHTS_U8_F32,
};

static const char *const form_names[] = {
    "bf16", "int8", "int4", "q4_0", "q4_1",   "q5_0",   "q5_1",   "q8_0",   "q2_k",
    "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "u4-f16", "u4-f32", "u8-f32",
};

enum { N_FORMS = sizeof forms / sizeof *forms };

static int bench_run(const struct settings *s, struct error *err)
{
    int rc = 0;
    size_t panel_bytes = 0;
    uint16_t *in = NULL;
    struct pass p = {.form = forms[s->form], .n_rounds = s->n_rounds};
    TRY(kernels_find(&p.kernels, s->kernels, err));
    p.pool_bytes = s->only_hot ? (size_t)HOT_POOL_BYTES : bench_cold_bytes((size_t)1152 << 20);
    TRY(mem_pages(&p.pool, p.pool_bytes, err));
    TRY(mem_array(&in, (size_t)ROWS_MAX * K_MAX, sizeof *in, err));
    TRY(mem_array(&p.out, (size_t)ROWS_MAX * K_MAX, sizeof *p.out, err));
    panel_bytes = (p.kernels->panel_words(ROWS_MAX, K_MAX) + 1) * sizeof *p.panels;
    TRY(mem_pages(&p.panels, panel_bytes, err));
    TRY(mem_array(&p.groups, (size_t)ROWS_MAX * K_MAX / QUANT_GROUP, QUANT_ROW_GROUP_BYTES, err));
    fill_weights(p.pool, p.pool_bytes / sizeof *p.pool);
    fill_weights(in, (size_t)ROWS_MAX * K_MAX);
    p.in = in;
    for (int i = 0; i < s->n_threads; i++) {
        TRY(bench_threads(&p, s, s->threads[i], err));
    }
out:
    if (p.pool) mem_pages_free(p.pool, p.pool_bytes);
    if (p.panels) mem_pages_free(p.panels, panel_bytes);
    free(in);
    free(p.out);
    free(p.groups);
    return rc;
}

int main(int argc, char **argv)
{
    struct settings s = {.n_threads = 2,
                         .threads = {1, 2},
                         .n_rows = 12,
                         .rows = {1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64, ROWS_MAX},
                         .n_rounds = ROUNDS,
                         .kernels = "auto"};
    const struct bench_option options[] = {
        {"quick", 'q', NULL, "One shape instead of five", .flag = &s.quick},
        {"hot", 0, NULL, "Only with weights in the cache", .flag = &s.only_hot},
        {"threads", 't', "LIST", "Numbers of threads (1,2)", 1, 64,
         .list = {s.threads, &s.n_threads, LIST_MAX}},
        {"rows", 'r', "LIST", "1 to 256 each (1,2,3,4,5,6,7,8,16,32,64,256)", 1, ROWS_MAX,
         .list = {s.rows, &s.n_rows, LIST_MAX}},
        {"weights", 'w', "FORM", "bf16, int8, int4, q4_0, q4_k, ... (bf16)",
         .word = {&s.form, form_names, N_FORMS}},
        {"kernels", 'k', "NAME", "Of this CPU, or auto (auto)", .text = &s.kernels},
        {"rounds", 0, "N", "Slices of each arm in a line (40)", 2, BENCH_PAIRS_MAX,
         .number = &s.n_rounds},
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
