/* Matrices of the CPU backend whose weights are integers. Those of 8 and 4 bits are quantized while
 * they are packed; of blocks, what is stored is packed. They are multiplied by the kernels of
 * model/backend/cpu/kernels/quant/quant.h. The rows of a matmul are quantized once, for all
 * threads, into memory of a fixed size. More rows than it holds go in batches, which changes no
 * bit. */
#include "model/backend/cpu/internal.h"

#include <assert.h>

#include "base/least.h"

enum {
    GROUPS_AT_ONCE = 256 << 10, /* 20 MiB: 256 rows of 32768 */
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

struct quant_matrix cpu_quant_matrix(const struct matrix *m, const struct matrix_section *section,
                                     void *data)
{
    uint8_t *at = data;
    return quant_matrix_of(section->form, at ? at + section->offset : NULL, cpu_packed_width(m),
                           section->n_out, m->first_group);
}

/* ---- packing ---- */

/* A section to pack. */
struct section_fill {
    const struct matrix_section *section;
    const struct matrix_source *source;
    const int32_t *order; /* of the matrix */
};

/* Groups of a row that are quantized while they are read. */
static void read_rounded(const struct weight *weight, enum weight_form form, int row, int col,
                         int n, struct weight_group *out)
{
    int8_t q[QUANT_PACK_GROUPS * QUANT_GROUP];
    uint16_t scales[QUANT_PACK_GROUPS];
    weight_read_groups(weight, form, row, col, n, q, scales);
    for (int i = 0; i < n; i++) {
        struct weight_group *group = &out[i / QUANT_GROUP];
        group->q[i % QUANT_GROUP] = (uint8_t)(q[i] + group_forms[form].offset);
        group->scale = scales[i / QUANT_GROUP];
    }
}

/* quant_fill_fn; out is zeroed */
static void quant_fill_column(const void *arg, int column, int first, int n,
                              struct weight_group *out)
{
    const struct section_fill *fill = arg;
    enum weight_form form = fill->section->form;
    int row, k = first * QUANT_GROUP;
    const struct matrix_part *part =
        matrix_source_part(fill->source, fill->section->first + column, &row);
    if (!part) return;
    if (form == WEIGHTS_INT8 || form == WEIGHTS_INT4) {
        read_rounded(&part->weight, form, row, part->first_col + k,
                     least(n * QUANT_GROUP, fill->source->n_in - k), out);
        return;
    }
    for (int i = 0; fill->order && i < n; i++) {
        stored_read_listed(&part->weight.stored, row, part->first_col, fill->order + k, &out[i]);
        k += QUANT_GROUP;
    }
    for (int i = 0; !fill->order && i < n; i++) {
        weight_read_group(&part->weight, row, part->first_col / QUANT_GROUP + first + i, &out[i]);
    }
}

void cpu_quant_fill(const struct cpu_fill *fill, const struct matrix_section *section, void *data,
                    int first_block, int end_block)
{
    const struct section_fill columns = {section, fill->source, fill->matrix->order};
    const struct quant_matrix packed = cpu_quant_matrix(fill->matrix, section, data);
    quant_matrix_fill(&packed, first_block, least(end_block, packed.n_blocks), quant_fill_column,
                      &columns);
}

/* ---- multiplying ---- */

/* Where the quantized rows of matrix i begin, in the set of rows that have this width. */
static uint8_t *matrix_groups(const struct cpu_matmul *job, int i, bool is_second)
{
    size_t set = (size_t)job->n * (size_t)job->n_groups;
    size_t before = (size_t)i + (is_second ? (size_t)job->n_matrices : 0);
    return job->cpu->groups + before * set * QUANT_ROW_GROUP_BYTES;
}

int cpu_quant_rows(struct cpu_matmul *job, int n_sets)
{
    job->n_groups = (cpu_packed_width(job->matrices) + QUANT_GROUP - 1) / QUANT_GROUP;
    int rows = GROUPS_AT_ONCE / (job->n_groups * job->n_matrices * n_sets);
    assert(rows > 0); /* model/checkpoint/config/config_parse.c refuses widths over 2^20 */
    return rows;
}

struct quantize_job {
    const struct cpu_matmul *matmul;
    enum weight_form form;
    bool is_second;
};

static void quantize_member(void *arg, int member, int n_members)
{
    const struct quantize_job *quantize = arg;
    const struct cpu_matmul *job = quantize->matmul;
    const struct matrix *m = job->matrices;
    int width = cpu_packed_width(m), begin, end;
    const uint16_t *in = m->order ? job->cpu->ordered : job->in;
    size_t stride = m->order ? (size_t)width * (size_t)job->n_matrices : job->in_stride;
    team_range(job->n_groups, 1, member, n_members, &begin, &end);
    for (int i = 0; begin < end && i < job->n_matrices; i++) {
        const struct quant_rows rows = {.form = quantize->form,
                                        .in = in + (size_t)i * (size_t)width,
                                        .in_stride = stride,
                                        .n_rows = job->n,
                                        .n_in = width,
                                        .out = matrix_groups(job, i, quantize->is_second)};
        job->cpu->kernels->quant->quantize(&rows, begin, end);
    }
}

void cpu_quant_prepare(const struct cpu_matmul *job, enum weight_form form, bool is_second)
{
    struct quantize_job quantize = {job, form, is_second};
    size_t elements = (size_t)job->matrices->n_in * (size_t)job->n_matrices * (size_t)job->n;
    cpu_run(job->cpu, elements < QUANTIZE_SMALL, quantize_member, &quantize);
}

void cpu_quant_multiply(const struct cpu_matmul *job, int i, const struct matrix_section *section,
                        bool is_second, int first_block, int end_block)
{
    const struct matrix *m = &job->matrices[i];
    const struct quant_matrix w = cpu_quant_matrix(m, section, m->data);
    const struct quant_call call = {.in = matrix_groups(job, i, is_second),
                                    .out = job->out + (size_t)i * job->part_stride + section->first,
                                    .out_stride = job->out_stride,
                                    .n_rows = job->n,
                                    .first_block = first_block,
                                    .end_block = least(end_block, w.n_blocks)};
    job->cpu->kernels->quant->matmul(&w, &call);
}

/* ---- int8 and int4: one section ---- */

static struct matrix_section whole_of(const struct matrix *m)
{
    return (struct matrix_section){.form = m->form, .n_out = m->n_out};
}

static size_t quant_bytes(const struct matrix *m)
{
    const struct matrix_section whole = whole_of(m);
    const struct quant_matrix packed = cpu_quant_matrix(m, &whole, NULL);
    return quant_matrix_bytes(&packed);
}

/* pack_fn */
static void quant_fill(const void *arg, void *data, int first_block, int end_block)
{
    const struct cpu_fill *fill = arg;
    const struct matrix_section whole = whole_of(fill->matrix);
    cpu_quant_fill(fill, &whole, data, first_block, end_block);
}

static void quant_begin_batch(struct cpu_matmul *job, int n_left)
{
    job->n = least(n_left, cpu_quant_rows(job, 1));
    cpu_quant_prepare(job, job->matrices->form, false);
}

static void quant_multiply(const struct cpu_matmul *job, int i, int first_block, int end_block)
{
    const struct matrix_section whole = whole_of(&job->matrices[i]);
    cpu_quant_multiply(job, i, &whole, false, first_block, end_block);
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
