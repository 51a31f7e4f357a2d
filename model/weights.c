/* Loading weights: each rank reads its own rows and columns from the mapping and packs them. */
#include "model/weights.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/checkpoint/head.h"
#include "model/loader.h"
#include "model/weights_cache.h"

static int open_attention(struct loader *ld, struct layer_weights *layer, int i)
{
    const struct model_config *cfg = ld->cfg;
    const struct shard *sh = ld->shard;
    int e = cfg->head_dim, rc = 0;
    int q_rows = sh->n_heads * e, kv_rows = sh->n_kv_heads * e;
    int q_first = sh->first_head * e, kv_first = sh->first_kv_head * e;
    int all_q = cfg->n_heads * e, all_kv = cfg->n_kv_heads * e;
    int width = layout_width(cfg, ld->head, i);
    bool is_expected = false;
    struct matrix_source qkv = {.n_in = width};
    const struct tensor_part q_part = {"self_attn.q_proj.weight", all_q, width, q_first, q_rows, 0};
    const struct tensor_part k_part = {
        "self_attn.k_proj.weight", all_kv, width, kv_first, kv_rows, 0};
    const struct tensor_part v_part = {
        "self_attn.v_proj.weight", all_kv, width, kv_first, kv_rows, 0};

    TRY(loader_add_part(ld, &qkv, i, &q_part));
    if (ld->head && ld->head->block.size > 0) {
        TRY(loader_open_matrix(ld, &layer->qkv, &qkv));
        qkv = (struct matrix_source){.n_in = width};
    }
    TRY(loader_add_part(ld, &qkv, i, &k_part));
    TRY(loader_add_part(ld, &qkv, i, &v_part));
    TRY(loader_open_matrix(ld, qkv.n_parts == 2 ? &layer->kv : &layer->qkv, &qkv));
    if (cfg->qkv_bias) {
        const struct vector_part parts[] = {
            {"self_attn.q_proj.bias", all_q, q_first, q_rows, 0},
            {"self_attn.k_proj.bias", all_kv, kv_first, kv_rows, 0},
            {"self_attn.v_proj.bias", all_kv, kv_first, kv_rows, 0},
        };
        TRY(loader_open_vector(ld, &layer->qkv_bias, i, parts, 3));
    }
    if (cfg->qk_norm) {
        TRY(loader_open_norm(ld, &layer->q_norm, i, "self_attn.q_norm.weight", e, 0, e));
        TRY(loader_open_norm(ld, &layer->k_norm, i, "self_attn.k_norm.weight", e, 0, e));
    }
    if (cfg->qk_norm_whole) {
        TRY(loader_open_norm(ld, &layer->q_norm, i, "self_attn.q_norm.weight", all_q, q_first,
                             q_rows));
        TRY(loader_open_norm(ld, &layer->k_norm, i, "self_attn.k_norm.weight", all_kv, kv_first,
                             kv_rows));
    }
    TRY(mem_array(&layer->o, (size_t)sh->n_local, sizeof *layer->o, ld->err));
    for (int s = 0; s < sh->n_local; s++) {
        struct matrix_source o = {.n_in = sh->slice_head_cols,
                                  .slice = s,
                                  .n_slices = sh->n_local,
                                  .is_expected = &is_expected};
        const struct tensor_part part = {"self_attn.o_proj.weight",
                                         cfg->dim,
                                         all_q,
                                         0,
                                         cfg->dim,
                                         (sh->first_slice + s) * sh->slice_head_cols};
        TRY(loader_add_part(ld, &o, i, &part));
        TRY(loader_open_matrix(ld, &layer->o[s], &o));
    }
    if (cfg->o_bias) {
        const struct vector_part bias = {"self_attn.o_proj.bias", cfg->dim, 0, cfg->dim, 0};
        TRY(loader_open_vector(ld, &layer->o_bias, i, &bias, 1));
    }
out:
    return rc;
}

static int open_ffn(struct loader *ld, struct layer_weights *layer, int i)
{
    const struct model_config *cfg = ld->cfg;
    const struct shard *sh = ld->shard;
    int rc = 0;
    bool is_expected = false;
    struct matrix_source gate_up = {.n_in = cfg->dim, .is_gate_up = true};
    const struct tensor_part gate_part = {"mlp.gate_proj.weight", cfg->ffn_dim, cfg->dim,
                                          sh->first_ffn,          sh->ffn_dim,  0};
    const struct tensor_part up_part = {"mlp.up_proj.weight", cfg->ffn_dim, cfg->dim,
                                        sh->first_ffn,        sh->ffn_dim,  0};

    TRY(loader_add_part(ld, &gate_up, i, &gate_part));
    TRY(loader_add_part(ld, &gate_up, i, &up_part));
    TRY(loader_open_matrix(ld, &layer->gate_up, &gate_up));
    TRY(mem_array(&layer->down, (size_t)sh->n_local, sizeof *layer->down, ld->err));
    for (int s = 0; s < sh->n_local; s++) {
        struct matrix_source down = {.n_in = sh->slice_ffn,
                                     .slice = s,
                                     .n_slices = sh->n_local,
                                     .is_expected = &is_expected};
        const struct tensor_part part = {"mlp.down_proj.weight",
                                         cfg->dim,
                                         cfg->ffn_dim,
                                         0,
                                         cfg->dim,
                                         (sh->first_slice + s) * sh->slice_ffn};
        TRY(loader_add_part(ld, &down, i, &part));
        TRY(loader_open_matrix(ld, &layer->down[s], &down));
    }
    if (cfg->mlp_bias) {
        const struct vector_part up[] = {
            {"mlp.gate_proj.bias", cfg->ffn_dim, sh->first_ffn, sh->ffn_dim, 0},
            {"mlp.up_proj.bias", cfg->ffn_dim, sh->first_ffn, sh->ffn_dim, 0},
        };
        const struct vector_part down = {"mlp.down_proj.bias", cfg->dim, 0, cfg->dim, 0};
        TRY(loader_open_vector(ld, &layer->gate_up_bias, i, up, 2));
        TRY(loader_open_vector(ld, &layer->down_bias, i, &down, 1));
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
        if (k == 0 && !layout_norms_input(ld->head, i)) continue;
        if (norms[k].name) TRY(loader_open_norm(ld, norms[k].norm, i, norms[k].name, dim, 0, dim));
    }
    TRY(open_attention(ld, layer, i));
    TRY(open_ffn(ld, layer, i));
out:
    return rc;
}

/* The name of a tensor outside of the layers: `name` in a model. */
static const char *outside_name(const struct loader *ld, enum head_tensor which, const char *name)
{
    return ld->head ? ld->head->names[which] : name;
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
    const char *name = outside_name(ld, HEAD_EMBEDDING, "model.embed_tokens.weight");
    const struct tensor_part parts[] = {
        {name, n_all, cfg->dim, 0, first, 0},
        {name, n_all, cfg->dim, end, n_all - end, 0},
    };
    struct matrix_source source = {.n_in = cfg->dim};
    TRY(loader_add_part(ld, &source, -1, &parts[0]));
    TRY(loader_add_part(ld, &source, -1, &parts[1]));
    ld->w->embedding = source.parts[0].weight;
    if (parts[0].n_rows + parts[1].n_rows) TRY(loader_digest_matrix(ld, &source));
out:
    return rc;
}

static int open_head(struct loader *ld)
{
    const struct model_config *cfg = ld->cfg;
    const struct shard *sh = ld->shard;
    bool has_columns = ld->head && ld->head->logits_from == HEAD_OWN;
    const char *name = cfg->tied_embeddings ? "model.embed_tokens.weight" : "lm_head.weight";
    const struct tensor_part head = {outside_name(ld, HEAD_LOGITS, name),
                                     has_columns ? ld->head->n_columns : cfg->vocab_size,
                                     cfg->dim,
                                     sh->first_slice * sh->vocab_slice,
                                     sh->n_local * sh->vocab_slice,
                                     0};
    struct matrix_source source = {.n_in = cfg->dim};
    int rc = 0;
    TRY(loader_add_part(ld, &source, -1, &head));
    if (ld->head_ids) {
        source.parts[0].row_list = ld->head_ids;
        source.parts[0].n_listed = sh->n_vocab;
    }
    if (!cfg->tied_embeddings || head_digests_embedding(ld)) {
        TRY(loader_open_matrix(ld, &ld->w->head, &source));
    } else { /* open_embedding has digested all of it */
        TRY(ld->be->ops->matrix_open(ld->be, &ld->w->head, &source, ld->err));
        *ld->bytes += ld->w->head.bytes;
    }
out:
    return rc;
}

static int open_final_norm(struct loader *ld)
{
    int dim = ld->cfg->dim;
    const char *name = outside_name(ld, HEAD_FINAL_NORM, "model.norm.weight");
    if (ld->head && !ld->head->has_final_norm) return 0;
    return loader_open_norm(ld, &ld->w->final_norm, -1, name, dim, 0, dim);
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
    ld.bytes = &unused.bytes;
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
    if (ld->head && ld->head->places.n) {
        TRY(places_weights_open(&ld->w->places, ld));
    } else {
        TRY(open_embedding(ld));
        checkpoint_release(ld->ck);
        if (ld->head) TRY(entry_weights_open(&ld->w->entry, ld));
        TRY(open_final_norm(ld));
    }
    if (!ld->head || ld->head->logits_from != HEAD_UNUSED) TRY(open_head(ld));
out:
    return rc;
}

int weights_check_form(const struct checkpoint *ck, const struct backend *be, struct error *err)
{
    enum weight_form stored = checkpoint_config(ck)->stored;
    if (stored == WEIGHTS_BF16 || stored == be->ops->form) return 0;
    return error_set(
        err, ERR_UNSUPPORTED, "%s is stored in %s, which --device %s does not compute in %s",
        checkpoint_name(ck), weight_form_name(stored), be->ops->name, be->ops->arithmetic);
}

int weights_open(struct model_weights *w, const struct checkpoint *ck, const struct shard *shard,
                 const struct weights_wish *wish, struct backend *be, struct error *err)
{
    const struct model_config *cfg = checkpoint_config(ck);
    struct loader ld = {.ck = ck,
                        .cfg = cfg,
                        .head = checkpoint_head(ck),
                        .shard = shard,
                        .head_ids = wish->head_ids,
                        .be = be,
                        .w = w,
                        .bytes = &w->bytes,
                        .err = err,
                        .digests = &w->digests};
    int rc = 0;
    *w = (struct model_weights){.n_layers = cfg->n_layers, .n_local = shard->n_local};
    if (cfg->dim % WIDTH_UNIT || cfg->head_dim % WIDTH_UNIT) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: width %d and head width %d must be multiples of %d",
                         checkpoint_name(ck), cfg->dim, cfg->head_dim, WIDTH_UNIT);
    }
    TRY(weights_check_form(ck, be, err));
    TRY(weights_cache_open(&w->cache, ck, shard, wish->head_ids, be, err));
    TRY(digest_table_open(&w->digests, ck, err));
    TRY(mem_array(&w->layers, (size_t)cfg->n_layers, sizeof *w->layers, err));
    TRY(open_all(&ld));
    for (int rank = 0; rank < shard->n_ranks; rank++) {
        if (wish->witnessed >> rank & 1) TRY(witness(&ld, rank));
    }
    TRY(loader_copy_table(be, &w->embedding, &w->embedding_copy, err)); /* what can be left out */
    checkpoint_release(ck);
    if (w->cache) pack_cache_commit(w->cache);
out:
    if (rc) weights_close(w, be);
    return rc;
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
        loader_close_vector(be, vectors[i]);
    }
    close_slices(be, layer->o, n_local);
    close_slices(be, layer->down, n_local);
    be->ops->matrix_close(be, &layer->qkv);
    be->ops->matrix_close(be, &layer->kv);
    be->ops->matrix_close(be, &layer->gate_up);
}

void weights_close(struct model_weights *w, struct backend *be)
{
    for (int i = 0; w->layers && i < w->n_layers; i++) {
        close_layer(be, &w->layers[i], w->n_local);
    }
    loader_close_vector(be, &w->final_norm);
    loader_close_copy(be, &w->embedding_copy);
    be->ops->matrix_close(be, &w->head);
    entry_weights_close(&w->entry, be);
    places_weights_close(&w->places, be);
    free(w->layers);
    if (w->cache) be->cache = NULL;
    pack_cache_close(w->cache);
    digest_table_close(&w->digests);
    for (int rank = 0; rank < RANKS_MAX; rank++) {
        digest_table_close(&w->witnessed[rank]);
    }
    *w = (struct model_weights){0};
}
