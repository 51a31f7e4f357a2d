/* Rows in the order of a matrix whose groups are not runs of columns
 * (model/backend/matrix_order.h), which they are brought into before they are quantized, in memory
 * of a fixed size. */
#include "model/backend/matrix_order.h"
#include "model/backend/cpu/internal.h"

enum {
    ORDERED_ELEMENTS = 4 << 20, /* 8 MiB: 256 rows of 16384 */
    GATHER_SMALL = 1 << 14      /* elements that one thread gathers faster than the team */
};

int cpu_order_open(struct backend_cpu *cpu, struct matrix *m, const struct matrix_source *source,
                   struct error *err)
{
    int rc = 0;
    TRY(matrix_order_open(m, source, err));
    if (m->order && !cpu->ordered) {
        TRY(mem_pages(&cpu->ordered, ORDERED_ELEMENTS * sizeof *cpu->ordered, err));
    }
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
