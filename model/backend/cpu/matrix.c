/* Matrices of the CPU backend: loading, and the job that the threads share when one is multiplied.
 * Whatever depends on the form of the weights is in struct cpu_matrix_ops. The one of bf16 is here;
 * those of 8 and 4 bits are in matrix_quant.c, and
 * that of models stored in blocks is in matrix_blocks.c. */
#include "model/backend/cpu/internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/least.h"
#include "model/numerics/variants.h"

enum {
    PANEL_WORDS = 2 << 20, /* 8 MB: 256 rows of 8192 */
    PANELS_SMALL = 1 << 15 /* elements that one thread prepares faster than the team */
};

int cpu_panels_open(struct backend_cpu *cpu, struct error *err)
{
    return mem_pages(&cpu->panels, PANEL_WORDS * sizeof *cpu->panels, err);
}

void cpu_panels_close(struct backend_cpu *cpu)
{
    if (cpu->panels) mem_pages_free(cpu->panels, PANEL_WORDS * sizeof *cpu->panels);
    cpu->panels = NULL;
}

/* ---- loading ---- */

/* 2 where gate and up each have whole blocks, so that a member can have the same columns of both. A
 * small matrix is not folded, because two streams instead of one cost more than that saves. */
static int matrix_folds(const struct backend_cpu *cpu, const struct matrix *m, bool is_gate_up)
{
    bool is_small = (size_t)m->n_in * (size_t)m->n_out < CPU_SHARED_WORK;
    if (!is_gate_up || is_small || m->n_out % (2 * cpu->matrix->block_columns)) return 1;
    return 2;
}

int cpu_matrix_open(struct backend *be, struct matrix *m, const struct matrix_source *source,
                    struct error *err)
{
    struct backend_cpu *cpu = backend_cpu_of(be);
    int rc = 0;
    *m = (struct matrix){.n_in = source->n_in, .form = be->ops->form};
    for (int i = 0; i < source->n_parts; i++) {
        m->n_out += source->parts[i].n_rows;
    }
    if (m->form == WEIGHTS_BLOCKS) TRY(cpu_order_open(cpu, m, source, err));
    if (cpu->matrix->divide) cpu->matrix->divide(m, source);
    m->bytes = cpu->matrix->bytes(m);
    const struct cpu_fill fill = {m, source};
    const struct pack_request request = {.form = cpu->matrix->packed_form,
                                         .source = source,
                                         .bytes = m->bytes,
                                         .n_blocks = cpu_matrix_blocks(cpu->matrix, m),
                                         .block_columns = cpu->matrix->block_columns,
                                         .n_folds = matrix_folds(cpu, m, source->is_gate_up),
                                         .fill = cpu->matrix->fill,
                                         .arg = &fill};
    TRY(pack_open(be, cpu->team, &m->data, &request, err));
out:
    if (rc) {
        free(m->order);
        *m = (struct matrix){0};
    }
    return rc;
}

int cpu_matrix_digest(struct backend *be, const struct matrix_source *source, struct error *err)
{
    return pack_digest(be, backend_cpu_of(be)->team, source, err);
}

void cpu_matrix_close(struct backend *be, struct matrix *m)
{
    pack_close(be, m->data, m->bytes);
    free(m->order);
    *m = (struct matrix){0};
}

/* ---- multiplying ---- */

/* Blocks of a fold. */
static int fold_blocks(const struct cpu_matmul *job)
{
    return cpu_matrix_blocks(job->cpu->matrix, job->matrices) / job->n_folds;
}

static void finish_blocks(const struct cpu_matmul *job, int first_block, int end_block)
{
    int width = job->cpu->matrix->block_columns, n = job->matrices->n_out / job->n_folds;
    int first = first_block * width, end = end_block * width;
    job->finish(job, first, end < n ? end : n);
}

/* A column of the shared grid is a block, and a row is a fold of a matrix. So the member that
 * multiplies a block by one slice does so by all, unless another member helps it. */
static void matmul_member(void *arg, int member, int n_members)
{
    const struct cpu_matmul *job = arg;
    int n_blocks = fold_blocks(job), n_folds = job->n_folds;
    struct team_share share = team_share_begin(job->is_shared ? job->cpu->team : NULL, member,
                                               n_members, n_blocks, job->n_matrices * n_folds);
    while (team_share_next(&share)) {
        int first = n_folds > 1 ? share.row * n_blocks : 0; /* of a single matrix */
        job->cpu->matrix->multiply(job, n_folds > 1 ? 0 : share.row, first + share.begin,
                                   first + share.end);
        if (job->finish && team_share_completes(&share)) {
            finish_blocks(job, share.range_begin, share.range_end);
        }
    }
}

static void run_matmul(struct cpu_matmul *job, int n)
{
    const struct matrix *m = job->matrices;
    size_t work = (size_t)m->n_in * (size_t)m->n_out * (size_t)job->n_matrices;
    for (; n > 0; n -= job->n) {
        job->cpu->matrix->begin_batch(job, n);
        job->is_shared = work * (size_t)job->n >= CPU_SHARED_WORK;
        cpu_run(job->cpu, work < CPU_SMALL_WORK, matmul_member, job);
        job->in += (size_t)job->n * job->in_stride;
        job->out += (size_t)job->n * job->out_stride;
        if (job->hidden) job->hidden += (size_t)job->n * (size_t)(m->n_out / job->n_folds);
    }
}

void cpu_matmul(struct backend *be, const struct matrix *m, const uint16_t *in, size_t in_stride,
                float *out, size_t out_stride, int n)
{
    struct cpu_matmul job = {.cpu = backend_cpu_of(be),
                             .matrices = m,
                             .n_matrices = 1,
                             .in = in,
                             .in_stride = in_stride,
                             .out = out,
                             .out_stride = out_stride,
                             .n_folds = 1};
    run_matmul(&job, n);
}

/* The fixed tree over 2 to 8 parts (comm/comm_tree.h): `sum` is part 0 and becomes their sum;
 * `rest` are the others, `stride` apart. It takes one pass, because a row of a member's range is
 * short. */
VARIANTS static void add_parts(float *restrict sum, const float *restrict rest, size_t stride,
                               int n_parts, int n)
{
    const float *p[SLICES_MAX] = {NULL};
    for (int k = 1; k < n_parts; k++) {
        p[k] = rest + (size_t)(k - 1) * stride;
    }
    const float *p1 = p[1], *p2 = p[2], *p3 = p[3], *p4 = p[4], *p5 = p[5], *p6 = p[6], *p7 = p[7];
    if (n_parts == 2) {
        for (int i = 0; i < n; i++) {
            sum[i] += p1[i];
        }
    } else if (n_parts == 3) {
        for (int i = 0; i < n; i++) {
            sum[i] = (sum[i] + p1[i]) + p2[i];
        }
    } else if (n_parts == 4) {
        for (int i = 0; i < n; i++) {
            sum[i] = (sum[i] + p1[i]) + (p2[i] + p3[i]);
        }
    } else if (n_parts == 5) {
        for (int i = 0; i < n; i++) {
            sum[i] = ((sum[i] + p1[i]) + (p2[i] + p3[i])) + p4[i];
        }
    } else if (n_parts == 6) {
        for (int i = 0; i < n; i++) {
            sum[i] = ((sum[i] + p1[i]) + (p2[i] + p3[i])) + (p4[i] + p5[i]);
        }
    } else if (n_parts == 7) {
        for (int i = 0; i < n; i++) {
            sum[i] = ((sum[i] + p1[i]) + (p2[i] + p3[i])) + ((p4[i] + p5[i]) + p6[i]);
        }
    } else {
        for (int i = 0; i < n; i++) {
            sum[i] = ((sum[i] + p1[i]) + (p2[i] + p3[i])) + ((p4[i] + p5[i]) + (p6[i] + p7[i]));
        }
    }
}

void cpu_add_parts(float *sum, size_t stride, int n_parts, int n)
{
    if (n_parts > 1) add_parts(sum, sum + stride, stride, n_parts, n);
}

static void finish_slices(const struct cpu_matmul *job, int first, int end)
{
    for (int i = 0; i < job->n; i++) {
        float *sum = job->out + (size_t)i * job->out_stride + first;
        add_parts(sum, sum + job->part_stride, job->part_stride, job->n_matrices, end - first);
    }
}

void cpu_matmul_slices(struct backend *be, const struct matrix *slices, int n_slices,
                       const uint16_t *in, size_t in_stride, int n, struct slice_sums *sums)
{
    size_t dim = (size_t)slices->n_out;
    sums->stride = (size_t)n * dim;
    sums->n_parts = 1;
    struct cpu_matmul job = {.cpu = backend_cpu_of(be),
                             .matrices = slices,
                             .n_matrices = n_slices,
                             .in = in,
                             .in_stride = in_stride,
                             .out = sums->data,
                             .out_stride = dim,
                             .part_stride = sums->stride,
                             .n_folds = 1,
                             .finish = n_slices > 1 ? finish_slices : NULL};
    run_matmul(&job, n);
}

static void add_bias(float *x, const float *bias, int n)
{
    for (int i = 0; i < n; i++) {
        x[i] += bias[i];
    }
}

static void finish_gated(const struct cpu_matmul *job, int first, int end)
{
    int ffn_dim = job->matrices->n_out / 2, n = end - first;
    for (int i = 0; i < job->n; i++) {
        float *gate = job->out + (size_t)i * job->out_stride + first;
        if (job->bias) {
            add_bias(gate, job->bias + first, n);
            add_bias(gate + ffn_dim, job->bias + ffn_dim + first, n);
        }
        uint16_t *hidden = job->hidden + (size_t)i * (size_t)ffn_dim + first;
        switch (job->activation) {
        case ACTIVATION_SILU:
            job->cpu->kernels->swiglu(gate, gate + ffn_dim, n, hidden);
            break;
        case ACTIVATION_GELU_TANH:
            job->cpu->kernels->geglu(gate, gate + ffn_dim, n, hidden);
            break;
        }
    }
}

static void gated_member(void *arg, int member, int n_members)
{
    struct cpu_matmul rows = *(const struct cpu_matmul *)arg;
    int begin, end;
    team_range(rows.n, 1, member, n_members, &begin, &end);
    rows.out += (size_t)begin * rows.out_stride;
    rows.hidden += (size_t)begin * (size_t)(rows.matrices->n_out / 2);
    rows.n = end - begin;
    finish_gated(&rows, 0, rows.matrices->n_out / 2);
}

void cpu_matmul_gated(struct backend *be, const struct gated_mlp *args)
{
    struct backend_cpu *cpu = backend_cpu_of(be);
    const struct matrix *m = args->matrix;
    struct cpu_matmul job = {.cpu = cpu,
                             .matrices = m,
                             .n_matrices = 1,
                             .in = args->in,
                             .in_stride = (size_t)m->n_in,
                             .out = args->gate_up,
                             .out_stride = (size_t)m->n_out,
                             .n = args->n,
                             .n_folds = matrix_folds(cpu, m, true),
                             .bias = args->bias,
                             .activation = args->activation,
                             .hidden = args->h};
    if (job.n_folds == 2) {
        job.finish = finish_gated;
        run_matmul(&job, args->n);
    } else {
        cpu_matmul(be, m, args->in, job.in_stride, args->gate_up, job.out_stride, args->n);
        cpu_run(cpu, (size_t)args->n * (size_t)(m->n_out / 2) < CPU_SMALL_WORK, gated_member, &job);
    }
}

/* ---- bf16 ---- */

/* A section of bf16; NULL: all of the matrix. */
static struct packed_matrix packed_of(const struct matrix *m, const struct matrix_section *section,
                                      void *data)
{
    uint8_t *at = data;
    int n_out = section ? section->n_out : m->n_out;
    return (struct packed_matrix){
        .data = (void *)(section ? at + section->offset : at),
        .n_in = m->n_in,
        .n_out = n_out,
        .n_blocks = (n_out + KERNEL_COLUMNS - 1) / KERNEL_COLUMNS,
    };
}

static size_t bf16_bytes(const struct matrix *m)
{
    return packed_matrix_bytes(m->n_in, m->n_out);
}

/* Columns from `first` on. */
struct bf16_columns {
    const struct matrix_source *source;
    int first;
};

/* packed_fill_fn */
static void bf16_fill_column(const void *arg, int column, int k, int n, uint16_t *out)
{
    const struct bf16_columns *columns = arg;
    int row;
    const struct matrix_part *part =
        matrix_source_part(columns->source, columns->first + column, &row);
    if (part) {
        weight_read_bf16(&part->weight, row, part->first_col + k, n, out);
    } else {
        memset(out, 0, (size_t)n * sizeof *out);
    }
}

void cpu_bf16_fill(const struct cpu_fill *fill, const struct matrix_section *section, void *data,
                   int first_block, int end_block)
{
    const struct packed_matrix packed = packed_of(fill->matrix, section, data);
    const struct bf16_columns columns = {fill->source, section ? section->first : 0};
    packed_matrix_fill(&packed, first_block, end_block, bf16_fill_column, &columns);
}

/* pack_fn */
static void bf16_fill(const void *arg, void *data, int first_block, int end_block)
{
    cpu_bf16_fill(arg, NULL, data, first_block, end_block);
}

struct matmul_rows cpu_bf16_job_rows(const struct cpu_matmul *job)
{
    return (struct matmul_rows){.in = job->in,
                                .stride = job->in_stride,
                                .n = job->n,
                                .n_in = job->matrices->n_in * job->n_matrices,
                                .panels = job->cpu->panels};
}

static void panels_member(void *arg, int member, int n_members)
{
    const struct cpu_matmul *job = arg;
    const struct matmul_rows rows = cpu_bf16_job_rows(job);
    int begin, end;
    team_range(rows.n_in / 2, 1, member, n_members, &begin, &end);
    job->cpu->kernels->fill_panels(&rows, begin, end);
}

int cpu_bf16_rows(const struct cpu_matmul *job)
{
    int n_most = PANEL_WORDS / (job->matrices->n_in * job->n_matrices); /* a word for each k */
    assert(n_most > 0); /* model/checkpoint/config/config_parse.c refuses widths over 2^20 */
    return n_most;
}

void cpu_bf16_prepare(struct cpu_matmul *job)
{
    int n_in = job->matrices->n_in * job->n_matrices;
    if (job->cpu->kernels->panel_words(job->n, n_in) == 0) return;
    cpu_run(job->cpu, job->n * n_in < PANELS_SMALL, panels_member, job);
}

static void bf16_begin_batch(struct cpu_matmul *job, int n_left)
{
    job->n = least(n_left, cpu_bf16_rows(job));
    cpu_bf16_prepare(job);
}

void cpu_bf16_multiply(const struct cpu_matmul *job, int i, const struct matrix_section *section,
                       int first_block, int end_block)
{
    const struct matrix *m = &job->matrices[i];
    const struct packed_matrix w = packed_of(m, section, m->data);
    const struct matmul_rows rows = cpu_bf16_job_rows(job);
    const struct matmul_call call = {.rows = &rows,
                                     .first_k = i * m->n_in,
                                     .out = job->out + (size_t)i * job->part_stride +
                                            (section ? section->first : 0),
                                     .out_stride = job->out_stride,
                                     .first_block = first_block,
                                     .end_block = end_block};
    job->cpu->kernels->matmul(&w, &call);
}

static void bf16_multiply(const struct cpu_matmul *job, int i, int first_block, int end_block)
{
    cpu_bf16_multiply(job, i, NULL, first_block, end_block);
}

const struct cpu_matrix_ops cpu_matrix_bf16 = {
    .packed_form = "bf16-64x2-1",
    .block_columns = KERNEL_COLUMNS,
    .bytes = bf16_bytes,
    .fill = bf16_fill,
    .begin_batch = bf16_begin_batch,
    .multiply = bf16_multiply,
};
