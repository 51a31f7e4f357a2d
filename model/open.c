/* Opening and closing a model. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "model/checkpoint/head.h"
#include "model/head_numbers.h"
#include "model/internal.h"

static int open_step_buffers(struct model *m, struct error *err)
{
    const struct backend_ops *ops = m->be->ops;
    bool has_places = m->places.config != NULL; /* with its own buffers, but for the logits */
    size_t n = has_places ? 0 : (size_t)ops->capacity(m->be, m->options.max_tokens);
    size_t rows = (size_t)ops->wanted_capacity(m->be, m->options.max_rows);
    size_t dim = (size_t)m->cfg->dim, ffn = (size_t)m->shard.ffn_dim;
    size_t norm_rows = n > rows ? n : rows;
    int rc = 0;
    if (has_places) rows = m->places.n_rows;
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
        [BUFFER_LOGITS] = rows * model_head_stride(m) * sizeof(float),
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

int model_open_kv(struct model *m, int n_blocks, struct error *err)
{
    int rc = 0;
    assert(m->attention.n_blocks == 0);
    m->attention.n_blocks = n_blocks;
    m->kv_bytes = kv_layer_bytes(&m->attention);
    for (int i = 0; i < m->cfg->n_layers; i++) {
        TRY(backend_buffer(m->be, &m->kv[i], m->kv_bytes, err));
    }
out:
    return rc;
}

static int open_buffers(struct model *m, struct error *err)
{
    int rc = 0;
    TRY(open_step_buffers(m, err));
    TRY(mem_array(&m->kv, (size_t)m->cfg->n_layers, sizeof *m->kv, err));
    if (m->options.n_kv_blocks > 0) TRY(model_open_kv(m, m->options.n_kv_blocks, err));
    TRY(placement_open(&m->placed, m->cfg, m->ropes, m->n_ropes, m->options.max_tokens,
                       m->options.max_lanes, err));
    m->placed.lacks_first = m->entry.head && m->entry.head->entry.lacks_first;
    TRY(mem_array(&m->row_index, (size_t)m->options.max_rows, sizeof *m->row_index, err));
    if (m->entry.head && m->entry.head->block.rank > 0) {
        TRY(chain_open(&m->chain, m->entry.head->block.rank, m->options.max_lanes,
                       model_head_stride(m), m->be, err));
    }
    TRY(mem_array(&m->items, (size_t)m->options.max_rows * (size_t)m->shard.n_local,
                  sizeof *m->items, err));
out:
    return rc;
}

static void close_buffers(struct model *m)
{
    loader_close_copy(m->be, &m->look_ahead_copy);
    entry_close(&m->entry, m->be);
    chain_close(&m->chain, m->be);
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
    placement_close(&m->placed);
    free(m->row_index);
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
    const struct model *like = m->options.like;
    if (m->comm->size > 1 || m->options.head_ids || (like && !checkpoint_head(like->ck))) {
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
    m->attention =
        (struct attention_shape){m->shard.n_heads, m->shard.n_kv_heads, m->cfg->head_dim, 0};
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
    if (options->look_ahead && m->weights.embedding_copy.data) {
        TRY(loader_copy_table(be, options->look_ahead, &m->look_ahead_copy, err));
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
