/* The CPU backend: the operations of backend.h over the kernels and a team of threads. Threads share
 * out outputs (column blocks, rows, heads), never sums. */
#include "model/backend/cpu/internal.h"

#include <stdlib.h>
#include <string.h>

#include "model/backend/pack.h"
#include "model/numerics/numerics.h"

enum { PACK_SCRATCH = 2 * KERNEL_COLUMNS * 512, TEAM_SPIN_US = 200, BIG_BYTES = 1 << 20 };

/* Big pages for what is big; a norm's weights would waste one. */
static int cpu_buffer_open(struct backend *be, void *buffer, size_t bytes, struct error *err)
{
    (void)be;
    void *block = NULL;
    if (bytes >= BIG_BYTES) {
        int rc = mem_pages(&block, bytes, err);
        memcpy(buffer, &block, sizeof block);
        return rc;
    }
    if (posix_memalign(&block, 64, bytes ? bytes : 64)) {
        return error_set(err, ERR_NO_MEMORY, "no memory for a buffer of %zu bytes", bytes);
    }
    memset(block, 0, bytes);
    memcpy(buffer, &block, sizeof block);
    return 0;
}

static void cpu_buffer_close(struct backend *be, void *buffer, size_t bytes)
{
    (void)be;
    if (bytes >= BIG_BYTES) {
        mem_pages_free(buffer, bytes);
    } else {
        free(buffer);
    }
}

static void cpu_upload(struct backend *be, void *buffer, const void *host, size_t bytes)
{
    (void)be;
    memcpy(buffer, host, bytes);
}

static const float *cpu_read(struct backend *be, const float *data, size_t n)
{
    (void)be;
    (void)n;
    return data;
}

static const char *cpu_kernels(const struct backend *be)
{
    return ((const struct backend_cpu *)be)->kernels->name;
}

static int cpu_capacity(const struct backend *be, int n)
{
    (void)be;
    return n;
}

static int cpu_begin(struct backend *be, const struct backend_step *step, bool *replayed,
                     struct error *err)
{
    (void)be;
    (void)step;
    (void)err;
    *replayed = false;
    return 0;
}

static int cpu_end(struct backend *be, bool *again, struct error *err)
{
    (void)be;
    (void)err;
    *again = false;
    return 0;
}

/* Matrices. */

static const char pack_form[] = "bf16-64x2-1";

struct fill_job {
    struct packed_matrix packed;
    const struct matrix_source *source;
    uint16_t *scratch; /* [members][PACK_SCRATCH] */
};

/* packed_fill_fn: finds the part that holds the column. */
static void pack_fill(void *arg, int column, int k, int n, uint16_t *out)
{
    const struct matrix_source *source = arg;
    for (int i = 0; i < source->n_parts; i++) {
        const struct matrix_part *part = &source->parts[i];
        if (column >= part->n_rows) {
            column -= part->n_rows;
            continue;
        }
        int row = matrix_part_row(part, column);
        if (row < 0) break;
        weight_read_bf16(&part->weight, row, part->first_col + k, n, out);
        return;
    }
    memset(out, 0, (size_t)n * sizeof *out);
}

/* pack_fn */
static void fill_blocks(void *arg, void *data, int member, int first_block, int end_block)
{
    struct fill_job *job = arg;
    struct packed_matrix packed = job->packed;
    union {
        const struct matrix_source *in;
        void *out;
    } source = {.in = job->source}; /* the callback's argument is not written through */
    packed.data = data;
    packed_matrix_fill(&packed, first_block, end_block, pack_fill, source.out,
                       job->scratch + (size_t)member * PACK_SCRATCH);
}

static struct packed_matrix packed_of(const struct matrix *m)
{
    return (struct packed_matrix){
        .data = m->data,
        .n_in = m->n_in,
        .n_out = m->n_out,
        .n_blocks = (m->n_out + KERNEL_COLUMNS - 1) / KERNEL_COLUMNS,
    };
}

static void cpu_matrix_close(struct backend *be, struct matrix *m)
{
    pack_close(be, m->data, m->bytes);
    *m = (struct matrix){0};
}

static int cpu_matrix_open(struct backend *be, struct matrix *m, const struct matrix_source *source,
                           struct error *err)
{
    struct backend_cpu *cpu = backend_cpu_of(be);
    int rc = 0;
    struct fill_job job = {.source = source};
    *m = (struct matrix){.n_in = source->n_in};
    for (int i = 0; i < source->n_parts; i++) {
        m->n_out += source->parts[i].n_rows;
    }
    m->bytes = packed_matrix_bytes(m->n_in, m->n_out);
    TRY(mem_array(&job.scratch, (size_t)team_size(cpu->team) * PACK_SCRATCH, sizeof *job.scratch,
                  err));
    job.packed = packed_of(m);
    const struct pack_request request = {.form = pack_form,
                                         .source = source,
                                         .bytes = m->bytes,
                                         .n_blocks = job.packed.n_blocks,
                                         .fill = fill_blocks,
                                         .arg = &job};
    TRY(pack_open(be, cpu->team, &m->data, &request, err));
out:
    free(job.scratch);
    if (rc) *m = (struct matrix){0};
    return rc;
}

/* Matrices side by side that share their input rows: the slices of a row-parallel one, or one alone. */
struct matmul_job {
    const struct matrix *matrices;
    int n_matrices;
    const struct kernels *kernels;
    const uint16_t *in;
    size_t in_stride;
    float *out;
    size_t out_stride, part_stride;
    int n;
};

static void matmul_member(void *arg, int member, int n_members)
{
    const struct matmul_job *job = arg;
    for (int i = 0; i < job->n_matrices; i++) {
        struct packed_matrix w = packed_of(&job->matrices[i]);
        int begin, end;
        team_range(w.n_blocks, 1, member, n_members, &begin, &end);
        if (begin == end) continue;
        job->kernels->matmul(&w, job->in + (size_t)i * (size_t)w.n_in, job->in_stride,
                             job->out + (size_t)i * job->part_stride, job->out_stride, job->n,
                             begin, end);
    }
}

static void run_matmul(struct backend_cpu *cpu, struct matmul_job *job)
{
    if (job->n == 0) return;
    job->kernels = cpu->kernels;
    size_t work =
        (size_t)job->matrices->n_in * (size_t)job->matrices->n_out * (size_t)job->n_matrices;
    if (work < CPU_SMALL_WORK) {
        matmul_member(job, 0, 1);
    } else {
        team_run(cpu->team, matmul_member, job);
    }
}

static void cpu_matmul(struct backend *be, const struct matrix *m, const uint16_t *in,
                       size_t in_stride, float *out, size_t out_stride, int n)
{
    struct matmul_job job = {.matrices = m,
                             .n_matrices = 1,
                             .in = in,
                             .in_stride = in_stride,
                             .out = out,
                             .out_stride = out_stride,
                             .n = n};
    run_matmul(backend_cpu_of(be), &job);
}

static void cpu_matmul_slices(struct backend *be, const struct matrix *slices, int n_slices,
                              const uint16_t *in, size_t in_stride, int n, struct slice_sums *sums)
{
    size_t dim = (size_t)slices->n_out;
    sums->stride = (size_t)n * dim;
    sums->n_parts = n_slices;
    struct matmul_job job = {.matrices = slices,
                             .n_matrices = n_slices,
                             .in = in,
                             .in_stride = in_stride,
                             .out = sums->data,
                             .out_stride = dim,
                             .part_stride = sums->stride,
                             .n = n};
    run_matmul(backend_cpu_of(be), &job);
}

static int cpu_answer(struct backend *be, const struct answer_item *items, int n_items,
                      struct arena *arena, struct slice_row *out, int *bad, struct error *err)
{
    (void)be;
    int rc = 0;
    for (*bad = 0; *bad < n_items; ++*bad) {
        TRY(row_slice_answer(&items[*bad], arena, &out[*bad], err));
    }
out:
    return rc;
}

static void cpu_close(struct backend *be)
{
    if (!be) return;
    struct backend_cpu *cpu = backend_cpu_of(be);
    team_close(cpu->team);
    if (cpu->groups) mem_pages_free(cpu->groups, cpu_quant_bytes());
    free(cpu->scratch);
    free(cpu);
}

static const struct backend_ops cpu_ops = {
    .name = "cpu",
    .arithmetic = "cpu-bf16",
    .is_host = true,
    .kernels = cpu_kernels,
    .capacity = cpu_capacity,
    .buffer_open = cpu_buffer_open,
    .buffer_close = cpu_buffer_close,
    .upload = cpu_upload,
    .read = cpu_read,
    .matrix_open = cpu_matrix_open,
    .matrix_close = cpu_matrix_close,
    .begin = cpu_begin,
    .end = cpu_end,
    .embed = cpu_embed,
    .rmsnorm = cpu_rmsnorm,
    .rmsnorm_rows = cpu_rmsnorm_rows,
    .matmul = cpu_matmul,
    .matmul_slices = cpu_matmul_slices,
    .matmul_swiglu = cpu_matmul_swiglu,
    .attention_store = cpu_attention_store,
    .attention = cpu_attention,
    .tree_sum = cpu_tree_sum,
    .residual_norm = cpu_residual_norm,
    .answer = cpu_answer,
    .close = cpu_close,
};

int backend_cpu_open(struct backend **be, const struct backend_cpu_options *options,
                     struct error *err)
{
    int rc = 0;
    struct backend_cpu *cpu = NULL;
    *be = NULL;
    TRY(mem_array(&cpu, 1, sizeof *cpu, err));
    cpu->ops = cpu_ops;
    cpu->base.ops = &cpu->ops;
    if (options->form != WEIGHTS_BF16) TRY(cpu_quant_install(cpu, options->form, err));
    TRY(kernels_find(&cpu->kernels, options->kernels, err));
    TRY(team_open(&cpu->team, options->n_threads, TEAM_SPIN_US, err));
    TRY(mem_array(&cpu->scratch, (size_t)options->n_threads * CPU_SCRATCH_FLOATS,
                  sizeof *cpu->scratch, err));
    *be = &cpu->base;
    cpu = NULL;
out:
    if (cpu) cpu_close(&cpu->base);
    return rc;
}

int backend_cpu_pin(struct backend *be, const int *cpus, struct error *err)
{
    return team_pin(backend_cpu_of(be)->team, cpus, err);
}
