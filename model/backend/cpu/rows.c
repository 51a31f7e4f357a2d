/* Operations of the CPU backend on rows and elements. The threads divide the rows. */
#include <assert.h>
#include <string.h>

#include "model/backend/cpu/internal.h"
#include "model/numerics/numerics.h"
#include "model/numerics/variants.h"

VARIANTS static void scale_row(float *x, float scale, int n)
{
    for (int i = 0; i < n; i++) {
        x[i] *= scale;
    }
}

void cpu_embed(struct backend *be, const struct backend_step *step, float *x)
{
    (void)be;
    const struct weight *table = step->embedding;
    for (int i = 0; i < step->n; i++) {
        float *row = x + (size_t)i * (size_t)table->n_cols;
        backend_step_embed(step, i, row);
        if (step->embedding_scale != 0) scale_row(row, step->embedding_scale, table->n_cols);
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

VARIANTS static void round_row(const float *x, int n, uint16_t *h)
{
    for (int i = 0; i < n; i++) {
        h[i] = num_float_to_bf16(x[i]);
    }
}

/* h = bf16(rmsnorm(x) * weight), or bf16(x) without a weight. */
static void norm_row(const struct kernels *kernels, const float *x, const float *weight, float eps,
                     int n, uint16_t *h)
{
    if (weight) {
        kernels->rmsnorm(x, weight, eps, n, h);
    } else {
        round_row(x, n, h);
    }
}

static void rmsnorm_member(void *arg, int member, int n_members)
{
    const struct rows_job *job = arg;
    int begin, end;
    team_range(job->n, 1, member, n_members, &begin, &end);
    for (int i = begin; i < end; i++) {
        int row = job->rows ? job->rows[i] : i;
        norm_row(job->kernels, job->x + (size_t)row * (size_t)job->dim, job->weight, job->eps,
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

struct part_job {
    const struct kernels *kernels;
    struct norm_part args;
};

VARIANTS static void widen_row(const uint16_t *h, int n, float *x)
{
    for (int i = 0; i < n; i++) {
        x[i] = num_bf16_to_float(h[i]);
    }
}

struct feature_job {
    const struct backend_step *step;
    float *x;
    int dim;
    bool only_recycled;
};

static void feature_member(void *arg, int member, int n_members)
{
    const struct feature_job *job = arg;
    const struct backend_step *step = job->step;
    int begin, end;
    team_range(step->n, 1, member, n_members, &begin, &end);
    for (size_t i = (size_t)begin; i < (size_t)end; i++) {
        if (job->only_recycled && !step->recycled[i]) continue;
        widen_row(step->features + i * (size_t)step->feature_width, job->dim,
                  job->x + i * (size_t)job->dim);
    }
}

void cpu_feature_rows(struct backend *be, const struct backend_step *step, float *x, int dim,
                      bool only_recycled)
{
    struct feature_job job = {step, x, dim, only_recycled};
    cpu_run(backend_cpu_of(be), (size_t)step->n * (size_t)dim < CPU_SMALL_WORK, feature_member,
            &job);
}

const uint16_t *cpu_step_features(struct backend *be, const struct backend_step *step)
{
    (void)be;
    return step->features;
}

void cpu_widen(struct backend *be, const uint16_t *h, int n, int dim, float *x, size_t x_stride)
{
    (void)be;
    for (size_t i = 0; i < (size_t)n; i++) {
        widen_row(h + i * (size_t)dim, dim, x + i * x_stride);
    }
}

VARIANTS static void add_bias(float *x, const float *bias, int n)
{
    for (int i = 0; i < n; i++) {
        x[i] += bias[i];
    }
}

/* NaN stays NaN. */
static void apply_function(float *x, enum part_function function, int n)
{
    for (int i = 0; i < n && function == PART_SILU; i++) {
        x[i] = x[i] / (1.0f + num_exp(-x[i]));
    }
    for (int i = 0; i < n && function == PART_RELU; i++) {
        if (x[i] < 0) x[i] = 0;
    }
}

static void norm_part_member(void *arg, int member, int n_members)
{
    const struct part_job *job = arg;
    const struct norm_part *p = &job->args;
    int begin, end;
    team_range(p->n, 1, member, n_members, &begin, &end);
    for (size_t i = (size_t)begin; i < (size_t)end; i++) {
        float *x = p->x + i * p->x_stride;
        if (p->bias) add_bias(x, p->bias, p->dim);
        apply_function(x, p->function, p->dim);
        if (!p->h) continue;
        uint16_t *h = p->h + i * p->h_stride;
        norm_row(job->kernels, x, p->weight, p->eps, p->dim, h);
        if (p->keeps) widen_row(h, p->dim, x);
    }
}

void cpu_norm_part(struct backend *be, const struct norm_part *args)
{
    struct backend_cpu *cpu = backend_cpu_of(be);
    struct part_job job = {cpu->kernels, *args};
    cpu_run(cpu, (size_t)args->n * (size_t)args->dim < CPU_SMALL_WORK, norm_part_member, &job);
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

/* As add_residual, where y is normed or scaled before it is added. */
static void add_changed(const struct residual_job *job, float *x, float *y)
{
    const struct residual_norm *r = &job->args;
    if (r->bias) add_residual(y, r->bias, NULL, r->dim);
    if (r->post_weight) job->kernels->rmsnorm_head(y, r->post_weight, r->eps, r->dim);
    if (r->scale != 0) scale_row(y, r->scale, r->dim);
    add_residual(x, y, NULL, r->dim);
}

static void residual_norm_member(void *arg, int member, int n_members)
{
    const struct residual_job *job = arg;
    const struct residual_norm *r = &job->args;
    int begin, end;
    size_t dim = (size_t)r->dim;
    bool is_changed = r->post_weight || r->scale != 0;
    team_range(r->n, 1, member, n_members, &begin, &end);
    for (size_t i = (size_t)begin; i < (size_t)end; i++) {
        float *x = r->x + i * dim, *y = r->sums->data + i * dim;
        if (is_changed) {
            add_changed(job, x, y);
        } else {
            add_residual(x, y, r->bias, r->dim);
        }
        if (r->h) norm_row(job->kernels, x, r->weight, r->eps, r->dim, r->h + i * dim);
    }
}

struct logits_job {
    const struct kernels *kernels;
    float *logits;
    size_t stride;
    int n;
    float scale, softcap;
};

static void logits_member(void *arg, int member, int n_members)
{
    const struct logits_job *job = arg;
    float scale = job->scale != 0 ? job->scale : 1;
    int begin, end;
    team_range((int)job->stride, 64, member, n_members, &begin, &end);
    for (int i = 0; i < job->n; i++) {
        float *part = job->logits + (size_t)i * job->stride + begin;
        if (job->softcap != 0) {
            job->kernels->softcap(part, end - begin, scale / job->softcap, job->softcap);
        } else {
            scale_row(part, scale, end - begin);
        }
    }
}

void cpu_adjust_logits(struct backend *be, float *logits, size_t stride, int n, float scale,
                       float softcap)
{
    struct backend_cpu *cpu = backend_cpu_of(be);
    struct logits_job job = {cpu->kernels, logits, stride, n, scale, softcap};
    cpu_run(cpu, (size_t)n * stride < CPU_SMALL_WORK, logits_member, &job);
}

struct add_job {
    const struct backend_step *step;
    float *logits;
    size_t stride;
    const float *bias;
};

static void add_member(void *arg, int member, int n_members)
{
    const struct add_job *job = arg;
    int begin, end;
    team_range((int)job->stride, 64, member, n_members, &begin, &end);
    for (int i = 0; i < job->step->n_rows; i++) {
        size_t row = (size_t)job->step->rows[i];
        add_bias(job->logits + row * job->stride + begin,
                 job->bias + (size_t)i * job->stride + begin, end - begin);
    }
}

void cpu_add_logits(struct backend *be, const struct backend_step *step, float *logits,
                    size_t stride, const float *bias)
{
    struct add_job job = {step, logits, stride, bias};
    size_t work = (size_t)step->n_rows * stride;
    cpu_run(backend_cpu_of(be), work < CPU_SMALL_WORK, add_member, &job);
}

void cpu_residual_norm(struct backend *be, const struct residual_norm *args)
{
    struct backend_cpu *cpu = backend_cpu_of(be);
    struct residual_job job = {cpu->kernels, *args};
    assert(args->sums->n_parts == 1);
    cpu_run(cpu, (size_t)args->n * (size_t)args->dim < CPU_SMALL_WORK, residual_norm_member, &job);
}
