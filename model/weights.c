/* Loading weights: each rank reads its own rows and columns from the mapping and packs them. */
#include "model/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { FOLDER_BYTES = 4096, SHARD_TEXT_BYTES = 160 };

struct loader {
    const struct checkpoint *ck;
    const struct model_config *cfg;
    const struct shard *shard;
    const int32_t *head_ids;
    struct backend *be;
    struct model_weights *w;
    struct error *err;
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
    struct matrix_part *part = &source->parts[source->n_parts++];
    const char *name = tensor_name(ld, layer, t->tail);
    *part = (struct matrix_part){
        .first_row = t->first_row, .n_rows = t->n_rows, .first_col = t->first_col};
    int rc = checkpoint_find(ld->ck, name, t->all_rows, t->all_cols, &part->weight, ld->err);
    if (rc || !part->weight.scales) return rc;
    if (t->first_col % QUANT_GROUP == 0 && source->n_in % QUANT_GROUP == 0) return 0;
    return error_set(ld->err, ERR_UNSUPPORTED,
                     "%s: %s is cut into slices of %d, which is no multiple of the group of %d",
                     checkpoint_name(ld->ck), name, source->n_in, QUANT_GROUP);
}

static int open_matrix(struct loader *ld, struct matrix *m, const struct matrix_source *source)
{
    int rc = ld->be->ops->matrix_open(ld->be, m, source, ld->err);
    ld->w->bytes += m->bytes;
    return rc;
}

/* Elements first .. + n of a vector tensor of n_all. */
struct vector_part {
    const char *tail; /* as in struct tensor_part */
    int n_all, first, n;
};

/* The parts, one behind the other, as fp32 in backend memory. */
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
        weight_read_f32(&weight, 0, parts[i].first, parts[i].n, host + at);
        at += parts[i].n;
    }
    out->n = total;
    TRY(backend_buffer(ld->be, &out->data, (size_t)total * sizeof *host, ld->err));
    ld->be->ops->upload(ld->be, out->data, host, (size_t)total * sizeof *host);
out:
    free(host);
    return rc;
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
            {"self_attn.q_proj.bias", all_q, q_first, q_rows},
            {"self_attn.k_proj.bias", all_kv, kv_first, kv_rows},
            {"self_attn.v_proj.bias", all_kv, kv_first, kv_rows},
        };
        TRY(open_vector(ld, &layer->qkv_bias, i, parts, 3));
    }
    if (cfg->qk_norm) {
        const struct vector_part q = {"self_attn.q_norm.weight", e, 0, e};
        const struct vector_part k = {"self_attn.k_norm.weight", e, 0, e};
        TRY(open_vector(ld, &layer->q_norm, i, &q, 1));
        TRY(open_vector(ld, &layer->k_norm, i, &k, 1));
    }
    TRY(mem_array(&layer->o, (size_t)sh->n_local, sizeof *layer->o, ld->err));
    for (int s = 0; s < sh->n_local; s++) {
        struct matrix_source o = {.n_in = sh->slice_head_cols};
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
        const struct vector_part bias = {"self_attn.o_proj.bias", cfg->dim, 0, cfg->dim};
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
        struct matrix_source down = {.n_in = sh->slice_ffn};
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
            {"mlp.gate_proj.bias", cfg->ffn_dim, sh->first_ffn, sh->ffn_dim},
            {"mlp.up_proj.bias", cfg->ffn_dim, sh->first_ffn, sh->ffn_dim},
        };
        const struct vector_part down = {"mlp.down_proj.bias", cfg->dim, 0, cfg->dim};
        TRY(open_vector(ld, &layer->gate_up_bias, i, up, 2));
        TRY(open_vector(ld, &layer->down_bias, i, &down, 1));
    }
out:
    return rc;
}

static int open_layer(struct loader *ld, int i)
{
    struct layer_weights *layer = &ld->w->layers[i];
    int dim = ld->cfg->dim, rc = 0;
    const struct vector_part attention_norm = {"input_layernorm.weight", dim, 0, dim};
    const struct vector_part ffn_norm = {"post_attention_layernorm.weight", dim, 0, dim};
    TRY(open_vector(ld, &layer->attention_norm, i, &attention_norm, 1));
    TRY(open_vector(ld, &layer->ffn_norm, i, &ffn_norm, 1));
    TRY(open_attention(ld, layer, i));
    TRY(open_ffn(ld, layer, i));
out:
    return rc;
}

static int open_ends(struct loader *ld)
{
    const struct model_config *cfg = ld->cfg;
    const struct shard *sh = ld->shard;
    const struct vector_part norm = {"model.norm.weight", cfg->dim, 0, cfg->dim};
    const struct tensor_part head = {cfg->tied_embeddings ? "model.embed_tokens.weight"
                                                          : "lm_head.weight",
                                     cfg->vocab_size,
                                     cfg->dim,
                                     sh->first_slice * sh->vocab_slice,
                                     sh->n_local * sh->vocab_slice,
                                     0};
    struct matrix_source source = {.n_in = cfg->dim};
    int rc = 0;
    TRY(checkpoint_find(ld->ck, "model.embed_tokens.weight", cfg->vocab_size, cfg->dim,
                        &ld->w->embedding, ld->err));
    TRY(open_vector(ld, &ld->w->final_norm, -1, &norm, 1));
    TRY(add_part(ld, &source, -1, &head));
    if (ld->head_ids) {
        source.parts[0].row_list = ld->head_ids;
        source.parts[0].n_listed = sh->n_vocab;
    }
    TRY(open_matrix(ld, &ld->w->head, &source));
out:
    return rc;
}

/* The folder that "auto" stands for: inside the model's folder, or in the user's cache for a
 * synthetic model. */
static int auto_folder(char *out, size_t out_bytes, const struct checkpoint *ck, struct error *err)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int len;
    if (!checkpoint_is_synthetic(ck)) {
        len = snprintf(out, out_bytes, "%s/packed", checkpoint_name(ck));
    } else if (cache && *cache) {
        len = snprintf(out, out_bytes, "%s/outrider", cache);
    } else if (home && *home) {
        len = snprintf(out, out_bytes, "%s/.cache/outrider", home);
    } else {
        return error_set(err, ERR_ARGUMENT,
                         "--pack-cache auto: %s is no folder, and neither XDG_CACHE_HOME nor HOME "
                         "is set; name a folder instead",
                         checkpoint_name(ck));
    }
    if ((size_t)len < out_bytes) return 0;
    return error_set(err, ERR_ARGUMENT, "--pack-cache auto: the model's name is too long");
}

/* The key includes the shard's numbers because they decide which rows and columns are packed. */
static int open_cache(struct loader *ld)
{
    char own[FOLDER_BYTES], text[SHARD_TEXT_BYTES];
    const char *folder = ld->be->pack_folder;
    const struct shard *sh = ld->shard;
    int rc = 0;
    if (!ld->be->pack_folder) return 0;
    if (strcmp(folder, "auto") == 0) {
        TRY(auto_folder(own, sizeof own, ld->ck, ld->err));
        folder = own;
    }
    int len = snprintf(text, sizeof text, "%d %d %d %d %d %d %d %d %d %d %d %d %d", sh->n_slices,
                       sh->first_slice, sh->n_local, sh->first_head, sh->n_heads, sh->first_kv_head,
                       sh->n_kv_heads, sh->first_ffn, sh->ffn_dim, sh->slice_head_cols,
                       sh->slice_ffn, sh->n_vocab, sh->vocab_slice);
    uint64_t shard_digest = XXH3_64bits(text, (size_t)len);
    if (ld->head_ids) {
        shard_digest = XXH3_64bits_withSeed(
            ld->head_ids, (size_t)sh->n_vocab * sizeof *ld->head_ids, shard_digest);
    }
    const struct pack_cache_key key = {.fingerprint = checkpoint_fingerprint(ld->ck),
                                       .stamp = checkpoint_stamp(ld->ck),
                                       .shard = shard_digest,
                                       .arithmetic = ld->be->ops->arithmetic,
                                       .rank = sh->rank,
                                       .n_ranks = sh->n_ranks};
    TRY(pack_cache_open(&ld->w->cache, folder, &key, ld->err));
    ld->be->cache = ld->w->cache;
out:
    return rc;
}

int weights_open(struct model_weights *w, const struct checkpoint *ck, const struct shard *shard,
                 const int32_t *head_ids, struct backend *be, struct error *err)
{
    const struct model_config *cfg = checkpoint_config(ck);
    struct loader ld = {ck, cfg, shard, head_ids, be, w, err, ""};
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
    TRY(open_cache(&ld));
    TRY(mem_array(&w->layers, (size_t)cfg->n_layers, sizeof *w->layers, err));
    for (int i = 0; i < cfg->n_layers; i++) {
        TRY(open_layer(&ld, i));
        checkpoint_release(ck);
    }
    TRY(open_ends(&ld));
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
        &layer->attention_norm, &layer->ffn_norm, &layer->qkv_bias,     &layer->q_norm,
        &layer->k_norm,         &layer->o_bias,   &layer->gate_up_bias, &layer->down_bias,
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
    *w = (struct model_weights){0};
}
