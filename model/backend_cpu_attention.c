/* Attention on the CPU over block tables.
 *
 * KV of a layer, per block of 16 positions and per kv head, K-part then V-part:
 *   K  [E / 2][16 positions][2]   a vector of 16 scores is one chain over pairs of e
 *   V  [8 pairs of positions][E][2]   a vector of 16 outputs is one chain over pairs of positions
 * so that every score and every output has its own SIMD lane and no sum is horizontal.
 *
 * A row at position p sees positions 0..p in partitions of 256 absolute positions. Each partition is
 * computed alone (scores, max, exp, weighted sum), then merged in ascending order. What stands in the
 * blocks past p is never used: scores there become -inf, and the V of an odd pair's missing half is
 * replaced by zero, so that neither a rejected guess nor a former owner of the block can be felt. */
#include "model/backend_cpu.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "model/numerics.h"

static size_t head_elements(const struct attention_shape *shape)
{
    return (size_t)KV_BLOCK_TOKENS * (size_t)shape->head_dim; /* of K; the same of V */
}

size_t kv_layer_bytes(const struct attention_shape *shape, int n_blocks)
{
    return (size_t)n_blocks * (size_t)shape->n_kv_heads * 2 * head_elements(shape) *
           sizeof(uint16_t);
}

/* K-part of a block and head; the V-part follows it. */
static size_t head_offset(const struct attention_shape *shape, int block, int kv_head)
{
    return ((size_t)block * (size_t)shape->n_kv_heads + (size_t)kv_head) * 2 * head_elements(shape);
}

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
    uint16_t *k_part = kv + head_offset(shape, block, kv_head);
    uint16_t *v_part = k_part + head_elements(shape);
    for (int e = 0; e < head_dim; e++) {
        k_part[((size_t)(e / 2) * KV_BLOCK_TOKENS + (size_t)offset) * 2 + (size_t)(e % 2)] =
            num_float_to_bf16(k[e]);
        v_part[((size_t)(offset / 2) * (size_t)head_dim + (size_t)e) * 2 + (size_t)(offset % 2)] =
            num_float_to_bf16(v[e]);
    }
}

struct store_job {
    const struct backend_cpu *cpu;
    const struct attention_shape *shape;
    const struct attention_input *input;
    const struct backend_step *step;
    float *qkv;
    uint16_t *q, *kv;
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
    int pos = lane->position + (row - lane->first_row);
    int block = lane->blocks[pos / KV_BLOCK_TOKENS];

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
    for (int h = 0; h < n_kv; h++) {
        store_kv(shape, k + (size_t)h * (size_t)head_dim, v + (size_t)h * (size_t)head_dim, block,
                 h, pos % KV_BLOCK_TOKENS, job->kv);
    }
}

static void store_member(void *arg, int member, int n_members)
{
    const struct store_job *job = arg;
    int begin, end;
    team_range(job->step->n, 1, member, n_members, &begin, &end);
    for (int row = begin; row < end; row++) {
        store_row(job, row);
    }
}

enum { TEAM_ROWS = 8 }; /* fewer rows than this are not worth waking the team for */

void cpu_attention_store(struct backend *be, const struct attention_shape *shape,
                         const struct attention_input *input, const struct backend_step *step,
                         float *qkv, uint16_t *q, uint16_t *kv)
{
    struct backend_cpu *cpu = backend_cpu_of(be);
    struct store_job job = {cpu, shape, input, step, qkv, q, kv};
    if (step->n < TEAM_ROWS) {
        store_member(&job, 0, 1);
    } else {
        team_run(cpu->team, store_member, &job);
    }
}

struct attend_job {
    struct backend_cpu *cpu;
    const struct attention_shape *shape;
    const struct backend_step *step;
    const uint16_t *q, *kv;
    uint16_t *out;
    float scale;
};

/* One partition's (max, sum, accumulator). */
struct partial {
    float max, sum;
    float *acc; /* [E] */
};

/* A partition of one row and heads that share a kv head: n positions and where they lie. */
struct span {
    const int32_t *blocks;
    int kv_head, n_heads, n, n_blocks;
};

/* scores[n_heads][ATTENTION_PARTITION]; past the span -inf. */
static void score_span(const struct attend_job *job, const struct span *span, const uint16_t *q,
                       float *scores)
{
    const struct attention_shape *shape = job->shape;
    for (int b = 0; b < span->n_blocks; b++) {
        job->cpu->kernels->scores(
            q, span->n_heads, job->kv + head_offset(shape, span->blocks[b], span->kv_head),
            shape->head_dim, job->scale, scores + b * KV_BLOCK_TOKENS, ATTENTION_PARTITION);
    }
    for (int h = 0; h < span->n_heads; h++) {
        for (int i = span->n; i < span->n_blocks * KV_BLOCK_TOKENS; i++) {
            scores[h * ATTENTION_PARTITION + i] = -INFINITY;
        }
    }
}

/* Max and sum of one head, and its weights as bf16; `weights` is scratch. */
static void weights_of(const struct attend_job *job, const struct span *span, const float *scores,
                       float *weights, struct partial *part, uint16_t *p)
{
    int n_padded = span->n_blocks * KV_BLOCK_TOKENS;
    part->max = -INFINITY;
    for (int i = 0; i < span->n; i++) {
        if (scores[i] > part->max) part->max = scores[i];
    }
    part->sum = job->cpu->kernels->exp_sum(scores, part->max, n_padded, weights);
    for (int i = 0; i < n_padded; i++) {
        p[i] = num_float_to_bf16(weights[i]);
    }
}

/* Adds one block's share to acc[n_heads][CPU_HEAD_DIM_MAX]. n_valid positions of the block count. */
static void weigh_block(const struct attend_job *job, const struct span *span, const uint16_t *p,
                        const uint16_t *v_part, int n_valid, float *acc)
{
    const struct kernels *kernels = job->cpu->kernels;
    int head_dim = job->shape->head_dim;
    int n_pairs = n_valid / 2;
    if (n_pairs) {
        kernels->weighted_sum(p, ATTENTION_PARTITION, span->n_heads, v_part, n_pairs, head_dim, acc,
                              CPU_HEAD_DIM_MAX);
    }
    if (n_valid % 2) {
        _Alignas(64) uint16_t pair[2 * CPU_HEAD_DIM_MAX];
        const uint16_t *v = v_part + (size_t)n_pairs * (size_t)head_dim * 2;
        for (int e = 0; e < head_dim; e++) {
            pair[2 * e] = v[2 * e];
            pair[2 * e + 1] = 0;
        }
        kernels->weighted_sum(p + 2 * n_pairs, ATTENTION_PARTITION, span->n_heads, pair, 1,
                              head_dim, acc, CPU_HEAD_DIM_MAX);
    }
}

/* acc[n_heads][CPU_HEAD_DIM_MAX] = the weighted sums of the span. */
static void weigh_span(const struct attend_job *job, const struct span *span, const uint16_t *p,
                       float *acc)
{
    const struct attention_shape *shape = job->shape;
    memset(acc, 0, (size_t)span->n_heads * CPU_HEAD_DIM_MAX * sizeof *acc);
    for (int b = 0; b < span->n_blocks; b++) {
        int n_valid = span->n - b * KV_BLOCK_TOKENS;
        if (n_valid > KV_BLOCK_TOKENS) n_valid = KV_BLOCK_TOKENS;
        const uint16_t *v_part =
            job->kv + head_offset(shape, span->blocks[b], span->kv_head) + head_elements(shape);
        weigh_block(job, span, p + b * KV_BLOCK_TOKENS, v_part, n_valid, acc);
    }
}

/* total <- total merged with part, which stands after it. */
static void merge_partial(struct partial *total, const struct partial *part, int head_dim)
{
    float max = total->max > part->max ? total->max : part->max;
    float a = num_exp(total->max - max), b = num_exp(part->max - max);
    total->sum = total->sum * a + part->sum * b;
    for (int e = 0; e < head_dim; e++) {
        total->acc[e] = total->acc[e] * a + part->acc[e] * b;
    }
    total->max = max;
}

/* The partials of one span: part[n_heads], whose accumulators follow each other. */
static void attend_span(const struct attend_job *job, const struct span *span, const uint16_t *q,
                        float *scratch, struct partial *part)
{
    _Alignas(64) uint16_t p[CPU_HEADS_AT_ONCE * ATTENTION_PARTITION];
    float *scores = scratch, *weights = scores + CPU_HEADS_AT_ONCE * ATTENTION_PARTITION;
    score_span(job, span, q, scores);
    for (int h = 0; h < span->n_heads; h++) {
        weights_of(job, span, scores + h * ATTENTION_PARTITION, weights, &part[h],
                   p + h * ATTENTION_PARTITION);
    }
    weigh_span(job, span, p, part[0].acc);
}

/* Heads head .. head + n_heads of one row; they share a kv head, whose blocks are read once. */
static void attend_heads(const struct attend_job *job, int row, int head, int n_heads,
                         float *scratch)
{
    const struct attention_shape *shape = job->shape;
    const struct attention_lane *lane = lane_of_row(job->step, row);
    int head_dim = shape->head_dim;
    int end = lane->position + (row - lane->first_row) + 1;
    size_t at = ((size_t)row * (size_t)shape->n_heads + (size_t)head) * (size_t)head_dim;
    float *acc = scratch + (CPU_HEADS_AT_ONCE + 1) * ATTENTION_PARTITION;
    struct partial total[CPU_HEADS_AT_ONCE], part[CPU_HEADS_AT_ONCE];
    for (int h = 0; h < n_heads; h++) {
        total[h].acc = acc + h * CPU_HEAD_DIM_MAX;
        part[h].acc = acc + (CPU_HEADS_AT_ONCE + h) * CPU_HEAD_DIM_MAX;
    }
    for (int first = 0; first < end; first += ATTENTION_PARTITION) {
        int n = end - first < ATTENTION_PARTITION ? end - first : ATTENTION_PARTITION;
        const struct span span = {.blocks = lane->blocks + first / KV_BLOCK_TOKENS,
                                  .kv_head = head / (shape->n_heads / shape->n_kv_heads),
                                  .n_heads = n_heads,
                                  .n = n,
                                  .n_blocks = (n + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS};
        attend_span(job, &span, job->q + at, scratch, first == 0 ? total : part);
        for (int h = 0; first > 0 && h < n_heads; h++) {
            merge_partial(&total[h], &part[h], head_dim);
        }
    }
    for (int h = 0; h < n_heads; h++) {
        uint16_t *out = job->out + at + (size_t)h * (size_t)head_dim;
        for (int e = 0; e < head_dim; e++) {
            out[e] = num_float_to_bf16(total[h].acc[e] / total[h].sum);
        }
    }
}

/* A member's share is a run of (row, head); what of it shares a kv head goes together. */
static void attend_member(void *arg, int member, int n_members)
{
    const struct attend_job *job = arg;
    float *scratch = job->cpu->scratch + (size_t)member * CPU_SCRATCH_FLOATS;
    int n_heads = job->shape->n_heads, group = n_heads / job->shape->n_kv_heads;
    int begin, end;
    team_range(job->step->n * n_heads, 1, member, n_members, &begin, &end);
    while (begin < end) {
        int head = begin % n_heads;
        int n = group - head % group;
        if (n > CPU_HEADS_AT_ONCE) n = CPU_HEADS_AT_ONCE;
        if (n > end - begin) n = end - begin;
        attend_heads(job, begin / n_heads, head, n, scratch);
        begin += n;
    }
}

void cpu_attention(struct backend *be, const struct attention_shape *shape,
                   const struct backend_step *step, const uint16_t *q, const uint16_t *kv,
                   uint16_t *out)
{
    struct backend_cpu *cpu = backend_cpu_of(be);
    assert(shape->head_dim <= CPU_HEAD_DIM_MAX);
    struct attend_job job = {cpu, shape, step, q, kv, out, 1.0f / sqrtf((float)shape->head_dim)};
    team_run(cpu->team, attend_member, &job);
}
