/* Matrices of the CPU backend with weights of 8 or 4 bits: quantized while they are packed, multiplied
 * by the kernels of kernels_quant.h. The rows of a matmul are quantized once, for all threads, into
 * memory of a fixed size: more rows than it holds go batch by batch, which changes no bit. */
#include "model/backend/cpu/internal.h"
#include "model/backend/pack.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    GROUPS_AT_ONCE = 200 << 10, /* 8 MB: 450 rows of 14336 */
    QUANTIZE_SMALL = 1 << 15    /* elements that one thread quantizes faster than the team */
};

/* ---- loading ---- */

struct quant_pack_job {
    struct quant_matrix packed;
    const struct matrix_source *source;
};

/* quant_fill_fn: finds the part that holds the column. */
static void fill_column(void *arg, int column, int k, int n, int8_t *q, uint16_t *scales)
{
    const struct quant_pack_job *job = arg;
    for (int i = 0; i < job->source->n_parts; i++) {
        const struct matrix_part *part = &job->source->parts[i];
        if (column >= part->n_rows) {
            column -= part->n_rows;
            continue;
        }
        int row = matrix_part_row(part, column);
        if (row < 0) break;
        weight_read_groups(&part->weight, job->packed.form, row, part->first_col + k, n, q, scales);
        return;
    }
    memset(q, 0, (size_t)n);
    memset(scales, 0, sizeof *scales * (size_t)((n + QUANT_GROUP - 1) / QUANT_GROUP));
}

/* pack_fn */
static void fill_blocks(void *arg, void *data, int member, int first_block, int end_block)
{
    struct quant_pack_job *job = arg;
    struct quant_matrix packed =
        quant_matrix_of(job->packed.form, data, job->packed.n_in, job->packed.n_out);
    (void)member;
    quant_matrix_fill(&packed, first_block, end_block, fill_column, job);
}

/* Name and version of the packed form. */
static const char *pack_form(enum weight_form form)
{
    return form == WEIGHTS_INT8 ? "int8-1" : "int4-1";
}

static int quant_matrix_open(struct backend *be, struct matrix *m,
                             const struct matrix_source *source, struct error *err)
{
    struct backend_cpu *cpu = backend_cpu_of(be);
    int rc = 0;
    struct quant_pack_job job = {.source = source};
    *m = (struct matrix){.n_in = source->n_in};
    for (int i = 0; i < source->n_parts; i++) {
        m->n_out += source->parts[i].n_rows;
    }
    m->bytes = quant_matrix_bytes(cpu->form, m->n_in, m->n_out);
    job.packed = quant_matrix_of(cpu->form, NULL, m->n_in, m->n_out);
    const struct pack_request request = {.form = pack_form(cpu->form),
                                         .source = source,
                                         .bytes = m->bytes,
                                         .n_blocks = job.packed.n_blocks,
                                         .fill = fill_blocks,
                                         .arg = &job};
    TRY(pack_open(be, cpu->team, &m->data, &request, err));
out:
    if (rc) *m = (struct matrix){0};
    return rc;
}

/* ---- matmul ---- */

/* Matrices of one shape that share their input rows: the slices of a row-parallel one, or one alone. */
struct quant_job {
    struct backend_cpu *cpu;
    const struct matrix *matrices;
    int n_matrices;
    const uint16_t *in; /* of this batch, as is `out` */
    size_t in_stride;
    float *out;
    size_t out_stride, part_stride;
    int n;        /* rows of the batch */
    int n_groups; /* of a row of one matrix */
};

static struct quant_group *row_groups(const struct quant_job *job, int row, int matrix)
{
    size_t at = (size_t)row * (size_t)job->n_matrices + (size_t)matrix;
    return job->cpu->groups + at * (size_t)job->n_groups;
}

static void quantize_member(void *arg, int member, int n_members)
{
    const struct quant_job *job = arg;
    struct backend_cpu *cpu = job->cpu;
    int n_in = job->matrices->n_in, begin, end;
    team_range(job->n, 1, member, n_members, &begin, &end);
    for (int row = begin; row < end; row++) {
        const uint16_t *in = job->in + (size_t)row * job->in_stride;
        for (int i = 0; i < job->n_matrices; i++) {
            cpu->kernels->quant->quantize(cpu->form, in + (size_t)i * (size_t)n_in, n_in,
                                          row_groups(job, row, i));
        }
    }
}

static void matmul_member(void *arg, int member, int n_members)
{
    const struct quant_job *job = arg;
    size_t stride = (size_t)job->n_matrices * (size_t)job->n_groups;
    for (int i = 0; i < job->n_matrices; i++) {
        const struct matrix *m = &job->matrices[i];
        struct quant_matrix w = quant_matrix_of(job->cpu->form, m->data, m->n_in, m->n_out);
        int begin, end;
        team_range(w.n_blocks, 1, member, n_members, &begin, &end);
        if (begin == end) continue;
        job->cpu->kernels->quant->matmul(&w, row_groups(job, 0, i), stride,
                                         job->out + (size_t)i * job->part_stride, job->out_stride,
                                         job->n, begin, end);
    }
}

static void run_team(struct quant_job *job, team_fn *fn, size_t work, size_t small)
{
    if (work < small) {
        fn(job, 0, 1);
    } else {
        team_run(job->cpu->team, fn, job);
    }
}

static void run_batch(struct quant_job *job)
{
    size_t width = (size_t)job->matrices->n_in * (size_t)job->n_matrices;
    run_team(job, quantize_member, width * (size_t)job->n, QUANTIZE_SMALL);
    run_team(job, matmul_member, width * (size_t)job->matrices->n_out, CPU_SMALL_WORK);
}

static void run_job(struct backend *be, struct quant_job *job, int n)
{
    job->cpu = backend_cpu_of(be);
    job->n_groups = (job->matrices->n_in + QUANT_GROUP - 1) / QUANT_GROUP;
    int rows_at_once = GROUPS_AT_ONCE / (job->n_groups * job->n_matrices);
    assert(rows_at_once > 0); /* config.c: no width over 2^20 */
    while (n > 0) {
        job->n = n < rows_at_once ? n : rows_at_once;
        run_batch(job);
        job->in += (size_t)job->n * job->in_stride;
        job->out += (size_t)job->n * job->out_stride;
        n -= job->n;
    }
}

static void quant_matmul(struct backend *be, const struct matrix *m, const uint16_t *in,
                         size_t in_stride, float *out, size_t out_stride, int n)
{
    struct quant_job job = {.matrices = m,
                            .n_matrices = 1,
                            .in = in,
                            .in_stride = in_stride,
                            .out = out,
                            .out_stride = out_stride};
    run_job(be, &job, n);
}

static void quant_matmul_slices(struct backend *be, const struct matrix *slices, int n_slices,
                                const uint16_t *in, size_t in_stride, int n,
                                struct slice_sums *sums)
{
    size_t dim = (size_t)slices->n_out;
    sums->stride = (size_t)n * dim;
    sums->n_parts = n_slices;
    struct quant_job job = {.matrices = slices,
                            .n_matrices = n_slices,
                            .in = in,
                            .in_stride = in_stride,
                            .out = sums->data,
                            .out_stride = dim,
                            .part_stride = sums->stride};
    run_job(be, &job, n);
}

int cpu_quant_install(struct backend_cpu *cpu, enum weight_form form, struct error *err)
{
    cpu->form = form;
    cpu->ops.form = form;
    cpu->ops.arithmetic = form == WEIGHTS_INT8 ? "cpu-int8" : "cpu-int4";
    cpu->ops.matrix_open = quant_matrix_open;
    cpu->ops.matmul = quant_matmul;
    cpu->ops.matmul_slices = quant_matmul_slices;
    return mem_pages(&cpu->groups, cpu_quant_bytes(), err);
}

size_t cpu_quant_bytes(void)
{
    return GROUPS_AT_ONCE * sizeof(struct quant_group);
}
