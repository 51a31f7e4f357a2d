/* The CPU backend: the operations of backend.h over the kernels and a team of threads. Threads share
 * out outputs (column blocks, rows, heads), never sums. */
#include "model/backend_cpu.h"

#include <stdlib.h>
#include <string.h>

#include "model/numerics.h"

enum {
    PACK_SCRATCH = 2 * KERNEL_COLUMNS * 512,
    TEAM_SPIN_US = 200,
    BIG_BYTES = 1 << 20,
    SMALL_WORK = 16384 /* elements below which one thread is faster than waking the team */
};

/* Big pages for what is big; a norm's weights would waste one. */
static int cpu_buffer_open(struct backend *be, void *buffer, size_t bytes, struct error *err)
{
    (void)be;
    if (bytes >= BIG_BYTES) return mem_pages(buffer, bytes, err);
    void *block = NULL;
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

/* Matrices. */

struct pack_job {
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
        int row = part->first_row + column;
        if (row >= part->weight.n_rows) break;
        weight_read_bf16(&part->weight, row, part->first_col + k, n, out);
        return;
    }
    memset(out, 0, (size_t)n * sizeof *out);
}

static void pack_member(void *arg, int member, int n_members)
{
    struct pack_job *job = arg;
    int begin, end;
    team_range(job->packed.n_blocks, 1, member, n_members, &begin, &end);
    union {
        const struct matrix_source *in;
        void *out;
    } source = {.in = job->source}; /* the callback's argument is not written through */
    packed_matrix_fill(&job->packed, begin, end, pack_fill, source.out,
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
    cpu_buffer_close(be, m->data, m->bytes);
    *m = (struct matrix){0};
}

static int cpu_matrix_open(struct backend *be, struct matrix *m, const struct matrix_source *source,
                           struct error *err)
{
    struct backend_cpu *cpu = backend_cpu_of(be);
    int rc = 0;
    struct pack_job job = {.source = source};
    *m = (struct matrix){.n_in = source->n_in};
    for (int i = 0; i < source->n_parts; i++) {
        m->n_out += source->parts[i].n_rows;
    }
    m->bytes = packed_matrix_bytes(m->n_in, m->n_out);
    TRY(cpu_buffer_open(be, &m->data, m->bytes, err));
    TRY(mem_array(&job.scratch, (size_t)team_size(cpu->team) * PACK_SCRATCH, sizeof *job.scratch,
                  err));
    job.packed = packed_of(m);
    team_run(cpu->team, pack_member, &job);
out:
    free(job.scratch);
    if (rc) cpu_matrix_close(be, m);
    return rc;
}

struct matmul_job {
    struct packed_matrix w;
    const struct kernels *kernels;
    const uint16_t *in;
    size_t in_stride;
    float *out;
    size_t out_stride;
    int n;
};

static void matmul_member(void *arg, int member, int n_members)
{
    const struct matmul_job *job = arg;
    int begin, end;
    team_range(job->w.n_blocks, 1, member, n_members, &begin, &end);
    if (begin == end) return;
    job->kernels->matmul(&job->w, job->in, job->in_stride, job->out, job->out_stride, job->n, begin,
                         end);
}

static void cpu_matmul(struct backend *be, const struct matrix *m, const uint16_t *in,
                       size_t in_stride, float *out, size_t out_stride, int n)
{
    struct backend_cpu *cpu = backend_cpu_of(be);
    if (n == 0) return;
    struct matmul_job job = {packed_of(m), cpu->kernels, in, in_stride, out, out_stride, n};
    if ((size_t)m->n_in * (size_t)m->n_out < SMALL_WORK) {
        matmul_member(&job, 0, 1);
    } else {
        team_run(cpu->team, matmul_member, &job);
    }
}

/* Rows and elements. */

static void cpu_embed(struct backend *be, const struct weight *table, const int32_t *tokens, int n,
                      float *x)
{
    (void)be;
    for (int i = 0; i < n; i++) {
        weight_read_f32(table, tokens[i], 0, table->n_cols, x + (size_t)i * (size_t)table->n_cols);
    }
}

struct rows_job {
    const struct kernels *kernels;
    const float *x, *y, *weight;
    float *out;
    uint16_t *h;
    const int *rows;
    float eps;
    int n, dim, n_parts;
    size_t count;
};

static void run_rows(struct backend_cpu *cpu, team_fn *fn, struct rows_job *job, size_t work)
{
    job->kernels = cpu->kernels;
    if (work < SMALL_WORK) {
        fn(job, 0, 1);
    } else {
        team_run(cpu->team, fn, job);
    }
}

static void rmsnorm_member(void *arg, int member, int n_members)
{
    const struct rows_job *job = arg;
    int begin, end;
    team_range(job->n, 1, member, n_members, &begin, &end);
    for (int i = begin; i < end; i++) {
        int row = job->rows ? job->rows[i] : i;
        job->kernels->rmsnorm(job->x + (size_t)row * (size_t)job->dim, job->weight, job->eps,
                              job->dim, job->h + (size_t)i * (size_t)job->dim);
    }
}

static void cpu_rmsnorm(struct backend *be, const float *x, const float *weight, float eps, int n,
                        int dim, const int *rows, uint16_t *h)
{
    struct rows_job job = {
        .x = x, .weight = weight, .h = h, .rows = rows, .eps = eps, .n = n, .dim = dim};
    run_rows(backend_cpu_of(be), rmsnorm_member, &job, (size_t)n * (size_t)dim);
}

static void swiglu_member(void *arg, int member, int n_members)
{
    const struct rows_job *job = arg;
    int begin, end;
    team_range(job->n, 1, member, n_members, &begin, &end);
    for (int i = begin; i < end; i++) {
        float *gate = job->out + (size_t)i * 2 * (size_t)job->dim;
        if (job->weight) {
            for (int j = 0; j < 2 * job->dim; j++) {
                gate[j] += job->weight[j];
            }
        }
        job->kernels->swiglu(gate, gate + job->dim, job->dim,
                             job->h + (size_t)i * (size_t)job->dim);
    }
}

static void cpu_swiglu(struct backend *be, float *gate_up, const float *bias, int n, int ffn_dim,
                       uint16_t *h)
{
    struct rows_job job = {.out = gate_up, .weight = bias, .h = h, .n = n, .dim = ffn_dim};
    run_rows(backend_cpu_of(be), swiglu_member, &job, (size_t)n * (size_t)ffn_dim);
}

static void tree_add_member(void *arg, int member, int n_members)
{
    const struct rows_job *job = arg;
    int first, last;
    team_range((int)((job->count + KERNEL_COLUMNS - 1) / KERNEL_COLUMNS), 1, member, n_members,
               &first, &last);
    size_t begin = (size_t)first * KERNEL_COLUMNS, end = (size_t)last * KERNEL_COLUMNS;
    if (end > job->count) end = job->count;
    for (int distance = 1; distance < job->n_parts; distance *= 2) {
        for (int part = 0; part < job->n_parts; part += 2 * distance) {
            float *low = job->out + (size_t)part * job->count;
            const float *high = low + (size_t)distance * job->count;
            for (size_t i = begin; i < end; i++) {
                low[i] += high[i];
            }
        }
    }
}

static void cpu_tree_add(struct backend *be, float *parts, int n_parts, size_t count)
{
    if (n_parts == 1) return;
    struct rows_job job = {.out = parts, .n_parts = n_parts, .count = count};
    run_rows(backend_cpu_of(be), tree_add_member, &job, count * (size_t)n_parts);
}

static void residual_member(void *arg, int member, int n_members)
{
    const struct rows_job *job = arg;
    int begin, end;
    team_range(job->n, 1, member, n_members, &begin, &end);
    for (int i = begin; i < end; i++) {
        float *x = job->out + (size_t)i * (size_t)job->dim;
        const float *y = job->y + (size_t)i * (size_t)job->dim;
        for (int j = 0; j < job->dim; j++) {
            x[j] += job->weight ? y[j] + job->weight[j] : y[j];
        }
    }
}

static void cpu_residual_add(struct backend *be, float *x, const float *y, const float *bias, int n,
                             int dim)
{
    struct rows_job job = {.out = x, .y = y, .weight = bias, .n = n, .dim = dim};
    run_rows(backend_cpu_of(be), residual_member, &job, (size_t)n * (size_t)dim);
}

static int cpu_answer(struct backend *be, const float *logits, int32_t first_id, int n_cols,
                      int slice, const struct row_wish *wish, struct arena *arena,
                      struct slice_row *out, struct error *err)
{
    (void)be;
    return row_slice_answer(logits, first_id, n_cols, slice, wish, arena, out, err);
}

static void cpu_close(struct backend *be)
{
    if (!be) return;
    struct backend_cpu *cpu = backend_cpu_of(be);
    team_close(cpu->team);
    free(cpu->scratch);
    free(cpu);
}

static const struct backend_ops cpu_ops = {
    .name = "cpu",
    .arithmetic = "cpu-bf16",
    .buffer_open = cpu_buffer_open,
    .buffer_close = cpu_buffer_close,
    .upload = cpu_upload,
    .matrix_open = cpu_matrix_open,
    .matrix_close = cpu_matrix_close,
    .embed = cpu_embed,
    .rmsnorm = cpu_rmsnorm,
    .matmul = cpu_matmul,
    .attention_store = cpu_attention_store,
    .attention = cpu_attention,
    .swiglu = cpu_swiglu,
    .tree_add = cpu_tree_add,
    .residual_add = cpu_residual_add,
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
    cpu->base.ops = &cpu_ops;
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

const char *backend_cpu_kernels(const struct backend *be)
{
    return ((const struct backend_cpu *)be)->kernels->name;
}
