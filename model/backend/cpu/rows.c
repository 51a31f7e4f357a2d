/* Operations of the CPU backend on rows and elements. The threads divide the rows. */
#include "model/backend/cpu/internal.h"

void cpu_embed(struct backend *be, const struct backend_step *step, float *x)
{
    (void)be;
    const struct weight *table = step->embedding;
    for (int i = 0; i < step->n; i++) {
        weight_read_f32(table, step->tokens[i], 0, table->n_cols,
                        x + (size_t)i * (size_t)table->n_cols);
    }
}

struct rows_job {
    const struct kernels *kernels;
    const float *x, *weight;
    float *out;
    uint16_t *h;
    const int *rows;
    float eps;
    int n, dim;
};

static void run_rows(struct backend_cpu *cpu, team_fn *fn, struct rows_job *job, size_t work)
{
    job->kernels = cpu->kernels;
    cpu_run(cpu, work < CPU_SMALL_WORK, fn, job);
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

void cpu_rmsnorm(struct backend *be, const float *x, const float *weight, float eps, int n, int dim,
                 uint16_t *h)
{
    struct rows_job job = {.x = x, .weight = weight, .h = h, .eps = eps, .n = n, .dim = dim};
    run_rows(backend_cpu_of(be), rmsnorm_member, &job, (size_t)n * (size_t)dim);
}

void cpu_rmsnorm_rows(struct backend *be, const struct backend_step *step, const float *x,
                      const float *weight, float eps, int dim, uint16_t *h)
{
    struct rows_job job = {.x = x,
                           .weight = weight,
                           .h = h,
                           .rows = step->rows,
                           .eps = eps,
                           .n = step->n_rows,
                           .dim = dim};
    run_rows(backend_cpu_of(be), rmsnorm_member, &job, (size_t)job.n * (size_t)dim);
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

void cpu_matmul_swiglu(struct backend *be, const struct matrix *m, const float *bias,
                       const uint16_t *in, int n, float *gate_up, uint16_t *h)
{
    int ffn_dim = m->n_out / 2;
    struct rows_job job = {.out = gate_up, .weight = bias, .h = h, .n = n, .dim = ffn_dim};
    be->ops->matmul(be, m, in, (size_t)m->n_in, gate_up, (size_t)m->n_out, n);
    run_rows(backend_cpu_of(be), swiglu_member, &job, (size_t)n * (size_t)ffn_dim);
}

struct sums_job {
    const struct kernels *kernels;
    struct residual_norm args; /* tree_sum sets only sums, n and dim */
};

/* Adds elements begin .. end of the parts by the fixed tree, in place. */
static void add_parts(const struct slice_sums *sums, size_t begin, size_t end)
{
    for (int distance = 1; distance < sums->n_parts; distance *= 2) {
        for (int part = 0; part < sums->n_parts; part += 2 * distance) {
            float *low = sums->data + (size_t)part * sums->stride;
            const float *high = low + (size_t)distance * sums->stride;
            for (size_t i = begin; i < end; i++) {
                low[i] += high[i];
            }
        }
    }
}

static void add_parts_member(void *arg, int member, int n_members)
{
    const struct sums_job *job = arg;
    int begin, end;
    size_t dim = (size_t)job->args.dim;
    team_range(job->args.n, 1, member, n_members, &begin, &end);
    add_parts(job->args.sums, (size_t)begin * dim, (size_t)end * dim);
}

static void residual_norm_member(void *arg, int member, int n_members)
{
    const struct sums_job *job = arg;
    const struct residual_norm *r = &job->args;
    int begin, end;
    size_t dim = (size_t)r->dim;
    team_range(r->n, 1, member, n_members, &begin, &end);
    for (size_t i = (size_t)begin; i < (size_t)end; i++) {
        float *x = r->x + i * dim;
        const float *y = r->sums->data + i * dim;
        add_parts(r->sums, i * dim, (i + 1) * dim);
        for (size_t j = 0; j < dim; j++) {
            x[j] += r->bias ? y[j] + r->bias[j] : y[j];
        }
        if (r->h) job->kernels->rmsnorm(x, r->weight, r->eps, r->dim, r->h + i * dim);
    }
}

static void run_sums(struct backend_cpu *cpu, team_fn *fn, struct sums_job *job)
{
    const struct residual_norm *r = &job->args;
    size_t work = (size_t)r->n * (size_t)r->dim * (size_t)r->sums->n_parts;
    job->kernels = cpu->kernels;
    cpu_run(cpu, work < CPU_SMALL_WORK, fn, job);
}

int cpu_tree_sum(struct backend *be, struct comm *comm, struct slice_sums *sums, int n, int dim,
                 struct error *err)
{
    if (sums->n_parts > 1) {
        struct sums_job job = {.args = {.sums = sums, .n = n, .dim = dim}};
        run_sums(backend_cpu_of(be), add_parts_member, &job);
        sums->n_parts = 1;
    }
    return comm_tree_sum(comm, sums->data, (size_t)n * (size_t)dim, err);
}

void cpu_residual_norm(struct backend *be, const struct residual_norm *args)
{
    struct sums_job job = {.args = *args};
    run_sums(backend_cpu_of(be), residual_norm_member, &job);
}
