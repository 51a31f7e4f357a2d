/* KV of the CPU's attention: its layout, and how a step's rows get there. attention.c reads it.
 *
 * KV of a layer, per block of 16 positions and per kv head:
 *   K  [E / 2][16 positions][2]   a vector of 16 scores is one chain over pairs of e
 *   V  [8 pairs of positions][E][2]   a vector of 16 outputs is one chain over pairs of positions
 * Every score and every output thus has its own SIMD lane, and no sum is horizontal. The parts are
 * laid out as [region][kv head][K | V][block of the region], so that blocks with neighbouring
 * numbers are read as one stream. */
#include "model/backend/cpu/kv.h"

#include <string.h>

#include "model/backend/cpu/internal.h"
#include "model/numerics/numerics.h"

static void add_bias(float *x, const float *bias, int n)
{
    for (int i = 0; i < n; i++) {
        x[i] += bias[i];
    }
}

/* Rotates pairs (i, i + E/2), as Hugging Face's rotate_half does. */
static void rope(float *head, const float *cos, const float *sin, int head_dim)
{
    int half = head_dim / 2;
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

static void store_row(const struct store_job *job, int row)
{
    const struct attention_shape *shape = job->shape;
    const struct attention_input *input = job->input;
    int head_dim = shape->head_dim;
    int n_q = shape->n_heads, n_kv = shape->n_kv_heads;
    float *qkv = job->qkv + (size_t)row * (size_t)((n_q + 2 * n_kv) * head_dim);
    const float *cos = job->step->cos + (size_t)row * (size_t)(head_dim / 2);
    const float *sin = job->step->sin + (size_t)row * (size_t)(head_dim / 2);
    const struct attention_lane *lane = lane_of_row(job->step, row);
    int lane_row = row - lane->first_row, pos = attention_position(lane, lane_row);
    if (input->qkv_bias) add_bias(qkv, input->qkv_bias, (n_q + 2 * n_kv) * head_dim);
    for (int h = 0; h < n_q + n_kv; h++) {
        float *head = qkv + (size_t)h * (size_t)head_dim;
        const float *norm = h < n_q ? input->q_norm : input->k_norm;
        if (norm) job->cpu->kernels->rmsnorm_head(head, norm, input->norm_eps, head_dim);
        rope(head, cos, sin, head_dim);
    }
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

enum { TEAM_ROWS = 8 }; /* waking the team takes longer than fewer rows than this */

void cpu_attention_store(struct backend *be, const struct attention_shape *shape,
                         const struct attention_input *input, const struct backend_step *step,
                         float *qkv, uint16_t *q, uint16_t *kv)
{
    struct backend_cpu *cpu = backend_cpu_of(be);
    struct store_job job = {cpu, shape, input, step, qkv, q, kv, count_copies(step)};
    cpu_run(cpu, step->n + job.n_copies < TEAM_ROWS, store_member, &job);
}
