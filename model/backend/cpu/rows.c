/* Operations of the CPU backend on rows and elements. The threads divide the rows. */
#include <assert.h>

#include "model/backend/cpu/internal.h"
#include "model/numerics/variants.h"

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

/* cpu_matmul_slices has added the slices of this rank. */
int cpu_tree_sum(struct backend *be, struct comm *comm, struct slice_sums *sums, int n, int dim,
                 struct error *err)
{
    (void)be;
    assert(sums->n_parts == 1);
    return comm_tree_sum(comm, sums->data, (size_t)n * (size_t)dim, err);
}

struct residual_job {
    const struct kernels *kernels;
    struct residual_norm args;
};

VARIANTS static void add_residual(float *x, const float *y, const float *bias, int n)
{
    if (bias) {
        for (int i = 0; i < n; i++) {
            x[i] += y[i] + bias[i];
        }
    } else {
        for (int i = 0; i < n; i++) {
            x[i] += y[i];
        }
    }
}

static void residual_norm_member(void *arg, int member, int n_members)
{
    const struct residual_job *job = arg;
    const struct residual_norm *r = &job->args;
    int begin, end;
    size_t dim = (size_t)r->dim;
    team_range(r->n, 1, member, n_members, &begin, &end);
    for (size_t i = (size_t)begin; i < (size_t)end; i++) {
        float *x = r->x + i * dim;
        add_residual(x, r->sums->data + i * dim, r->bias, r->dim);
        if (r->h) job->kernels->rmsnorm(x, r->weight, r->eps, r->dim, r->h + i * dim);
    }
}

void cpu_residual_norm(struct backend *be, const struct residual_norm *args)
{
    struct backend_cpu *cpu = backend_cpu_of(be);
    struct residual_job job = {cpu->kernels, *args};
    assert(args->sums->n_parts == 1);
    cpu_run(cpu, (size_t)args->n * (size_t)args->dim < CPU_SMALL_WORK, residual_norm_member, &job);
}
