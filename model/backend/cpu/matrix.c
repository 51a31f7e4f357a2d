/* Matrices of the CPU backend: loading, and the job that the threads share when one is multiplied.
 * Whatever depends on the form of the weights is in struct cpu_matrix_ops. The one of bf16 is here;
 * those of 8 and 4 bits are in matrix_quant.c. */
#include "model/backend/cpu/internal.h"

#include <assert.h>
#include <string.h>

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

int cpu_matrix_open(struct backend *be, struct matrix *m, const struct matrix_source *source,
                    struct error *err)
{
    struct backend_cpu *cpu = backend_cpu_of(be);
    int rc = 0;
    *m = (struct matrix){.n_in = source->n_in, .form = be->ops->form};
    for (int i = 0; i < source->n_parts; i++) {
        m->n_out += source->parts[i].n_rows;
    }
    m->bytes = cpu->matrix->bytes(m);
    const struct cpu_fill fill = {m, source};
    const struct pack_request request = {.form = cpu->matrix->packed_form,
                                         .source = source,
                                         .bytes = m->bytes,
                                         .n_blocks = cpu_matrix_blocks(cpu->matrix, m),
                                         .fill = cpu->matrix->fill,
                                         .arg = &fill};
    TRY(pack_open(be, cpu->team, &m->data, &request, err));
out:
    if (rc) *m = (struct matrix){0};
    return rc;
}

void cpu_matrix_close(struct backend *be, struct matrix *m)
{
    pack_close(be, m->data, m->bytes);
    *m = (struct matrix){0};
}

/* ---- multiplying ---- */

static void matmul_member(void *arg, int member, int n_members)
{
    const struct cpu_matmul *job = arg;
    const struct cpu_matrix_ops *ops = job->cpu->matrix;
    int begin, end;
    team_range(cpu_matrix_blocks(ops, job->matrices), 1, member, n_members, &begin, &end);
    for (int i = 0; begin < end && i < job->n_matrices; i++) {
        ops->multiply(job, i, begin, end);
    }
}

static void run_matmul(struct cpu_matmul *job, int n)
{
    const struct matrix *m = job->matrices;
    size_t work = (size_t)m->n_in * (size_t)m->n_out * (size_t)job->n_matrices;
    for (; n > 0; n -= job->n) {
        job->cpu->matrix->begin_batch(job, n);
        cpu_run(job->cpu, work < CPU_SMALL_WORK, matmul_member, job);
        job->in += (size_t)job->n * job->in_stride;
        job->out += (size_t)job->n * job->out_stride;
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
                             .out_stride = out_stride};
    run_matmul(&job, n);
}

void cpu_matmul_slices(struct backend *be, const struct matrix *slices, int n_slices,
                       const uint16_t *in, size_t in_stride, int n, struct slice_sums *sums)
{
    size_t dim = (size_t)slices->n_out;
    sums->stride = (size_t)n * dim;
    sums->n_parts = n_slices;
    struct cpu_matmul job = {.cpu = backend_cpu_of(be),
                             .matrices = slices,
                             .n_matrices = n_slices,
                             .in = in,
                             .in_stride = in_stride,
                             .out = sums->data,
                             .out_stride = dim,
                             .part_stride = sums->stride};
    run_matmul(&job, n);
}

/* ---- bf16 ---- */

static struct packed_matrix packed_of(const struct matrix *m, void *data)
{
    return (struct packed_matrix){
        .data = data,
        .n_in = m->n_in,
        .n_out = m->n_out,
        .n_blocks = (m->n_out + KERNEL_COLUMNS - 1) / KERNEL_COLUMNS,
    };
}

static size_t bf16_bytes(const struct matrix *m)
{
    return packed_matrix_bytes(m->n_in, m->n_out);
}

/* packed_fill_fn */
static void bf16_fill_column(const void *arg, int column, int k, int n, uint16_t *out)
{
    int row;
    const struct matrix_part *part = matrix_source_part(arg, column, &row);
    if (part) {
        weight_read_bf16(&part->weight, row, part->first_col + k, n, out);
    } else {
        memset(out, 0, (size_t)n * sizeof *out);
    }
}

/* pack_fn */
static void bf16_fill(const void *arg, void *data, int first_block, int end_block)
{
    const struct cpu_fill *fill = arg;
    const struct packed_matrix packed = packed_of(fill->matrix, data);
    packed_matrix_fill(&packed, first_block, end_block, bf16_fill_column, fill->source);
}

static struct matmul_rows job_rows(const struct cpu_matmul *job)
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
    const struct matmul_rows rows = job_rows(job);
    int begin, end;
    team_range(rows.n_in / 2, 1, member, n_members, &begin, &end);
    job->cpu->kernels->fill_panels(&rows, begin, end);
}

static void bf16_begin_batch(struct cpu_matmul *job, int n_left)
{
    int n_in = job->matrices->n_in * job->n_matrices;
    int n_most = PANEL_WORDS / n_in; /* at most a word for each k */
    assert(n_most > 0);              /* model/checkpoint/config_parse.c refuses widths over 2^20 */
    job->n = n_left < n_most ? n_left : n_most;
    if (job->cpu->kernels->panel_words(job->n, n_in) == 0) return;
    cpu_run(job->cpu, job->n * n_in < PANELS_SMALL, panels_member, job);
}

static void bf16_multiply(const struct cpu_matmul *job, int i, int first_block, int end_block)
{
    const struct matrix *m = &job->matrices[i];
    const struct packed_matrix w = packed_of(m, m->data);
    const struct matmul_rows rows = job_rows(job);
    const struct matmul_call call = {.rows = &rows,
                                     .first_k = i * m->n_in,
                                     .out = job->out + (size_t)i * job->part_stride,
                                     .out_stride = job->out_stride,
                                     .first_block = first_block,
                                     .end_block = end_block};
    job->cpu->kernels->matmul(&w, &call);
}

const struct cpu_matrix_ops cpu_matrix_bf16 = {
    .packed_form = "bf16-64x2-1",
    .block_columns = KERNEL_COLUMNS,
    .bytes = bf16_bytes,
    .fill = bf16_fill,
    .begin_batch = bf16_begin_batch,
    .multiply = bf16_multiply,
};
