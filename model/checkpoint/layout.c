/* Which tensors a model has. model/weights.c asks for them by the same names. */
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "model/checkpoint/layout.h"

enum { SPECS_OUTSIDE_LAYERS = 3, SPECS_PER_LAYER_MOST = 20 };

struct list {
    const struct model_config *cfg;
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

static void add_outside(struct list *list, const char *name, enum tensor_role role, int n_rows)
{
    struct tensor_spec *spec = add(list, role, n_rows, list->cfg->dim);
    snprintf(spec->name, sizeof spec->name, "%s", name);
}

static void add_norm(struct list *list, const char *tail, enum tensor_role role, int n_cols)
{
    if (!tail) return;
    struct tensor_spec *spec = add(list, role, 1, n_cols);
    snprintf(spec->name, sizeof spec->name, "model.layers.%d.%s", list->layer, tail);
}

static void add_matrix(struct list *list, const char *part, enum tensor_role role, int n_rows,
                       int n_cols, bool has_bias)
{
    bool is_residual = role == ROLE_FROM_HEADS || role == ROLE_FROM_FFN;
    struct tensor_spec *spec = add(list, role, n_rows, n_cols);
    snprintf(spec->name, sizeof spec->name, "model.layers.%d.%s.weight", list->layer, part);
    if (!has_bias) return;
    spec = add(list, is_residual ? ROLE_RESIDUAL_BIAS : ROLE_BIAS, 1, n_rows);
    snprintf(spec->name, sizeof spec->name, "model.layers.%d.%s.bias", list->layer, part);
}

static void add_layer(struct list *list)
{
    const struct model_config *cfg = list->cfg;
    int q_rows = cfg->n_heads * cfg->head_dim, kv_rows = cfg->n_kv_heads * cfg->head_dim;
    const struct norm_names *norms = layout_norm_names(cfg);
    add_norm(list, norms->attention, ROLE_NORM, cfg->dim);
    add_matrix(list, "self_attn.q_proj", ROLE_FROM_DIM, q_rows, cfg->dim, cfg->qkv_bias);
    add_matrix(list, "self_attn.k_proj", ROLE_FROM_DIM, kv_rows, cfg->dim, cfg->qkv_bias);
    add_matrix(list, "self_attn.v_proj", ROLE_FROM_DIM, kv_rows, cfg->dim, cfg->qkv_bias);
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
