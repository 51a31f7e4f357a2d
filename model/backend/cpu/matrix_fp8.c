/* Sections of fp8 of the CPU backend's matrices: the bytes are packed as they are stored, with the
 * scales of the runs of k that share one (model/backend/cpu/kernels/fp8_matrix.h). */
#include <string.h>

#include "base/least.h"
#include "model/backend/cpu/internal.h"

/* The largest length that divides both; 0 means any. */
static int common_run(int a, int b)
{
    while (b) {
        int rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

void cpu_fp8_add(struct matrix_section *section, const struct matrix_part *part)
{
    const struct stored_matrix *stored = &part->weight.stored;
    section->run = common_run(section->run, stored->n_groups == 1 ? 0 : stored->group);
    section->first_run = section->run ? section->run - part->first_col % section->run : 0;
}

static struct fp8_matrix packed_of(const struct matrix *m, const struct matrix_section *section,
                                   void *data)
{
    uint8_t *at = data;
    bool is_whole = section->run == 0;
    return fp8_matrix_of(at ? at + section->offset : NULL, m->n_in, section->n_out,
                         is_whole ? m->n_in : section->first_run,
                         is_whole ? m->n_in : section->run);
}

size_t cpu_fp8_bytes(const struct matrix *m, const struct matrix_section *section)
{
    const struct fp8_matrix packed = packed_of(m, section, NULL);
    return fp8_matrix_bytes(&packed);
}

/* A section to pack. */
struct section_fill {
    const struct matrix_section *section;
    const struct matrix_source *source;
};

/* fp8_fill_fn */
static void fill_column(const void *arg, int column, int k, int n, uint8_t *q, float *scale)
{
    const struct section_fill *fill = arg;
    int row;
    const struct matrix_part *part =
        matrix_source_part(fill->source, fill->section->first + column, &row);
    if (!part) return;
    stored_read_fp8(&part->weight.stored, row, part->first_col + k, n, q);
    *scale = stored_scale_of(&part->weight.stored, row, part->first_col + k);
}

void cpu_fp8_fill(const struct cpu_fill *fill, const struct matrix_section *section, void *data,
                  int first_block, int end_block)
{
    const struct section_fill columns = {section, fill->source};
    const struct fp8_matrix packed = packed_of(fill->matrix, section, data);
    fp8_matrix_fill(&packed, first_block, least(end_block, packed.n_blocks), fill_column, &columns);
}

void cpu_fp8_multiply(const struct cpu_matmul *job, int i, const struct matrix_section *section,
                      int first_block, int end_block)
{
    const struct matrix *m = &job->matrices[i];
    const struct fp8_matrix w = packed_of(m, section, m->data);
    const struct matmul_rows rows = cpu_bf16_job_rows(job);
    const struct matmul_call call = {.rows = &rows,
                                     .first_k = i * m->n_in,
                                     .out =
                                         job->out + (size_t)i * job->part_stride + section->first,
                                     .out_stride = job->out_stride,
                                     .first_block = first_block,
                                     .end_block = end_block};
    job->cpu->kernels->fp8_matmul(&w, &call);
}
