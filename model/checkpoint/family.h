/* The model families that are understood, one row each: what a family has without a key of config.json
 * saying so, and which keys it listens to. Reading a config (config_parse.c), the named synthetic shapes
 * (synthetic_shapes.c) and writing a config (model/export/config.c) all go by this table, so that a new
 * family that needs no new operation is one row here. */
#pragma once

#include <stdbool.h>

struct model_family {
    const char *architecture; /* the entry of "architectures": "LlamaForCausalLM" */
    const char *model_type;   /* "llama" */

    /* Values that transformers' class takes where the key is missing; 0: see there. */
    int kv_heads;       /* num_key_value_heads; 0: as many as heads */
    int head_dim;       /* 0: width / heads */
    int sliding_window; /* 0: none */
    int window_layers;  /* max_window_layers */

    /* Tensors that every model of the family has. */
    bool qkv_bias; /* biases of q, k and v */
    bool qk_norm;  /* RMSNorm over each head of q and k before rope */

    /* Keys that the family listens to. One that it does not know must not ask for anything, and is not
     * written. */
    bool has_attention_bias; /* "attention_bias": biases of q, k, v and o */
    bool has_mlp_bias;       /* "mlp_bias" */
    bool has_window;         /* "sliding_window" */
    bool
        has_window_switch; /* "use_sliding_window" turns the window on, from "max_window_layers" on */
};

/* NULL when the name is NULL or of no family. */
const struct model_family *family_of_architecture(const char *architecture);
const struct model_family *family_of_type(const char *model_type);
