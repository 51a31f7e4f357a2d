/* KV of the CPU's attention: its layout, and how a step's rows get there. attention.c reads it.
 *
 * KV of a layer, per block of 16 positions and per kv head:
 *   K  [E / 2][16 positions][2]   a vector of 16 scores is one chain over pairs of e
 *   V  [8 pairs of positions][E][2]   a vector of 16 outputs is one chain over pairs of positions
 * Every score and every output thus has its own SIMD lane, and no sum is horizontal. The parts are
 * laid out as [region][kv head][K | V][block of the region], so that blocks with neighbouring
 * numbers are read as one stream. */
#include "model/backend/cpu/kv.h"

#include <math.h>
#include <string.h>

#include "model/backend/cpu/internal.h"
#include "model/numerics/numerics.h"

enum { TEAM_ROWS = 8 }; /* waking the team takes longer than fewer rows than this */

static void add_bias(float *x, const float *bias, int n)
{
    for (int i = 0; i < n; i++) {
        x[i] += bias[i];
    }
}

static void scale_query(float *q, float scale, int n)
{
    for (int i = 0; i < n; i++) {
        q[i] *= scale;
    }
}

/* Rotates pairs (i, i + half), as Hugging Face's rotate_half does; what comes after them stays. */
static void rope(float *head, const float *cos, const float *sin, int half)
{
    for (int i = 0; i < half; i++) {
        float a = head[i], b = head[i + half];
        head[i] = a * cos[i] - b * sin[i];
        head[i + half] = b * cos[i] + a * sin[i];
    }
}

static void store_kv(const struct attention_shape *shape, const float *k, const float *v, int block,
                     int kv_head, int offset, uint16_t *kv)
{
    int head_dim = shape->head_dim;
    struct cpu_kv_place place = cpu_kv_at(shape, block, kv_head);
    uint16_t *k_part = kv + place.k, *v_part = kv + place.v;
    for (int e = 0; e < head_dim; e++) {
        k_part[((size_t)(e / 2) * KV_BLOCK_TOKENS + (size_t)offset) * 2 + (size_t)(e % 2)] =
            num_float_to_bf16(k[e]);
        v_part[((size_t)(offset / 2) * (size_t)head_dim + (size_t)e) * 2 + (size_t)(offset % 2)] =
            num_float_to_bf16(v[e]);
    }
}

/* Copies the first n positions of a block and kv head. Other threads may write later positions of
 * `to` meanwhile: of the last pair of V only the first half is written where n is odd. */
static void copy_kv(const struct attention_shape *shape, int from, int to, int kv_head, int n,
                    uint16_t *kv)
{
    int head_dim = shape->head_dim;
    struct cpu_kv_place source = cpu_kv_at(shape, from, kv_head);
    struct cpu_kv_place place = cpu_kv_at(shape, to, kv_head);
    for (int e = 0; e < head_dim / 2; e++) {
        size_t at = (size_t)e * KV_BLOCK_TOKENS * 2;
        memcpy(kv + place.k + at, kv + source.k + at, (size_t)n * 2 * sizeof *kv);
    }
    size_t whole = (size_t)(n / 2) * (size_t)head_dim * 2;
    memcpy(kv + place.v, kv + source.v, whole * sizeof *kv);
    for (int e = 0; n % 2 && e < head_dim; e++) {
        kv[place.v + whole + 2 * (size_t)e] = kv[source.v + whole + 2 * (size_t)e];
    }
}

struct store_job {
    const struct backend_cpu *cpu;
    const struct attention_shape *shape;
    const struct attention_input *input;
    const struct backend_step *step;
    float *qkv;
    uint16_t *q, *kv;
    int n_copies;
};

static const struct attention_lane *lane_of_row(const struct backend_step *step, int row)
{
    int i = 0;
    while (i + 1 < step->n_lanes && row >= step->lanes[i + 1].first_row)
        i++;
    return &step->lanes[i];
}

/* Norms all heads of q, or of k, at once. `squares` is the sum over all ranks, `weight` of this
 * rank's part. */
static void norm_whole(float *x, const float *weight, float squares, int width, float eps, int n)
{
    float factor = 1.0f / sqrtf(squares / (float)width + eps);
    for (int i = 0; i < n; i++) {
        x[i] = x[i] * factor * weight[i];
    }
}

static void norm_heads(const struct store_job *job, int row, float *qkv)
{
    const struct attention_shape *shape = job->shape;
    const struct attention_input *input = job->input;
    int n_q = shape->n_heads * shape->head_dim, n_kv = shape->n_kv_heads * shape->head_dim;
    if (input->squares) {
        const float *squares = input->squares->data + (size_t)row * 2;
        norm_whole(qkv, input->q_norm, squares[0], input->q_width, input->norm_eps, n_q);
        norm_whole(qkv + n_q, input->k_norm, squares[1], input->k_width, input->norm_eps, n_kv);
        return;
    }
    for (int h = 0; h < shape->n_heads + shape->n_kv_heads; h++) {
        const float *norm = h < shape->n_heads ? input->q_norm : input->k_norm;
        if (!norm) continue;
        job->cpu->kernels->rmsnorm_head(qkv + (size_t)h * (size_t)shape->head_dim, norm,
                                        input->norm_eps, shape->head_dim);
    }
}

static void store_row(const struct store_job *job, int row)
{
    const struct attention_shape *shape = job->shape;
    const struct attention_input *input = job->input;
    int head_dim = shape->head_dim;
    int n_q = shape->n_heads, n_kv = shape->n_kv_heads;
    float *qkv = job->qkv + (size_t)row * (size_t)((n_q + 2 * n_kv) * head_dim);
    size_t table =
        ((size_t)row * (size_t)job->step->n_ropes + (size_t)input->rope) * (size_t)(head_dim / 2);
    const struct attention_lane *lane = lane_of_row(job->step, row);
    int lane_row = row - lane->first_row, pos = attention_position(lane, lane_row);
    if (input->qkv_bias) add_bias(qkv, input->qkv_bias, (n_q + 2 * n_kv) * head_dim);
    norm_heads(job, row, qkv);
    for (int h = 0; h < n_q + n_kv && input->rope_half; h++) {
        rope(qkv + (size_t)h * (size_t)head_dim, job->step->cos + table, job->step->sin + table,
             input->rope_half);
    }
    if (job->step->query_scale) scale_query(qkv, job->step->query_scale[row], n_q * head_dim);
    uint16_t *q = job->q + (size_t)row * (size_t)(n_q * head_dim);
    for (int i = 0; i < n_q * head_dim; i++) {
        q[i] = num_float_to_bf16(qkv[i]);
    }
    const float *k = qkv + (size_t)(n_q * head_dim);
    const float *v = k + (size_t)(n_kv * head_dim);
    for (int p = attention_path(lane, lane_row); p < attention_end_path(lane, lane_row); p++) {
        int block = attention_block(lane, p, pos / KV_BLOCK_TOKENS);
        for (int h = 0; h < n_kv; h++) {
            store_kv(shape, k + (size_t)h * (size_t)head_dim, v + (size_t)h * (size_t)head_dim,
                     block, h, pos % KV_BLOCK_TOKENS, job->kv);
        }
    }
}

/* The further paths of all trees whose first block is copied, in part. */
static int lane_copies(const struct attention_lane *lane)
{
    return attention_n_copied(lane) ? attention_n_paths(lane) - 1 : 0;
}

static int count_copies(const struct backend_step *step)
{
    int n = 0;
    for (int i = 0; i < step->n_lanes; i++) {
        n += lane_copies(&step->lanes[i]);
    }
    return n;
}

/* Copy i of all: 0 <= i < count_copies. */
static void make_copy(const struct store_job *job, int i)
{
    const struct attention_lane *lane = job->step->lanes;
    while (i >= lane_copies(lane)) {
        i -= lane_copies(lane++);
    }
    int from = attention_block(lane, 0, lane->tree->first_block);
    int to = attention_block(lane, i + 1, lane->tree->first_block);
    for (int h = 0; h < job->shape->n_kv_heads; h++) {
        copy_kv(job->shape, from, to, h, attention_n_copied(lane), job->kv);
    }
}

static void store_member(void *arg, int member, int n_members)
{
    const struct store_job *job = arg;
    int begin, end;
    team_range(job->step->n + job->n_copies, 1, member, n_members, &begin, &end);
    for (int i = begin; i < end; i++) {
        if (i < job->step->n) {
            store_row(job, i);
        } else {
            make_copy(job, i - job->step->n);
        }
    }
}

struct squares_job {
    const struct kernels *kernels;
    const struct attention_shape *shape;
    struct qk_squares args;
    float *out; /* [slice][N][2] */
};

static void squares_member(void *arg, int member, int n_members)
{
    const struct squares_job *job = arg;
    const struct qk_squares *a = &job->args;
    const struct attention_shape *shape = job->shape;
    int n_q = shape->n_heads * shape->head_dim, n_kv = shape->n_kv_heads * shape->head_dim;
    size_t stride = (size_t)a->n * 2;
    int begin, end;
    team_range(a->n, 1, member, n_members, &begin, &end);
    for (int row = begin; row < end; row++) {
        const float *q = a->qkv + (size_t)row * (size_t)(n_q + 2 * n_kv);
        const float *k = q + n_q + a->k_first;
        float *out = job->out + (size_t)row * 2;
        for (int s = 0; s < a->n_slices; s++) {
            out[(size_t)s * stride] = job->kernels->squares(q + s * a->q_len, a->q_len);
            out[(size_t)s * stride + 1] = job->kernels->squares(k + s * a->k_len, a->k_len);
        }
        cpu_add_parts(out, stride, a->n_slices, 2);
    }
}

void cpu_qk_squares(struct backend *be, const struct attention_shape *shape,
                    const struct qk_squares *args, struct slice_sums *sums)
{
    struct backend_cpu *cpu = backend_cpu_of(be);
    struct squares_job job = {cpu->kernels, shape, *args, sums->data};
    sums->stride = (size_t)args->n * 2;
    sums->n_parts = 1;
    cpu_run(cpu, args->n < TEAM_ROWS, squares_member, &job);
}

void cpu_attention_store(struct backend *be, const struct attention_shape *shape,
                         const struct attention_input *input, const struct backend_step *step,
                         float *qkv, uint16_t *q, uint16_t *kv)
{
    struct backend_cpu *cpu = backend_cpu_of(be);
    struct store_job job = {cpu, shape, input, step, qkv, q, kv, count_copies(step)};
    cpu_run(cpu, step->n + job.n_copies < TEAM_ROWS, store_member, &job);
}
