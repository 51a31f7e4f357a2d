/* Matrices of the CPU backend of a model that is stored in blocks. Parts of one matrix may have
 * different forms (a mixture often has v in more bits than q and k); neighbours of the same form
 * are a section. A block of 64 columns, the unit of work, belongs to one section: one block of the
 * kernels for bf16 and fp8, or two for integers. */
#include <assert.h>

#include "base/least.h"
#include "model/backend/cpu/internal.h"

enum { QUANT_BLOCKS = KERNEL_COLUMNS / QUANT_COLUMNS, ALIGNMENT = 64 };

static bool is_float(enum weight_form form)
{
    return form == WEIGHTS_BF16 || form == WEIGHTS_FP8;
}

static size_t section_bytes(const struct matrix *m, const struct matrix_section *section)
{
    if (section->form == WEIGHTS_BF16) return packed_matrix_bytes(m->n_in, section->n_out);
    if (section->form == WEIGHTS_FP8) return cpu_fp8_bytes(m, section);
    const struct quant_matrix packed = cpu_quant_matrix(m, section, NULL);
    return quant_matrix_bytes(&packed);
}

static int section_blocks(const struct matrix_section *section)
{
    return (section->n_out + KERNEL_COLUMNS - 1) / KERNEL_COLUMNS;
}

static void blocks_divide(struct matrix *m, const struct matrix_source *source)
{
    struct matrix_section *last = NULL;
    int column = 0;
    m->first_group = source->parts->first_col / QUANT_GROUP % GROUP_SUPER;
    for (int i = 0; i < source->n_parts; i++) {
        const struct matrix_part *part = &source->parts[i];
        enum weight_form form = weight_form_of(&part->weight);
        assert(part->first_col == source->parts->first_col);
        if (!last || last->form != form) {
            last = &m->sections[m->n_sections++];
            *last = (struct matrix_section){.form = form, .first = column};
        }
        if (form == WEIGHTS_FP8) cpu_fp8_add(last, part);
        last->n_out += part->n_rows;
        column += part->n_rows;
    }
    for (int i = 1; i < m->n_sections; i++) {
        size_t end = m->sections[i - 1].offset + section_bytes(m, &m->sections[i - 1]);
        m->sections[i].offset = (end + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
}

static size_t blocks_bytes(const struct matrix *m)
{
    const struct matrix_section *last = &m->sections[m->n_sections - 1];
    return last->offset + section_bytes(m, last);
}

/* The part of a run of blocks that belongs to a section, counted from its first block. */
struct block_run {
    const struct matrix_section *section;
    int first, end;
};

/* Sets *run to the blocks in section i, whose first one is *at; moves *at to the next section.
 * False: there are none. */
static bool run_of_section(const struct matrix *m, int i, int *at, int first, int end,
                           struct block_run *run)
{
    int n = section_blocks(&m->sections[i]);
    *run = (struct block_run){&m->sections[i], most(first - *at, 0), least(end - *at, n)};
    *at += n;
    return run->first < run->end;
}

/* pack_fn */
static void blocks_fill(const void *arg, void *data, int first_block, int end_block)
{
    const struct cpu_fill *fill = arg;
    struct block_run run;
    for (int i = 0, at = 0; i < fill->matrix->n_sections; i++) {
        if (!run_of_section(fill->matrix, i, &at, first_block, end_block, &run)) continue;
        if (run.section->form == WEIGHTS_BF16) {
            cpu_bf16_fill(fill, run.section, data, run.first, run.end);
        } else if (run.section->form == WEIGHTS_FP8) {
            cpu_fp8_fill(fill, run.section, data, run.first, run.end);
        } else {
            cpu_quant_fill(fill, run.section, data, run.first * QUANT_BLOCKS,
                           run.end * QUANT_BLOCKS);
        }
    }
}

/* The form whose quantized rows are the second set; WEIGHTS_BF16: there is no second set. *first:
 * that of the first set, likewise. */
static enum weight_form row_sets(const struct cpu_matmul *job, enum weight_form *first)
{
    const struct matrix *m = job->matrices;
    const struct kernels_quant *kernels = job->cpu->kernels->quant;
    *first = WEIGHTS_BF16;
    for (int i = 0; i < m->n_sections; i++) {
        enum weight_form form = m->sections[i].form;
        if (is_float(form)) continue;
        if (*first == WEIGHTS_BF16) *first = form;
        if (kernels->is_wide(form) != kernels->is_wide(*first)) return form;
    }
    return WEIGHTS_BF16;
}

/* True if a section multiplies rows of bf16. */
static bool has_floats(const struct matrix *m)
{
    for (int i = 0; i < m->n_sections; i++) {
        if (is_float(m->sections[i].form)) return true;
    }
    return false;
}

static void blocks_begin_batch(struct cpu_matmul *job, int n_left)
{
    enum weight_form first, second = row_sets(job, &first);
    job->n = least(n_left, cpu_quant_rows(job, second == WEIGHTS_BF16 ? 1 : 2));
    bool is_ordered = job->matrices->order != NULL, needs_floats = has_floats(job->matrices);
    if (needs_floats) job->n = least(job->n, cpu_bf16_rows(job));
    if (is_ordered) job->n = least(job->n, cpu_ordered_rows(job));
    if (needs_floats) cpu_bf16_prepare(job);
    if (is_ordered) cpu_ordered_prepare(job);
    if (first != WEIGHTS_BF16) cpu_quant_prepare(job, first, false);
    if (second != WEIGHTS_BF16) cpu_quant_prepare(job, second, true);
}

static void blocks_multiply(const struct cpu_matmul *job, int i, int first_block, int end_block)
{
    const struct matrix *m = &job->matrices[i];
    const struct kernels_quant *kernels = job->cpu->kernels->quant;
    enum weight_form first;
    struct block_run run;
    row_sets(job, &first);
    for (int s = 0, at = 0; s < m->n_sections; s++) {
        if (!run_of_section(m, s, &at, first_block, end_block, &run)) continue;
        enum weight_form form = run.section->form;
        if (form == WEIGHTS_BF16) {
            cpu_bf16_multiply(job, i, run.section, run.first, run.end);
        } else if (form == WEIGHTS_FP8) {
            cpu_fp8_multiply(job, i, run.section, run.first, run.end);
        } else {
            cpu_quant_multiply(job, i, run.section,
                               kernels->is_wide(form) != kernels->is_wide(first),
                               run.first * QUANT_BLOCKS, run.end * QUANT_BLOCKS);
        }
    }
}

const struct cpu_matrix_ops cpu_matrix_blocks_ops = {
    .packed_form = "blocks-1",
    .block_columns = KERNEL_COLUMNS,
    .divide = blocks_divide,
    .bytes = blocks_bytes,
    .fill = blocks_fill,
    .begin_batch = blocks_begin_batch,
    .multiply = blocks_multiply,
};
