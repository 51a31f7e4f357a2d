/* The tensors that a config asks for, by Hugging Face's names and shapes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "model/checkpoint/config/config.h"
#include "model/checkpoint/config/head_config.h"

enum { TENSOR_NAME_BYTES = 64 };

enum tensor_role {
    ROLE_EMBEDDING,
    ROLE_HEAD,
    ROLE_NORM,       /* before attention, before the MLP */
    ROLE_FINAL_NORM, /* before the head */
    ROLE_HEAD_NORM,  /* q_norm, k_norm */
    ROLE_FROM_DIM,   /* q, k, v, gate, up: reads a normed vector of width D; entry of a head */
    ROLE_FROM_HEADS, /* o: adds to the residual stream */
    ROLE_FROM_FFN,   /* down: adds to the residual stream */
    ROLE_BIAS,       /* of q, k, v, gate, up */
    ROLE_RESIDUAL_BIAS
};

/* A tensor that a config asks for; names and shapes as Hugging Face has them. */
struct tensor_spec {
    char name[TENSOR_NAME_BYTES];
    enum tensor_role role;
    int layer; /* 0 for those outside of the layers */
    int n_rows, n_cols;
};

/* The names of a layer's norms after the layer's own; NULL: it has none there. */
struct norm_names {
    const char *attention, *post_attention, *ffn, *post_ffn;
};
const struct norm_names *layout_norm_names(const struct model_config *cfg);

/* Lists what the config asks for. The caller frees *layout. Errors: ERR_NO_MEMORY. */
int checkpoint_layout(const struct model_config *cfg, struct tensor_spec **layout, size_t *n,
                      struct error *err);

/* As checkpoint_layout, for a head: without the tensors that it lacks. */
int checkpoint_head_layout(const struct model_config *cfg, const struct head_config *head,
                           struct tensor_spec **layout, size_t *n, struct error *err);

/* The width of what layer `layer` reads: 2 D for the first layer of some heads. head may be
 * NULL. */
int layout_width(const struct model_config *cfg, const struct head_config *head, int layer);

/* True if the layer norms what it reads by itself. head may be NULL. */
bool layout_norms_input(const struct head_config *head, int layer);
