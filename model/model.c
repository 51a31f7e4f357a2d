/* The forward pass, written once over model/backend/backend.h. */
#include "model/model.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "model/checkpoint/head.h"
#include "model/entry.h"
#include "model/features.h"
#include "model/head_numbers.h"
#include "model/numerics/numerics.h"
#include "model/places.h"
#include "model/projection.h"
#include "model/rope.h"
#include "model/weights.h"

/* Buffers of a step in the backend's memory, in the order in which they are opened. */
enum step_buffers {
    BUFFER_X,
    BUFFER_H,
    BUFFER_QKV,
    BUFFER_Q,
    BUFFER_ATTENDED,
    BUFFER_GATE_UP,
    BUFFER_HIDDEN,
    BUFFER_PARTS,
    BUFFER_SQUARES,
    BUFFER_LOGITS,
    STEP_BUFFERS
};

struct model {
    const struct checkpoint *ck;
    const struct model_config *cfg;
    struct comm *comm;
    struct backend *be;
    struct shard shard;
    struct rope ropes[ROPES_MAX];
    int n_ropes;
    struct model_options options;
    struct model_weights weights;
    struct entry entry;           /* of a head with layers; zeroed: it is none */
    struct places places;         /* of a head of places; zeroed: it is none */
    struct layer_weights *chosen; /* [n_layers] some of those of `like`; NULL: all, or own ones */
    struct attention_shape attention;
    int qkv_dim, attention_dim; /* (H + 2K) E and H E of this rank */

    uint16_t **kv; /* [n_layers] */
    size_t kv_bytes;

    struct step_buffer {
        void *data;
        size_t bytes;
    } buffers[STEP_BUFFERS];
    /* The buffers' contents, [max_tokens] rows each. */
    float *x;           /* [D] residual stream */
    uint16_t *h;        /* [D] normed */
    float *qkv;         /* [(H + 2K) E] */
    uint16_t *q;        /* [H E] */
    uint16_t *attended; /* [H E] */
    float *gate_up;     /* [2 F] */
    uint16_t *hidden;   /* [F] */
    float *parts;       /* [n_local] slices of [D] */
    float *squares;     /* [n_local] slices of the sums of q and of k; NULL without such norms */
    float *logits;      /* [max_rows, or places_rows][n_local * vocab_slice] */

    struct attention_lane *lanes; /* [max_lanes]; this and the rest is host memory */
    struct attention_tree *trees; /* [max_lanes] of those lanes that have one */
    int32_t *tokens;              /* [max_tokens] */
    int *row_index;               /* [max_rows] of the step's rows; with places, of the logits' */
    float *cos, *sin;             /* [max_tokens][n_ropes][E / 2] */
    float *query_scale;           /* [max_tokens]; NULL: q is not scaled */
    struct answer_item *items;    /* [max_rows * n_local] */
    struct kept_features features;
    struct projection projection; /* that options.projection says */
    struct projection_key own_fc; /* of a head */
    int n_rows;
    int64_t collective_us;
};

static size_t head_stride(const struct model *m)
{
    return (size_t)m->shard.n_local * (size_t)m->shard.vocab_slice;
}

static int open_step_buffers(struct model *m, struct error *err)
{
    const struct backend_ops *ops = m->be->ops;
    bool has_places = m->places.config != NULL; /* with its own buffers, but for the logits */
    size_t n = has_places ? 0 : (size_t)ops->capacity(m->be, m->options.max_tokens);
    size_t rows = has_places ? m->places.n_rows : (size_t)ops->capacity(m->be, m->options.max_rows);
    size_t dim = (size_t)m->cfg->dim, ffn = (size_t)m->shard.ffn_dim;
    size_t norm_rows = n > rows ? n : rows;
    int rc = 0;
    const size_t bytes[STEP_BUFFERS] = {
        [BUFFER_X] = n * dim * sizeof(float),
        [BUFFER_H] = has_places ? 0 : norm_rows * dim * sizeof(uint16_t),
        [BUFFER_QKV] = n * (size_t)m->qkv_dim * sizeof(float),
        [BUFFER_Q] = n * (size_t)m->attention_dim * sizeof(uint16_t),
        [BUFFER_ATTENDED] = n * (size_t)m->attention_dim * sizeof(uint16_t),
        [BUFFER_GATE_UP] = n * 2 * ffn * sizeof(float),
        [BUFFER_HIDDEN] = n * ffn * sizeof(uint16_t),
        [BUFFER_PARTS] = (size_t)m->shard.n_local * n * dim * sizeof(float),
        [BUFFER_SQUARES] =
            m->cfg->qk_norm_whole ? (size_t)m->shard.n_local * n * 2 * sizeof(float) : 0,
        [BUFFER_LOGITS] = rows * head_stride(m) * sizeof(float),
    };
    for (int i = 0; i < STEP_BUFFERS; i++) {
        m->buffers[i].bytes = bytes[i];
        if (bytes[i] == 0) continue;
        TRY(backend_buffer(m->be, &m->buffers[i].data, bytes[i], err));
    }
    m->x = m->buffers[BUFFER_X].data;
    m->h = m->buffers[BUFFER_H].data;
    m->qkv = m->buffers[BUFFER_QKV].data;
    m->q = m->buffers[BUFFER_Q].data;
    m->attended = m->buffers[BUFFER_ATTENDED].data;
    m->gate_up = m->buffers[BUFFER_GATE_UP].data;
    m->hidden = m->buffers[BUFFER_HIDDEN].data;
    m->parts = m->buffers[BUFFER_PARTS].data;
    m->squares = m->buffers[BUFFER_SQUARES].data;
    m->logits = m->buffers[BUFFER_LOGITS].data;
out:
    return rc;
}

static int open_buffers(struct model *m, struct error *err)
{
    int rc = 0;
    size_t n = (size_t)m->options.max_tokens;
    size_t n_pairs = n * (size_t)m->n_ropes * (size_t)(m->cfg->head_dim / 2);
    TRY(open_step_buffers(m, err));
    m->kv_bytes = kv_layer_bytes(&m->attention);
    TRY(mem_array(&m->kv, (size_t)m->cfg->n_layers, sizeof *m->kv, err));
    for (int i = 0; i < m->cfg->n_layers; i++) {
        TRY(backend_buffer(m->be, &m->kv[i], m->kv_bytes, err));
    }
    TRY(mem_array(&m->lanes, (size_t)m->options.max_lanes, sizeof *m->lanes, err));
    TRY(mem_array(&m->trees, (size_t)m->options.max_lanes, sizeof *m->trees, err));
    TRY(mem_array(&m->tokens, n, sizeof *m->tokens, err));
    TRY(mem_array(&m->row_index, (size_t)m->options.max_rows, sizeof *m->row_index, err));
    TRY(mem_array(&m->cos, n_pairs, sizeof *m->cos, err));
    TRY(mem_array(&m->sin, n_pairs, sizeof *m->sin, err));
    if (m->cfg->query_period) TRY(mem_array(&m->query_scale, n, sizeof *m->query_scale, err));
    TRY(mem_array(&m->items, (size_t)m->options.max_rows * (size_t)m->shard.n_local,
                  sizeof *m->items, err));
out:
    return rc;
}

static void close_buffers(struct model *m)
{
    entry_close(&m->entry, m->be);
    places_close(&m->places, m->be);
    for (int i = 0; i < STEP_BUFFERS; i++) {
        const struct step_buffer *b = &m->buffers[i];
        if (b->data) m->be->ops->buffer_close(m->be, b->data, b->bytes);
    }
    for (int i = 0; m->kv && i < m->cfg->n_layers; i++) {
        if (m->kv[i]) m->be->ops->buffer_close(m->be, m->kv[i], m->kv_bytes);
    }
    kept_features_close(&m->features, m->be);
    projection_close(&m->projection, m->be);
    free(m->kv);
    free(m->lanes);
    free(m->trees);
    free(m->tokens);
    free(m->row_index);
    free(m->cos);
    free(m->sin);
    free(m->query_scale);
    free(m->items);
}

/* Ties go to the lowest id because ids ascend as columns do. */
static int check_head(const struct model *m, struct error *err)
{
    const struct model_options *o = &m->options;
    if (m->comm->size > 1) {
        return error_set(err, ERR_ARGUMENT, "a head over %d chosen ids on %d ranks: one rank only",
                         o->n_head_ids, m->comm->size);
    }
    for (int i = 0; i < o->n_head_ids; i++) {
        int32_t id = o->head_ids[i], least = i > 0 ? o->head_ids[i - 1] + 1 : 0;
        if (id >= least && id < o->n_vocab) continue;
        return error_set(err, ERR_ARGUMENT,
                         "the head's id %d at place %d: ids must ascend and be below %d", id, i,
                         o->n_vocab);
    }
    return 0;
}

/* Makes the model one of a head, if the checkpoint is a head. */
static int take_head(struct model *m, struct error *err)
{
    const struct head_config *head = checkpoint_head(m->ck);
    int rc = 0;
    if (!head) return 0;
    if (m->comm->size > 1 || m->options.head_ids || m->options.like) {
        return error_set(err, ERR_ARGUMENT,
                         "%s is a head, which runs on one rank, with its own ids and weights",
                         checkpoint_name(m->ck));
    }
    TRY(checkpoint_demand_target(m->ck, err));
    TRY(head_numbers_check(m->ck, err));
    if (head->places.n) {
        TRY(places_open(&m->places, head, m->options.max_lanes, m->be, err));
        goto out;
    }
    m->options.head_ids = checkpoint_head_ids(m->ck);
    m->options.n_head_ids = m->options.head_ids ? head->n_columns : 0;
    TRY(entry_open(&m->entry, head, m->cfg->dim, m->options.max_tokens, m->be, err));
out:
    return rc;
}

/* Makes the model's tables of rotations. Errors: ERR_UNSUPPORTED. */
static int check_config(struct model *m, struct error *err)
{
    const struct model_config *cfg = m->cfg;
    int rc = 0;
    m->n_ropes = config_n_ropes(cfg);
    for (int i = 0; i < m->n_ropes; i++) {
        TRY(rope_init(&m->ropes[i], &cfg->ropes[i], cfg->head_dim, err));
    }
    if (cfg->qk_norm_whole && cfg->n_kv_heads * cfg->head_dim % m->shard.n_slices) {
        return error_set(
            err, ERR_UNSUPPORTED, "%s: the k projection of width %d cannot be cut into %d slices",
            checkpoint_name(m->ck), cfg->n_kv_heads * cfg->head_dim, m->shard.n_slices);
    }
out:
    return rc;
}

/* The weights of options.like, or those of some of its layers. */
static int take_weights(struct model *m, struct error *err)
{
    const struct model *like = m->options.like;
    int n_all = like->cfg->n_layers, at = 0, rc = 0;
    bool is_whole = m->cfg->n_layers == n_all;
    for (int i = 0; i < n_all && is_whole; i++) {
        is_whole = checkpoint_layer(m->ck, i) == checkpoint_layer(like->ck, i);
    }
    m->weights = like->weights;
    if (is_whole) return 0;
    TRY(mem_array(&m->chosen, (size_t)m->cfg->n_layers, sizeof *m->chosen, err));
    for (int i = 0; i < m->cfg->n_layers; i++) {
        int layer = checkpoint_layer(m->ck, i);
        while (at < n_all && checkpoint_layer(like->ck, at) != layer) {
            at++;
        }
        if (at == n_all) {
            return error_set(err, ERR_ARGUMENT, "%s: layer %d is not among the %d that are loaded",
                             checkpoint_name(m->ck), layer, n_all);
        }
        m->chosen[i] = like->weights.layers[at];
    }
    m->weights.layers = m->chosen;
    m->weights.digests = (struct digest_table){0};
out:
    return rc;
}

int model_open(struct model **model, const struct checkpoint *ck, struct comm *comm,
               struct backend *be, const struct model_options *options, struct error *err)
{
    int rc = 0;
    struct model *m = NULL;
    *model = NULL;
    TRY(mem_array(&m, 1, sizeof *m, err));
    m->ck = ck;
    m->cfg = checkpoint_config(ck);
    m->comm = comm;
    m->be = be;
    m->options = *options;
    if (!m->options.n_vocab) m->options.n_vocab = m->cfg->vocab_size;
    TRY(take_head(m, err));
    if (m->options.head_ids) TRY(check_head(m, err));
    int n_head = m->options.head_ids ? m->options.n_head_ids : m->options.n_vocab;
    TRY(shard_init(&m->shard, m->cfg, n_head, comm->rank, comm->size, err));
    TRY(check_config(m, err));
    m->attention = (struct attention_shape){m->shard.n_heads, m->shard.n_kv_heads, m->cfg->head_dim,
                                            options->n_kv_blocks};
    m->attention_dim = m->shard.n_heads * m->cfg->head_dim;
    m->qkv_dim = m->attention_dim + 2 * m->shard.n_kv_heads * m->cfg->head_dim;
    TRY(open_buffers(m, err));
    if (options->projection) {
        TRY(projection_open(&m->projection, options->projection, ck, options->max_tokens, be, err));
    }
    bool has_columns = checkpoint_head(ck) && !checkpoint_head_is_chosen(ck);
    const struct weights_wish wish = {.head_ids = has_columns ? NULL : m->options.head_ids,
                                      .witnessed = options->witnessed};
    if (options->like) {
        TRY(take_weights(m, err));
    } else {
        TRY(weights_open(&m->weights, ck, &m->shard, &wish, be, err));
    }
    if (m->entry.head) m->own_fc = projection_key_of(ck, &m->weights.digests);
    *model = m;
    m = NULL;
out:
    model_close(m);
    return rc;
}

void model_close(struct model *model)
{
    if (!model) return;
    if (!model->options.like) weights_close(&model->weights, model->be);
    close_buffers(model);
    free(model->chosen);
    free(model);
}

/* Places the angles and the scale of q that belong to a row's position. */
static void place_position(struct model *m, int row, int position)
{
    const struct model_config *cfg = m->cfg;
    for (int i = 0; i < m->n_ropes; i++) {
        size_t at = ((size_t)row * (size_t)m->n_ropes + (size_t)i) * (size_t)(cfg->head_dim / 2);
        rope_position(&m->ropes[i], position, m->cos + at, m->sin + at);
    }
    if (!m->query_scale) return;
    double whole = position / cfg->query_period;
    m->query_scale[row] = (float)(1 + (double)cfg->query_beta * num_log(1 + whole));
}

/* Numbers the lanes' rows, one lane after the other; returns their number N. */
static int place_lanes(struct model *m, const struct forward_lane *lanes, int n_lanes)
{
    bool lacks_first = m->entry.head && m->entry.head->entry.lacks_first;
    int n = 0;
    for (int i = 0; i < n_lanes; i++) {
        const struct forward_lane *lane = &lanes[i];
        assert(n + lane->n_tokens <= m->options.max_tokens);
        if (lane->tree) {
            const struct tree_layout *shape = lane->tree->shape;
            attention_tree_place(&m->trees[i], shape, lane->blocks, lane->tree->tails,
                                 lane->position, lane->n_tokens - shape->n_nodes);
        }
        m->lanes[i] = (struct attention_lane){n, lane->n_tokens, lane->position, lane->blocks,
                                              lane->tree ? &m->trees[i] : NULL};
        memcpy(m->tokens + n, lane->tokens, (size_t)lane->n_tokens * sizeof *m->tokens);
        for (int t = 0; t < lane->n_tokens; t++) {
            int position = attention_position(&m->lanes[i], t);
            place_position(m, n + t, position);
            if (position == 0 && lacks_first) m->tokens[n + t] = STEP_NO_TOKEN;
        }
        n += lane->n_tokens;
    }
    return n;
}

static int sum_ranks(struct model *m, struct slice_sums *sums, int n, int dim, struct error *err)
{
    if (m->comm->size == 1) return 0;
    int64_t start = clock_now_us();
    int rc = m->be->ops->tree_sum(m->be, m->comm, sums, n, dim, err);
    m->collective_us += clock_now_us() - start;
    return rc;
}

/* A row-parallel matrix and what follows it: the sum over slices and ranks, in the order of the
 * fixed tree, is added to the residual stream, which is then normed for the next matrix. */
struct row_parallel {
    const struct matrix *slices;
    const uint16_t *in;
    int in_stride;
    const float *bias, *post_weight, *norm_weight;
    float scale;
    bool is_last; /* no matrix follows */
};

static int row_parallel(struct model *m, const struct row_parallel *r, int n, struct error *err)
{
    const struct backend_ops *ops = m->be->ops;
    struct slice_sums sums = {.data = m->parts};
    int dim = m->cfg->dim, rc = 0;
    ops->matmul_slices(m->be, r->slices, m->shard.n_local, r->in, (size_t)r->in_stride, n, &sums);
    TRY(sum_ranks(m, &sums, n, dim, err));
    const struct residual_norm norm = {.x = m->x,
                                       .sums = &sums,
                                       .bias = r->bias,
                                       .weight = r->norm_weight,
                                       .eps = m->cfg->norm_eps,
                                       .n = n,
                                       .dim = dim,
                                       .h = r->is_last ? NULL : m->h,
                                       .post_weight = r->post_weight,
                                       .scale = r->scale};
    ops->residual_norm(m->be, &norm);
out:
    return rc;
}

/* The sums of the squares of all of q and of k, over all ranks. */
static int sum_squares(struct model *m, struct slice_sums *sums, int n, struct error *err)
{
    const struct shard *sh = &m->shard;
    int e = m->cfg->head_dim, k_len = m->cfg->n_kv_heads * e / sh->n_slices;
    const struct qk_squares args = {.qkv = m->qkv,
                                    .n = n,
                                    .n_slices = sh->n_local,
                                    .q_len = sh->slice_head_cols,
                                    .k_len = k_len,
                                    .k_first = sh->first_slice * k_len - sh->first_kv_head * e};
    m->be->ops->qk_squares(m->be, &m->attention, &args, sums);
    return sum_ranks(m, sums, n, 2, err);
}

/* Computes the normed input of layer i + 1 from that of layer i, both in h. */
static int forward_layer(struct model *m, int i, const struct backend_step *step, struct error *err)
{
    const struct backend_ops *ops = m->be->ops;
    const struct model_config *cfg = m->cfg;
    const struct layer_weights *w = &m->weights.layers[i];
    const struct layer_kind *kind = config_layer(cfg, i);
    bool is_last = i + 1 == cfg->n_layers, has_rope = kind->rope != ROPE_NONE;
    int n = step->n, rc = 0;
    struct slice_sums squares = {.data = m->squares};
    const struct attention_input input = {.qkv_bias = w->qkv_bias.data,
                                          .q_norm = w->q_norm.data,
                                          .k_norm = w->k_norm.data,
                                          .norm_eps = cfg->norm_eps,
                                          .squares = m->squares ? &squares : NULL,
                                          .q_width = cfg->n_heads * cfg->head_dim,
                                          .k_width = cfg->n_kv_heads * cfg->head_dim,
                                          .rope = has_rope ? kind->rope : 0,
                                          .rope_half = has_rope ? m->ropes[kind->rope].half : 0};
    const struct attention_rule rule = {kind->window, config_attention_scale(cfg, kind),
                                        kind->attention_softcap};
    const struct row_parallel o = {.slices = w->o,
                                   .in = m->attended,
                                   .in_stride = m->attention_dim,
                                   .bias = w->o_bias.data,
                                   .post_weight = w->post_attention_norm.data,
                                   .norm_weight = w->ffn_norm.data,
                                   .scale = kind->residual_scale};
    const struct gated_mlp mlp = {.matrix = &w->gate_up,
                                  .bias = w->gate_up_bias.data,
                                  .activation = cfg->activation,
                                  .in = m->h,
                                  .n = n,
                                  .gate_up = m->gate_up,
                                  .h = m->hidden};
    const struct row_parallel down = {.slices = w->down,
                                      .in = m->hidden,
                                      .in_stride = m->shard.ffn_dim,
                                      .bias = w->down_bias.data,
                                      .post_weight = w->post_ffn_norm.data,
                                      .norm_weight = is_last ? NULL : w[1].attention_norm.data,
                                      .scale = kind->residual_scale,
                                      .is_last = is_last};

    const uint16_t *in = i == 0 && entry_feeds_joined(&m->entry) ? m->entry.joined : m->h;
    ops->matmul(m->be, &w->qkv, in, (size_t)w->qkv.n_in, m->qkv, (size_t)m->qkv_dim, n);
    if (m->squares) TRY(sum_squares(m, &squares, n, err));
    ops->attention_store(m->be, &m->attention, &input, step, m->qkv, m->q, m->kv[i]);
    ops->attention(m->be, &m->attention, step, &rule, m->q, m->kv[i], m->attended);
    TRY(row_parallel(m, &o, n, err));
    ops->matmul_gated(m->be, &mlp);
    TRY(row_parallel(m, &down, n, err));
out:
    return rc;
}

/* Keeps the residual stream in a column of the features: normed with `weight`, or as it is. */
static void keep_column(struct model *m, int column, const float *weight, int n)
{
    m->be->ops->rmsnorm(m->be, m->x, weight, m->cfg->norm_eps, n, m->cfg->dim,
                        kept_features_column(&m->features, column));
}

static int forward_step(struct model *m, const struct backend_step *step, struct error *err)
{
    const struct backend_ops *ops = m->be->ops;
    const struct model_config *cfg = m->cfg;
    const struct feature_wish *wish = &m->features.kept;
    int rc = 0, column = 0;
    if (m->entry.head) {
        entry_forward(&m->entry, m->be, step, &m->weights, cfg->norm_eps, m->x, m->h);
    } else {
        ops->embed(m->be, step, m->x);
        ops->rmsnorm(m->be, m->x, m->weights.layers[0].attention_norm.data, cfg->norm_eps, step->n,
                     cfg->dim, m->h);
    }
    for (int i = 0; i < cfg->n_layers; i++) {
        if (column < wish->n && wish->boundaries[column] == i)
            keep_column(m, column++, NULL, step->n);
        TRY(forward_layer(m, i, step, err));
    }
    if (column < wish->n) keep_column(m, column++, NULL, step->n); /* after the last layer */
    if (wish->normed) keep_column(m, column, m->weights.final_norm.data, step->n);
    if (m->features.wish.projection.key.digest) {
        projection_forward(&m->projection, m->be, &m->features, step->n);
    }
    if (step->n_rows > 0) {
        ops->rmsnorm_rows(m->be, step, m->x, m->weights.final_norm.data, cfg->norm_eps, cfg->dim,
                          m->h);
        ops->matmul(m->be, &m->weights.head, m->h, (size_t)cfg->dim, m->logits, head_stride(m),
                    step->n_rows);
        if (cfg->logit_scale != 0 || cfg->logit_softcap != 0) {
            ops->adjust_logits(m->be, m->logits, head_stride(m), step->n_rows, cfg->logit_scale,
                               cfg->logit_softcap);
        }
    }
out:
    return rc;
}

static int forward(struct model *m, const struct forward_lane *lanes, int n_lanes,
                   const struct forward_row *rows, int n_rows, struct error *err)
{
    int rc = 0;
    bool replayed = false, again = true;
    assert(n_lanes <= m->options.max_lanes && n_rows <= m->options.max_rows);
    m->collective_us = 0;
    m->n_rows = 0;
    int n = place_lanes(m, lanes, n_lanes);
    for (int r = 0; r < n_rows; r++) {
        m->row_index[r] = m->lanes[rows[r].lane].first_row + rows[r].index;
    }
    const struct backend_step step = {.embedding = &m->weights.embedding,
                                      .embedding_scale = m->cfg->embedding_scale,
                                      .tokens = m->tokens,
                                      .n = n,
                                      .lanes = m->lanes,
                                      .n_lanes = n_lanes,
                                      .shape = &m->attention,
                                      .cos = m->cos,
                                      .sin = m->sin,
                                      .n_ropes = m->n_ropes,
                                      .query_scale = m->query_scale,
                                      .features = m->entry.host,
                                      .recycled = m->entry.recycled,
                                      .feature_width = m->entry.width,
                                      .rows = m->row_index,
                                      .n_rows = n_rows,
                                      .variant = 2 * m->features.variant + m->entry.has_target};
    TRY(m->be->ops->begin(m->be, &step, &replayed, err));
    while (again) {
        if (!replayed) TRY(forward_step(m, &step, err));
        TRY(m->be->ops->end(m->be, &again, err));
    }
    m->n_rows = n_rows;
out:
    return rc;
}

int model_keep_features(struct model *m, const struct feature_wish *wish, struct error *err)
{
    int rc = kept_features_set(&m->features, m->be, NULL, 0, 0, err);
    assert(!wish || wish->n == 0 || wish->boundaries[wish->n - 1] <= m->cfg->n_layers);
    if (wish && !rc) rc = projection_check_wish(&m->projection, wish, err);
    if (rc || !wish) return rc;
    return kept_features_set(&m->features, m->be, wish,
                             m->be->ops->capacity(m->be, m->options.max_tokens), m->cfg->dim, err);
}

int model_keep_output(struct model *m, struct error *err)
{
    if (m->places.config) return 0;
    struct feature_wish wish = {.normed = m->entry.head->recycles_normed};
    if (!wish.normed) wish.boundaries[wish.n++] = m->cfg->n_layers;
    return model_keep_features(m, &wish, err);
}

static const uint16_t *read_kept(struct model *m, int column, size_t width, int first, int n)
{
    assert(first >= 0 && n >= 0 && first + n <= m->options.max_tokens);
    const uint16_t *rows = kept_features_column(&m->features, column) + (size_t)first * width;
    const void *data = rows;
    data = m->be->ops->read(m->be, data, (size_t)n * width / 2); /* of two bf16 each */
    return data;
}

const uint16_t *model_features(struct model *m, int column, int first, int n)
{
    const struct feature_wish *wish = &m->features.wish;
    assert(column >= 0 && column < feature_wish_columns(wish));
    int boundary = column < wish->n ? wish->boundaries[column] : -1;
    return read_kept(m, kept_features_find(&m->features, boundary), (size_t)m->cfg->dim, first, n);
}

const uint16_t *model_projected(struct model *m, int first, int n)
{
    const struct kept_features *kept = &m->features;
    assert(kept->wish.projection.key.digest);
    return read_kept(m, feature_wish_columns(&kept->kept), (size_t)kept->wish.projection.key.width,
                     first, n);
}

struct projection_key model_projection(const struct model *m)
{
    return m->entry.head ? m->own_fc : m->projection.key;
}

static int forward_places(struct model *m, const struct forward_lane *lanes,
                          const struct forward_features *features, int n_lanes,
                          const struct forward_row *rows, int n_rows, struct error *err)
{
    struct places_step step = {.n_lanes = n_lanes,
                               .weights = &m->weights,
                               .cfg = m->cfg,
                               .shape = &m->attention,
                               .logits = m->logits,
                               .stride = head_stride(m)};
    assert(n_lanes <= m->options.max_lanes && n_rows <= m->options.max_rows);
    m->collective_us = 0;
    m->n_rows = 0;
    for (int i = 0; i < n_lanes; i++) {
        assert(lanes[i].n_tokens <= m->places.config->n);
        if (lanes[i].n_tokens > step.n_places) step.n_places = lanes[i].n_tokens;
        places_take(&m->places, i, features[i].target);
    }
    for (int r = 0; r < n_rows; r++) {
        m->row_index[r] = places_row(m->be, n_lanes, rows[r].lane, rows[r].index);
    }
    int rc = places_forward(&m->places, m->be, &step, err);
    if (!rc) m->n_rows = n_rows;
    return rc;
}

int model_forward(struct model *m, const struct forward_lane *lanes, int n_lanes,
                  const struct forward_row *rows, int n_rows, struct error *err)
{
    assert(!m->entry.head && !m->places.config);
    return forward(m, lanes, n_lanes, rows, n_rows, err);
}

int model_forward_head(struct model *m, const struct forward_lane *lanes,
                       const struct forward_features *features, int n_lanes,
                       const struct forward_row *rows, int n_rows, struct error *err)
{
    int n = 0;
    if (m->places.config) return forward_places(m, lanes, features, n_lanes, rows, n_rows, err);
    assert(m->entry.head);
    entry_begin(&m->entry);
    for (int i = 0; i < n_lanes; i++) {
        const struct forward_features *f = &features[i];
        entry_place(&m->entry, n, f->n_target, f->target, false);
        entry_place(&m->entry, n + f->n_target, lanes[i].n_tokens - f->n_target, f->recycled, true);
        n += lanes[i].n_tokens;
    }
    return forward(m, lanes, n_lanes, rows, n_rows, err);
}

/* The logits of a row, in backend memory. */
static const float *row_logits(const struct model *m, int row)
{
    assert(row >= 0 && row < m->n_rows);
    return m->logits + (size_t)(m->places.config ? m->row_index[row] : row) * head_stride(m);
}

/* The logits of one slice of a row, in backend memory. */
static void place_item(const struct model *m, struct answer_item *item, int row, int s,
                       const struct row_wish *wish)
{
    item->slice = m->shard.first_slice + s;
    item->wish = wish;
    item->logits = row_logits(m, row) + (size_t)s * (size_t)m->shard.vocab_slice;
    row_slice_range(m->shard.n_vocab, m->shard.n_slices, item->slice, &item->first_id,
                    &item->n_cols);
}

int model_answer(struct model *m, const struct row_query *queries, int n_queries,
                 struct arena *arena, struct slice_row *out, struct error *err)
{
    int n_local = m->shard.n_local;
    assert(n_queries <= m->options.max_rows);
    for (int i = 0; i < n_queries; i++) {
        for (int s = 0; s < n_local; s++) {
            place_item(m, &m->items[i * n_local + s], queries[i].row, s, queries[i].wish);
        }
    }
    return m->be->ops->answer(m->be, m->items, n_queries * n_local, arena, out, err);
}

const float *model_logits(struct model *m, int row)
{
    return m->be->ops->read(m->be, row_logits(m, row), head_stride(m));
}

/* Whose best are taken together. In host memory a row is one item: its slices lie side by side, and
 * the best of the whole are found faster than those of every slice. A device works on slices. */
static int items_of_row(const struct model *m)
{
    return m->be->ops->is_host ? 1 : m->shard.n_local;
}

static void place_row(const struct model *m, struct answer_item *items, int row,
                      const struct row_wish *wish)
{
    int n_items = items_of_row(m);
    for (int s = 0; s < n_items; s++) {
        place_item(m, &items[s], row, s, wish);
    }
    if (n_items == 1) items[0].n_cols = m->shard.n_vocab;
}

/* Merges the best of a row's items. Ids of later slices are higher, which select_offer requires. A
 * row that is not numbers has none. Errors: ERR_NO_MEMORY. */
static int merge_items(const struct model *m, const struct slice_row *slices,
                       const struct row_wish *wish, struct select_heap *heap, struct error *err)
{
    int rc = 0, n_items = items_of_row(m);
    for (int s = 0; s < n_items && !rc; s++) {
        rc = slices[s].code ? row_slice_failure(&slices[s], wish, err) : 0;
    }
    for (int s = 0; s < n_items && !rc; s++) {
        select_offer_best(heap, slices[s].best_ids, slices[s].best_logits, slices[s].n_best);
    }
    select_sort_best(heap);
    for (int i = 0; m->options.head_ids && i < heap->n; i++) {
        heap->items[i].id = m->options.head_ids[heap->items[i].id];
    }
    return rc == ERR_FORMAT ? 0 : rc;
}

int model_best_rows(struct model *m, const int *rows, int n_rows, int n, struct arena *arena,
                    struct select_item *items, int *n_items, struct error *err)
{
    const struct row_wish wish = {.n_best = n};
    int rc = 0, width = items_of_row(m);
    size_t mark = arena->used_bytes;
    struct slice_row *slices = arena_take(arena, (size_t)n_rows * (size_t)width, sizeof *slices);
    assert(m->shard.n_local == m->shard.n_slices && n_rows <= m->options.max_rows);
    if (!slices) return error_set(err, ERR_NO_MEMORY, "no room for the best of %d rows", n_rows);
    for (int r = 0; r < n_rows; r++) {
        place_row(m, &m->items[r * width], rows[r], &wish);
    }
    TRY(m->be->ops->answer(m->be, m->items, n_rows * width, arena, slices, err));
    for (int r = 0; r < n_rows; r++) {
        struct select_heap heap = {.items = items + (size_t)r * (size_t)n, .capacity = n};
        TRY(merge_items(m, slices + r * width, &wish, &heap, err));
        n_items[r] = heap.n;
    }
out:
    arena->used_bytes = mark;
    return rc;
}

int model_best(struct model *m, int row, int n, struct arena *arena, struct select_item *items,
               int *n_items, struct error *err)
{
    return model_best_rows(m, &row, 1, n, arena, items, n_items, err);
}

int model_wait(struct model *m, struct error *err)
{
    if (m->be->ops->read(m->be, m->logits, 1)) return 0;
    return error_set(err, ERR_UNAVAILABLE, "the device was lost in the last step");
}

const struct shard *model_shard(const struct model *m)
{
    return &m->shard;
}

int model_dim(const struct model *m)
{
    return m->cfg->dim;
}

size_t model_weight_bytes(const struct model *m)
{
    return m->weights.bytes + m->projection.bytes;
}

const struct part_digest *model_digests(const struct model *model)
{
    return model->weights.digests.parts;
}

const struct part_digest *model_witnessed(const struct model *model, int rank)
{
    return model->weights.witnessed[rank].parts;
}

uint64_t model_fingerprint(const struct model *model)
{
    return digest_fingerprint(model->ck, model->weights.digests.parts, 1);
}

const struct pack_cache_report *model_pack_report(const struct model *model)
{
    return model->weights.cache ? pack_cache_report(model->weights.cache) : NULL;
}

size_t model_kv_bytes(const struct model *m)
{
    return m->kv_bytes * (size_t)m->cfg->n_layers;
}

int64_t model_collective_us(const struct model *m)
{
    return m->collective_us;
}
