/* Loading weights: each rank reads its own rows and columns from the mapping and packs them. */
#include "model/weights.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/weights_cache.h"

struct loader {
    const struct checkpoint *ck;
    const struct model_config *cfg;
    const struct shard *shard;
    const int32_t *head_ids;
    struct backend *be;
    struct model_weights *w;
    struct error *err;
    struct digest_table *digests;     /* what is read is added to it */
    bool is_witness;                  /* only the digests are wanted */
    size_t tensors[MATRIX_PARTS_MAX]; /* of the parts of the matrix that is being put together */
    char name[160];
};

/* Valid until the next call. */
static const char *tensor_name(struct loader *ld, int layer, const char *tail)
{
    if (layer < 0) return tail;
    snprintf(ld->name, sizeof ld->name, "model.layers.%d.%s", layer, tail);
    return ld->name;
}

/* Rows first_row .. + n_rows of a tensor of all_rows x all_cols, their columns from first_col
 * on. */
struct tensor_part {
    const char *tail; /* of its name after the layer's; the whole name where the layer is -1 */
    int all_rows, all_cols;
    int first_row, n_rows, first_col;
};

/* Appends the part to the source. */
static int add_part(struct loader *ld, struct matrix_source *source, int layer,
                    const struct tensor_part *t)
{
    const char *name = tensor_name(ld, layer, t->tail);
    ld->tensors[source->n_parts] = digest_table_find(ld->digests, name);
    struct matrix_part *part = &source->parts[source->n_parts++];
    *part = (struct matrix_part){
        .first_row = t->first_row, .n_rows = t->n_rows, .first_col = t->first_col};
    int rc = checkpoint_find(ld->ck, name, t->all_rows, t->all_cols, &part->weight, ld->err);
    enum weight_form form = rc ? WEIGHTS_BF16 : weight_form_of(&part->weight);
    if (rc || form == WEIGHTS_BF16 || form == WEIGHTS_FP8) return rc;
    if (part->weight.stored.order) return 0;
    if (t->first_col % QUANT_GROUP == 0 && source->n_in % QUANT_GROUP == 0) return 0;
    return error_set(ld->err, ERR_UNSUPPORTED,
                     "%s: %s is cut into slices of %d, which is no multiple of the group of %d",
                     checkpoint_name(ld->ck), name, source->n_in, QUANT_GROUP);
}

/* Columns of the matrix that have elements of the tensor: not the vocabulary's tail. */
static int filled_rows(const struct matrix_part *part)
{
    int n_left = part->weight.n_rows - part->first_row;
    if (part->row_list) return part->n_listed;
    if (n_left < 0) return 0;
    return part->n_rows < n_left ? part->n_rows : n_left;
}

static void keep_digests(struct loader *ld, const struct matrix_source *source)
{
    for (int i = 0; i < source->n_parts; i++) {
        const struct matrix_part *part = &source->parts[i];
        uint64_t row = (uint64_t)(part->row_list ? part->row_list[0] : part->first_row);
        const struct part_digest digest = {
            .sum = source->digests[i],
            .first = row * (uint64_t)part->weight.n_cols + (uint64_t)part->first_col,
            .n = (uint64_t)filled_rows(part) * (uint64_t)source->n_in};
        if (digest.n) digest_table_add(ld->digests, ld->tensors[i], &digest);
    }
}

static int digest_matrix(struct loader *ld, struct matrix_source *source)
{
    uint64_t digests[MATRIX_PARTS_MAX] = {0};
    int rc = 0;
    source->digests = digests;
    TRY(ld->be->ops->matrix_digest(ld->be, source, ld->err));
    keep_digests(ld, source);
out:
    return rc;
}

static int open_matrix(struct loader *ld, struct matrix *m, struct matrix_source *source)
{
    uint64_t digests[MATRIX_PARTS_MAX] = {0};
    int rc = 0;
    if (ld->is_witness) return digest_matrix(ld, source);
    source->digests = digests;
    TRY(ld->be->ops->matrix_open(ld->be, m, source, ld->err));
    keep_digests(ld, source);
out:
    ld->w->bytes += m->bytes;
    return rc;
}

/* Elements first .. + n of a vector tensor of n_all. */
struct vector_part {
    const char *tail; /* as in struct tensor_part */
    int n_all, first, n;
    float offset; /* added to every element */
};

static void digest_vector(struct loader *ld, const struct weight *weight,
                          const struct vector_part *part, const char *name)
{
    const struct part_digest digest = {weight_digest_vector(weight, part->first, part->n),
                                       (uint64_t)part->first, (uint64_t)part->n};
    digest_table_add(ld->digests, digest_table_find(ld->digests, name), &digest);
}

/* Makes one vector of the parts, one after the other, as fp32 in backend memory. */
static int open_vector(struct loader *ld, struct vector *out, int layer,
                       const struct vector_part *parts, int n_parts)
{
    int rc = 0, total = 0, at = 0;
    float *host = NULL;
    for (int i = 0; i < n_parts; i++) {
        total += parts[i].n;
    }
    TRY(mem_array(&host, (size_t)total, sizeof *host, ld->err));
    for (int i = 0; i < n_parts; i++) {
        struct weight weight;
        const char *name = tensor_name(ld, layer, parts[i].tail);
        TRY(checkpoint_find(ld->ck, name, 1, parts[i].n_all, &weight, ld->err));
        digest_vector(ld, &weight, &parts[i], name);
        weight_read_f32(&weight, 0, parts[i].first, parts[i].n, host + at);
        for (int k = 0; k < parts[i].n && parts[i].offset != 0; k++) {
            host[at + k] += parts[i].offset;
        }
        at += parts[i].n;
    }
    if (ld->is_witness) goto out;
    out->n = total;
    TRY(backend_buffer(ld->be, &out->data, (size_t)total * sizeof *host, ld->err));
    ld->be->ops->upload(ld->be, out->data, host, (size_t)total * sizeof *host);
out:
    free(host);
    return rc;
}

/* Elements first .. + n of a norm of n_all. */
static int open_norm(struct loader *ld, struct vector *out, int layer, const char *tail, int n_all,
                     int first, int n)
{
    const struct vector_part part = {tail, n_all, first, n, ld->cfg->norm_offset ? 1.0f : 0.0f};
    return open_vector(ld, out, layer, &part, 1);
}

static int open_attention(struct loader *ld, struct layer_weights *layer, int i)
{
    const struct model_config *cfg = ld->cfg;
    const struct shard *sh = ld->shard;
    int e = cfg->head_dim, rc = 0;
    int q_rows = sh->n_heads * e, kv_rows = sh->n_kv_heads * e;
    int q_first = sh->first_head * e, kv_first = sh->first_kv_head * e;
    int all_q = cfg->n_heads * e, all_kv = cfg->n_kv_heads * e;
    struct matrix_source qkv = {.n_in = cfg->dim};
    const struct tensor_part q_part = {
        "self_attn.q_proj.weight", all_q, cfg->dim, q_first, q_rows, 0};
    const struct tensor_part k_part = {
        "self_attn.k_proj.weight", all_kv, cfg->dim, kv_first, kv_rows, 0};
    const struct tensor_part v_part = {
        "self_attn.v_proj.weight", all_kv, cfg->dim, kv_first, kv_rows, 0};

    TRY(add_part(ld, &qkv, i, &q_part));
    TRY(add_part(ld, &qkv, i, &k_part));
    TRY(add_part(ld, &qkv, i, &v_part));
    TRY(open_matrix(ld, &layer->qkv, &qkv));
    if (cfg->qkv_bias) {
        const struct vector_part parts[] = {
            {"self_attn.q_proj.bias", all_q, q_first, q_rows, 0},
            {"self_attn.k_proj.bias", all_kv, kv_first, kv_rows, 0},
            {"self_attn.v_proj.bias", all_kv, kv_first, kv_rows, 0},
        };
        TRY(open_vector(ld, &layer->qkv_bias, i, parts, 3));
    }
    if (cfg->qk_norm) {
        TRY(open_norm(ld, &layer->q_norm, i, "self_attn.q_norm.weight", e, 0, e));
        TRY(open_norm(ld, &layer->k_norm, i, "self_attn.k_norm.weight", e, 0, e));
    }
    if (cfg->qk_norm_whole) {
        TRY(open_norm(ld, &layer->q_norm, i, "self_attn.q_norm.weight", all_q, q_first, q_rows));
        TRY(open_norm(ld, &layer->k_norm, i, "self_attn.k_norm.weight", all_kv, kv_first, kv_rows));
    }
    TRY(mem_array(&layer->o, (size_t)sh->n_local, sizeof *layer->o, ld->err));
    for (int s = 0; s < sh->n_local; s++) {
        struct matrix_source o = {.n_in = sh->slice_head_cols, .slice = s, .n_slices = sh->n_local};
        const struct tensor_part part = {"self_attn.o_proj.weight",
                                         cfg->dim,
                                         all_q,
                                         0,
                                         cfg->dim,
                                         (sh->first_slice + s) * sh->slice_head_cols};
        TRY(add_part(ld, &o, i, &part));
        TRY(open_matrix(ld, &layer->o[s], &o));
    }
    if (cfg->o_bias) {
        const struct vector_part bias = {"self_attn.o_proj.bias", cfg->dim, 0, cfg->dim, 0};
        TRY(open_vector(ld, &layer->o_bias, i, &bias, 1));
    }
out:
    return rc;
}

static int open_ffn(struct loader *ld, struct layer_weights *layer, int i)
{
    const struct model_config *cfg = ld->cfg;
    const struct shard *sh = ld->shard;
    int rc = 0;
    struct matrix_source gate_up = {.n_in = cfg->dim, .is_gate_up = true};
    const struct tensor_part gate_part = {"mlp.gate_proj.weight", cfg->ffn_dim, cfg->dim,
                                          sh->first_ffn,          sh->ffn_dim,  0};
    const struct tensor_part up_part = {"mlp.up_proj.weight", cfg->ffn_dim, cfg->dim,
                                        sh->first_ffn,        sh->ffn_dim,  0};

    TRY(add_part(ld, &gate_up, i, &gate_part));
    TRY(add_part(ld, &gate_up, i, &up_part));
    TRY(open_matrix(ld, &layer->gate_up, &gate_up));
    TRY(mem_array(&layer->down, (size_t)sh->n_local, sizeof *layer->down, ld->err));
    for (int s = 0; s < sh->n_local; s++) {
        struct matrix_source down = {.n_in = sh->slice_ffn, .slice = s, .n_slices = sh->n_local};
        const struct tensor_part part = {"mlp.down_proj.weight",
                                         cfg->dim,
                                         cfg->ffn_dim,
                                         0,
                                         cfg->dim,
                                         (sh->first_slice + s) * sh->slice_ffn};
        TRY(add_part(ld, &down, i, &part));
        TRY(open_matrix(ld, &layer->down[s], &down));
    }
    if (cfg->mlp_bias) {
        const struct vector_part up[] = {
            {"mlp.gate_proj.bias", cfg->ffn_dim, sh->first_ffn, sh->ffn_dim, 0},
            {"mlp.up_proj.bias", cfg->ffn_dim, sh->first_ffn, sh->ffn_dim, 0},
        };
        const struct vector_part down = {"mlp.down_proj.bias", cfg->dim, 0, cfg->dim, 0};
        TRY(open_vector(ld, &layer->gate_up_bias, i, up, 2));
        TRY(open_vector(ld, &layer->down_bias, i, &down, 1));
    }
out:
    return rc;
}

static int open_layer(struct loader *ld, struct layer_weights *layer, int i)
{
    const struct norm_names *names = layout_norm_names(ld->cfg);
    const struct {
        const char *name;
        struct vector *norm;
    } norms[] = {{names->attention, &layer->attention_norm},
                 {names->post_attention, &layer->post_attention_norm},
                 {names->ffn, &layer->ffn_norm},
                 {names->post_ffn, &layer->post_ffn_norm}};
    int dim = ld->cfg->dim, rc = 0;
    for (size_t k = 0; k < sizeof norms / sizeof *norms; k++) {
        if (norms[k].name) TRY(open_norm(ld, norms[k].norm, i, norms[k].name, dim, 0, dim));
    }
    TRY(open_attention(ld, layer, i));
    TRY(open_ffn(ld, layer, i));
out:
    return rc;
}

/* Where the head is made of the embedding's rows, packing it digests those that this rank packs. */
static bool head_digests_embedding(const struct loader *ld)
{
    return ld->cfg->tied_embeddings && !ld->head_ids && !ld->is_witness;
}

/* The embedding is read row by row while the model computes, so all of it is digested now. Every
 * rank does so for itself. */
static int open_embedding(struct loader *ld)
{
    const struct model_config *cfg = ld->cfg;
    const struct shard *sh = ld->shard;
    int n_all = cfg->vocab_size, first = 0, end = 0, rc = 0;
    if (head_digests_embedding(ld)) {
        first = sh->first_slice * sh->vocab_slice;
        end = first + sh->n_local * sh->vocab_slice;
        first = first < n_all ? first : n_all;
        end = end < n_all ? end : n_all;
    }
    const struct tensor_part parts[] = {
        {"model.embed_tokens.weight", n_all, cfg->dim, 0, first, 0},
        {"model.embed_tokens.weight", n_all, cfg->dim, end, n_all - end, 0},
    };
    struct matrix_source source = {.n_in = cfg->dim};
    TRY(add_part(ld, &source, -1, &parts[0]));
    TRY(add_part(ld, &source, -1, &parts[1]));
    ld->w->embedding = source.parts[0].weight;
    if (parts[0].n_rows + parts[1].n_rows) TRY(digest_matrix(ld, &source));
out:
    return rc;
}

static int open_head(struct loader *ld)
{
    const struct model_config *cfg = ld->cfg;
    const struct shard *sh = ld->shard;
    const struct tensor_part head = {cfg->tied_embeddings ? "model.embed_tokens.weight"
                                                          : "lm_head.weight",
                                     cfg->vocab_size,
                                     cfg->dim,
                                     sh->first_slice * sh->vocab_slice,
                                     sh->n_local * sh->vocab_slice,
                                     0};
    struct matrix_source source = {.n_in = cfg->dim};
    int rc = 0;
    TRY(add_part(ld, &source, -1, &head));
    if (ld->head_ids) {
        source.parts[0].row_list = ld->head_ids;
        source.parts[0].n_listed = sh->n_vocab;
    }
    if (!cfg->tied_embeddings || head_digests_embedding(ld)) {
        TRY(open_matrix(ld, &ld->w->head, &source));
    } else { /* open_embedding has digested all of it */
        TRY(ld->be->ops->matrix_open(ld->be, &ld->w->head, &source, ld->err));
        ld->w->bytes += ld->w->head.bytes;
    }
out:
    return rc;
}

static int open_final_norm(struct loader *ld)
{
    int dim = ld->cfg->dim;
    return open_norm(ld, &ld->w->final_norm, -1, "model.norm.weight", dim, 0, dim);
}

/* Reads what another rank reads, for the digests alone. A head that shares the
 * embedding is left out, because every rank has digested all of the embedding. */
static int witness(const struct loader *own, int rank)
{
    struct model_weights unused = {0};
    struct shard other;
    struct loader ld = *own;
    int rc = 0, n_ranks = own->shard->n_ranks;
    TRY(shard_init(&other, own->cfg, own->shard->n_vocab, rank, n_ranks, own->err));
    TRY(digest_table_open(&own->w->witnessed[rank], own->ck, own->err));
    ld.digests = &own->w->witnessed[rank];
    ld.w = &unused;
    ld.shard = &other;
    ld.is_witness = true;
    for (int i = 0; i < ld.cfg->n_layers && !rc; i++) {
        struct layer_weights layer = {0};
        rc = open_layer(&ld, &layer, i);
        free(layer.o);
        free(layer.down);
        checkpoint_release(ld.ck);
    }
    if (!rc && !ld.cfg->tied_embeddings) rc = open_head(&ld);
out:
    return rc;
}

static int open_all(struct loader *ld)
{
    int rc = 0;
    for (int i = 0; i < ld->cfg->n_layers; i++) {
        TRY(open_layer(ld, &ld->w->layers[i], i));
        checkpoint_release(ld->ck);
    }
    TRY(open_embedding(ld));
    checkpoint_release(ld->ck);
    TRY(open_final_norm(ld));
    TRY(open_head(ld));
out:
    return rc;
}

int weights_open(struct model_weights *w, const struct checkpoint *ck, const struct shard *shard,
                 const struct weights_wish *wish, struct backend *be, struct error *err)
{
    const struct model_config *cfg = checkpoint_config(ck);
    struct loader ld = {.ck = ck,
                        .cfg = cfg,
                        .shard = shard,
                        .head_ids = wish->head_ids,
                        .be = be,
                        .w = w,
                        .err = err,
                        .digests = &w->digests};
    int rc = 0;
    *w = (struct model_weights){.n_layers = cfg->n_layers, .n_local = shard->n_local};
    if (cfg->dim % WIDTH_UNIT || cfg->head_dim % WIDTH_UNIT) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: width %d and head width %d must be multiples of %d",
                         checkpoint_name(ck), cfg->dim, cfg->head_dim, WIDTH_UNIT);
    }
    if (cfg->stored != WEIGHTS_BF16 && cfg->stored != be->ops->form) {
        return error_set(
            err, ERR_UNSUPPORTED, "%s is stored in %s, which --device %s does not compute in %s",
            checkpoint_name(ck), weight_form_name(cfg->stored), be->ops->name, be->ops->arithmetic);
    }
    TRY(weights_cache_open(&w->cache, ck, shard, wish->head_ids, be, err));
    TRY(digest_table_open(&w->digests, ck, err));
    TRY(mem_array(&w->layers, (size_t)cfg->n_layers, sizeof *w->layers, err));
    TRY(open_all(&ld));
    for (int rank = 0; rank < shard->n_ranks; rank++) {
        if (wish->witnessed >> rank & 1) TRY(witness(&ld, rank));
    }
    checkpoint_release(ck);
    if (w->cache) pack_cache_commit(w->cache);
out:
    if (rc) weights_close(w, be);
    return rc;
}

static void close_vector(struct backend *be, struct vector *v)
{
    if (v->data) be->ops->buffer_close(be, v->data, (size_t)v->n * sizeof *v->data);
    *v = (struct vector){0};
}

static void close_slices(struct backend *be, struct matrix *slices, int n)
{
    for (int s = 0; slices && s < n; s++) {
        be->ops->matrix_close(be, &slices[s]);
    }
    free(slices);
}

static void close_layer(struct backend *be, struct layer_weights *layer, int n_local)
{
    struct vector *const vectors[] = {
        &layer->attention_norm, &layer->post_attention_norm,
        &layer->ffn_norm,       &layer->post_ffn_norm,
        &layer->qkv_bias,       &layer->q_norm,
        &layer->k_norm,         &layer->o_bias,
        &layer->gate_up_bias,   &layer->down_bias,
    };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        close_vector(be, vectors[i]);
    }
    close_slices(be, layer->o, n_local);
    close_slices(be, layer->down, n_local);
    be->ops->matrix_close(be, &layer->qkv);
    be->ops->matrix_close(be, &layer->gate_up);
}

void weights_close(struct model_weights *w, struct backend *be)
{
    for (int i = 0; w->layers && i < w->n_layers; i++) {
        close_layer(be, &w->layers[i], w->n_local);
    }
    close_vector(be, &w->final_norm);
    be->ops->matrix_close(be, &w->head);
    free(w->layers);
    if (w->cache) be->cache = NULL;
    pack_cache_close(w->cache);
    digest_table_close(&w->digests);
    for (int rank = 0; rank < RANKS_MAX; rank++) {
        digest_table_close(&w->witnessed[rank]);
    }
    *w = (struct model_weights){0};
}
