/* Matrices whose groups are not runs of columns (GPTQ with "desc_act"). Packing takes the columns
 * group by group, and each group is filled up to whole groups of 32; the rows of a matmul are
 * brought into the same order before they are quantized, into memory of a fixed size. All slices of
 * a matrix have the width of the widest one, whatever slices a rank has, so that the bits do not
 * depend on the number of ranks. */
#include <stdlib.h>
#include <string.h>

#include "base/least.h"
#include "model/backend/cpu/internal.h"

enum {
    ORDERED_ELEMENTS = 4 << 20, /* 8 MiB: 256 rows of 16384 */
    GATHER_SMALL = 1 << 14      /* elements that one thread gathers faster than the team */
};

static const struct stored_matrix *stored_of(const struct matrix_part *part)
{
    return part->weight.dtype == DTYPE_STORED ? &part->weight.stored : NULL;
}

static bool has_order(const struct matrix_part *part)
{
    const struct stored_matrix *stored = stored_of(part);
    return stored && stored->order;
}

/* Parts of plain numbers and of fp8 take the rows as they are. */
static bool fits(const struct matrix_part *part, const struct stored_matrix *wanted)
{
    const struct stored_matrix *stored = stored_of(part);
    if (!stored || stored->kind == STORED_FP8) return true;
    return stored->order &&
           memcmp(stored->order, wanted->order, (size_t)wanted->n_cols * sizeof(int32_t)) == 0;
}

/* Fills order[width] with the columns of the slice at first_col, or only counts, and returns their
 * number with those that fill up groups. */
static int order_slice(const struct stored_matrix *stored, int first_col, int n_in, int32_t *order,
                       int *counts)
{
    int at = 0;
    memset(counts, 0, (size_t)stored->n_groups * sizeof *counts);
    for (int k = 0; k < n_in; k++) {
        counts[stored_group_of(stored, first_col + k)]++;
    }
    for (int group = 0; group < stored->n_groups; group++) {
        int n = (counts[group] + QUANT_GROUP - 1) / QUANT_GROUP * QUANT_GROUP;
        counts[group] = at; /* now where the group's next column goes */
        at += n;
    }
    for (int k = 0; order && k < n_in; k++) {
        order[counts[stored_group_of(stored, first_col + k)]++] = k;
    }
    return at;
}

static int make_order(struct matrix *m, const struct matrix_part *part, struct error *err)
{
    const struct stored_matrix *stored = stored_of(part);
    int *counts = NULL, rc = 0;
    TRY(mem_array(&counts, (size_t)stored->n_groups, sizeof *counts, err));
    for (int col = 0; col + m->n_in <= stored->n_cols; col += m->n_in) {
        m->n_ordered = most(m->n_ordered, order_slice(stored, col, m->n_in, NULL, counts));
    }
    TRY(mem_array(&m->order, (size_t)m->n_ordered, sizeof *m->order, err));
    for (int i = 0; i < m->n_ordered; i++) {
        m->order[i] = -1;
    }
    order_slice(stored, part->first_col, m->n_in, m->order, counts);
out:
    free(counts);
    return rc;
}

int cpu_order_open(struct backend_cpu *cpu, struct matrix *m, const struct matrix_source *source,
                   struct error *err)
{
    const struct matrix_part *first = NULL;
    int rc = 0;
    for (int i = 0; i < source->n_parts && !first; i++) {
        if (has_order(&source->parts[i])) first = &source->parts[i];
    }
    if (!first) return 0;
    for (int i = 0; i < source->n_parts; i++) {
        if (fits(&source->parts[i], stored_of(first))) continue;
        return error_set(err, ERR_UNSUPPORTED,
                         "matrices that read the same rows have groups of different columns "
                         "(quantized with \"desc_act\"), which is not supported; take a model that "
                         "was quantized without");
    }
    if (!cpu->ordered) {
        TRY(mem_pages(&cpu->ordered, ORDERED_ELEMENTS * sizeof *cpu->ordered, err));
    }
    TRY(make_order(m, first, err));
out:
    return rc;
}

void cpu_ordered_close(struct backend_cpu *cpu)
{
    if (cpu->ordered) mem_pages_free(cpu->ordered, ORDERED_ELEMENTS * sizeof *cpu->ordered);
    cpu->ordered = NULL;
}

static size_t ordered_width(const struct cpu_matmul *job)
{
    return (size_t)job->matrices->n_ordered * (size_t)job->n_matrices;
}

int cpu_ordered_rows(const struct cpu_matmul *job)
{
    return (int)(ORDERED_ELEMENTS / ordered_width(job));
}

static void gather_member(void *arg, int member, int n_members)
{
    const struct cpu_matmul *job = arg;
    int width = job->matrices->n_ordered, begin, end;
    team_range(job->n * job->n_matrices, 1, member, n_members, &begin, &end);
    for (int at = begin; at < end; at++) {
        int row = at / job->n_matrices, i = at % job->n_matrices;
        const struct matrix *m = &job->matrices[i];
        const uint16_t *in = job->in + (size_t)row * job->in_stride + (size_t)i * (size_t)m->n_in;
        uint16_t *out = job->cpu->ordered + (size_t)at * (size_t)width;
        for (int k = 0; k < width; k++) {
            out[k] = m->order[k] < 0 ? 0 : in[m->order[k]];
        }
    }
}

void cpu_ordered_prepare(struct cpu_matmul *job)
{
    bool is_small = ordered_width(job) * (size_t)job->n < GATHER_SMALL;
    cpu_run(job->cpu, is_small, gather_member, job);
}
