/* The forward pass, written once over backend.h. */
#include "model/model.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "model/rope.h"
#include "model/weights.h"

struct model {
    const struct model_config *cfg;
    struct comm *comm;
    struct backend *be;
    struct shard shard;
    struct rope rope;
    struct model_options options;
    struct model_weights weights;
    struct attention_shape attention;
    int qkv_dim, attention_dim; /* (H + 2K) E and H E of this rank */

    uint16_t **kv; /* [n_layers] */
    size_t kv_bytes;

    /* Buffers of a step, [max_tokens] rows each. */
    float *x;           /* [D] residual stream */
    uint16_t *h;        /* [D] normed */
    float *qkv;         /* [(H + 2K) E] */
    uint16_t *q;        /* [H E] */
    uint16_t *attended; /* [H E] */
    float *gate_up;     /* [2 F] */
    uint16_t *hidden;   /* [F] */
    float *parts;       /* [n_local] slices of [max_tokens][D]; the first becomes the sum */
    float *cos, *sin;   /* [E / 2] */
    float *logits;      /* [max_rows][n_local * vocab_slice] */

    struct attention_lane *lanes; /* [max_lanes] host memory, as are: */
    int32_t *tokens;              /* [max_tokens] */
    int *row_index;               /* [max_rows] */
    float *host_cos, *host_sin;
    int n_rows;
    int64_t collective_us;
};

struct step_buffer {
    void *pointer; /* address of the model's field */
    size_t bytes;
};

enum { STEP_BUFFERS = 11 };

static size_t head_stride(const struct model *m)
{
    return (size_t)m->shard.n_local * (size_t)m->shard.vocab_slice;
}

static void list_buffers(struct model *m, struct step_buffer list[STEP_BUFFERS])
{
    size_t n = (size_t)m->options.max_tokens, rows = (size_t)m->options.max_rows;
    size_t dim = (size_t)m->cfg->dim, ffn = (size_t)m->shard.ffn_dim;
    size_t rope = (size_t)m->rope.half;
    size_t norm_rows = n > rows ? n : rows;
    const struct step_buffer all[STEP_BUFFERS] = {
        {&m->x, n * dim * sizeof(float)},
        {&m->h, norm_rows * dim * sizeof(uint16_t)},
        {&m->qkv, n * (size_t)m->qkv_dim * sizeof(float)},
        {&m->q, n * (size_t)m->attention_dim * sizeof(uint16_t)},
        {&m->attended, n * (size_t)m->attention_dim * sizeof(uint16_t)},
        {&m->gate_up, n * 2 * ffn * sizeof(float)},
        {&m->hidden, n * ffn * sizeof(uint16_t)},
        {&m->parts, (size_t)m->shard.n_local * n * dim * sizeof(float)},
        {&m->cos, n * rope * sizeof(float)},
        {&m->sin, n * rope * sizeof(float)},
        {&m->logits, rows * head_stride(m) * sizeof(float)},
    };
    memcpy(list, all, sizeof all);
}

static int open_buffers(struct model *m, struct error *err)
{
    int rc = 0;
    size_t n = (size_t)m->options.max_tokens;
    struct step_buffer list[STEP_BUFFERS];
    list_buffers(m, list);
    for (int i = 0; i < STEP_BUFFERS; i++) {
        TRY(m->be->ops->buffer_open(m->be, list[i].pointer, list[i].bytes, err));
    }
    m->kv_bytes = kv_layer_bytes(&m->attention, m->options.n_kv_blocks);
    TRY(mem_array(&m->kv, (size_t)m->cfg->n_layers, sizeof *m->kv, err));
    for (int i = 0; i < m->cfg->n_layers; i++) {
        TRY(m->be->ops->buffer_open(m->be, &m->kv[i], m->kv_bytes, err));
    }
    TRY(mem_array(&m->lanes, (size_t)m->options.max_lanes, sizeof *m->lanes, err));
    TRY(mem_array(&m->tokens, n, sizeof *m->tokens, err));
    TRY(mem_array(&m->row_index, (size_t)m->options.max_rows, sizeof *m->row_index, err));
    TRY(mem_array(&m->host_cos, n * (size_t)m->rope.half, sizeof *m->host_cos, err));
    TRY(mem_array(&m->host_sin, n * (size_t)m->rope.half, sizeof *m->host_sin, err));
out:
    return rc;
}

static void close_buffers(struct model *m)
{
    struct step_buffer list[STEP_BUFFERS];
    list_buffers(m, list);
    for (int i = 0; i < STEP_BUFFERS; i++) {
        void *buffer;
        memcpy(&buffer, list[i].pointer, sizeof buffer);
        if (buffer) m->be->ops->buffer_close(m->be, buffer, list[i].bytes);
    }
    for (int i = 0; m->kv && i < m->cfg->n_layers; i++) {
        if (m->kv[i]) m->be->ops->buffer_close(m->be, m->kv[i], m->kv_bytes);
    }
    free(m->kv);
    free(m->lanes);
    free(m->tokens);
    free(m->row_index);
    free(m->host_cos);
    free(m->host_sin);
}

int model_open(struct model **model, const struct checkpoint *ck, struct comm *comm,
               struct backend *be, const struct model_options *options, struct error *err)
{
    int rc = 0;
    struct model *m = NULL;
    *model = NULL;
    TRY(mem_array(&m, 1, sizeof *m, err));
    m->cfg = checkpoint_config(ck);
    m->comm = comm;
    m->be = be;
    m->options = *options;
    if (!m->options.n_vocab) m->options.n_vocab = m->cfg->vocab_size;
    TRY(shard_init(&m->shard, m->cfg, m->options.n_vocab, comm->rank, comm->size, err));
    TRY(rope_init(&m->rope, m->cfg, err));
    m->attention =
        (struct attention_shape){m->shard.n_heads, m->shard.n_kv_heads, m->cfg->head_dim};
    m->attention_dim = m->shard.n_heads * m->cfg->head_dim;
    m->qkv_dim = m->attention_dim + 2 * m->shard.n_kv_heads * m->cfg->head_dim;
    TRY(open_buffers(m, err));
    TRY(weights_open(&m->weights, ck, &m->shard, be, err));
    *model = m;
    m = NULL;
out:
    model_close(m);
    return rc;
}

void model_close(struct model *model)
{
    if (!model) return;
    weights_close(&model->weights, model->be);
    if (model->rope.half) close_buffers(model);
    free(model);
}

/* Lays the lanes' rows one behind the other; returns their number N. */
static int place_lanes(struct model *m, const struct forward_lane *lanes, int n_lanes)
{
    int n = 0;
    for (int i = 0; i < n_lanes; i++) {
        const struct forward_lane *lane = &lanes[i];
        assert(n + lane->n_tokens <= m->options.max_tokens);
        m->lanes[i] = (struct attention_lane){n, lane->n_tokens, lane->position, lane->blocks};
        memcpy(m->tokens + n, lane->tokens, (size_t)lane->n_tokens * sizeof *m->tokens);
        for (int t = 0; t < lane->n_tokens; t++) {
            size_t at = (size_t)(n + t) * (size_t)m->rope.half;
            rope_position(&m->rope, lane->position + t, m->host_cos + at, m->host_sin + at);
        }
        n += lane->n_tokens;
    }
    size_t bytes = (size_t)n * (size_t)m->rope.half * sizeof(float);
    m->be->ops->upload(m->be, m->cos, m->host_cos, bytes);
    m->be->ops->upload(m->be, m->sin, m->host_sin, bytes);
    return n;
}

/* x += bias + the sum over slices and ranks of in * slices, in the order of the fixed tree. */
static int row_parallel(struct model *m, const struct matrix *slices, const uint16_t *in,
                        int in_stride, const float *bias, int n, struct error *err)
{
    const struct backend_ops *ops = m->be->ops;
    size_t dim = (size_t)m->cfg->dim, count = (size_t)n * dim;
    for (int s = 0; s < m->shard.n_local; s++) {
        ops->matmul(m->be, &slices[s], in + s * slices[s].n_in, (size_t)in_stride,
                    m->parts + (size_t)s * count, dim, n);
    }
    ops->tree_add(m->be, m->parts, m->shard.n_local, count);
    if (m->comm->size > 1) {
        int64_t start = clock_now_us();
        int rc = comm_tree_sum(m->comm, m->parts, count, err);
        m->collective_us += clock_now_us() - start;
        if (rc) return rc;
    }
    ops->residual_add(m->be, m->x, m->parts, bias, n, m->cfg->dim);
    return 0;
}

static int forward_layer(struct model *m, int i, int n_lanes, int n, struct error *err)
{
    const struct backend_ops *ops = m->be->ops;
    const struct layer_weights *w = &m->weights.layers[i];
    int dim = m->cfg->dim, ffn = m->shard.ffn_dim;
    float eps = m->cfg->norm_eps;
    const struct attention_input input = {w->qkv_bias.data, w->q_norm.data, w->k_norm.data, eps,
                                          m->cos,           m->sin};
    int rc = 0;

    ops->rmsnorm(m->be, m->x, w->attention_norm.data, eps, n, dim, NULL, m->h);
    ops->matmul(m->be, &w->qkv, m->h, (size_t)dim, m->qkv, (size_t)m->qkv_dim, n);
    ops->attention_store(m->be, &m->attention, &input, m->lanes, n_lanes, m->qkv, m->q, m->kv[i]);
    ops->attention(m->be, &m->attention, m->lanes, n_lanes, m->q, m->kv[i], m->attended);
    TRY(row_parallel(m, w->o, m->attended, m->attention_dim, w->o_bias.data, n, err));

    ops->rmsnorm(m->be, m->x, w->ffn_norm.data, eps, n, dim, NULL, m->h);
    ops->matmul(m->be, &w->gate_up, m->h, (size_t)dim, m->gate_up, 2 * (size_t)ffn, n);
    ops->swiglu(m->be, m->gate_up, w->gate_up_bias.data, n, ffn, m->hidden);
    TRY(row_parallel(m, w->down, m->hidden, ffn, w->down_bias.data, n, err));
out:
    return rc;
}

int model_forward(struct model *m, const struct forward_lane *lanes, int n_lanes,
                  const struct forward_row *rows, int n_rows, struct error *err)
{
    int rc = 0;
    assert(n_lanes <= m->options.max_lanes && n_rows <= m->options.max_rows);
    const struct backend_ops *ops = m->be->ops;
    m->collective_us = 0;
    m->n_rows = 0;
    int n = place_lanes(m, lanes, n_lanes);
    ops->embed(m->be, &m->weights.embedding, m->tokens, n, m->x);
    for (int i = 0; i < m->cfg->n_layers; i++) {
        TRY(forward_layer(m, i, n_lanes, n, err));
    }
    for (int r = 0; r < n_rows; r++) {
        m->row_index[r] = m->lanes[rows[r].lane].first_row + rows[r].index;
    }
    ops->rmsnorm(m->be, m->x, m->weights.final_norm.data, m->cfg->norm_eps, n_rows, m->cfg->dim,
                 m->row_index, m->h);
    ops->matmul(m->be, &m->weights.head, m->h, (size_t)m->cfg->dim, m->logits, head_stride(m),
                n_rows);
    m->n_rows = n_rows;
out:
    return rc;
}

int model_answer(struct model *m, int row, const struct row_wish *wish, struct arena *arena,
                 struct slice_row *out, struct error *err)
{
    int rc = 0;
    assert(row >= 0 && row < m->n_rows);
    for (int s = 0; s < m->shard.n_local; s++) {
        int slice = m->shard.first_slice + s, n_cols;
        int32_t first_id;
        row_slice_range(m->shard.n_vocab, m->shard.n_slices, slice, &first_id, &n_cols);
        const float *logits =
            m->logits + (size_t)row * head_stride(m) + (size_t)s * (size_t)m->shard.vocab_slice;
        TRY(m->be->ops->answer(m->be, logits, first_id, n_cols, slice, wish, arena, &out[s], err));
    }
out:
    return rc;
}

const float *model_logits(const struct model *m, int row)
{
    assert(row >= 0 && row < m->n_rows);
    return m->logits + (size_t)row * head_stride(m);
}

const struct shard *model_shard(const struct model *m)
{
    return &m->shard;
}

size_t model_weight_bytes(const struct model *m)
{
    return m->weights.bytes;
}

size_t model_kv_bytes(const struct model *m)
{
    return m->kv_bytes * (size_t)m->cfg->n_layers;
}

int64_t model_collective_us(const struct model *m)
{
    return m->collective_us;
}
