/* Which tensors a model has. model/weights.c asks for them by the same names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "model/checkpoint/config/places_config.h"
#include "model/checkpoint/layout.h"

enum { SPECS_OUTSIDE_LAYERS = 3 + HEAD_TENSORS + HEAD_FEATURES_MAX, SPECS_PER_LAYER_MOST = 20 };

struct list {
    const struct model_config *cfg;
    const struct head_config *head; /* NULL: a model */
    struct tensor_spec *specs;
    size_t n;
    int layer;
};

const struct norm_names *layout_norm_names(const struct model_config *cfg)
{
    static const struct norm_names names[] = {
        [NORMS_BEFORE] = {"input_layernorm.weight", NULL, "post_attention_layernorm.weight", NULL},
        [NORMS_AROUND] = {"input_layernorm.weight", "post_attention_layernorm.weight",
                          "pre_feedforward_layernorm.weight", "post_feedforward_layernorm.weight"},
        [NORMS_AFTER] = {NULL, "post_attention_layernorm.weight", NULL,
                         "post_feedforward_layernorm.weight"},
    };
    return &names[cfg->norms];
}

static struct tensor_spec *add(struct list *list, enum tensor_role role, int n_rows, int n_cols)
{
    struct tensor_spec *spec = &list->specs[list->n++];
    spec->role = role;
    spec->layer = list->layer;
    spec->n_rows = n_rows;
    spec->n_cols = n_cols;
    return spec;
}

/* Sets the name of a tensor of the layer that is being listed. */
static void set_name(const struct list *list, struct tensor_spec *spec, const char *part,
                     const char *ending)
{
    char own[HEAD_NAME_BYTES];
    snprintf(own, sizeof own, "model.layers.%d.", list->layer);
    if (list->head) head_layer_name(list->head, list->layer, own);
    snprintf(spec->name, sizeof spec->name, "%.20s%.34s%.7s", own, part, ending);
}

static void add_outside(struct list *list, const char *name, enum tensor_role role, int n_rows)
{
    struct tensor_spec *spec = add(list, role, n_rows, list->cfg->dim);
    snprintf(spec->name, sizeof spec->name, "%s", name);
}

static void add_norm(struct list *list, const char *tail, enum tensor_role role, int n_cols)
{
    if (!tail) return;
    struct tensor_spec *spec = add(list, role, 1, n_cols);
    set_name(list, spec, tail, "");
}

static void add_matrix(struct list *list, const char *part, enum tensor_role role, int n_rows,
                       int n_cols, bool has_bias)
{
    bool is_residual = role == ROLE_FROM_HEADS || role == ROLE_FROM_FFN;
    struct tensor_spec *spec = add(list, role, n_rows, n_cols);
    set_name(list, spec, part, ".weight");
    if (!has_bias) return;
    spec = add(list, is_residual ? ROLE_RESIDUAL_BIAS : ROLE_BIAS, 1, n_rows);
    set_name(list, spec, part, ".bias");
}

int layout_width(const struct model_config *cfg, const struct head_config *head, int layer)
{
    return layer == 0 && head_feeds_joined(head) ? 2 * cfg->dim : cfg->dim;
}

bool layout_norms_input(const struct head_config *head, int layer)
{
    return !head || layer > 0 || head->entry.norms_input;
}

static void add_layer(struct list *list)
{
    const struct model_config *cfg = list->cfg;
    int width = layout_width(cfg, list->head, list->layer);
    int q_rows = cfg->n_heads * cfg->head_dim, kv_rows = cfg->n_kv_heads * cfg->head_dim;
    const struct norm_names *norms = layout_norm_names(cfg);
    if (layout_norms_input(list->head, list->layer)) {
        add_norm(list, norms->attention, ROLE_NORM, cfg->dim);
    }
    add_matrix(list, "self_attn.q_proj", ROLE_FROM_DIM, q_rows, width, cfg->qkv_bias);
    add_matrix(list, "self_attn.k_proj", ROLE_FROM_DIM, kv_rows, width, cfg->qkv_bias);
    add_matrix(list, "self_attn.v_proj", ROLE_FROM_DIM, kv_rows, width, cfg->qkv_bias);
    if (cfg->qk_norm || cfg->qk_norm_whole) {
        int q_cols = cfg->qk_norm_whole ? q_rows : cfg->head_dim;
        int k_cols = cfg->qk_norm_whole ? kv_rows : cfg->head_dim;
        add_norm(list, "self_attn.q_norm.weight", ROLE_HEAD_NORM, q_cols);
        add_norm(list, "self_attn.k_norm.weight", ROLE_HEAD_NORM, k_cols);
    }
    add_matrix(list, "self_attn.o_proj", ROLE_FROM_HEADS, cfg->dim, q_rows, cfg->o_bias);
    add_norm(list, norms->post_attention, ROLE_NORM, cfg->dim);
    add_norm(list, norms->ffn, ROLE_NORM, cfg->dim);
    add_matrix(list, "mlp.gate_proj", ROLE_FROM_DIM, cfg->ffn_dim, cfg->dim, cfg->mlp_bias);
    add_matrix(list, "mlp.up_proj", ROLE_FROM_DIM, cfg->ffn_dim, cfg->dim, cfg->mlp_bias);
    add_matrix(list, "mlp.down_proj", ROLE_FROM_FFN, cfg->dim, cfg->ffn_dim, cfg->mlp_bias);
    add_norm(list, norms->post_ffn, ROLE_NORM, cfg->dim);
}

int checkpoint_layout(const struct model_config *cfg, struct tensor_spec **layout, size_t *n,
                      struct error *err)
{
    struct list list = {.cfg = cfg};
    size_t most = SPECS_OUTSIDE_LAYERS + (size_t)cfg->n_layers * SPECS_PER_LAYER_MOST;
    int rc = mem_array(&list.specs, most, sizeof *list.specs, err);
    if (rc) return rc;
    add_outside(&list, "model.embed_tokens.weight", ROLE_EMBEDDING, cfg->vocab_size);
    for (; list.layer < cfg->n_layers; list.layer++) {
        add_layer(&list);
    }
    list.layer = 0;
    add_outside(&list, "model.norm.weight", ROLE_FINAL_NORM, 1);
    if (!cfg->tied_embeddings) add_outside(&list, "lm_head.weight", ROLE_HEAD, cfg->vocab_size);
    *layout = list.specs;
    *n = list.n;
    return 0;
}

/* A tensor of a head outside of its layers. */
static void add_of_head(struct list *list, bool is_there, enum head_tensor which,
                        enum tensor_role role, int n_rows, int n_cols)
{
    if (!is_there) return;
    struct tensor_spec *spec = add(list, role, n_rows, n_cols);
    snprintf(spec->name, sizeof spec->name, "%s", list->head->names[which]);
}

static void add_entry(struct list *list)
{
    const struct head_entry *entry = &list->head->entry;
    int dim = list->cfg->dim, width = entry->n_features * entry->feature_dim;
    add_of_head(list, entry->norms == FEATURES_NORMED_WHOLE, HEAD_FEATURES_NORM, ROLE_NORM, 1,
                width);
    for (int i = 0; entry->norms == FEATURES_NORMED_APART && i < entry->n_features; i++) {
        struct tensor_spec *spec = add(list, ROLE_NORM, 1, entry->feature_dim);
        snprintf(spec->name, sizeof spec->name, "%s", list->head->feature_norms[i]);
    }
    add_of_head(list, entry->has_fc, HEAD_FC, ROLE_FROM_DIM, dim, width);
    add_of_head(list, entry->has_fc_bias, HEAD_FC_BIAS, ROLE_BIAS, 1, dim);
    add_of_head(list, entry->norms_token, HEAD_TOKEN_NORM, ROLE_NORM, 1, dim);
    add_of_head(list, entry->norms_feature, HEAD_FEATURE_NORM, ROLE_NORM, 1, dim);
    add_of_head(list, entry->has_join, HEAD_JOIN, ROLE_FROM_DIM, dim, 2 * dim);
    add_of_head(list, entry->has_join_bias, HEAD_JOIN_BIAS, ROLE_BIAS, 1, dim);
}

static void add_of_places(struct list *list, enum place_tensor which, int place, int block,
                          int n_rows, int n_cols)
{
    static const enum tensor_role roles[] = {[PLACE_WEIGHT] = ROLE_FROM_DIM,
                                             [PLACE_BIAS] = ROLE_BIAS,
                                             [PLACE_LOGITS] = ROLE_HEAD,
                                             [PLACE_HIDDEN] = ROLE_FROM_DIM,
                                             [PLACE_HIDDEN_BIAS] = ROLE_BIAS,
                                             [PLACE_OUTPUT] = ROLE_FROM_FFN,
                                             [PLACE_OUTPUT_BIAS] = ROLE_RESIDUAL_BIAS};
    char name[PLACE_NAME_BYTES];
    struct tensor_spec *spec = add(list, roles[which], n_rows, n_cols);
    places_name(&list->head->places, which, place, block, name);
    snprintf(spec->name, sizeof spec->name, "%s", name);
}

static void add_places(struct list *list)
{
    const struct head_places *p = &list->head->places;
    int dim = list->cfg->dim, all = p->n * dim;
    if (p->hidden_dim) {
        add_of_places(list, PLACE_HIDDEN, 0, 0, p->hidden_dim, dim);
        add_of_places(list, PLACE_HIDDEN_BIAS, 0, 0, 1, p->hidden_dim);
        add_of_places(list, PLACE_OUTPUT, 0, 0, all, p->hidden_dim);
        add_of_places(list, PLACE_OUTPUT_BIAS, 0, 0, 1, all);
    }
    for (int k = 0; k < p->n; k++) {
        for (int i = 0; i < p->n_stored_blocks; i++) {
            add_of_places(list, PLACE_WEIGHT, k, i, dim, dim);
            if (p->has_bias) add_of_places(list, PLACE_BIAS, k, i, 1, dim);
        }
        if (p->has_logits) add_of_places(list, PLACE_LOGITS, k, 0, list->head->n_columns, dim);
    }
}

/* The tensors of a block drafter beside its layers and entry. */
static void add_block(struct list *list)
{
    const struct head_block *block = &list->head->block;
    add_of_head(list, block->rank > 0, HEAD_CHAIN_FIRST, ROLE_EMBEDDING, list->cfg->vocab_size,
                block->rank);
    add_of_head(list, block->rank > 0, HEAD_CHAIN_SECOND, ROLE_HEAD, list->head->n_columns,
                block->rank);
    add_of_head(list, block->confidence_width > 0, HEAD_CONFIDENCE, ROLE_FROM_DIM, 1,
                block->confidence_width);
    add_of_head(list, block->has_confidence_bias, HEAD_CONFIDENCE_BIAS, ROLE_BIAS, 1, 1);
}

int checkpoint_head_layout(const struct model_config *cfg, const struct head_config *head,
                           struct tensor_spec **layout, size_t *n, struct error *err)
{
    struct list list = {.cfg = cfg, .head = head};
    size_t most = SPECS_OUTSIDE_LAYERS + (size_t)cfg->n_layers * SPECS_PER_LAYER_MOST;
    bool has_chosen = head->logits_from == HEAD_LENT; /* rows of the target's */
    bool has_embedding = head->embedding_from != HEAD_LACKING && !head->places.n;
    bool has_logits = head->logits_from != HEAD_LACKING && head->logits_from != HEAD_UNUSED;
    most += (size_t)head->places.n * (2 * PLACE_BLOCKS_MAX + 1);
    int rc = mem_array(&list.specs, most, sizeof *list.specs, err);
    if (rc) return rc;
    add_of_head(&list, has_embedding, HEAD_EMBEDDING, ROLE_EMBEDDING, cfg->vocab_size, cfg->dim);
    add_entry(&list);
    add_places(&list);
    add_block(&list);
    for (; list.layer < cfg->n_layers; list.layer++) {
        add_layer(&list);
    }
    list.layer = 0;
    add_of_head(&list, head->has_final_norm, HEAD_FINAL_NORM, ROLE_FINAL_NORM, 1, cfg->dim);
    add_of_head(&list,
                has_logits && strcmp(head->names[HEAD_LOGITS], head->names[HEAD_EMBEDDING]) != 0,
                HEAD_LOGITS, ROLE_HEAD, has_chosen ? cfg->vocab_size : head->n_columns, cfg->dim);
    *layout = list.specs;
    *n = list.n;
    return 0;
}
