/* Matrices of the CPU backend with weights of 8 or 4 bits. They are quantized while they are packed
 * and multiplied by the kernels of model/backend/cpu/kernels/quant/quant.h. The rows of a matmul
 * are quantized once, for all threads, into memory of a fixed size. More rows than it holds go in
 * batches, which changes no bit. */
#include "model/backend/cpu/internal.h"

#include <assert.h>
#include <string.h>

enum {
    GROUPS_AT_ONCE = 256 << 10, /* 18 MiB: 256 rows of 32768 */
    GROUPS_BYTES = GROUPS_AT_ONCE * QUANT_ROW_GROUP_BYTES,
    QUANTIZE_SMALL = 1 << 14 /* elements that one thread quantizes faster than the team */
};

int cpu_groups_open(struct backend_cpu *cpu, struct error *err)
{
    return mem_pages(&cpu->groups, GROUPS_BYTES, err);
}

void cpu_groups_close(struct backend_cpu *cpu)
{
    if (cpu->groups) mem_pages_free(cpu->groups, GROUPS_BYTES);
    cpu->groups = NULL;
}

static size_t quant_bytes(const struct matrix *m)
{
    return quant_matrix_bytes(m->form, m->n_in, m->n_out);
}

/* quant_fill_fn */
static void quant_fill_column(const void *arg, int column, int k, int n, int8_t *q,
                              uint16_t *scales)
{
    const struct cpu_fill *fill = arg;
    int row;
    const struct matrix_part *part = matrix_source_part(fill->source, column, &row);
    if (part) {
        weight_read_groups(&part->weight, fill->matrix->form, row, part->first_col + k, n, q,
                           scales);
    } else {
        memset(q, 0, (size_t)n);
        memset(scales, 0, sizeof *scales * (size_t)((n + QUANT_GROUP - 1) / QUANT_GROUP));
    }
}

/* pack_fn */
static void quant_fill(const void *arg, void *data, int first_block, int end_block)
{
    const struct cpu_fill *fill = arg;
    const struct matrix *m = fill->matrix;
    const struct quant_matrix packed = quant_matrix_of(m->form, data, m->n_in, m->n_out);
    quant_matrix_fill(&packed, first_block, end_block, quant_fill_column, fill);
}

/* Where the quantized rows of matrix i begin. */
static uint8_t *matrix_groups(const struct cpu_matmul *job, int i)
{
    size_t before = (size_t)i * (size_t)job->n * (size_t)job->n_groups;
    return job->cpu->groups + before * QUANT_ROW_GROUP_BYTES;
}

static void quantize_member(void *arg, int member, int n_members)
{
    const struct cpu_matmul *job = arg;
    const struct matrix *m = job->matrices;
    int begin, end;
    team_range(job->n_groups, 1, member, n_members, &begin, &end);
    for (int i = 0; begin < end && i < job->n_matrices; i++) {
        const struct quant_rows rows = {.form = m->form,
                                        .in = job->in + (size_t)i * (size_t)m->n_in,
                                        .in_stride = job->in_stride,
                                        .n_rows = job->n,
                                        .n_in = m->n_in,
                                        .out = matrix_groups(job, i)};
        job->cpu->kernels->quant->quantize(&rows, begin, end);
    }
}

static void quant_begin_batch(struct cpu_matmul *job, int n_left)
{
    int n_in = job->matrices->n_in;
    job->n_groups = (n_in + QUANT_GROUP - 1) / QUANT_GROUP;
    int rows_at_once = GROUPS_AT_ONCE / (job->n_groups * job->n_matrices);
    assert(rows_at_once > 0); /* model/checkpoint/config/config_parse.c refuses widths over 2^20 */
    job->n = n_left < rows_at_once ? n_left : rows_at_once;
    size_t elements = (size_t)n_in * (size_t)job->n_matrices * (size_t)job->n;
    cpu_run(job->cpu, elements < QUANTIZE_SMALL, quantize_member, job);
}

static void quant_multiply(const struct cpu_matmul *job, int i, int first_block, int end_block)
{
    const struct matrix *m = &job->matrices[i];
    const struct quant_matrix w = quant_matrix_of(m->form, m->data, m->n_in, m->n_out);
    const struct quant_call call = {.in = matrix_groups(job, i),
                                    .out = job->out + (size_t)i * job->part_stride,
                                    .out_stride = job->out_stride,
                                    .n_rows = job->n,
                                    .first_block = first_block,
                                    .end_block = end_block};
    job->cpu->kernels->quant->matmul(&w, &call);
}

const struct cpu_matrix_ops cpu_matrix_int8 = {
    .packed_form = "int8-1",
    .block_columns = QUANT_COLUMNS,
    .bytes = quant_bytes,
    .fill = quant_fill,
    .begin_batch = quant_begin_batch,
    .multiply = quant_multiply,
};

const struct cpu_matrix_ops cpu_matrix_int4 = {
    .packed_form = "int4-1",
    .block_columns = QUANT_COLUMNS,
    .bytes = quant_bytes,
    .fill = quant_fill,
    .begin_batch = quant_begin_batch,
    .multiply = quant_multiply,
};
