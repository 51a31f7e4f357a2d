/* The forward pass, written once over model/backend/backend.h. */
#include "model/model.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "model/internal.h"

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

static struct attention_input attention_input(const struct model *m, int layer,
                                              const struct slice_sums *squares)
{
    const struct model_config *cfg = m->cfg;
    const struct layer_weights *w = &m->weights.layers[layer];
    const struct layer_kind *kind = config_layer(cfg, layer);
    bool has_rope = kind->rope != ROPE_NONE;
    return (struct attention_input){.qkv_bias = w->qkv_bias.data,
                                    .q_norm = w->q_norm.data,
                                    .k_norm = w->k_norm.data,
                                    .norm_eps = cfg->norm_eps,
                                    .squares = m->squares ? squares : NULL,
                                    .q_width = cfg->n_heads * cfg->head_dim,
                                    .k_width = cfg->n_kv_heads * cfg->head_dim,
                                    .rope = has_rope ? kind->rope : 0,
                                    .rope_half = has_rope ? m->ropes[kind->rope].half : 0};
}

/* The columns of k and v, where they are a matrix of their own. */
static void multiply_kv(struct model *m, int layer, int n)
{
    const struct matrix *kv = &m->weights.layers[layer].kv;
    m->be->ops->matmul(m->be, kv, m->h, (size_t)kv->n_in, m->qkv + m->attention_dim,
                       (size_t)m->qkv_dim, n);
}

/* Computes the normed input of layer i + 1 from that of layer i, both in h. */
static int forward_layer(struct model *m, int i, const struct backend_step *step, struct error *err)
{
    const struct backend_ops *ops = m->be->ops;
    const struct model_config *cfg = m->cfg;
    const struct layer_weights *w = &m->weights.layers[i];
    const struct layer_kind *kind = config_layer(cfg, i);
    bool is_last = i + 1 == cfg->n_layers;
    int n = step->n, rc = 0;
    struct slice_sums squares = {.data = m->squares};
    const struct attention_input input = attention_input(m, i, &squares);
    const struct attention_rule rule = {
        .window = kind->window,
        .scale = config_attention_scale(cfg, kind),
        .softcap = kind->attention_softcap,
        .sees_lane = !head_is_causal(m->entry.head, kind->window),
    };
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
    if (w->kv.n_out > 0) multiply_kv(m, i, n);
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
    if (m->entry.head && m->entry.head->block.size == 0) {
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
        ops->matmul(m->be, &m->weights.head, m->h, (size_t)cfg->dim, m->logits,
                    model_head_stride(m), step->n_rows);
        if (cfg->logit_scale != 0 || cfg->logit_softcap != 0) {
            ops->adjust_logits(m->be, m->logits, model_head_stride(m), step->n_rows,
                               cfg->logit_scale, cfg->logit_softcap);
        }
    }
out:
    return rc;
}

/* Writes the K and V of a context to every layer. */
static int forward_context(struct model *m, const struct backend_step *step, struct error *err)
{
    (void)err;
    entry_forward_context(&m->entry, m->be, step, &m->weights.entry, m->cfg->norm_eps, m->x, m->h);
    for (int i = 0; i < m->cfg->n_layers; i++) {
        const struct attention_input input = attention_input(m, i, NULL);
        multiply_kv(m, i, step->n); /* q is what an earlier step left, and nobody reads it */
        m->be->ops->attention_store(m->be, &m->attention, &input, step, m->qkv, m->q, m->kv[i]);
    }
    return 0;
}

static int forward_chain(struct model *m, const struct backend_step *step, struct error *err)
{
    (void)err;
    chain_forward(&m->chain, m->be, step, &m->weights.entry.chain_second, m->logits);
    return 0;
}

/* The kinds of steps that a model has, which differ in their operations. */
enum step_kind { STEP_PLAIN, STEP_WITH_TARGET, STEP_CONTEXT, STEP_CHAIN, STEP_KINDS };

static int run_step(struct model *m, struct backend_step *step, enum step_kind kind,
                    struct error *err)
{
    int rc = 0;
    bool replayed = false, again = true;
    step->shape = &m->attention;
    step->lanes = m->placed.lanes;
    step->cos = m->placed.cos;
    step->sin = m->placed.sin;
    step->n_ropes = m->n_ropes;
    step->query_scale = m->placed.query_scale;
    step->variant = STEP_KINDS * m->features.variant + (int)kind;
    TRY(m->be->ops->begin(m->be, step, &replayed, err));
    while (again) {
        if (!replayed && kind == STEP_CONTEXT) TRY(forward_context(m, step, err));
        if (!replayed && kind == STEP_CHAIN) TRY(forward_chain(m, step, err));
        if (!replayed && kind < STEP_CONTEXT) TRY(forward_step(m, step, err));
        TRY(m->be->ops->end(m->be, &again, err));
    }
out:
    return rc;
}

/* The device's copy of the embedding; NULL where it lacks one of the tables that steps need. */
static const void *embedding_copy(const struct model *m)
{
    bool lacks_one = m->options.look_ahead && !m->look_ahead_copy.data;
    return lacks_one ? NULL : m->weights.embedding_copy.data;
}

/* contexts: [n_lanes] before the lanes of a block drafter; NULL: it is none. */
static int forward(struct model *m, const struct forward_lane *lanes,
                   const struct forward_features *contexts, int n_lanes,
                   const struct forward_row *rows, int n_rows, struct error *err)
{
    int rc = 0;
    assert(n_lanes <= m->options.max_lanes && n_rows <= m->options.max_rows);
    m->collective_us = 0;
    m->n_rows = 0;
    placement_set(&m->placed, lanes, contexts, n_lanes, false);
    for (int r = 0; r < n_rows; r++) {
        m->row_index[r] = m->placed.first_rows[rows[r].lane] + rows[r].index;
    }
    struct backend_step step = {.embedding = &m->weights.embedding,
                                .embedding_scale = m->cfg->embedding_scale,
                                .tokens = m->placed.tokens,
                                .look_ahead = m->options.look_ahead,
                                .look_ahead_first = m->options.n_vocab,
                                .embedding_copy = embedding_copy(m),
                                .look_ahead_copy = m->look_ahead_copy.data,
                                .n = m->placed.n,
                                .n_lanes = m->placed.n_lanes,
                                .features = contexts ? NULL : m->entry.host,
                                .recycled = m->entry.recycled,
                                .feature_width = m->entry.width,
                                .rows = m->row_index,
                                .n_rows = n_rows};
    TRY(run_step(m, &step, m->entry.has_target ? STEP_WITH_TARGET : STEP_PLAIN, err));
    m->n_rows = n_rows;
out:
    return rc;
}

/* The contexts of a block drafter's lanes, and then their blocks. */
static int forward_block(struct model *m, const struct forward_lane *lanes,
                         const struct forward_features *features, int n_lanes,
                         const struct forward_row *rows, int n_rows, struct error *err)
{
    int rc = 0, n = 0, n_tokens = 0;
    assert(n_lanes <= m->options.max_lanes);
    for (int i = 0; i < n_lanes; i++) {
        entry_place(&m->entry, n, features[i].n_target, features[i].target, false);
        n += features[i].n_target;
        n_tokens += lanes[i].n_tokens;
    }
    m->n_rows = 0;
    if (n > 0) {
        placement_set(&m->placed, lanes, features, n_lanes, true);
        struct backend_step step = {.tokens = m->placed.tokens,
                                    .n = m->placed.n,
                                    .n_lanes = m->placed.n_lanes,
                                    .features = m->entry.host,
                                    .recycled = m->entry.recycled,
                                    .feature_width = m->entry.width};
        TRY(run_step(m, &step, STEP_CONTEXT, err));
    }
    m->entry.has_target = false;
    if (n_tokens > 0) TRY(forward(m, lanes, features, n_lanes, rows, n_rows, err));
out:
    return rc;
}

int model_chain_rows(struct model *m, const int *rows, const int32_t *previous, int n_rows,
                     struct error *err)
{
    assert(m->chain.rank > 0 && n_rows <= m->options.max_lanes);
    assert(n_rows <= m->options.max_tokens);
    struct backend_step step = {.embedding = &m->weights.entry.chain_first,
                                .tokens = previous,
                                .n = n_rows,
                                .rows = rows,
                                .n_rows = n_rows};
    for (int i = 0; i < n_rows; i++) {
        assert(rows[i] >= 0 && rows[i] < m->n_rows);
        assert(previous[i] >= 0 && previous[i] < m->cfg->vocab_size);
    }
    return run_step(m, &step, STEP_CHAIN, err);
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
    assert(m->entry.head->block.size == 0);
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
    struct places_step step = {.weights = &m->weights,
                               .cfg = m->cfg,
                               .shape = &m->attention,
                               .logits = m->logits,
                               .stride = model_head_stride(m)};
    assert(n_lanes <= m->options.max_lanes && n_rows <= m->options.max_rows);
    m->collective_us = 0;
    m->n_rows = 0;
    places_begin(&m->places, m->be, lanes, n_lanes);
    for (int i = 0; i < n_lanes; i++) {
        places_take(&m->places, i, features[i].target);
    }
    for (int r = 0; r < n_rows; r++) {
        m->row_index[r] = places_row(&m->places, rows[r].lane, rows[r].index);
    }
    int rc = places_forward(&m->places, m->be, &step, err);
    if (!rc) m->n_rows = n_rows;
    return rc;
}

int model_forward(struct model *m, const struct forward_lane *lanes, int n_lanes,
                  const struct forward_row *rows, int n_rows, struct error *err)
{
    assert(!m->entry.head && !m->places.config);
    return forward(m, lanes, NULL, n_lanes, rows, n_rows, err);
}

int model_forward_head(struct model *m, const struct forward_lane *lanes,
                       const struct forward_features *features, int n_lanes,
                       const struct forward_row *rows, int n_rows, struct error *err)
{
    int n = 0;
    if (m->places.config) return forward_places(m, lanes, features, n_lanes, rows, n_rows, err);
    assert(m->entry.head);
    entry_begin(&m->entry);
    if (m->entry.head->block.size > 0) {
        return forward_block(m, lanes, features, n_lanes, rows, n_rows, err);
    }
    for (int i = 0; i < n_lanes; i++) {
        const struct forward_features *f = &features[i];
        entry_place(&m->entry, n, f->n_target, f->target, false);
        entry_place(&m->entry, n + f->n_target, lanes[i].n_tokens - f->n_target, f->recycled, true);
        n += lanes[i].n_tokens;
    }
    return forward(m, lanes, NULL, n_lanes, rows, n_rows, err);
}

/* The logits of a row, in backend memory. */
static const float *row_logits(const struct model *m, int row)
{
    assert(row >= 0 && row < m->n_rows);
    return m->logits + (size_t)(m->places.config ? m->row_index[row] : row) * model_head_stride(m);
}

/* The columns of one slice. */
static void place_slice(const struct model *m, struct answer_item *item, int s)
{
    item->slice = m->shard.first_slice + s;
    row_slice_range(m->shard.n_vocab, m->shard.n_slices, item->slice, &item->first_id,
                    &item->n_cols);
}

/* The logits of one slice of a row, in backend memory. */
static void place_item(const struct model *m, struct answer_item *item, int row, int s,
                       const struct row_wish *wish)
{
    item->wish = wish;
    item->logits = row_logits(m, row) + (size_t)s * (size_t)m->shard.vocab_slice;
}

int model_answer(struct model *m, const struct row_query *queries, int n_queries,
                 struct arena *arena, struct slice_row *out, struct error *err)
{
    int n_local = m->shard.n_local;
    assert(n_queries <= m->options.max_rows);
    for (int i = 0; i < n_queries; i++) {
        for (int s = 0; s < n_local; s++) {
            struct answer_item *item = &m->items[i * n_local + s];
            if (i == 0) place_slice(m, item, s);
            if (i > 0) *item = m->items[s];
            place_item(m, item, queries[i].row, s, queries[i].wish);
        }
    }
    return m->be->ops->answer(m->be, m->items, n_queries * n_local, arena, out, err);
}

const float *model_logits(struct model *m, int row)
{
    return m->be->ops->read(m->be, row_logits(m, row), model_head_stride(m));
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
        place_slice(m, &items[s], s);
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

int model_n_layers(const struct model *m)
{
    return m->cfg->n_layers;
}

size_t model_lacks_copy(const struct model *m)
{
    const struct table_copy *copies[] = {&m->weights.embedding_copy, &m->look_ahead_copy};
    size_t bytes = 0;
    for (int i = 0; i < 2; i++) {
        if (copies[i]->lacks_room) bytes += copies[i]->bytes;
    }
    return bytes;
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

size_t model_kv_block_bytes(const struct model *m)
{
    struct attention_shape shape = m->attention;
    shape.n_blocks = 1;
    return kv_layer_bytes(&shape) * (size_t)m->cfg->n_layers;
}

int64_t model_collective_us(const struct model *m)
{
    return m->collective_us;
}
